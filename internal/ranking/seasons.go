package ranking

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// SeasonPhase says where a season stands.
type SeasonPhase string

const (
	Upcoming SeasonPhase = "upcoming" // it has not begun
	Open     SeasonPhase = "open"     // it takes results
	Grace    SeasonPhase = "grace"    // it is over and takes late results
	Closed   SeasonPhase = "closed"   // it takes no more results
	Sealed   SeasonPhase = "sealed"   // its final standings are made
)

// SeasonInfo is a season of a board.
type SeasonInfo struct {
	leaderboard.Season
	Phase      SeasonPhase
	ClosesAt   time.Time // when it takes no more results; zero is never
	SealedAt   time.Time
	Amendments []leaderboard.Amendment
	Total      *int64 // entrants, overall; nil while it cannot be told
}

// Seasons returns the current season of a board, every season with results, and
// all explicit windows, latest first.
func (s *Service) Seasons(ctx context.Context, id leaderboard.BoardID) ([]SeasonInfo, error) {
	b, err := s.board(ctx, id)
	if err != nil {
		return nil, err
	}
	records, err := s.store.Seasons(ctx, id)
	if err != nil {
		return nil, err
	}
	infos := map[leaderboard.SeasonID]SeasonInfo{}
	for _, w := range b.Season.Windows {
		infos[w.ID] = SeasonInfo{Season: w}
	}
	if current, err := b.Season.At(s.now()); err == nil {
		infos[current.ID] = SeasonInfo{Season: current}
	}
	for _, r := range records {
		season, err := b.Season.ByID(r.Season)
		if err != nil {
			return nil, err
		}
		keep(s, &s.seasons, r.Scope, r)
		infos[r.Season] = SeasonInfo{Season: season, SealedAt: r.SealedAt, Amendments: r.Amendments}
	}
	list := make([]SeasonInfo, 0, len(infos))
	for _, info := range infos {
		info.ClosesAt = b.ClosesAt(info.Season)
		info.Phase = s.phase(b, info)
		err := s.ask(ctx, Query{Board: id, Season: info.ID}, func(v *view) error {
			_, seen, err := v.Page(ctx, v.ladder, 1, 1)
			info.Total = &seen.Size
			return err
		})
		if errors.Is(err, leaderboard.ErrRankUnavailable) {
			info.Total = nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	slices.SortFunc(list, func(x, y SeasonInfo) int { return y.Start.Compare(x.Start) })
	return list, nil
}

func (s *Service) phase(b *leaderboard.Board, info SeasonInfo) SeasonPhase {
	now := s.now()
	switch {
	case !info.SealedAt.IsZero():
		return Sealed
	case b.Closed(info.Season, now):
		return Closed
	case !info.Start.IsZero() && now.Before(info.Start):
		return Upcoming
	case !info.End.IsZero() && !now.Before(info.End):
		return Grace
	default:
		return Open
	}
}

// Seal makes the final standings of a season that takes no more results. On a
// sealed one it changes nothing. It returns [leaderboard.ErrSeasonOpen] before that.
func (s *Service) Seal(ctx context.Context, id leaderboard.BoardID, season leaderboard.SeasonID) error {
	b, err := s.board(ctx, id)
	if err != nil {
		return err
	}
	in, err := b.Season.ByID(season)
	if err != nil {
		return err
	}
	if !b.Closed(in, s.now()) {
		return leaderboard.ErrSeasonOpen
	}
	scope := leaderboard.Scope{Board: id, Season: season}
	if record, err := s.store.Season(ctx, scope); err != nil || !record.SealedAt.IsZero() {
		return err
	}
	return s.seal(ctx, b, scope)
}

func (s *Service) seal(ctx context.Context, b *leaderboard.Board, scope leaderboard.Scope) error {
	return s.makeFinal(ctx, b, scope, "season over", s.store.Seal)
}

// makeFinal makes final standings by one of the store's ways to do so. Whoever
// watches is told.
func (s *Service) makeFinal(ctx context.Context, b *leaderboard.Board, scope leaderboard.Scope, reason string,
	by func(context.Context, *leaderboard.Board, leaderboard.SeasonID, leaderboard.Amendment) (leaderboard.SeasonRecord, error)) error {
	record, err := by(ctx, b, scope.Season, leaderboard.Amendment{At: leaderboard.Truncate(s.now()), Reason: reason})
	if err != nil {
		return err
	}
	keep(s, &s.seasons, scope, record)
	defer s.hub.notify(scope)
	err = s.index.Drop(ctx, scope)
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		// It takes room, and is not asked any more.
		s.log.WarnContext(ctx, "rank index of a sealed season not dropped", "err", err)
		return nil
	}
	return err
}

// amendKey is a season, of the board made then.
type amendKey struct {
	leaderboard.Scope
	made int64
}

// amendment is what is asked of a sealed season.
type amendment struct {
	board  *leaderboard.Board
	reason string
	sealed bool // whether the season was
}

// amend makes the final standings of a sealed season again, or returns
// [leaderboard.ErrNotSealed]. Changes that come while that is done wait, and are
// then amended together: it takes as long for many as for one.
func (s *Service) amend(ctx context.Context, b *leaderboard.Board, scope leaderboard.Scope, reason string) error {
	a := &amendment{board: b, reason: reason}
	_, err := finish(ctx, s, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.amends.Ask(ctx, amendKey{scope, b.CreatedAt.UnixMicro()}, a)
	})
	if err == nil && !a.sealed {
		err = leaderboard.ErrNotSealed
	}
	return err
}

