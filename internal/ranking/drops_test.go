package ranking_test

import (
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/faults"
)

func TestSealedSeasonsLeaveTheIndexLater(t *testing.T) {
	key := leaderboard.SeasonKey{Board: dailyBoard.ID, Season: day}
	for _, tt := range []struct {
		name  string
		sweep func(t *testing.T, sealer, other *fixture, index *faults.Index)
	}{
		{"the process that seals cannot reach the index", func(_ *testing.T, _, other *fixture, index *faults.Index) {
			index.Set(faults.Refuse)
			other.sweep()
			index.Set(faults.Up)
			other.sweep()
		}},
		{"a process that learns of the seal cannot reach the index", func(_ *testing.T, sealer, other *fixture, index *faults.Index) {
			sealer.sweep()
			index.Set(faults.Refuse)
			for range 2 {
				other.sweep()
			}
			index.Set(faults.Up)
			other.sweep()
		}},
		{"a process starts days after the seal", func(t *testing.T, sealer, _ *fixture, index *faults.Index) {
			sealer.sweep()
			late := serviceOver(t, sealer.store, index)
			late.clock.set(start.AddDate(0, 0, 9))
			late.sweep()
		}},
		{"a process starts days after the seal, and cannot reach the index", func(t *testing.T, sealer, _ *fixture, index *faults.Index) {
			sealer.sweep()
			late := serviceOver(t, sealer.store, index)
			late.clock.set(start.AddDate(0, 0, 9))
			index.Set(faults.Refuse)
			late.sweep()
			index.Set(faults.Up)
			late.clock.set(late.clock.now().Add(time.Minute))
			late.sweep()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store, _ := embedded.Open(t)
			index := &faults.Index{Index: memory.New()}
			sealer, other := serviceOver(t, store, memory.New()), serviceOver(t, store, index)
			sealer.create(dailyBoard)
			sealer.submit(dailyBoard.ID, points("ann", "m", 5))
			if err := other.Load(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			sealer.afterDay()
			other.afterDay()
			tt.sweep(t, sealer, other, index)
			record, err := store.Season(t.Context(), key)
			if err != nil || record.SealedAt.IsZero() {
				t.Errorf("season %+v, error %v; want it sealed", record, err)
			}
			if loaded, err := index.Loaded(t.Context(), key); loaded || err != nil {
				t.Errorf("the index has the sealed season: %v, error %v; want it dropped", loaded, err)
			}
		})
	}
}
