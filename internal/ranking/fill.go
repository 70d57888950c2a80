package ranking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	// fillLease is how long one process fills a board without help from others. The
	// process renews the lease. If the process dies, another one starts again.
	fillLease = time.Minute
	// fillChunk is the number of results of the source that a fill offers at a time.
	fillChunk = 1000
)

// link checks a new linked board and adds it to the list of links of its source. The new
// board shows scores as the source does, unless it says otherwise.
func (a *Admin) link(ctx context.Context, b *leaderboard.Board) error {
	source, err := a.store.Board(ctx, b.Source.Board)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return &leaderboard.FieldError{Field: "source.board_id", Problem: fmt.Sprintf("no board %q exists; create it first", b.Source.Board)}
	}
	if err == nil {
		err = b.LinkTo(&source)
	}
	if err != nil {
		return err
	}
	if b.Unit == "" && b.Decimals == 0 {
		b.Unit, b.Decimals = source.Unit, source.Decimals
	}
	have, err := a.store.Board(ctx, b.ID)
	if err == nil && !have.SameAs(b) {
		return a.addDifferences(ctx, b, fmt.Errorf("ranking: board %q: %w", b.ID, leaderboard.ErrBoardExists))
	}
	if err != nil && !errors.Is(err, leaderboard.ErrBoardNotFound) {
		return err
	}
	return a.addLink(ctx, b)
}

// addLink adds a board to the list of links of its source.
func (s *shared) addLink(ctx context.Context, b *leaderboard.Board) error {
	defer s.forgetBoard(b.Source.Board)
	_, err := s.store.AmendBoard(ctx, b.Source.Board, func(source *leaderboard.Board) error {
		at, found := slices.BinarySearch(source.Links, b.ID)
		if found {
			return nil
		}
		if len(source.Links) >= leaderboard.MaxLinks {
			linked, err := s.linkedIDs(ctx, source)
			if err != nil {
				return err
			}
			if len(linked) >= leaderboard.MaxLinks {
				return &leaderboard.FieldError{Field: "source.board_id", Problem: fmt.Sprintf("%d boards are linked to board %q, at most %d are allowed", len(linked), source.ID, leaderboard.MaxLinks)}
			}
			source.Links = linked
			at, _ = slices.BinarySearch(source.Links, b.ID)
		}
		source.Links = slices.Insert(source.Links, at, b.ID)
		return nil
	})
	return err
}

// linkedIDs returns the ids of the stored boards that are linked to a source.
func (s *shared) linkedIDs(ctx context.Context, source *leaderboard.Board) (ids []leaderboard.BoardID, err error) {
	linked, err := linkedTo(source, func(id leaderboard.BoardID) (*leaderboard.Board, error) {
		b, err := s.store.Board(ctx, id)
		return &b, err
	})
	for _, b := range linked {
		ids = append(ids, b.ID)
	}
	return ids, err
}

// checkUnlinked returns a [leaderboard.FieldError] if boards are linked to a board.
func (a *Admin) checkUnlinked(ctx context.Context, b *leaderboard.Board) error {
	linked, err := a.linkedIDs(ctx, b)
	if err == nil && len(linked) > 0 {
		err = &leaderboard.FieldError{Field: "board", Problem: fmt.Sprintf("%q is the source of the linked boards %q; delete these first", b.ID, linked)}
	}
	return err
}

// unlink removes a deleted board from the list of links of its source.
func (a *Admin) unlink(ctx context.Context, b *leaderboard.Board) error {
	if b.Source == nil {
		return nil
	}
	defer a.forgetBoard(b.Source.Board)
	_, err := a.store.AmendBoard(ctx, b.Source.Board, func(source *leaderboard.Board) error {
		// A new board may have the id by now. If it is created after this check, its fill
		// adds it to the list again.
		if _, err := a.store.Board(ctx, b.ID); !errors.Is(err, leaderboard.ErrBoardNotFound) {
			return err
		}
		source.Links = slices.DeleteFunc(source.Links, func(id leaderboard.BoardID) bool { return id == b.ID })
		source.Accept(b.Declared()) // the source has results with these attributes
		return nil
	})
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return nil
	}
	return err
}

