package ranking

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	refreshTimeout  = time.Second
	refreshCooldown = 5 * time.Second
)

// BoardCache caches boards and season records. It returns expired values if the store does not
// answer.
type BoardCache struct {
	store leaderboard.Store
	now   func() time.Time
	ttl   time.Duration

	boards  sync.Map // BoardID to *cached[leaderboard.Board]
	seasons sync.Map // SeasonKey to *cached[leaderboard.SeasonRecord], if the season may be sealed
}

type cached[V any] struct {
	value V
	until time.Time
	// readAt is when the read began, by [time.Now], not by BoardCache.now.
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

// The caller must not change the board. An expired copy still gives correct ranks in its
// divisions and seasons: the order, the policy, the half-life and the tie-breakers of a board
// never change.
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

// BoardSince returns a board as it was read from the store after since, a time in the past.
// Errors: [leaderboard.ErrBoardNotFound].
func (c *BoardCache) BoardSince(ctx context.Context, id leaderboard.BoardID, since time.Time) (leaderboard.Board, error) {
	b, err := c.boardSince(ctx, id, since)
	if err != nil {
		return leaderboard.Board{}, err
	}
	return *b, nil
}

// The caller must not change the board.
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

// If the store does not answer and no record is cached, a season that still accepts results
// counts as not sealed.
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

// mayBeSealed reports whether a season may have ended by another process's clock, which may be
// up to sealDelay ahead. It ignores the grace: an administrator may extend it after the seal.
func (c *BoardCache) mayBeSealed(season leaderboard.Season) bool {
	return !season.End.IsZero() && c.now().Add(sealDelay).After(season.End)
}

func (c *BoardCache) putSeason(r leaderboard.SeasonRecord) {
	putCached(c, &c.seasons, r.SeasonKey, r, time.Now())
}

func (c *BoardCache) forgetBoard(id leaderboard.BoardID)     { c.boards.Delete(id) }
func (c *BoardCache) forgetSeason(key leaderboard.SeasonKey) { c.seasons.Delete(key) }

func putCached[V any](c *BoardCache, values *sync.Map, key any, value V, readAt time.Time) {
	values.Store(key, &cached[V]{value, c.now().Add(c.ttl), readAt})
}

// If the store does not answer, getCached returns the expired value, or fallback if no value is
// cached, and fetches again after refreshCooldown. Without both, it returns the error.
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
