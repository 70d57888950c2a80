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

// The model is as the servers are where the contract can tell, so that what is
// found with it means something.
func TestModelKeepsTheContract(t *testing.T) {
	storagetest.Run(t, func(testing.TB) leaderboard.Store { return modelStore(newModel(nil)) }, limits)
}

// A quorum is enough: replicas that lag are not noticed.
func TestModelHistories(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	storagetest.RunHistories(t, func(testing.TB) leaderboard.Store {
		seed++
		return modelStore(newModel(rand.New(rand.NewPCG(seed, 0))))
	}, 25)
}

// limits: results and entries are in different partitions, so a result may be
// seen before the entry that follows from it.
var limits = storagetest.Limits{EntriesFollow: true}
