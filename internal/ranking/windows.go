package ranking

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// # Rolling windows
//
// The windows of a rolling board overlap: a result counts in Schedule.Days of them. Writers
// copy a result to each open window that contains its time. A window opens a day before it is
// the current one, by an amendment of the board. So a usual result, of today, has two places:
// the windows of today and of tomorrow. When a window W opens, a fill copies to it from the
// window before, V, behind the traffic. Every result of W that is not of W's last day is in V
// too.
//
// In the end, W has every result S that stands on the source and that W contains:
//
//   - Before a writer copies S, it opens the window of S's day, and the window of the day on
//     which S was received. If W is one of these or lies between them, the writer copies S to
//     W itself.
//   - Otherwise, V contains S too, and V had not closed when S was received, so V accepted S.
//     The last thing that the writer of S does is a check that no window opened meanwhile,
//     with a version of the board that is at most Options.LinkTTL old. If this check is more
//     than LinkTTL after the opening of W, the writer knew W. If not, V had S before the fill
//     began to read, because the fill first waits for twice LinkTTL. V itself was filled
//     before: windows are filled in their order.
//
// In the end, W counts no other result X of S's match. The fill is a writer with W as its only
// place: it offers X to W, and then reads the source until it reads what it offered last (see
// links.go). It omits step 2 of other writers, because it copies to no other place. If W is
// the first place of S, the fill does not offer S, because the writer of S does: links.go
// explains why. A fill that dies is repeated from the start of W, with all matches of V.
//
// W may refuse S as late if no process was up while W was open. An older revision that came
// in time then counts in W. A writer that replaces this revision in V, where S does not
// count, first copies it to W: see matchOffers.keep.

// windowsOpened reports whether a linked board opened a window after l read the board. The
// answer includes all windows that were opened more than Options.LinkTTL ago.
func (l *linking) windowsOpened(ctx context.Context) (bool, error) {
	for _, b := range l.boards {
		if b.Season.Kind != leaderboard.Rolling {
			continue
		}
		now, err := l.BoardSince(ctx, b.ID, time.Now().Add(-l.linkTTL))
		if err != nil && !errors.Is(err, leaderboard.ErrBoardNotFound) {
			return false, err
		}
		if err == nil && (now.Rolling.Opened > b.Rolling.Opened || !now.CreatedAt.Equal(b.CreatedAt)) {
			return true, nil
		}
	}
	return false, nil
}

// openWindows opens the windows of linked boards that the standing results of matches need.
// It opens no window of more than two days ahead, so that a producer with a wrong clock does
// not open thousands. Only a repair copies such a producer's results.
func (l *linking) openWindows(ctx context.Context, matches []*linkedMatch) error {
	for _, b := range l.boards {
		if b.Season.Kind != leaderboard.Rolling || l.window != "" {
			continue
		}
		var last leaderboard.SeasonID
		for _, m := range matches {
			last = max(last, b.NeedsWindow(m.stands))
		}
		limit, err := b.Season.At(l.now().Add(2 * leaderboard.MaxAhead))
		if err != nil {
			return err
		}
		err = l.openThrough(ctx, b, min(last, limit.ID))
		if errors.Is(err, errFilled) {
			return errLinkGone
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openThrough opens the windows of a rolling board up to a window. Errors: errFilled if the
// board was deleted.
func (s *shared) openThrough(ctx context.Context, b *leaderboard.Board, window leaderboard.SeasonID) error {
	if window <= b.Rolling.Opened {
		return nil
	}
	amended := *b
	err := s.amendFill(ctx, &amended, func(have *leaderboard.Board) error {
		have.Rolling.Opened = max(have.Rolling.Opened, window)
		return nil
	})
	if err == nil {
		b.Rolling.Opened = amended.Rolling.Opened
		s.planFill()
	}
	return err
}

// advanceWindows opens the windows of a rolling board that should be open by now, and fills
// those that are open.
func (s *shared) advanceWindows(ctx context.Context, b *leaderboard.Board) error {
	due, err := b.Season.At(s.now().Add(leaderboard.MaxAhead))
	if err == nil {
		err = s.openThrough(ctx, b, due.ID)
	}
	if err == nil && !b.Filling() && b.Rolling.Filled < b.Rolling.Opened && !b.Rolling.Lease.After(s.now()) {
		err = s.fillWindows(ctx, b)
	}
	if errors.Is(err, errFilled) || errors.Is(err, errLinkGone) {
		return nil
	}
	return err
}

// leaseWindows records through which window a rolling board is filled, and until when this
// process fills the next ones. It sets b to the stored board. Errors: errFilled if another
// process has the lease, or fills the whole board.
func (s *shared) leaseWindows(ctx context.Context, b *leaderboard.Board, filled leaderboard.SeasonID, until time.Time) error {
	was := b.Rolling
	return s.amendFill(ctx, b, func(have *leaderboard.Board) error {
		if have.Filling() || have.Rolling.Filled != was.Filled || !have.Rolling.Lease.Equal(was.Lease) {
			return errFilled
		}
		have.Rolling.Filled, have.Rolling.Lease = filled, until
		return nil
	})
}

// fillWindows fills the open windows of a rolling board that are not filled, in their order.
func (s *shared) fillWindows(ctx context.Context, b *leaderboard.Board) error {
	if err := s.leaseWindows(ctx, b, b.Rolling.Filled, s.nextLease()); err != nil {
		return err
	}
	through := b.Rolling.Opened
	if err := wait(ctx, 2*s.linkTTL); err != nil {
		return err
	}
	source, err := s.store.Board(ctx, b.Source.Board)
	if err != nil {
		return err
	}
	for b.Rolling.Filled < through {
		last, err := b.Season.ByID(b.Rolling.Filled)
		if err != nil {
			return err
		}
		next, err := b.Season.At(last.End)
		if err != nil {
			return err
		}
		if err := s.fillWindow(ctx, &source, b, next.ID); err != nil {
			return err
		}
		until := s.nextLease()
		if next.ID >= through {
			until = time.Time{}
		}
		if err := s.leaseWindows(ctx, b, next.ID, until); err != nil {
			return err
		}
		s.log.InfoContext(ctx, "rolling window filled", "board", b.ID, "season", next.ID)
	}
	return nil
}

// fillWindow copies the results of the last filled window of a rolling board to the next
// window. It may be repeated, and it may run while results arrive.
func (s *shared) fillWindow(ctx context.Context, source, b *leaderboard.Board, next leaderboard.SeasonID) error {
	l := &linking{shared: s, source: source, boards: []*leaderboard.Board{b}, window: next}
	original := func(r *leaderboard.MatchResult) (leaderboard.MatchResult, error) { return b.ToSource(source, r) }
	renew := func() error {
		if b.Rolling.Lease.Sub(s.now()) >= fillLease/2 {
			return nil
		}
		return s.leaseWindows(ctx, b, b.Rolling.Filled, s.nextLease())
	}
	return l.offerSeason(ctx, leaderboard.SeasonKey{Board: b.ID, Season: b.Rolling.Filled}, original, renew)
}

// findForWindow finds the offers of a fill to its window.
func (o *matchOffers) findForWindow(ctx context.Context) (err error) {
	places := o.b.LinkedSeasons(o.m.stands)
	switch i := slices.Index(places, o.window); {
	case i < 0:
		_, err = o.addAway(ctx, o.window)
	case i > 0:
		o.own = append(o.own, offer{o.m, o.b.FromSource(o.source, o.m.stands, o.window)})
	}
	return err
}
