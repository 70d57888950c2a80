package ranking

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// SeasonPhase is the state of a season.
type SeasonPhase string

// The phases of a season, in order.
const (
	Upcoming SeasonPhase = "upcoming" // the season has not begun: see [leaderboard.Schedule.Begins]
	Open     SeasonPhase = "open"     // the season accepts results
	Grace    SeasonPhase = "grace"    // the season has ended, but accepts late results
	Closed   SeasonPhase = "closed"   // the season accepts no more results
	Sealed   SeasonPhase = "sealed"   // the final standings are written
)

// SeasonInfo is a season of a board.
type SeasonInfo struct {
	leaderboard.Season
	Phase    SeasonPhase
	ClosesAt time.Time // when the season stops accepting results; zero means never
	// EndedAt is when an administrator ended the season early, or zero.
	EndedAt  time.Time
	SealedAt time.Time // zero if the season is not sealed
	// RemovedAt is the earliest time at which a sweep deletes the season. Zero means never, or
	// that the store has no data of the season.
	RemovedAt  time.Time
	Filling    bool // the season may lack results of the source
	Amendments []leaderboard.Amendment
	Total      *int64 // users in the overall ladder; nil if unknown
}

// Seasons returns a board's current season, every season with results, and every window that
// the schedule lists. The season that ends last is first.
func (r *Reader) Seasons(ctx context.Context, b *leaderboard.Board) ([]SeasonInfo, error) {
	records, err := r.store.Seasons(ctx, b.ID)
	if err != nil {
		return nil, err
	}
	list, err := seasonInfos(b, records, r.now())
	if err != nil {
		return nil, err
	}
	for _, record := range records {
		r.putSeason(record)
	}
	for i := range list {
		if list[i].Total, err = r.total(ctx, b, list[i].ID); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func seasonInfos(b *leaderboard.Board, records []leaderboard.SeasonRecord, now time.Time) ([]SeasonInfo, error) {
	infos := map[leaderboard.SeasonID]SeasonInfo{}
	add := func(season leaderboard.Season, record *leaderboard.SeasonRecord) {
		infos[season.ID] = seasonInfo(b, season, record, now)
	}
	for _, w := range b.Season.Windows {
		season, err := b.Season.ByID(w.ID)
		if err != nil {
			return nil, err
		}
		add(season, &leaderboard.SeasonRecord{})
	}
	if current, err := b.Season.At(now); err == nil {
		add(current, &leaderboard.SeasonRecord{})
	}
	for i := range records {
		season, err := b.Season.ByID(records[i].Season)
		if err != nil {
			return nil, err
		}
		add(season, &records[i])
	}
	list := slices.Collect(maps.Values(infos))
	slices.SortFunc(list, func(x, y SeasonInfo) int { return newestFirst(x.Season, y.Season) })
	return list, nil
}

// seasonInfo returns a season without Total. record is empty if the store has no data of
// the season.
func seasonInfo(b *leaderboard.Board, season leaderboard.Season, record *leaderboard.SeasonRecord, now time.Time) SeasonInfo {
	info := SeasonInfo{Season: season, ClosesAt: b.ClosesAt(season), SealedAt: record.SealedAt, Amendments: record.Amendments}
	if record.Season != "" {
		info.RemovedAt = removedAt(b, season, record.SealedAt, now)
	}
	if early, ok := b.Season.EarlyEnd(season.ID); ok {
		info.EndedAt = early.DecidedAt
	}
	info.Phase, info.Filling = phaseOf(b, &info, now), b.FillingSeason(season.ID, now)
	return info
}

// If id is empty, season returns the current season. For [leaderboard.SeasonLatest], it calls
// latestSeason.
func (r *Reader) season(ctx context.Context, b *leaderboard.Board, id leaderboard.SeasonID) (leaderboard.Season, error) {
	season, err := seasonOrCurrent(b, id, r.now())
	if id == leaderboard.SeasonLatest && errors.Is(err, leaderboard.ErrSeasonNotFound) {
		return r.latestSeason(ctx, b)
	}
	return season, err
}

// latestSeason returns the newest season that has begun and has entries. Without such a season,
// it returns the current season, or else the last season that has begun, or else the first
// season.
func (r *Reader) latestSeason(ctx context.Context, b *leaderboard.Board) (leaderboard.Season, error) {
	records, err := r.store.Seasons(ctx, b.ID)
	if err != nil {
		return leaderboard.Season{}, err
	}
	seasons := make([]leaderboard.Season, len(records))
	for i, record := range records {
		if seasons[i], err = b.Season.ByID(record.Season); err != nil {
			return leaderboard.Season{}, err
		}
	}
	slices.SortFunc(seasons, newestFirst)
	for _, season := range seasons {
		if r.now().Before(b.Season.Begins(season)) {
			continue
		}
		total, err := r.total(ctx, b, season.ID)
		if err != nil {
			return leaderboard.Season{}, err
		}
		if total == nil || *total > 0 { // if the total is unknown, choose the newest season with results
			return season, nil
		}
	}
	current, err := b.Season.At(r.now())
	if windows := b.Season.Windows; err != nil && len(windows) > 0 {
		upcoming := slices.IndexFunc(windows, func(w leaderboard.Season) bool { return w.Start.After(r.now()) })
		if upcoming < 0 {
			upcoming = len(windows)
		}
		return b.Season.ByID(windows[max(upcoming-1, 0)].ID)
	}
	return current, err
}

// newestFirst orders seasons by their ends. Windows of a rolling board may have equal starts.
func newestFirst(x, y leaderboard.Season) int { return y.End.Compare(x.End) }

func (r *Reader) total(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID) (*int64, error) {
	var total int64
	err := r.read(ctx, b, Query{Board: b.ID, Season: season}, func(v *view) error {
		_, ladderView, err := v.Page(ctx, v.ladder, 1, 1, leaderboard.Ordinal)
		total = ladderView.Size
		return err
	})
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		return nil, nil
	}
	return &total, err
}

func phaseOf(b *leaderboard.Board, info *SeasonInfo, now time.Time) SeasonPhase {
	switch {
	case !info.SealedAt.IsZero():
		return Sealed
	case b.Closed(info.Season, now):
		return Closed
	case now.Before(b.Season.Begins(info.Season)):
		return Upcoming
	case !info.End.IsZero() && !now.Before(info.End):
		return Grace
	default:
		return Open
	}
}
