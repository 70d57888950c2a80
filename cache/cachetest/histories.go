package cachetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// RunHistories applies random histories to one index, each history on its own board. open returns
// an empty index, which RunHistories closes.
//
// A history is a sequence of versions of each user's entry. The versions arrive in batches, out of
// order, and some arrive repeatedly. Between batches, the season may be rebuilt, or dropped and
// loaded again.
func RunHistories(t *testing.T, open func(testing.TB) leaderboard.Index, limits Limits, sizes Sizes) {
	rng := random(t)
	f := newFixture(t, closeAtEnd(t, open(t)), limits, sizes)
	for n := range f.sizes.Histories {
		h := newHistory(rng, n)
		t.Run(h.name, func(t *testing.T) {
			g := f.forSeason(&h.board, leaderboard.SeasonKey{Board: h.board.ID, Season: leaderboard.SeasonAll})
			g.T, g.ctx = t, t.Context()
			h.play(g)
		})
	}
}

type history struct {
	rng     *rand.Rand
	name    string
	board   leaderboard.Board
	users   []leaderboard.UserID
	scores  int                           // number of different scores
	seconds int                           // number of different event times
	values  int                           // number of different values of an attribute
	version map[leaderboard.UserID]uint64 // latest version of each user's entry
}

func newHistory(rng *rand.Rand, n int) *history {
	h := &history{rng: rng, version: map[leaderboard.UserID]uint64{}}
	ties := []int{0, 1, 24}[n%3]
	h.scores = []int{1, 3, 1 << 50}[n/3%3]
	h.seconds = []int{1, 4, 1 << 20}[rng.IntN(3)]
	h.values = 1 + rng.IntN(4)
	h.board = leaderboard.Board{
		ID:     leaderboard.BoardID(fmt.Sprint("history ", n)),
		Order:  leaderboard.Order(rng.IntN(2)),
		Policy: leaderboard.Policies()[rng.IntN(len(leaderboard.Policies()))],
	}
	if n%4 == 0 {
		h.board.Policy = leaderboard.Decay
	}
	if h.board.Policy == leaderboard.Decay {
		h.board.HalfLife = time.Hour
	}
	if h.board.Policy == leaderboard.BestK {
		h.board.K = 3
	}
	for i := range ties {
		h.board.TieBreakers = append(h.board.TieBreakers, leaderboard.TieBreaker{Name: fmt.Sprint("tie", i), Order: leaderboard.Order(rng.IntN(2))})
	}
	if rng.IntN(3) == 0 {
		h.board.MinResults, h.board.Statuses = int64(rng.IntN(3)), []leaderboard.Finish{leaderboard.DSQ, leaderboard.DNF}
	}
	h.board.Ties = leaderboard.TieRule(rng.IntN(4))
	h.board.Divisions = []string{"country", "gender", "country+age"}[:rng.IntN(4)]
	users := 2 + rng.IntN(50)
	h.users = shuffled(rng, hostileIDs())[:min(users, 20)]
	for i := range users {
		h.users = append(h.users, leaderboard.UserID(fmt.Sprint("u", i)))
	}
	h.name = strings.ToLower(fmt.Sprintf("%d_%v_%d_tie-breakers_%d_scores_%d_divisions", n, h.board.Policy, ties, h.scores, len(h.board.Divisions)))
	return h
}

func (h *history) nextVersion(f *fixture, user leaderboard.UserID) leaderboard.Entry {
	rng := h.rng
	h.version[user] += 1 + uint64(rng.IntN(3))
	version := h.version[user]
	if rng.IntN(6) == 0 {
		return f.unranked(user, version)
	}
	r := leaderboard.MatchResult{
		Score:      leaderboard.Score(rng.Int64N(int64(h.scores)) - int64(h.scores/2)),
		AchievedAt: time.UnixMicro(int64(rng.IntN(h.seconds)-h.seconds/3) * 1e6).UTC(),
		Attributes: map[string]string{},
	}
	if len(h.board.Statuses) > 0 && rng.IntN(3) == 0 {
		r.Finish = h.board.Statuses[rng.IntN(2)]
	}
	for range h.board.TieBreakers {
		r.TieBreakers = append(r.TieBreakers, int64(rng.IntN(2)))
	}
	if len(r.TieBreakers) > 0 && rng.IntN(2) == 0 { // results differ in the last tie-breaker only
		clear(r.TieBreakers[:len(r.TieBreakers)-1])
	}
	for _, attribute := range h.board.Attributes() {
		if rng.IntN(4) > 0 {
			r.Attributes[attribute] = fmt.Sprint(rng.IntN(h.values))
		}
	}
	e := f.entryOf(user, version, &r)
	e.Hidden = rng.IntN(8) == 0
	return e
}

func (h *history) play(f *fixture) {
	rng := h.rng
	var initial, delayed []leaderboard.Entry
	for _, user := range h.users {
		if rng.IntN(3) > 0 {
			initial = append(initial, h.nextVersion(f, user))
		}
	}
	f.rebuild(shuffled(rng, initial)...)
	f.compareAll()
	for changes := 0; changes < f.sizes.Changes; {
		var batch []leaderboard.Entry
		for range 1 + rng.IntN(20) {
			e := h.nextVersion(f, h.users[rng.IntN(len(h.users))])
			changes++
			if rng.IntN(3) == 0 {
				delayed = append(delayed, e)
			} else {
				batch = append(batch, e)
			}
			if len(delayed) > 0 && rng.IntN(3) == 0 {
				i := rng.IntN(len(delayed))
				batch = append(batch, delayed[i])
				if rng.IntN(3) > 0 { // otherwise, the entry arrives again later
					delayed = slices.Delete(delayed, i, i+1)
				}
			}
		}
		f.update(shuffled(rng, batch)...)
		switch rng.IntN(12) {
		case 0:
			f.rebuild(shuffled(rng, f.modelEntries())...)
		case 1:
			f.ok("Drop", f.Drop(f.ctx, f.key))
			if rng.IntN(2) == 0 {
				f.restore(f.modelEntries()...)
			} else {
				f.rebuild(f.modelEntries()...)
			}
		}
		if rng.IntN(3) == 0 {
			f.compareAll()
		}
	}
	f.update(shuffled(rng, delayed)...)
	f.compareAll()
}

func (f *fixture) modelEntries() []leaderboard.Entry {
	var entries []leaderboard.Entry
	for _, e := range f.model.entries {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(x, y leaderboard.Entry) int { return strings.Compare(string(x.User), string(y.User)) })
	return entries
}