// planFill wakes fillBoards.
func (s *shared) planFill() {
	for _, signal := range []chan struct{}{s.newLink, s.newRules} {
		select {
		case signal <- struct{}{}:
		default: // fillBoards has not read the previous signal yet
		}
	}
}

// fillBoards fills linked boards when they are created or get windows, and, independently
// of that, the divisions of boards when they change. At every interval it also fills those
// that other processes created, amended or did not finish filling. It returns when ctx is
// done.
func (s *shared) fillBoards(ctx context.Context, interval time.Duration) {
	var loops sync.WaitGroup
	loops.Go(func() { s.repeat(ctx, interval, s.newLink, "filling linked boards", s.FillLinked) })
	loops.Go(func() { s.repeat(ctx, interval, s.newRules, "filling divisions", s.FillDivisions) })
	loops.Wait()
}

// repeat calls do at once, at every interval and after every signal, until ctx is done. The
// text what names the work, for the log.
func (s *shared) repeat(ctx context.Context, interval time.Duration, signal <-chan struct{}, what string, do func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "background work failed; it is tried again", "work", what, "err", err)
		}
		select {
		case <-ticker.C:
		case <-signal:
		case <-ctx.Done():
			return
		}
	}
}

// FillLinked fills each linked board that may lack results of its source and that no other
// process fills. On rolling boards, it also opens and fills the windows that are due.
func (s *shared) FillLinked(ctx context.Context) error {
	boards, err := s.store.Boards(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range boards {
		b := &boards[i]
		if b.Filling() && !b.FillLease.After(s.now()) {
			errs = append(errs, s.fillLinked(ctx, b))
		}
		if b.Season.Kind == leaderboard.Rolling {
			errs = append(errs, s.advanceWindows(ctx, b))
		}
	}
	return errors.Join(errs...)
}

// errFilled means that a board needs no filling by this process: another process fills it,
// or the board is full or deleted.
var errFilled = errors.New("another process fills the board")

// A leaseOf selects one of the leases of a board.
type leaseOf func(*leaderboard.Board) *time.Time

func fillLeaseOf(b *leaderboard.Board) *time.Time    { return &b.FillLease }
func recountLeaseOf(b *leaderboard.Board) *time.Time { return &b.RecountLease }

// lease sets a lease of a board, which is expected to be that of b. With it, the edits change
// the board. It sets b to the stored board.
func (s *shared) lease(ctx context.Context, b *leaderboard.Board, of leaseOf, until time.Time, edits ...func(*leaderboard.Board)) error {
	return s.amendFill(ctx, b, func(have *leaderboard.Board) error {
		if !of(have).Equal(*of(b)) {
			return errFilled
		}
		*of(have) = until
		for _, edit := range edits {
			edit(have)
		}
		return nil
	})
}

// amendFill amends the stored board with the function edit, and sets b to the amended
// board. Errors: errFilled if b was deleted.
func (s *shared) amendFill(ctx context.Context, b *leaderboard.Board, edit func(*leaderboard.Board) error) error {
	defer s.forgetBoard(b.ID)
	amended, err := s.store.AmendBoard(ctx, b.ID, func(have *leaderboard.Board) error {
		if !have.CreatedAt.Equal(b.CreatedAt) {
			return errFilled
		}
		return edit(have)
	})
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return errFilled
	}
	if err == nil {
		*b = amended // a window may have been added
	}
	return err
}

// renew renews a lease of which less than half remains.
func (s *shared) renew(ctx context.Context, b *leaderboard.Board, of leaseOf) error {
	if of(b).Sub(s.now()) >= fillLease/2 {
		return nil
	}
	return s.lease(ctx, b, of, s.nextLease())
}

