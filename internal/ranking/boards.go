package ranking

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	// refreshTimeout bounds the refresh of a cached value.
	refreshTimeout = time.Second
	// refreshCooldown is how long a cached value is used without a new refresh, after
	// a refresh has failed because the store did not answer.
	refreshCooldown = 5 * time.Second
)

// BoardCache caches the boards of a store, and the records of their seasons. If
// the store does not answer, cached values are used past their time to live.
type BoardCache struct {
	store leaderboard.Store
	now   func() time.Time
	ttl   time.Duration

	boards  sync.Map // BoardID -> *cached[leaderboard.Board]
	seasons sync.Map // SeasonKey -> *cached[leaderboard.SeasonRecord], of seasons that may be sealed
}

// cached is an answer of the store.
type cached[V any] struct {
	value V
	until time.Time // the time of the next refresh
	// readAt is a time before the store was asked for the value. It is compared with
	// times of this process only, so it does not come from BoardCache.now.
	readAt time.Time
}

// Board returns a board, or [leaderboard.ErrBoardNotFound].
func (c *BoardCache) Board(ctx context.Context, id leaderboard.BoardID) (leaderboard.Board, error) {
	b, err := c.board(ctx, id)
	if err != nil {
		return leaderboard.Board{}, err
	}
	return *b, nil
}

// board returns a board that the caller must not change. While the store does not
// answer, it returns the last known version of the board. An old version gives correct
// ranks: a board's rules never change, and its other settings do not affect ranks.
func (c *BoardCache) board(ctx context.Context, id leaderboard.BoardID) (*leaderboard.Board, error) {
	b, err := getCached(ctx, c, &c.boards, id, nil, func(ctx context.Context) (leaderboard.Board, error) {
		if err := id.Validate(); err != nil {
			return leaderboard.Board{}, err
		}
		return c.store.Board(ctx, id)
	})
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		c.forgetBoard(id)
	}
	return b, err
}

// BoardSince returns a board as the store has it at the time since, which has passed, or
// later. Unlike Board, it never returns an older version. Errors:
// [leaderboard.ErrBoardNotFound].
func (c *BoardCache) BoardSince(ctx context.Context, id leaderboard.BoardID, since time.Time) (leaderboard.Board, error) {
	if found, ok := c.boards.Load(id); ok {
		if have := found.(*cached[leaderboard.Board]); have.readAt.After(since) {
			return have.value, nil
		}
	}
	readAt := time.Now()
	b, err := c.store.Board(ctx, id)
	if err == nil {
		putCached(c, &c.boards, id, b, readAt)
	} else if errors.Is(err, leaderboard.ErrBoardNotFound) {
		c.forgetBoard(id)
	}
	return b, err
}

// seasonRecord returns the record of a season and whether the season is sealed.
// While the store does not answer, it returns the last known record. If no record is
// known and the season still takes results, seasonRecord reports that it is not sealed.
func (c *BoardCache) seasonRecord(ctx context.Context, b *leaderboard.Board, season leaderboard.Season) (leaderboard.SeasonRecord, bool, error) {
	key := leaderboard.SeasonKey{Board: b.ID, Season: season.ID}
	none := leaderboard.SeasonRecord{SeasonKey: key}
	if !c.mayBeSealed(season) {
		return none, false, nil
	}
	var fallback *leaderboard.SeasonRecord
	if !b.Closed(season, c.now()) {
		fallback = &none
	}
	r, err := getCached(ctx, c, &c.seasons, key, fallback, func(ctx context.Context) (leaderboard.SeasonRecord, error) {
		return c.store.Season(ctx, key)
	})
	if err != nil {
		return none, false, err
	}
	return *r, !r.SealedAt.IsZero(), nil
}

// mayBeSealed reports whether a season may be sealed, possibly by a process whose
// clock is up to sealDelay ahead. It checks only whether the season has ended. It
// ignores the grace period, because an administrator may lengthen the grace of a board
// after a season is sealed.
func (c *BoardCache) mayBeSealed(season leaderboard.Season) bool {
	return !season.End.IsZero() && c.now().Add(sealDelay).After(season.End)
}

// putSeason caches a season's record.
func (c *BoardCache) putSeason(r leaderboard.SeasonRecord) {
	putCached(c, &c.seasons, r.SeasonKey, r, time.Now())
}

func (c *BoardCache) forgetBoard(id leaderboard.BoardID)     { c.boards.Delete(id) }
func (c *BoardCache) forgetSeason(key leaderboard.SeasonKey) { c.seasons.Delete(key) }

func putCached[V any](c *BoardCache, values *sync.Map, key any, value V, readAt time.Time) {
	values.Store(key, &cached[V]{value, c.now().Add(c.ttl), readAt})
}

// getCached returns the value that is cached under a key. If the value is absent or
// stale, getCached refreshes it with fetch. If the store does not answer, getCached
// returns the stale value. Without a stale value it returns fallback, or the error if
// fallback is nil. It returns the same value for the next refreshCooldown without
// another refresh.
func getCached[V any](ctx context.Context, c *BoardCache, values *sync.Map, key any, fallback *V, fetch func(context.Context) (V, error)) (*V, error) {
	found, _ := values.Load(key)
	have, _ := found.(*cached[V])
	if have != nil {
		if c.now().Before(have.until) {
			return &have.value, nil
		}
		fallback = &have.value
	}
	fetchCtx := ctx
	if fallback != nil {
		limited, cancel := context.WithTimeout(ctx, refreshTimeout)
		defer cancel()
		fetchCtx = limited
	}
	readAt := time.Now()
	value, err := fetch(fetchCtx)
	switch {
	case err == nil:
		putCached(c, values, key, value, readAt)
		return &value, nil
	case fallback != nil && ctx.Err() == nil && (errors.Is(err, leaderboard.ErrUnavailable) || fetchCtx.Err() != nil):
		kept := &cached[V]{value: *fallback, until: c.now().Add(refreshCooldown)}
		if have != nil {
			kept.readAt = have.readAt
		}
		if have == nil {
			values.LoadOrStore(key, kept)
		} else {
			values.CompareAndSwap(key, found, kept)
		}
		return fallback, nil
	}
	return nil, err
}
