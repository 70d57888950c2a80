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
// links.go defines writer, place, offer and standing result. The windows of a rolling board
// overlap: a result counts in Schedule.Days windows. Writers copy a result to each open window
// that contains its time. Usually, a window is opened a day before it becomes the current
// window. While writers copy new results, a fill copies earlier results to the new window W
// from the previous window V. V contains the time of every result of W, except results of W's
// last day.
//
// In the end, W has a copy of every result S that stands on the source and whose time is in W:
//
//   - Before a writer copies S, it opens all windows up to the day of S, and up to the day on which
//     S was received. If W is among these windows, the writer copies S to W.
//   - Otherwise, W ends after both days. So V contains the time of S, and S was received before V
//     closed. V accepted S. After its copies, the writer reads a version of the board that is at
//     most Options.LinkTTL old. If it finds a new window, it begins again.
//   - If this read is more than LinkTTL after the opening of W, the writer finds W. It has copied
//     S to W, or it begins again and copies S to W.
//   - If the read is earlier, V had S before the fill of W began to read V, because the fill first
//     waits for twice LinkTTL. If V needed a fill, that fill ended before the fill of W began.
//
// In the end, W counts no other revision X of S's match. If V still has X, the fill may offer X
// to W. But the fill then reads the standing result of the source and offers it to W, until it
// reads the result that it offered last. The fill copies only to W, so it omits step 2 of
// links.go for other places. Therefore, if W is the first place of S, the fill does not offer S
// to W: the second shortcut of links.go takes S in its first place as proof of step 2. The
// writer of S offers S to W. If a process dies during a fill, another process repeats the fill
// with all matches of V.
//
// W may refuse S as late: S was received after W closed. W must then count an older revision R
// that was received in time. If no process ran while W was open, the fill runs afterwards. If the
// time of S is outside V, the writer of S replaces R in V, and the fill does not find R. So the
// writer first copies R to W: see matchOffers.addReplaced. If a revision between R and S has a
// time outside W, R must not count in W. So the writer copies this revision to W too. It
// replaces R, but does not count: see matchOffers.addNewer.

// windowsOpened reports whether a linked board opened a window after l read the board. It may
// miss a window that was opened within the last Options.LinkTTL.
func (l *linking) windowsOpened(ctx context.Context) (bool, error) {
	if l.newWindow {
		return true, nil
	}
	for _, b := range l.boards {
		if b.Season.Kind != leaderboard.Rolling {
			continue
		}
		stored, err := l.BoardSince(ctx, b.ID, time.Now().Add(-l.linkTTL))
		if err != nil && !errors.Is(err, leaderboard.ErrBoardNotFound) {
			return false, err
		}
		if err == nil && (stored.Rolling.Opened > b.Rolling.Opened || !stored.CreatedAt.Equal(b.CreatedAt)) {
			return true, nil
		}
	}
	return false, nil
}

// openWindows opens the windows that the standing results of matches need (see
// [leaderboard.Board.NeedsWindow]), at most two days ahead: a producer with a wrong clock must
// not open thousands of windows.
//
// If the writer learns of a window only after it has copied results, the fill of the window
// may have missed these results. So the writer must begin again.
func (l *linking) openWindows(ctx context.Context, matches []*linkedMatch) error {
	for _, b := range l.boards {
		if b.Season.Kind != leaderboard.Rolling || l.window != "" {
			continue
		}
		var last leaderboard.SeasonID
		for _, m := range matches {
			last = max(last, b.NeedsWindow(m.standing))
		}
		limit, err := b.Season.At(l.now().Add(2 * leaderboard.MaxAhead))
		if err != nil {
			return err
		}
		known := b.Rolling.Opened
		err = l.openThrough(ctx, b, min(last, limit.ID))
		l.newWindow = l.newWindow || l.copied && b.Rolling.Opened > known
		if errors.Is(err, errMustNotFill) {
			return errLinkDeleted
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openThrough returns errMustNotFill if the board was deleted.
func (s *shared) openThrough(ctx context.Context, b *leaderboard.Board, window leaderboard.SeasonID) error {
	if window <= b.Rolling.Opened {
		return nil
	}
	amended := *b
	err := s.amendFill(ctx, &amended, func(stored *leaderboard.Board) error {
		stored.Rolling.Opened = max(stored.Rolling.Opened, window)
		return nil
	})
	if err == nil {
		b.Rolling.Opened = amended.Rolling.Opened
		s.planFill()
	}
	return err
}

func (s *shared) advanceWindows(ctx context.Context, b *leaderboard.Board) error {
	due, err := b.Season.At(s.now().Add(leaderboard.MaxAhead))
	if err == nil {
		err = s.openThrough(ctx, b, due.ID)
	}
	if errors.Is(err, errMustNotFill) {
		return nil
	}
	if err == nil && lacksWindows(b) {
		err = s.fillBoard(ctx, b, lacksWindows, s.fillWindows)
	}
	return err
}

func lacksWindows(b *leaderboard.Board) bool {
	return !b.Filling() && b.Rolling.Filled < b.Rolling.Opened
}

func (s *shared) fillWindows(ctx context.Context, b *leaderboard.Board) error {
	lastOpened := b.Rolling.Opened
	if err := wait(ctx, 2*s.linkTTL); err != nil {
		return err
	}
	source, err := s.store.Board(ctx, b.Source.Board)
	if err != nil {
		return err
	}
	for b.Rolling.Filled < lastOpened {
		previous, err := b.Season.ByID(b.Rolling.Filled)
		if err != nil {
			return err
		}
		window, err := b.Season.At(previous.End)
		if err != nil {
			return err
		}
		if err := s.fillWindow(ctx, &source, b, window.ID); err != nil {
			return err
		}
		previousFilled := b.Rolling.Filled
		if err := s.amendFill(ctx, b, func(stored *leaderboard.Board) error {
			if stored.Filling() || stored.Rolling.Filled != previousFilled {
				return errMustNotFill
			}
			stored.Rolling.Filled = window.ID
			return nil
		}); err != nil {
			return err
		}
		s.log.InfoContext(ctx, "rolling window filled", "board", b.ID, "season", window.ID)
	}
	return nil
}

// fillWindow copies the results of the last filled window to the next window. It may be
// repeated, and may run while results arrive.
func (s *shared) fillWindow(ctx context.Context, source, b *leaderboard.Board, window leaderboard.SeasonID) error {
	l := &linking{shared: s, source: source, boards: []*leaderboard.Board{b}, window: window}
	original := func(r *leaderboard.MatchResult) (leaderboard.MatchResult, error) { return b.ToSource(source, r) }
	return l.offerSeason(ctx, leaderboard.SeasonKey{Board: b.ID, Season: b.Rolling.Filled}, original)
}

func (o *matchOffers) findForWindow(ctx context.Context) (err error) {
	places := o.b.LinkedSeasons(o.m.standing)
	switch i := slices.Index(places, o.window); {
	case i < 0: // step 2
		_, err = o.addReplacing(ctx, o.window)
	case i > 0: // step 3, except for the first place
		o.own = append(o.own, offer{o.m, o.b.FromSource(o.source, o.m.standing, o.window)})
	}
	return err
}
