package ranking

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	// refreshTimeout is the longest time for the refresh of a cached value.
	refreshTimeout = time.Second
	// refreshCooldown is the time between a refresh that the store did not answer and the
	// next refresh.
	refreshCooldown = 5 * time.Second
)

// BoardCache caches the boards of a store and the records of their seasons. If the store does not
// answer, BoardCache returns expired values.
type BoardCache struct {
	store leaderboard.Store
	now   func() time.Time
	ttl   time.Duration

	boards  sync.Map // BoardID to *cached[leaderboard.Board]
	seasons sync.Map // SeasonKey to *cached[leaderboard.SeasonRecord], for seasons that may be sealed
}

// cached is an answer of the store.
type cached[V any] struct {
	value V
	until time.Time // the time of the next refresh
	// readAt is the time immediately before the value was read from the store. It is from
	// [time.Now], not from BoardCache.now, because it is compared with times of this process
	// only.
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

// board returns a board, which the caller must not change. If the store does not
// answer, board returns the cached version, which may lack the latest divisions and
// seasons. Ranks in the divisions and seasons of the cached version are correct, because the order,
// the policy, the half-life and the tie-breakers of a board never change.
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

// BoardSince returns a version of a board that was read from the store after since, a
// time in the past. Errors: [leaderboard.ErrBoardNotFound].
func (c *BoardCache) BoardSince(ctx context.Context, id leaderboard.BoardID, since time.Time) (leaderboard.Board, error) {
	b, err := c.boardSince(ctx, id, since)
	if err != nil {
		return leaderboard.Board{}, err
	}
	return *b, nil
}

// boardSince does the work of BoardSince. The caller must not change the board.
func (c *BoardCache) boardSince(ctx context.Context, id leaderboard.BoardID, since time.Time) (*leaderboard.Board, error) {
	if cachedBoard, ok := c.boards.Load(id); ok {
		if entry := cachedBoard.(*cached[leaderboard.Board]); entry.readAt.After(since) {
			return &entry.value, nil
		}
	}
	readAt := time.Now()
	b, err := c.store.Board(ctx, id)
	switch {
	case err == nil:
		putCached(c, &c.boards, id, b, readAt)
	case errors.Is(err, leaderboard.ErrBoardNotFound):
		c.forgetBoard(id)
	}
	return &b, err
}

// seasonRecord returns the record of a season and reports whether the season is sealed.
// If the store does not answer, seasonRecord returns the cached record. If no record is
// cached and the season still accepts results, it reports that the season is not
// sealed.
func (c *BoardCache) seasonRecord(ctx context.Context, b *leaderboard.Board, season leaderboard.Season) (leaderboard.SeasonRecord, bool, error) {
	key := leaderboard.SeasonKey{Board: b.ID, Season: season.ID}
	unsealed := leaderboard.SeasonRecord{SeasonKey: key}
	if !c.mayBeSealed(season) {
		return unsealed, false, nil
	}
	var fallback *leaderboard.SeasonRecord
	if !b.Closed(season, c.now()) {
		fallback = &unsealed
	}
	r, err := getCached(ctx, c, &c.seasons, key, fallback, func(ctx context.Context) (leaderboard.SeasonRecord, error) {
		return c.store.Season(ctx, key)
	})
	if err != nil {
		return unsealed, false, err
	}
	return *r, !r.SealedAt.IsZero(), nil
}

// mayBeSealed reports whether a season may be sealed, because it has ended. The clock of the
// process that seals the season may be up to sealDelay ahead. mayBeSealed ignores the grace, which
// an administrator may extend after the season is sealed.
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

// getCached returns the value that is cached under a key. If the value is absent or expired,
// getCached fetches and caches a new value. If the store does not answer, getCached returns the
// expired value. Without an expired value, it returns fallback or, if fallback is nil, the error. For
// refreshCooldown after it has returned an expired value or fallback, getCached returns the same
// value without another fetch.
func getCached[V any](ctx context.Context, c *BoardCache, values *sync.Map, key any, fallback *V, fetch func(context.Context) (V, error)) (*V, error) {
	loaded, _ := values.Load(key)
	previous, _ := loaded.(*cached[V])
	if previous != nil {
		if c.now().Before(previous.until) {
			return &previous.value, nil
		}
		fallback = &previous.value
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
		renewed := &cached[V]{value: *fallback, until: c.now().Add(refreshCooldown)}
		if previous != nil {
			renewed.readAt = previous.readAt
		}
		if previous == nil {
			values.LoadOrStore(key, renewed)
		} else {
			values.CompareAndSwap(key, loaded, renewed)
		}
		return fallback, nil
	}
	return nil, err
}
