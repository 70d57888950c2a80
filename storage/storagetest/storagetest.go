// Package storagetest tests stores. [RunBackend] tests registers and rows of a
// [storage.Backend]. [Run] tests each sentence of
// the contract of [leaderboard.Store]. [RunHistories] plays random calls and compares the answers with a naive model.
package storagetest

import (
	"cmp"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Limits names sentences of the contract that a store cannot keep. The value of a field is the
// reason, or empty if the store keeps the sentence. Tests must not depend on the store's type.
type Limits struct {
	// EntriesFollow means that a store writes results first and the entry later. Between the two
	// writes, readers see the old entry. After a crash in between, the entry stays old until the caller
	// applies the results again or calls Recount. Two groups still become visible together: the
	// results of one user in one Apply, and an entry with its row in the overall ladder.
	EntriesFollow string
	// NotedChanges means that ChangedAt returns the latest time that NoteChange received.
	NotedChanges string
	// NoRankChanges means that RankChanges yields nothing.
	NoRankChanges string
}

// Sizes contains the sizes of the tests, which may be smaller for a slow store. Zero means the
// default.
type Sizes struct {
	// Histories is the number of random histories. The default is 60. The environment variable
	// LEADERBOARD_HISTORIES overrides it.
	Histories int
	// RowsDivisor divides the number of rows in tests of many rows, but leaves at least 30 rows. If
	// the store reads pages, newStore must divide the page size by RowsDivisor. The default is 1.
	RowsDivisor int
	// RoundsDivisor divides the number of rounds in tests of concurrent calls, but leaves at least
	// 2 rounds. The default is 1.
	RoundsDivisor int
}

func (s Sizes) withDefaults() Sizes {
	return Sizes{cmp.Or(s.Histories, 60), cmp.Or(s.RowsDivisor, 1), cmp.Or(s.RoundsDivisor, 1)}
}

// Run tests each sentence of the contract with a new store. Each call of newStore must return an
// empty store, which Run closes.
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
		{"Profiles", profileTests},
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

// A test checks one sentence of the contract. The sentence is the test's name.
type test struct {
	sentence string
	run      func(*fixture)
}
