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

// A fill copies the earlier results of a source to a linked board. A fill of divisions
// recounts all users of a board after its divisions have changed.
const fillChunk = 1000

func (a *Admin) checkLink(ctx context.Context, b *leaderboard.Board) error {
	source, err := a.store.Board(ctx, b.Source.Board)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return &leaderboard.FieldError{Field: "source.board_id", Problem: fmt.Sprintf("no board %q exists; create it first", b.Source.Board)}
	}
	if err == nil {
		err = b.LinkTo(&source)
	}
	if err == nil {
		err = a.insertLink(ctx, &source, b.ID)
	}
	if err == nil && b.Unit == "" && b.Decimals == 0 {
		b.Unit, b.Decimals = source.Unit, source.Decimals
	}
	return err
}

func (s *shared) addLink(ctx context.Context, b *leaderboard.Board) error {
	defer s.forgetBoard(b.Source.Board)
	_, err := s.store.AmendBoard(ctx, b.Source.Board, func(source *leaderboard.Board) error { return s.insertLink(ctx, source, b.ID) })
	return err
}

// insertLink adds a linked board to source, which it does not store.
func (s *shared) insertLink(ctx context.Context, source *leaderboard.Board, id leaderboard.BoardID) error {
	index, exists := slices.BinarySearch(source.Links, id)
	if exists {
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
		index, _ = slices.BinarySearch(source.Links, id)
	}
	source.Links = slices.Insert(source.Links, index, id)
	return nil
}

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

func (a *Admin) checkUnlinked(ctx context.Context, b *leaderboard.Board) error {
	linked, err := a.linkedIDs(ctx, b)
	if err == nil && len(linked) > 0 {
		err = &leaderboard.FieldError{Field: "board", Problem: fmt.Sprintf("%q is the source of linked boards; delete these first", b.ID), Boards: linked}
	}
	return err
}

func (a *Admin) unlink(ctx context.Context, b *leaderboard.Board) error {
	if b.Source == nil {
		return nil
	}
	defer a.forgetBoard(b.Source.Board)
	_, err := a.store.AmendBoard(ctx, b.Source.Board, func(source *leaderboard.Board) error {
		// If a new board already has the id of b, keep the link. If a process creates a new
		// board after this check, the fill of the new board adds the link again.
		if _, err := a.store.Board(ctx, b.ID); !errors.Is(err, leaderboard.ErrBoardNotFound) {
			return err
		}
		source.Links = slices.DeleteFunc(source.Links, func(id leaderboard.BoardID) bool { return id == b.ID })
		source.Accept(b.Declared()) // stored results of the source may have these attributes
		return nil
	})
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return nil
	}
	return err
}

func (s *shared) planFill() {
	wake(s.newLink)
	wake(s.newRules)
}

func wake(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// fillBoards fills boards after each signal, and at every interval: another process may have
// changed a board, or died during a fill.
func (s *shared) fillBoards(ctx context.Context, interval time.Duration) {
	var loops sync.WaitGroup
	loops.Go(func() { s.repeat(ctx, interval, s.newLink, "filling linked boards", s.FillLinked) })
	loops.Go(func() { s.repeat(ctx, interval, s.newRules, "filling divisions", s.FillDivisions) })
	loops.Wait()
}

func (s *shared) repeat(ctx context.Context, interval time.Duration, signal <-chan struct{}, work string, call func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := call(ctx); err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "background work failed and will be retried", "work", work, "err", err)
		}
		select {
		case <-ticker.C:
		case <-signal:
		case <-ctx.Done():
			return
		}
	}
}

// eachBoard calls f for each board until ctx is done. It joins the errors.
func (s *shared) eachBoard(ctx context.Context, f func(*leaderboard.Board) error) error {
	boards, err := s.store.Boards(ctx)
	errs := []error{err}
	for i := 0; i < len(boards) && ctx.Err() == nil; i++ {
		errs = append(errs, f(&boards[i]))
	}
	return errors.Join(errs...)
}