// amendTogether makes final standings again for every reason of a group.
func (s *Service) amendTogether(ctx context.Context, key amendKey, group []*amendment) error {
	var reasons []string
	for _, a := range group {
		if !slices.Contains(reasons, a.reason) {
			reasons = append(reasons, a.reason)
		}
	}
	err := s.makeFinal(ctx, group[0].board, key.Scope, strings.Join(reasons, ", "), s.store.Amend)
	if errors.Is(err, leaderboard.ErrNotSealed) {
		return nil
	}
	for _, a := range group {
		a.sealed = err == nil
	}
	return err
}

// mayBeSealed says whether a season may have been sealed, by a process whose clock
// is up to sealDelay ahead. It asks whether the season has ended, not whether it
// takes results, as grace may be lengthened after the season was sealed.
func (s *Service) mayBeSealed(season leaderboard.Season) bool {
	return !season.End.IsZero() && s.now().Add(sealDelay).After(season.End)
}

// sealDelay is how long after a season closed Sweep leaves it alone, so that a
// result that was received in time and is being applied is in the final standings.
const sealDelay = time.Minute

// Sweep seals every season that takes no more results, and deletes what is past
// its board's retention. Nothing depends on when it runs: it makes old seasons
// cheap to keep and to read.
func (s *Service) Sweep(ctx context.Context) error {
	boards, err := s.store.Boards(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range boards {
		errs = append(errs, s.sweepBoard(ctx, &boards[i]))
	}
	return errors.Join(errs...)
}

func (s *Service) sweepBoard(ctx context.Context, b *leaderboard.Board) error {
	records, err := s.store.Seasons(ctx, b.ID)
	if err != nil {
		return err
	}
	now := s.now()
	for _, r := range records {
		season, err := b.Season.ByID(r.Season)
		if err != nil {
			return err
		}
		switch {
		case !b.Closed(season, now.Add(-sealDelay)):
		case r.SealedAt.IsZero():
			if err := s.seal(ctx, b, r.Scope); err != nil {
				return err
			}
			s.log.InfoContext(ctx, "season sealed", "board", b.ID, "season", r.Season)
		case b.Retention > 0 && !now.Before(r.SealedAt.Add(b.Retention)):
			if err := s.store.DeleteSeason(ctx, r.Scope); err != nil {
				return err
			}
			s.seasons.Delete(r.Scope)
			s.log.InfoContext(ctx, "season deleted past its retention", "board", b.ID, "season", r.Season)
		}
	}
	return nil
}

// SweepEvery runs [Service.Sweep] at once and then at every interval, and fills
// the index where it was lost, until ctx is done. What failed is logged and tried
// again at the next.
func (s *Service) SweepEvery(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "sweep failed", "err", err)
		}
		if err := s.Load(ctx, nil); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "rank index not filled", "err", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
