package ranking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	Total      *int64    // users in the overall ladder; nil if unknown
	AsOf       time.Time // of Total, as in About
	// ChangedAt is when a result, a ban or an erasure last changed the season, or zero. Only [Reader.SeasonInfo]
	// sets it.
	ChangedAt time.Time
}

// SeasonsQuery asks for a page of the seasons of a board.
type SeasonsQuery struct {
	Limit int                  // 1 to MaxSeasons
	After leaderboard.SeasonID // the last season of the previous page; empty for the first page
}

// MaxSeasons is the largest number of seasons on a page.
const MaxSeasons = 1000

// SeasonsPage is a page of the seasons of a board.
type SeasonsPage struct {
	Seasons []SeasonInfo
	// Next is the After of the next page, or empty. A page with a Next may have fewer seasons than the
	// limit, or none.
	Next leaderboard.SeasonID
}

// Seasons returns a board's current season, every season with entries or final standings, and every
// window that the schedule lists. The season that ends last is first.
func (r *Reader) Seasons(ctx context.Context, b *leaderboard.Board, q SeasonsQuery) (SeasonsPage, error) {
	if q.Limit < 1 || q.Limit > MaxSeasons {
		return SeasonsPage{}, &leaderboard.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d, not %d", MaxSeasons, q.Limit)}
	}
	list, err := r.knownSeasons(ctx, b)
	if err != nil {
		return SeasonsPage{}, err
	}
	if q.After != "" {
		after, err := b.Season.ByID(q.After)
		if err != nil {
			return SeasonsPage{}, err
		}
		first := slices.IndexFunc(list, func(s knownSeason) bool { return newestFirst(s.Season, after) > 0 })
		if first < 0 {
			first = len(list)
		}
		list = list[first:]
	}
	var page SeasonsPage
	for i := range list {
		// Only seasons without entries make i grow beyond the page.
		if len(page.Seasons) == q.Limit || i == MaxSeasons {
			page.Next = list[i-1].ID
			break
		}
		info, listed, err := r.seasonInfo(ctx, b, &list[i])
		if err != nil {
			return SeasonsPage{}, err
		}
		if listed {
			page.Seasons = append(page.Seasons, info)
		}
	}
	return page, nil
}

// knownSeason is a season that may be listed.
type knownSeason struct {
	leaderboard.Season
	scheduled bool // is the current season, or a window that the schedule lists
	stored    bool // the store may have data of the season
}

func (r *Reader) knownSeasons(ctx context.Context, b *leaderboard.Board) ([]knownSeason, error) {
	ids, err := r.store.SeasonIDs(ctx, b.ID)
	if err != nil {
		return nil, err
	}
	return knownSeasonsAt(b, ids, r.now())
}

// ids are the seasons of which the store may have data.
func knownSeasonsAt(b *leaderboard.Board, ids []leaderboard.SeasonID, now time.Time) (_ []knownSeason, err error) {
	known := map[leaderboard.SeasonID]knownSeason{}
	for _, id := range ids {
		known[id] = knownSeason{stored: true}
	}
	schedule := func(id leaderboard.SeasonID) {
		s := known[id]
		s.scheduled = true
		known[id] = s
	}
	for _, w := range b.Season.Windows {
		schedule(w.ID)
	}
	if current, err := b.Season.At(now); err == nil {
		schedule(current.ID)
	}
	list := make([]knownSeason, 0, len(known))
	for id, s := range known {
		if s.Season, err = b.Season.ByID(id); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(x, y knownSeason) int { return newestFirst(x.Season, y.Season) })
	return list, nil
}

// seasonInfo also reports whether the season is listed.
func (r *Reader) seasonInfo(ctx context.Context, b *leaderboard.Board, s *knownSeason) (info SeasonInfo, listed bool, err error) {
	var record leaderboard.SeasonRecord
	if s.stored {
		if record, err = r.store.Season(ctx, leaderboard.SeasonKey{Board: b.ID, Season: s.ID}); err != nil {
			return SeasonInfo{}, false, err
		}
		r.putSeason(record)
	}
	info = seasonInfo(b, s.Season, &record, r.now())
	if info.Total, info.AsOf, err = r.total(ctx, b, s.ID); err != nil {
		return SeasonInfo{}, false, err
	}
	return info, s.isListed(info.Phase, info.Total), nil
}

// isListed reports whether lists of seasons have the season. total is nil if it is unknown.
func (s *knownSeason) isListed(phase SeasonPhase, total *int64) bool {
	return s.scheduled || phase == Sealed || total == nil || *total > 0
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

// maxEmptySeasons bounds the seasons without entries that latestSeason passes over.
const maxEmptySeasons = 100

// latestSeason returns the newest season that has begun and has entries. If more than maxEmptySeasons
// seasons without entries are newer, or without such a season, it returns the current season, or else the
// last season that has begun, or else the first season.
func (r *Reader) latestSeason(ctx context.Context, b *leaderboard.Board) (leaderboard.Season, error) {
	seasons, err := r.knownSeasons(ctx, b)
	if err != nil {
		return leaderboard.Season{}, err
	}
	seasons = slices.DeleteFunc(seasons, func(s knownSeason) bool { return !s.stored || r.now().Before(b.Season.Begins(s.Season)) })
	for i := range seasons[:min(len(seasons), maxEmptySeasons+1)] {
		total, _, err := r.total(ctx, b, seasons[i].ID)
		if err != nil {
			return leaderboard.Season{}, err
		}
		if total == nil || *total > 0 { // if the total is unknown, choose the newest season with results
			return seasons[i].Season, nil
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
func newestFirst(x, y leaderboard.Season) int {
	return cmp.Or(y.End.Compare(x.End), strings.Compare(string(y.ID), string(x.ID)))
}

// total returns the number of ranked users in the overall ladder of a season, and the time of the last change that it
// includes. It returns nil and the zero time if the rank index cannot answer.
func (r *Reader) total(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID) (*int64, time.Time, error) {
	var ladderView leaderboard.View
	err := r.read(ctx, b, Query{Board: b.ID, Season: season}, func(v *view) error {
		var err error
		_, ladderView, err = v.Page(ctx, v.ladder, 1, 1, leaderboard.Ordinal)
		return err
	})
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		return nil, time.Time{}, nil
	}
	return new(ladderView.Ranked()), ladderView.AsOf, err
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
