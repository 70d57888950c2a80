// Package cachetest tests implementations of [leaderboard.Index]. Run checks each sentence of the
// contract. RunHistories applies random histories to an index and to a naive model.
package cachetest

import (
	"cmp"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

// Limits declares the sentences of the contract that an index does not keep. A field has the
// reason, or is empty if the index keeps the sentence.
type Limits struct {
	// MixedMoments is the reason why an answer may show users at slightly different moments. The
	// ranks in one answer must still agree with each other.
	MixedMoments string
	// NoDense is the reason why a season on several shards has no dense ranks. Reads of dense ranks must
	// then return [leaderboard.ErrMethodUnavailable].
	NoDense string
	// Shards is the number of shards of a season whose board sets no number. Default 1.
	Shards int
}

// Sizes are the sizes of the tests. Zero means the default.
type Sizes struct {
	// Histories is the number of random histories. Default 24.
	Histories int
	// Changes is the number of changes in each history. Default 200.
	Changes int
	// Moves is the number of updates made while other goroutines read. Default 2,000.
	Moves int
	// Positions is the number of positions of a ladder at which each comparison reads, and of users
	// whom the ladder lacks. Default 12.
	// Further comparisons read at other positions.
	Positions int
}

func (s Sizes) withDefaults() Sizes {
	return Sizes{cmp.Or(s.Histories, 24), cmp.Or(s.Changes, 200), cmp.Or(s.Moves, 2000), cmp.Or(s.Positions, 12)}
}

// Run checks each sentence of the contract on a new index. open returns an empty index, which Run
// closes.
func Run(t *testing.T, open func(testing.TB) leaderboard.Index, limits Limits, sizes Sizes) {
	run(t, open, limits, sizes, []group{
		{"View", viewTests},
		{"Reads", readTests},
		{"Update", updateTests},
		{"Rebuild", rebuildTests},
		{"Concurrency", concurrencyTests},
	})
}

// RunConcurrency checks the sentences of the contract about concurrent calls only.
func RunConcurrency(t *testing.T, open func(testing.TB) leaderboard.Index, limits Limits, sizes Sizes) {
	run(t, open, limits, sizes, []group{{"Concurrency", concurrencyTests}})
}

type group struct {
	subject string
	tests   []test
}

func run(t *testing.T, open func(testing.TB) leaderboard.Index, limits Limits, sizes Sizes, groups []group) {
	for _, group := range groups {
		t.Run(group.subject, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.sentence, func(t *testing.T) {
					test.run(newFixture(t, closeAtEnd(t, open(t)), limits, sizes))
				})
			}
		})
	}
}

func closeAtEnd(t *testing.T, index leaderboard.Index) leaderboard.Index {
	t.Cleanup(func() {
		if err := index.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return index
}

type test struct {
	sentence string
	run      func(*fixture)
}
