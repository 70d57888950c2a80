package ranking

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/open-leaderboard/leaderboard"
)

// sealedSeasons are sealed seasons that the index may still contain. In the index, no read
// needs them: they only take memory.
type sealedSeasons struct {
	mu sync.Mutex
	// The value is true if a drop of the season has failed, and false if the index may never
	// have had the season.
	seasons map[leaderboard.SeasonKey]bool
}

func (s *sealedSeasons) add(key leaderboard.SeasonKey, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seasons == nil {
		s.seasons = map[leaderboard.SeasonKey]bool{}
	}
	s.seasons[key] = failed || s.seasons[key]
}

func (s *sealedSeasons) remove(key leaderboard.SeasonKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seasons, key)
}

func (s *sealedSeasons) list() map[leaderboard.SeasonKey]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.seasons)
}

// dropFinal drops a sealed season. If the index is unavailable, dropSealed drops it later.
func (x *rankIndex) dropFinal(ctx context.Context, key leaderboard.SeasonKey) error {
	err := x.Index.Drop(ctx, key)
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		x.sealed.add(key, true)
		x.log.WarnContext(ctx, "sealed season of the rank index not dropped yet", "board", key.Board, "season", key.Season, "err", err)
		return nil
	}
	return err
}

// If the index is unavailable, a later call drops the remaining seasons.
func (x *rankIndex) dropSealed(ctx context.Context) error {
	seasons := x.sealed.list()
	for key := range seasons {
		err := x.dropOne(ctx, key, seasons[key])
		if errors.Is(err, leaderboard.ErrRankUnavailable) {
			return nil
		}
		if err != nil {
			return err
		}
		x.sealed.remove(key)
	}
	return nil
}

// If always is false, dropOne drops the season only if it is loaded. This check costs less
// than a drop.
func (x *rankIndex) dropOne(ctx context.Context, key leaderboard.SeasonKey, always bool) error {
	if !always {
		if loaded, err := x.Index.Loaded(ctx, key); !loaded || err != nil {
			return err
		}
	}
	return x.Index.Drop(ctx, key)
}
