package cql

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/storage"
	"github.com/open-leaderboard/leaderboard/storage/storagetest"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

func modelStore(m *model) *testStore {
	return openTest(m, Options{DataCenter: "dc1", Buckets: 3, CacheUsers: 100})
}

func TestModelKeepsTheContract(t *testing.T) {
	needs.Also(t, "histories")
	divisor := 5
	if needs.Running("histories") {
		divisor = 1
	}
	storagetest.Run(t, func(t testing.TB) leaderboard.Store {
		t.(*testing.T).Parallel() // each test has its own model
		return engine.New(modelStore(newModel(nil)).Store)
	}, limits, storagetest.Sizes{RowsDivisor: divisor, RoundsDivisor: divisor})
}

func TestModelBackend(t *testing.T) {
	seed := stepsSeed(t)
	storagetest.RunBackend(t, func(testing.TB) storage.Backend {
		seed++
		m := newModel(rand.New(rand.NewPCG(seed, 0)))
		m.now = time.Now
		return modelStore(m).Store
	})
}

func TestModelRefusalsExpire(t *testing.T) {
	storagetest.RunExpiry(t, func(_ testing.TB, now func() time.Time) leaderboard.Store {
		m := newModel(nil)
		m.now = now
		s := modelStore(m)
		s.now = now
		return engine.New(s.Store)
	})
}

func TestModelSeasonLimit(t *testing.T) {
	s := modelStore(newModel(nil))
	s.maxSeasons = 4
	storagetest.RunSeasonLimit(t, engine.New(s.Store), s.maxSeasons)
}

// Lagging replicas do not change the answers, because every quorum has a replica with the latest
// data.
func TestModelHistories(t *testing.T) {
	seed := stepsSeed(t)
	storagetest.RunHistories(t, func(testing.TB) leaderboard.Store {
		seed++
		return engine.New(modelStore(newModel(rand.New(rand.NewPCG(seed, 0)))).Store)
	}, storagetest.Sizes{Histories: needs.More(t, 5)})
}

var limits = storagetest.Limits{
	EntriesFollow: "results and entries are in different partitions, and no atomic write covers two partitions",
	NotedChanges:  "to store the time of each change, all writers of a season would have to write one row for each user of a batch",
}