// whileRenewing calls f, and renews a lease of b until f returns. If the lease is lost, the
// context of f is done, and whileRenewing returns errFilled.
func (s *shared) whileRenewing(ctx context.Context, b *leaderboard.Board, of leaseOf, f func(context.Context) error) error {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	renewed, done := b.Clone(), make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		ticker := time.NewTicker(fillLease / 4)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if err := s.renew(limited, &renewed, of); errors.Is(err, errFilled) {
					cancel(errFilled)
					return
				}
			case <-done:
				return
			}
		}
	})
	err := f(limited)
	close(done)
	renewing.Wait()
	*b = renewed
	if errors.Is(context.Cause(limited), errFilled) {
		return errFilled
	}
	return err
}

// FillDivisions computes the entries of each board whose divisions have changed, unless
// another process does.
func (s *shared) FillDivisions(ctx context.Context) error {
	boards, err := s.store.Boards(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range boards {
		if b := &boards[i]; !b.RecountLease.IsZero() && !b.RecountLease.After(s.now()) {
			errs = append(errs, s.fillDivisions(ctx, b))
		}
	}
	return errors.Join(errs...)
}

// fillDivisions makes all entries of a board follow its divisions, except the entries of
// sealed seasons. It may be repeated, and it may run while results arrive.
func (s *shared) fillDivisions(ctx context.Context, b *leaderboard.Board) error {
	err := s.lease(ctx, b, recountLeaseOf, s.nextLease())
	var seasons []leaderboard.SeasonID
	if err == nil {
		seasons, err = s.store.StartRecount(ctx, b)
	}
	for _, season := range seasons {
		if err == nil {
			err = s.fillSeason(ctx, b, leaderboard.SeasonKey{Board: b.ID, Season: season})
		}
	}
	if err == nil {
		// If the divisions have changed again, the lease has changed too.
		err = s.lease(ctx, b, recountLeaseOf, time.Time{})
	}
	if errors.Is(err, errFilled) || errors.Is(err, leaderboard.ErrBoardNotFound) {
		return nil
	}
	if err == nil {
		s.log.InfoContext(ctx, "divisions filled", "board", b.ID)
	}
	return err
}

// fillSeason recounts all users of a season. It first rebuilds the index: an index may
// ignore divisions that the board did not have when the season was loaded.
func (s *shared) fillSeason(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey) error {
	const reason = "divisions changed"
	err := s.whileRenewing(ctx, b, recountLeaseOf, func(ctx context.Context) error { return s.ranks.rebuild(ctx, b, key, reason) })
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		err = nil // the index will be filled from the store
	}
	if err != nil {
		return err
	}
	return eachChunk(s.store.Users(ctx, key), recountChunk, func(users []leaderboard.UserID) error {
		err := s.recountUsers(ctx, b, key.Season, users, reason)
		if err == nil {
			err = s.renew(ctx, b, recountLeaseOf)
		}
		return err
	})
}

// refill starts a fill of each linked board that is selected as a whole. The board may
// lack results: a process may have died after it applied them to the source.
func (s *shared) refill(ctx context.Context, sel Selection) error {
	if sel.Season != "" {
		return nil
	}
	boards, err := sel.boards(ctx, s.store)
	if err != nil {
		return err
	}
	for i := range boards {
		b := &boards[i]
		if b.Source == nil || b.Filling() {
			continue
		}
		if err := s.lease(ctx, b, fillLeaseOf, leaderboard.Truncate(s.now())); err != nil && !errors.Is(err, errFilled) {
			return err
		}
		s.planFill()
	}
	return nil
}

func (s *shared) nextLease() time.Time { return leaderboard.Truncate(s.now().Add(fillLease)) }

