package finals

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/open-leaderboard/leaderboard"
)

// # How final standings are read
//
// A read gets the seal, a directory and places (see directory.go), and pages. Directories and
// pages never change, so they are cached. Rows of another data center may arrive late, so
// nothing is cached for longer than pageAge.
//
// An amendment or a deletion may remove a directory or a page during a read, after the seal
// names another generation or none. A read that finds all rows of its pages has read the
// generation that the seal named. If a row or a user's standing is missing, inFinal reads the
// seal again. If the seal has changed, the whole read starts again.
//
// If the cached incarnation has ended, a read returns the final standings from before the
// deletion, until the deletion changes the seal.

type finalRead struct {
	season
	seal *seal
	// intact means that the read found every row that it needs
	intact bool
}

// inFinal calls do with the valid generation. If do does not set intact, inFinal reads the
// seal again. If the generation has changed, inFinal calls do again. If the season is not
// sealed, it also reads the season's row: a later incarnation may be sealed.
func (f *Store) inFinal(ctx context.Context, key leaderboard.SeasonKey, do func(context.Context, *finalRead) error) error {
	inc, err := f.b.Incarnation(ctx, key, true)
	for err == nil && inc.Open {
		s := season{f, inc}
		sealBefore, err := s.readSeal(ctx)
		if err != nil {
			return err
		}
		readErr := errNotSealed(key)
		sealAfter := sealBefore
		if sealBefore.sealed() {
			r := finalRead{season: s, seal: &sealBefore}
			readErr = do(ctx, &r)
			if r.intact {
				return readErr
			}
			if sealAfter, err = s.readSeal(ctx); err != nil {
				return err
			}
		}
		if !sealAfter.sealed() {
			if inc, err = f.b.Incarnation(ctx, key, false); err != nil {
				return err
			}
		}
		if inc.Open && inc.ID == s.inc.ID && sealBefore.Generation == sealAfter.Generation {
			return readErr
		}
	}
	return cmp.Or(err, errNotSealed(key))
}

// FinalStandings returns up to n final standings, beginning at a position.
func (f *Store) FinalStandings(ctx context.Context, l leaderboard.Ladder, position int64, n int) (page []leaderboard.Standing, total int64, err error) {
	err = f.inFinal(ctx, l.SeasonKey, func(ctx context.Context, r *finalRead) error {
		p, _, err := r.openLadder(ctx, l.Division.String(), nil)
		if err == nil {
			total = p.total
			page, err = p.standingsFrom(ctx, max(position, 1), n)
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return page, total, nil
}

// FinalLookup returns the final standings of users.
func (f *Store) FinalLookup(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID) (standings []leaderboard.Standing, total int64, err error) {
	err = f.inFinal(ctx, l.SeasonKey, func(ctx context.Context, r *finalRead) error {
		p, places, err := r.openLadder(ctx, l.Division.String(), users)
		if err == nil {
			total = p.total
			standings, err = p.lookup(ctx, users, places)
		}
		return err
	})
	return standings, total, err
}

// FinalAround returns a user's final standing with its neighbors.
func (f *Store) FinalAround(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int) (n leaderboard.Neighborhood, total int64, err error) {
	err = f.inFinal(ctx, l.SeasonKey, func(ctx context.Context, r *finalRead) error {
		p, places, err := r.openLadder(ctx, l.Division.String(), []leaderboard.UserID{user})
		if err == nil {
			n, err = p.neighborhood(ctx, user, places[user], above, below)
		}
		if err == nil {
			total = p.total
		}
		return err
	})
	return n, total, err
}

func errNoStanding(user leaderboard.UserID) error {
	return fmt.Errorf("final standing of user %q: %w", user, leaderboard.ErrEntryNotFound)
}

// FinalAfter returns up to n final standings that follow a sort key.
func (f *Store) FinalAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int) (page []leaderboard.Standing, better leaderboard.Counts, total int64, err error) {
	err = f.inFinal(ctx, l.SeasonKey, func(ctx context.Context, r *finalRead) error {
		p, _, err := r.openLadder(ctx, l.Division.String(), nil)
		if err == nil {
			total = p.total
			page, better, err = p.standingsAfter(ctx, after, n)
		}
		return err
	})
	return page, better, total, err
}

const lookupUsers = 25

const pageCacheBytes = 64 << 20

const pageAge = time.Minute

// A cached value must not be changed.
type cached interface{ bytes() int }

type pageCache struct {
	mu    sync.Mutex
	lru   *simplelru.LRU[any, cachedAt]
	bytes int
}

type cachedAt struct {
	cached
	at time.Time
}

func newPageCache() *pageCache {
	c := &pageCache{}
	c.lru, _ = simplelru.NewLRU(pageCacheBytes, func(_ any, v cachedAt) { c.bytes -= v.cached.bytes() })
	return c
}

func (c *pageCache) get(key any) cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, found := c.lru.Get(key)
	if found && time.Since(v.at) > pageAge {
		c.lru.Remove(key)
		return nil
	}
	return v.cached
}

func (c *pageCache) add(key any, v cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lru.Contains(key) {
		return
	}
	c.lru.Add(key, cachedAt{v, time.Now()})
	for c.bytes += v.bytes(); c.bytes > pageCacheBytes; {
		c.lru.RemoveOldest()
	}
}
