// Package cachetest is the [leaderboard.Index] contract as tests. Each sentence
// of the contract has a test named after it; random histories are compared with
// a naive model that sorts and counts.
package cachetest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

// Limits says how large the suite's random tests are, so that it fits an index
// behind a network too. Zero values are the defaults.
type Limits struct {
	// Histories is how many random histories are played. Default 24.
	Histories int
	// Changes is how many changes each history makes. Default 200.
	Changes int
	// Moves is how many updates are made beside concurrent readers. Default 2,000.
	Moves int
	// MixedMoments is why an answer about several users may show them at
	// slightly different moments, if the index cannot do otherwise. Its ranks
	// must be in themselves consistent all the same.
	MixedMoments string
}

func (l Limits) withDefaults() Limits {
	set := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	set(&l.Histories, 24)
	set(&l.Changes, 200)
	set(&l.Moves, 2000)
	return l
}

// Run runs the suite. open returns a new, empty index and closes it when the
// test ends.
func Run(t *testing.T, open func(testing.TB) leaderboard.Index, lim Limits) {
	lim = lim.withDefaults()
	for _, test := range []struct {
		name string
		run  func(*testing.T, *fixture)
	}{
		{"SizeIsTheNumberOfStandings", sizeIsTheNumberOfStandings},
		{"AsOfIsTheTimeOfTheLastChange", asOfIsTheTimeOfTheLastChange},
		{"EmptyLadderIsNoError", emptyLadderIsNoError},
		{"UnavailableWhileNotLoaded", unavailableWhileNotLoaded},
		{"StandingsAreInTheOrderGiven", standingsAreInTheOrderGiven},
		{"StandingsOfUsersWhoDoNotStandAreEmpty", standingsOfUsersWhoDoNotStandAreEmpty},
		{"RanksByEveryMethod", ranksByEveryMethod},
		{"TiesByTimeThenUser", tiesByTimeThenUser},
		{"PageFromAPosition", pageFromAPosition},
		{"PageAfterASortKey", pageAfterASortKey},
		{"PageAfterAKeyThatNoStandingHas", pageAfterAKeyThatNoStandingHas},
		{"AroundIsClippedAtTheEnds", aroundIsClippedAtTheEnds},
		{"AroundAUserWhoDoesNotStand", aroundAUserWhoDoesNotStand},
		{"CountStrictlyBefore", countStrictlyBefore},
		{"CountTakesTheBeginningOfAKey", countTakesTheBeginningOfAKey},
		{"UpdateMovesInEveryLadder", updateMovesInEveryLadder},
		{"UpdateRemovesWhoIsNotRanked", updateRemovesWhoIsNotRanked},
		{"UpdateOfAVersionNotGreaterChangesNothing", updateOfAVersionNotGreaterChangesNothing},
		{"UpdatesMayBeRepeatedAndComeInAnyOrder", updatesMayBeRepeatedAndComeInAnyOrder},
		{"UpdateWhileNotLoadedIsNothing", updateWhileNotLoadedIsNothing},
		{"UpdateOfManyEntries", updateOfManyEntries},
		{"ScopesAreApart", scopesAreApart},
		{"RebuildTakesEntriesInAnyOrder", rebuildTakesEntriesInAnyOrder},
		{"RebuildFillsAnew", rebuildFillsAnew},
		{"RebuildTakesNoteOfUpdatesBeforeItReads", rebuildTakesNoteOfUpdatesBeforeItReads},
		{"ReadsSeeTheOldUntilRebuildReturns", readsSeeTheOldUntilRebuildReturns},
		{"RebuildThatFailsChangesNothing", rebuildThatFailsChangesNothing},
		{"RebuildStopsWhenItsContextIsDone", rebuildStopsWhenItsContextIsDone},
		{"RebuildsFollowOneAnother", rebuildsFollowOneAnother},
		{"LoadedUntilDropped", loadedUntilDropped},
		{"DropForgets", dropForgets},
		{"DropOvertakesARebuild", dropOvertakesARebuild},
		{"HostileIDs", hostileIDs},
		{"EveryAnswerIsOfOneMoment", everyAnswerIsOfOneMoment},
		{"RebuildBesideUpdatesAndReads", rebuildBesideUpdatesAndReads},
		{"MethodsAreSafeForConcurrentUse", methodsAreSafeForConcurrentUse},
		{"RandomHistories", randomHistories},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, newFixture(t, open(t), lim))
		})
	}
}

// seedVariable names the environment variable that repeats a random test.
const seedVariable = "LEADERBOARD_TEST_SEED"

// random returns a generator whose seed is printed with the command to repeat.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("repeat with: %s=%d go test . -run '^%s$'", seedVariable, seed, t.Name())
	return rand.New(rand.NewPCG(seed, 0))
}