// fillLinked applies all results of the source to a linked board. It may be repeated, and
// it may run while results arrive.
//
// It first makes sure that the source lists the board, and then waits longer than
// Options.LinkTTL. Every result that is applied to the source after this wait reaches the
// board without the fill, whichever process applies it: see linksOf. Every earlier result
// is in the store when the fill begins to read, so the fill applies it, or a result that
// replaced it. If a process that did not know the board applied this replacement, the
// fill applies it too, because it offers each match until its standing result is at its
// place: see linking.
func (s *shared) fillLinked(ctx context.Context, b *leaderboard.Board) error {
	err := s.lease(ctx, b, fillLeaseOf, s.nextLease())
	if err == nil {
		err = s.addLink(ctx, b)
	}
	if errors.Is(err, leaderboard.ErrBoardNotFound) || errors.Is(err, errFilled) {
		return nil
	}
	if err != nil {
		return err
	}
	through := b.Rolling.Opened // if b is rolling; windows that open later are filled afterwards
	if err := wait(ctx, 2*s.linkTTL); err != nil {
		return err
	}
	source, err := s.store.Board(ctx, b.Source.Board)
	if err == nil {
		err = s.fillFrom(ctx, &source, b)
	}
	if err == nil {
		err = s.lease(ctx, b, fillLeaseOf, time.Time{}, func(have *leaderboard.Board) { have.Rolling.Filled = max(have.Rolling.Filled, through) })
	}
	if errors.Is(err, errFilled) || errors.Is(err, errLinkGone) {
		return nil
	}
	if err == nil {
		s.log.InfoContext(ctx, "linked board filled", "board", b.ID, "source", source.ID)
	}
	return err
}

// fillFrom offers every result that stands on the source to a linked board.
func (s *shared) fillFrom(ctx context.Context, source, b *leaderboard.Board) error {
	l := &linking{shared: s, source: source, boards: []*leaderboard.Board{b}, whole: true}
	original := func(r *leaderboard.MatchResult) (leaderboard.MatchResult, error) { return *r, nil }
	renew := func() error { return s.renew(ctx, b, fillLeaseOf) }
	return Selection{Board: source.ID}.eachSeason(ctx, s.store, func(_ *leaderboard.Board, key leaderboard.SeasonKey) error {
		return l.offerSeason(ctx, key, original, renew)
	})
}

// offerSeason offers the results that stand in a season to the linked board, fillChunk of
// them at a time. The function original returns the result of the source that a result of the
// season is. After each chunk, offerSeason calls renew. It leaves out users whose stored data
// are damaged.
func (l *linking) offerSeason(ctx context.Context, key leaderboard.SeasonKey, original func(*leaderboard.MatchResult) (leaderboard.MatchResult, error), renew func() error) error {
	var results []leaderboard.MatchResult
	flush := func() error {
		err := eachIntact(results, func(results []leaderboard.MatchResult) error { return l.offerResults(ctx, results) },
			func(user leaderboard.UserID, err error) { l.leaveOut(ctx, key, user, err) })
		results = nil
		if err == nil {
			err = renew()
		}
		return err
	}
	for user, err := range l.store.Users(ctx, key) {
		if err != nil {
			return err
		}
		for r, err := range l.store.Results(ctx, key, user) {
			if err == nil {
				r, err = original(&r)
			}
			if damaged(err) {
				l.leaveOut(ctx, key, user, err)
				break
			}
			if err != nil {
				return err
			}
			results = append(results, r)
			if len(results) == fillChunk {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// offerResults offers results of the source, which may no longer stand, and then those that
// stand.
func (l *linking) offerResults(ctx context.Context, results []leaderboard.MatchResult) error {
	matches := make([]*linkedMatch, len(results))
	for i := range results {
		matches[i] = &linkedMatch{key: results[i].ResultKey, stands: &results[i]}
	}
	err := l.offerStanding(ctx, matches)
	if err == nil {
		err = l.converge(ctx, matches)
	}
	return err
}

// eachIntact calls f with results, in which the results of each user are consecutive. If f
// finds damaged data, eachIntact calls f again with each half of the users, and so on, and
// calls failed for each user whose data are damaged.
func eachIntact(results []leaderboard.MatchResult, f func([]leaderboard.MatchResult) error, failed func(leaderboard.UserID, error)) error {
	err := f(results)
	if !damaged(err) {
		return err
	}
	user := results[len(results)/2].User
	at := slices.IndexFunc(results, func(r leaderboard.MatchResult) bool { return r.User == user })
	if at == 0 {
		at = slices.IndexFunc(results, func(r leaderboard.MatchResult) bool { return r.User != user })
	}
	if at < 0 { // no other user
		failed(user, err)
		return nil
	}
	if err := eachIntact(results[:at], f, failed); err != nil {
		return err
	}
	return eachIntact(results[at:], f, failed)
}
