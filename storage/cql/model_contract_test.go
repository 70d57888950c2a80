package cql

import (
	"math/rand/v2"
	"testing"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage/storagetest"
)

func modelStore(m *model) *Store {
	return open(m, Options{DataCenter: "dc1", Buckets: 3, CacheUsers: 100})
}

// The model behaves like Cassandra in all cases that the contract's tests cover.
func TestModelKeepsTheContract(t *testing.T) {
	storagetest.Run(t, func(t testing.TB) leaderboard.Store {
		t.(*testing.T).Parallel() // each test has its own model
		return modelStore(newModel(nil))
	}, limits, storagetest.Sizes{})
}

// Lagging replicas do not change the answers, because every quorum has a replica with the latest
// data.
func TestModelHistories(t *testing.T) {
	seed := stepsSeed(t)
	storagetest.RunHistories(t, func(testing.TB) leaderboard.Store {
		seed++
		return modelStore(newModel(rand.New(rand.NewPCG(seed, 0))))
	}, storagetest.Sizes{Histories: 25})
}

var limits = storagetest.Limits{
	EntriesFollow: "results and entries are in different partitions, which no atomic write covers",
	NoChangedAt:   "all writers of a season would write the same row; the index in Redis keeps the time itself",
}
