// Package cachetest tests implementations of [leaderboard.Index]. Run tests the
// sentences of the contract, and RunHistories compares an index with a naive model
// over random histories.
package cachetest

import (
	"cmp"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

// Limits lists the sentences of the contract that an index cannot keep, one field each.
// The value is the reason. If it is empty, the index keeps the sentence. The tests of the
// sentence depend on the field, not on the index.
type Limits struct {
	// MixedMoments is why an answer about several users may show them at slightly
	// different moments. The ranks of each answer must still be consistent.
	MixedMoments string
}

// Sizes are the sizes of the tests, which a slow index can reduce. A zero field has
// its default.
type Sizes struct {
	// Histories is the number of random histories. Default 24.
	Histories int
	// Changes is the number of changes in each history. Default 200.
	Changes int
	// Moves is the number of updates made while other goroutines read. Default 2,000.
	Moves int
}

func (s Sizes) withDefaults() Sizes {
	return Sizes{cmp.Or(s.Histories, 24), cmp.Or(s.Changes, 200), cmp.Or(s.Moves, 2000)}
}

// Run tests each sentence of the contract on a new index. open must return an empty
// index and close it when the test ends.
func Run(t *testing.T, open func(testing.TB) leaderboard.Index, limits Limits, sizes Sizes) {
	for _, group := range []struct {
		subject string
		tests   []test
	}{
		{"View", viewTests},
		{"Reads", readTests},
		{"Update", updateTests},
		{"Rebuild", rebuildTests},
		{"Concurrency", concurrencyTests},
	} {
		t.Run(group.subject, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.sentence, func(t *testing.T) {
					test.run(newFixture(t, open(t), limits, sizes))
				})
			}
		})
	}
}

// test is the test of one sentence of the contract. The sentence is its name.
type test struct {
	sentence string
	run      func(*fixture)
}
