package ranking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// How long a read waits for what may be down before it does without.
const (
	// indexPatience is for an answer of the rank index.
	indexPatience = 5 * time.Second
	// indexPause is how long nobody asks an index that did not answer in time.
	indexPause = 5 * time.Second
	// loadPatience is for the index to be filled, counted from when that began:
	// small seasons are filled by then, and readers of a large one go without ranks.
	loadPatience = 5 * time.Second
	// boardPatience is for the store to tell again of a board or season.
	boardPatience = time.Second
	// boardPause is how long nobody asks again where it did not.
	boardPause = 5 * time.Second
)

// patient asks the index, and takes one that does not answer for one that
// cannot: a server that hangs must not hold up what is read without it.
type patient struct{ s *Service }

var _ leaderboard.Ranker = patient{}

func patiently[T any](ctx context.Context, s *Service, ask func(context.Context) (T, leaderboard.View, error)) (T, leaderboard.View, error) {
	var none T
	if s.indexPaused() {
		return none, leaderboard.View{}, errPaused
	}
	limited, cancel := context.WithTimeout(ctx, indexPatience)
	defer cancel()
	answer, seen, err := ask(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		until := time.Now().Add(indexPause)
		s.pausedUntil.Store(&until)
		err = fmt.Errorf("ranking: no answer in %v: %w: %w", indexPatience, leaderboard.ErrRankUnavailable, err)
	}
	return answer, seen, err
}

var errPaused = fmt.Errorf("ranking: the index did not answer a moment ago: %w", leaderboard.ErrRankUnavailable)

func (s *Service) indexPaused() bool {
	until := s.pausedUntil.Load()
	return until != nil && time.Now().Before(*until)
}

func (p patient) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID) ([]leaderboard.Standing, leaderboard.View, error) {
	return patiently(ctx, p.s, func(ctx context.Context) ([]leaderboard.Standing, leaderboard.View, error) {
		return p.s.index.Standings(ctx, l, users)
	})
}

func (p patient) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int) ([]leaderboard.Standing, leaderboard.View, error) {
	return patiently(ctx, p.s, func(ctx context.Context) ([]leaderboard.Standing, leaderboard.View, error) {
		return p.s.index.Page(ctx, l, position, n)
	})
}

func (p patient) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int) ([]leaderboard.Standing, leaderboard.View, error) {
	return patiently(ctx, p.s, func(ctx context.Context) ([]leaderboard.Standing, leaderboard.View, error) {
		return p.s.index.PageAfter(ctx, l, after, n)
	})
}

func (p patient) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int) ([]leaderboard.Standing, leaderboard.View, error) {
	return patiently(ctx, p.s, func(ctx context.Context) ([]leaderboard.Standing, leaderboard.View, error) {
		return p.s.index.Around(ctx, l, user, above, below)
	})
}

func (p patient) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey) ([]leaderboard.Counts, leaderboard.View, error) {
	return patiently(ctx, p.s, func(ctx context.Context) ([]leaderboard.Counts, leaderboard.View, error) {
		return p.s.index.Count(ctx, l, keys)
	})
}

// load fills the index's scope unless it is there. Many callers share one load,
// which goes on without those who give up. It returns
// [leaderboard.ErrRankUnavailable] if it takes long.
func (s *Service) load(ctx context.Context, b *leaderboard.Board, scope leaderboard.Scope) error {
	if s.indexPaused() {
		return errPaused
	}
	filling := fmt.Errorf("ranking: the index of %s/%s is being filled: %w", scope.Board, scope.Season, leaderboard.ErrRankUnavailable)
	patience := loadPatience
	if began, ok := s.loadsBegan.Load(scope); ok {
		// Who will not wait must not join: readers come by the thousand while a
		// load takes an hour, and each would be remembered until it ends.
		if patience -= time.Since(began.(time.Time)); patience <= 0 {
			return filling
		}
	}
	done := make(chan error, 1)
	s.unfinished.Go(func() {
		_, err, _ := s.loading.Do(fmt.Sprintf("%q/%q", scope.Board, scope.Season), func() (any, error) {
			s.loadsBegan.Store(scope, time.Now())
			defer s.loadsBegan.Delete(scope)
			if ok, err := s.index.Loaded(s.life, scope); ok || err != nil {
				return nil, err
			}
			return nil, s.rebuildIndex(s.life, b, scope, nil)
		})
		done <- err
	})
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return filling
	case <-ctx.Done():
		return ctx.Err()
	}
}

// told is what the store told, and until when that is believed.
type told[V any] struct {
	value V
	until time.Time
}

// keep keeps what the store told under a key.
func keep[V any](s *Service, all *sync.Map, key any, value V) {
	all.Store(key, &told[V]{value, s.now().Add(s.boardTTL)})
}

// recall returns what is kept under a key, or asks the store where that is too
// old. While the store does not answer, what was told last is believed, and
// otherwise, if it is not nil, where nothing was.
func recall[V any](ctx context.Context, s *Service, all *sync.Map, key any, otherwise *V, ask func(context.Context) (V, error)) (*V, error) {
	known, _ := all.Load(key)
	have, _ := known.(*told[V])
	if have != nil && s.now().Before(have.until) {
		return &have.value, nil
	}
	believed := otherwise
	if have != nil {
		believed = &have.value
	}
	asking := ctx
	if believed != nil {
		limited, cancel := context.WithTimeout(ctx, boardPatience)
		defer cancel()
		asking = limited
	}
	value, err := ask(asking)
	switch {
	case err == nil:
		keep(s, all, key, value)
		return &value, nil
	case believed != nil && ctx.Err() == nil && (errors.Is(err, leaderboard.ErrUnavailable) || asking.Err() != nil):
		pause := &told[V]{*believed, s.now().Add(boardPause)}
		if have == nil {
			all.LoadOrStore(key, pause)
		} else {
			all.CompareAndSwap(key, known, pause)
		}
		return believed, nil
	}
	return nil, err
}

// board returns a board that must not be changed. While the store does not
// answer, what was known last is believed: a board's rules do not change, and of
// its other settings none makes a rank wrong.
func (s *Service) board(ctx context.Context, id leaderboard.BoardID) (*leaderboard.Board, error) {
	b, err := recall(ctx, s, &s.boards, id, nil, func(ctx context.Context) (leaderboard.Board, error) {
		if err := id.Validate(); err != nil {
			return leaderboard.Board{}, err
		}
		return s.store.Board(ctx, id)
	})
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		s.boards.Delete(id)
	}
	return b, err
}

// sealedSeason returns the record of a season, and whether it is sealed. While the
// store does not answer, what was known last is believed, and one that takes
// results is not sealed.
func (s *Service) sealedSeason(ctx context.Context, b *leaderboard.Board, season leaderboard.Season) (leaderboard.SeasonRecord, bool, error) {
	scope := leaderboard.Scope{Board: b.ID, Season: season.ID}
	none := leaderboard.SeasonRecord{Scope: scope}
	if !s.mayBeSealed(season) {
		return none, false, nil
	}
	var otherwise *leaderboard.SeasonRecord
	if !b.Closed(season, s.now()) {
		otherwise = &none
	}
	r, err := recall(ctx, s, &s.seasons, scope, otherwise, func(ctx context.Context) (leaderboard.SeasonRecord, error) {
		return s.store.Season(ctx, scope)
	})
	if err != nil {
		return none, false, err
	}
	return *r, !r.SealedAt.IsZero(), nil
}
