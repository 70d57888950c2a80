// Package storagetest tests implementations of [leaderboard.Store]. Run tests the
// sentences of the contract, and RunHistories compares a store with a naive model
// over random histories.
package storagetest

import (
	"cmp"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Limits lists the sentences of the contract that a store cannot keep, one field each.
// The value is the reason. If it is empty, the store keeps the sentence. The tests of the
// sentence depend on the field, not on the store.
type Limits struct {
	// EntriesFollow is why results may become visible before the entry that follows from
	// them. After a crash, the entry may then be old until the results are applied once
	// more or recounted. The results of one user in one Apply still become visible
	// together, and so do the entry and its row in the overall ladder.
	EntriesFollow string
}

// Sizes are the sizes of the tests, which a slow store can reduce. A zero field has
// its default.
type Sizes struct {
	// Histories is the number of random histories. Default 60. The flag -histories
	// overrides it.
	Histories int
	// RowsDivisor divides the number of rows in tests of many rows, down to 30 rows.
	// A store that reads in pages must then be opened with smaller pages. Default 1.
	RowsDivisor int
	// RoundsDivisor divides the number of rounds in tests of concurrent calls, down to
	// two rounds. Default 1.
	RoundsDivisor int
}

func (s Sizes) withDefaults() Sizes {
	return Sizes{cmp.Or(s.Histories, 60), cmp.Or(s.RowsDivisor, 1), cmp.Or(s.RoundsDivisor, 1)}
}

// Run tests each sentence of the contract on a new store. open must return an empty
// store. Run closes it.
func Run(t *testing.T, open func(testing.TB) leaderboard.Store, limits Limits, sizes Sizes) {
	sizes = sizes.withDefaults()
	for _, group := range []struct {
		subject string
		tests   []test
	}{
		{"Store", storeTests},
		{"Boards", boardTests},
		{"Apply", applyTests},
		{"Results", resultTests},
		{"Entries", entryTests},
		{"Recount", recountTests},
		{"Users", userTests},
		{"Bans", banTests},
		{"Seasons", seasonTests},
		{"APIKeys", apiKeyTests},
		{"Audit", auditTests},
	} {
		t.Run(group.subject, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.sentence, func(t *testing.T) {
					store := open(t)
					t.Cleanup(func() {
						if err := store.Close(); err != nil {
							t.Errorf("Close: %v", err)
						}
					})
					test.run(&fixture{T: t, Store: store, limits: limits, sizes: sizes, ctx: t.Context(), clock: epoch.Add(time.Hour)})
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
