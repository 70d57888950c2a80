package cql

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage/storagetest"
)

func modelStore(m *model) *Store {
	return open(m, Options{DataCenter: "dc1", Buckets: 3, CacheUsers: 100})
}

// The model passes the same suite as real servers. So results of tests on the model
// are meaningful.
func TestModelKeepsTheContract(t *testing.T) {
	storagetest.Run(t, func(t testing.TB) leaderboard.Store {
		t.(*testing.T).Parallel() // each test has its own model
		return modelStore(newModel(nil))
	}, limits, storagetest.Sizes{})
}

// Answers do not depend on replicas that lag, because a quorum has all data.
func TestModelHistories(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	storagetest.RunHistories(t, func(testing.TB) leaderboard.Store {
		seed++
		return modelStore(newModel(rand.New(rand.NewPCG(seed, 0))))
	}, storagetest.Sizes{Histories: 25})
}

// limits are the sentences of the contract that the store does not keep.
var limits = storagetest.Limits{
	EntriesFollow: "results and entries are in different partitions, which no atomic write covers",
}