// FillLinked fills each linked board that may lack results of its source, unless another
// process fills it. It also opens and fills the windows of rolling boards: see windows.go.
func (s *shared) FillLinked(ctx context.Context) error {
	return s.eachBoard(ctx, func(b *leaderboard.Board) (err error) {
		if b.Filling() {
			err = s.fillBoard(ctx, b, (*leaderboard.Board).Filling, s.fillLinked)
		}
		if b.Season.Kind == leaderboard.Rolling {
			err = errors.Join(err, s.advanceWindows(ctx, b))
		}
		return err
	})
}

var errMustNotFill = errors.New("another fill of the board has become due, or the board was deleted")

type dueField func(*leaderboard.Board) *time.Time

func fillDueOf(b *leaderboard.Board) *time.Time    { return &b.FillDue }
func recountDueOf(b *leaderboard.Board) *time.Time { return &b.RecountDue }

// nextDue returns the present time. If stored, a former FillDue or RecountDue, is not earlier, it returns a later time.
func (s *shared) nextDue(stored time.Time) time.Time {
	return laterOf(leaderboard.Truncate(s.now()), stored.Add(time.Microsecond))
}

// fillBoard calls fill with the stored board while it holds the board's lease, if isDue returns true for the board. Afterwards
// it plans the next fills, which may have waited for the lease.
func (s *shared) fillBoard(ctx context.Context, b *leaderboard.Board, isDue func(*leaderboard.Board) bool,
	fill func(context.Context, *leaderboard.Board) error,
) error {
	held, err := s.withLease(ctx, leaderboard.SeasonKey{Board: b.ID}, func(ctx context.Context) error {
		if exists, err := s.reread(ctx, b); err != nil || !exists || !isDue(b) {
			return err
		}
		return fill(ctx, b)
	})
	if errors.Is(err, errMustNotFill) || errors.Is(err, errLinkDeleted) || errors.Is(err, leaderboard.ErrBoardNotFound) {
		err = nil
	}
	if held && err == nil {
		s.planFill()
	}
	return err
}

// endFill sets the field of the stored board to zero, and applies edit. Errors: errMustNotFill if another fill has become
// due, or if b was deleted.
func (s *shared) endFill(ctx context.Context, b *leaderboard.Board, field dueField, edit func(*leaderboard.Board)) error {
	due := *field(b)
	return s.amendFill(ctx, b, func(stored *leaderboard.Board) error {
		if !field(stored).Equal(due) {
			return errMustNotFill
		}
		*field(stored) = time.Time{}
		edit(stored)
		return nil
	})
}

// amendFill applies edit to the stored board, and copies the stored board to b. Errors:
// errMustNotFill if b was deleted.
func (s *shared) amendFill(ctx context.Context, b *leaderboard.Board, edit func(*leaderboard.Board) error) error {
	defer s.forgetBoard(b.ID)
	amended, err := s.store.AmendBoard(ctx, b.ID, func(stored *leaderboard.Board) error {
		if !stored.CreatedAt.Equal(b.CreatedAt) {
			return errMustNotFill
		}
		return edit(stored)
	})
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return errMustNotFill
	}
	if err == nil {
		*b = amended // another process may have added a window
	}
	return err
}

