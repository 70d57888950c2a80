// Package storagetest tests implementations of [leaderboard.Store].
//
// The function [Run] tests each sentence of the contract. [RunHistories] plays random
// sequences of calls, and compares the store's answers with the answers of a naive model.
package storagetest

import (
	"cmp"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Limits names the sentences of the contract that a store cannot keep. Each field is
// about one sentence, and its value is the reason. If the value is empty, the store keeps
// the sentence. Tests read only these fields, and never check which store they test.
type Limits struct {
	// EntriesFollow is the reason why readers may see results earlier than the entry that
	// follows from them. If the process crashes after it wrote the results and before it
	// wrote the entry, the entry stays old until the caller applies the results again or
	// calls Recount. Such a store must still make the results of one user in one Apply
	// visible together. It must also make an entry and its row in the overall ladder
	// visible together.
	EntriesFollow string
	// NoChangedAt is the reason why ChangedAt always returns the zero time.
	NoChangedAt string
	// NoRankChanges is the reason why RankChanges yields nothing.
	NoRankChanges string
}

// Sizes contains the sizes of the tests. Tests of a slow store can use smaller sizes. If a
// field is zero, its default applies.
type Sizes struct {
	// Histories is the number of random histories. Default 60. The environment
	// variable LEADERBOARD_HISTORIES overrides it.
	Histories int
	// RowsDivisor divides the number of rows in tests that write many rows. The tests never
	// reduce this number below 30. These tests are useful only if their rows fill several pages. So if
	// the store reads in pages, newStore must open it with pages that are smaller by the same factor.
	// Default 1.
	RowsDivisor int
	// RoundsDivisor divides the number of rounds in tests of concurrent calls. The tests
	// never reduce this number below 2. Default 1.
	RoundsDivisor int
}

func (s Sizes) withDefaults() Sizes {
	return Sizes{cmp.Or(s.Histories, 60), cmp.Or(s.RowsDivisor, 1), cmp.Or(s.RoundsDivisor, 1)}
}

// Run calls newStore for each sentence of the contract and tests the sentence with that
// store. Each call of newStore must return an empty store. Run closes the store after the
// test.
func Run(t *testing.T, newStore func(testing.TB) leaderboard.Store, limits Limits, sizes Sizes) {
	sizes = sizes.withDefaults()
	for _, group := range []struct {
		subject string
		tests   []test
	}{
		{"Store", storeTests},
		{"Boards", boardTests},
		{"Apply", applyTests},
		{"Results", resultTests},
		{"Matches", matchTests},
		{"Entries", entryTests},
		{"Recount", recountTests},
		{"Users", userTests},
		{"Bans", banTests},
		{"Seasons", seasonTests},
		{"Marks", markTests},
		{"APIKeys", apiKeyTests},
		{"Audit", auditTests},
	} {
		t.Run(group.subject, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.sentence, func(t *testing.T) {
					store := newStore(t)
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

// A test checks one sentence of the contract. The sentence is the name of the test.
type test struct {
	sentence string
	run      func(*fixture)
}
