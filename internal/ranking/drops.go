package ranking

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/open-leaderboard/leaderboard"
)

// sealedSeasons are the sealed seasons that the index may still contain. Such a season does no
// harm, because its ranks come from its final standings, but it takes memory.
type sealedSeasons struct {
	mu sync.Mutex
	// seasons has true for a season that the index could not drop, and false for a season that was
	// sealed before this process knew of it.
	seasons map[leaderboard.SeasonKey]bool
}

// add adds a season.
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

// dropFinal drops a sealed season from the index. If the index is unavailable, dropFinal returns nil,
// and dropSealed drops the season later.
func (x *rankIndex) dropFinal(ctx context.Context, key leaderboard.SeasonKey) error {
	err := x.Index.Drop(ctx, key)
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		x.sealed.add(key, true)
		x.log.WarnContext(ctx, "sealed season of the rank index not dropped yet", "board", key.Board, "season", key.Season, "err", err)
		return nil
	}
	return err
}

// dropSealed drops the seasons in x.sealed from the index. If the index is unavailable, it stops,
// and a later call goes on.
//
// If one of these seasons was deleted meanwhile, and has results again, the drop only costs another
// load.
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

// dropOne drops a season. If always is false, it drops only a loaded season: this costs less if the
// index does not have the season, which is usual.
func (x *rankIndex) dropOne(ctx context.Context, key leaderboard.SeasonKey, always bool) error {
	if !always {
		if loaded, err := x.Index.Loaded(ctx, key); !loaded || err != nil {
			return err
		}
	}
	return x.Index.Drop(ctx, key)
}