// FillDivisions recounts all users of each board whose divisions have changed, unless another
// process does. If another region has changed divisions, FillDivisions also
// updates this region's index.
func (s *shared) FillDivisions(ctx context.Context) error {
	isDue := func(b *leaderboard.Board) bool { return !b.RecountDue.IsZero() }
	err := s.eachBoard(ctx, func(b *leaderboard.Board) error {
		if !isDue(b) {
			return nil
		}
		return s.fillBoard(ctx, b, isDue, s.fillDivisions)
	})
	errs := []error{err}
	for c, err := range s.store.RankChanges(ctx) {
		if err == nil && c.Board != "" {
			err = s.repeatDivisions(ctx, c)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// repeatDivisions repeats another region's change of divisions in this region's index. It omits
// sealed seasons: their ranks are in the final standings, which all regions share.
func (s *shared) repeatDivisions(ctx context.Context, c leaderboard.RankChange) error {
	_, err := s.withLease(ctx, leaderboard.SeasonKey{Board: c.Board}, func(ctx context.Context) error {
		return s.store.FinishRankChange(ctx, c, func([]leaderboard.Entry) error {
			b, err := s.store.Board(ctx, c.Board)
			if errors.Is(err, leaderboard.ErrBoardNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			ids, err := s.store.SeasonIDs(ctx, c.Board)
			for _, id := range ids {
				key := leaderboard.SeasonKey{Board: c.Board, Season: id}
				var record leaderboard.SeasonRecord
				if err == nil {
					record, err = s.store.Season(ctx, key)
				}
				if err == nil && record.SealedAt.IsZero() {
					err = s.fillSeason(ctx, &b, key)
				}
			}
			if err == nil && b.Matches {
				err = s.repeatMatches(ctx, &b)
			}
			if err == nil && !s.index.Synced() {
				err = errNotSynced
			}
			return err
		})
	})
	if errors.Is(err, errNotSynced) {
		return nil
	}
	return err
}

// fillDivisions may be repeated, and may run while results arrive.
func (s *shared) fillDivisions(ctx context.Context, b *leaderboard.Board) error {
	seasons, err := s.store.StartRecount(ctx, b)
	for _, season := range seasons {
		if err == nil {
			err = s.fillSeason(ctx, b, leaderboard.SeasonKey{Board: b.ID, Season: season})
		}
	}
	if err == nil && b.UnfilledMatches {
		err = s.listMatches(ctx, b)
	}
	if err == nil {
		err = s.endFill(ctx, b, recountDueOf, func(stored *leaderboard.Board) { stored.UnfilledMatches = false })
	}
	if err == nil {
		s.log.InfoContext(ctx, "divisions filled", "board", b.ID)
	}
	return err
}

// listMatches adds the results of every season, sealed seasons included, to the lists of matches.
// StartRecount has begun, so Apply adds later results.
func (s *shared) listMatches(ctx context.Context, b *leaderboard.Board) error {
	ids, err := s.store.SeasonIDs(ctx, b.ID)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := eachChunk(s.store.Users(ctx, leaderboard.SeasonKey{Board: b.ID, Season: id}), recountChunk, func(users []leaderboard.UserID) error {
			return eachRead(ctx, len(users), func(ctx context.Context, i int) error {
				return s.unlessDamaged(ctx, b, id, users[i], s.store.ListMatches(ctx, b, id, users[i]))
			})
		}); err != nil {
			return err
		}
	}
	return nil
}

// repeatMatches adds this region's results to the lists of matches, and repeats the voids: another
// region may have switched Matches on, and voided matches, before this region knew it.
func (s *shared) repeatMatches(ctx context.Context, b *leaderboard.Board) error {
	if err := s.listMatches(ctx, b); err != nil {
		return err
	}
	ids, err := s.store.SeasonIDs(ctx, b.ID)
	if err != nil {
		return err
	}
	for _, id := range ids {
		for m, err := range s.store.Matches(ctx, leaderboard.SeasonKey{Board: b.ID, Season: id}) {
			if err == nil && m.Voids > 0 {
				_, err = s.applyVoids(ctx, b, m)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// fillSeason rebuilds the index first, because an index may ignore divisions that were added
// after it loaded the season.
func (s *shared) fillSeason(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey) error {
	const reason = "divisions changed"
	err := s.ranks.rebuild(ctx, b, key, reason)
	if err != nil && !errors.Is(err, leaderboard.ErrRankUnavailable) { // otherwise the index will be filled from the store
		return err
	}
	return eachChunk(s.store.Users(ctx, key), recountChunk, func(users []leaderboard.UserID) error {
		return s.recountUsers(ctx, b, key.Season, users, reason)
	})
}

// If sel selects all seasons, refill starts a fill of each selected linked board: a process may
// have died before it copied results.
func (s *shared) refill(ctx context.Context, sel Selection) error {
	if sel.Season != "" {
		return nil
	}
	boards, err := sel.filledLinks(ctx, s.store)
	if err != nil {
		return err
	}
	for i := range boards {
		if err := s.amendFill(ctx, &boards[i], func(stored *leaderboard.Board) error {
			stored.FillDue = s.nextDue(stored.FillDue)
			return nil
		}); err != nil && !errors.Is(err, errMustNotFill) {
			return err
		}
		s.planFill()
	}
	return nil
}

// fillLinked may be repeated, and may run while results arrive. It adds b to the Links of the
// source, waits longer than Options.LinkTTL, and then reads the stored results. After the wait,
// every process copies new results to b (see linksOf). All earlier results are in the store.
func (s *shared) fillLinked(ctx context.Context, b *leaderboard.Board) error {
	if err := s.addLink(ctx, b); err != nil {
		return err
	}
	lastWindow := b.Rolling.Opened // empty unless b is rolling; advanceWindows fills later windows
	if err := wait(ctx, 2*s.linkTTL); err != nil {
		return err
	}
	source, err := s.store.Board(ctx, b.Source.Board)
	if err == nil {
		err = s.fillFrom(ctx, &source, b)
	}
	if err == nil {
		err = s.endFill(ctx, b, fillDueOf, func(stored *leaderboard.Board) { stored.Rolling.Filled = max(stored.Rolling.Filled, lastWindow) })
	}
	if err == nil {
		s.log.InfoContext(ctx, "linked board filled", "board", b.ID, "source", source.ID)
	}
	return err
}

func (s *shared) fillFrom(ctx context.Context, source, b *leaderboard.Board) error {
	l := &linking{shared: s, source: source, boards: []*leaderboard.Board{b}, mostMatches: true}
	original := func(r *leaderboard.MatchResult) (leaderboard.MatchResult, error) { return *r, nil }
	return Selection{Board: source.ID}.eachSeason(ctx, s.store, func(_ *leaderboard.Board, key leaderboard.SeasonKey) error {
		return l.offerSeason(ctx, key, original)
	})
}

// offerSeason offers (see links.go) the results of a season of the source or of a linked board.
// The function original returns the form of a result on the source. offerSeason omits users with damaged data.
func (l *linking) offerSeason(ctx context.Context, key leaderboard.SeasonKey,
	original func(*leaderboard.MatchResult) (leaderboard.MatchResult, error),
) error {
	var results []leaderboard.MatchResult
	flush := func() error {
		err := eachIntact(results, userOf, func(results []leaderboard.MatchResult) error { return l.offerResults(ctx, results) },
			func(user leaderboard.UserID, err error) { l.leaveOut(ctx, key, user, err) })
		results = nil
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

// offerResults also offers newer results of the matches that the source receives meanwhile.
func (l *linking) offerResults(ctx context.Context, results []leaderboard.MatchResult) error {
	matches := make([]*linkedMatch, len(results))
	for i := range results {
		matches[i] = &linkedMatch{key: results[i].ResultKey, standing: &results[i]}
	}
	err := l.offerStanding(ctx, matches)
	if err == nil {
		err = l.converge(ctx, matches)
	}
	return err
}

// eachIntact calls f with items, which are grouped by user. If f finds damaged data,
// eachIntact splits the users into halves, and repeats for each half. For a single user with
// damaged data, it calls skip.
func eachIntact[T any](items []T, userOf func(T) leaderboard.UserID, f func([]T) error, skip func(leaderboard.UserID, error)) error {
	err := f(items)
	if !damaged(err) {
		return err
	}
	user := userOf(items[len(items)/2])
	split := slices.IndexFunc(items, func(item T) bool { return userOf(item) == user })
	if split == 0 {
		split = slices.IndexFunc(items, func(item T) bool { return userOf(item) != user })
	}
	if split < 0 {
		skip(user, err)
		return nil
	}
	if err := eachIntact(items[:split], userOf, f, skip); err != nil {
		return err
	}
	return eachIntact(items[split:], userOf, f, skip)
}

func userOf(r leaderboard.MatchResult) leaderboard.UserID { return r.User }
