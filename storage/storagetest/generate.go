package storagetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// A store with a faulty layout of keys would confuse some of these ids, or sort them incorrectly.
var (
	userPool  = []leaderboard.UserID{"a", "aa", "a b", "b", "é", "a:b/c%", "\U0001F600", leaderboard.UserID(strings.Repeat("z", leaderboard.MaxIDBytes)), "~"}
	matches   = []leaderboard.MatchID{"1", "10", "2", "m/é", "x", leaderboard.MatchID(strings.Repeat("q", leaderboard.MaxIDBytes))}
	values    = []string{"F", "M", "x:y", "é", `F+\`}
	divisions = [][]string{nil, {"gender"}, {"country", "gender"}, {"gender", "country+gender"}}
	points    = []leaderboard.Score{0, 0, 1, 1, 2, 3, 5, 10, -1, -4}
)

type writer struct {
	rng    *rand.Rand
	users  []leaderboard.UserID
	sent   []leaderboard.MatchResult // all generated results
	bans   []leaderboard.Ban
	clock  time.Time // the last time that the method tick returned
	large  bool      // some scores are as large as ±2^53
	closes bool      // some results arrive within 1 µs of their season's close
}

const grace = 30 * 24 * time.Hour

func (w *writer) chance(percent int) bool { return w.rng.IntN(100) < percent }

func pick[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

func (w *writer) tick() time.Time {
	w.clock = w.clock.Add(time.Duration(1+w.rng.IntN(1_000_000)) * time.Microsecond)
	return w.clock
}

func newWriter(rng *rand.Rand) *writer {
	w := &writer{rng: rng, clock: epoch.AddDate(0, 0, 25), large: rng.IntN(4) == 0, closes: rng.IntN(2) == 0}
	w.users = slices.Clone(userPool)
	rng.Shuffle(len(w.users), func(i, j int) { w.users[i], w.users[j] = w.users[j], w.users[i] })
	w.users = w.users[:2+rng.IntN(len(w.users)-2)]
	return w
}

// If bounded is false, the board has neither a Floor nor a MaxScore.
func (w *writer) newBoard(id leaderboard.BoardID, bounded bool) leaderboard.Board {
	b := leaderboard.Board{
		ID: id, Order: leaderboard.Order(w.rng.IntN(2)), Policy: pick(w.rng, leaderboard.Policies()),
		CreatedAt: w.tick().AddDate(0, 0, -25),
	}
	if b.Policy == leaderboard.Decay {
		b.HalfLife = pick(w.rng, []time.Duration{time.Hour, 24 * time.Hour, 365 * 24 * time.Hour, 1234567 * time.Microsecond * 1000})
	}
	if b.Policy == leaderboard.BestK {
		if b.K = 1 + w.rng.IntN(4); w.chance(50) {
			b.K, b.DropWorst = 0, b.K
		}
	}
	if w.chance(40) {
		b.Ties = leaderboard.TieRule(w.rng.IntN(4))
		b.MinResults = int64(w.rng.IntN(4))
		b.Statuses = pick(w.rng, [][]leaderboard.Finish{nil, {leaderboard.DNF}, {leaderboard.DSQ, leaderboard.DNF}})
	}
	if b.Policy == leaderboard.Sum && bounded && w.chance(60) {
		low := pick(w.rng, []leaderboard.Score{0, -3})
		b.Floor = &low
	}
	for i := range pick(w.rng, []int{0, 0, 1, 3}) {
		b.TieBreakers = append(b.TieBreakers, leaderboard.TieBreaker{Name: fmt.Sprintf("t%d", i), Order: leaderboard.Order(w.rng.IntN(2))})
		if b.AddsUp() && w.chance(50) {
			b.TieBreakers[i].Combine = leaderboard.Combination(w.rng.IntN(4))
		}
	}
	if bounded && b.Policy != leaderboard.Count && w.chance(30) {
		highest := leaderboard.Score(500)
		b.MaxScore = &highest
	}
	b.Divisions = pick(w.rng, divisions)
	if w.chance(60) {
		b.Season = leaderboard.Schedule{Kind: leaderboard.Explicit, Grace: grace, Windows: []leaderboard.Season{
			{ID: "s1", Start: epoch, End: epoch.AddDate(0, 0, 10)},
			{ID: "s10", Start: epoch.AddDate(0, 0, 10), End: epoch.AddDate(0, 0, 20)},
		}}
	}
	if source := pick(w.rng, []leaderboard.BoardID{"b", "bb", "b/é"}); source != id && w.chance(35) {
		b.Source, b.Floor, b.MaxScore = &leaderboard.Source{Board: source, TieBreakers: w.rng.Perm(len(b.TieBreakers) + 1)[:len(b.TieBreakers)]}, nil, nil
		if w.chance(50) {
			b.Source.Match = map[string]string{"other": pick(w.rng, values)}
		}
	}
	b.Matches = b.Source == nil && w.chance(50)
	return b
}

func (w *writer) newResult(b *leaderboard.Board) leaderboard.MatchResult {
	var earlier []leaderboard.MatchResult
	for _, r := range w.sent {
		if r.Board == b.ID {
			earlier = append(earlier, r)
		}
	}
	r := w.unrelatedResult(b)
	if len(earlier) > 0 {
		old := pick(w.rng, earlier)
		switch n := w.rng.IntN(100); {
		case n < 40: // unrelated to old; its key may exist by chance
		case n < 55:
			received := r.ReceivedAt
			if r = old; w.chance(70) {
				r.ReceivedAt = received
				if r.Assigned && w.chance(50) {
					r.AchievedAt = w.randomTime(b, r.Season)
				}
			}
		case n < 70:
			r.ResultKey, r.Revision = old.ResultKey, old.Revision+1
			r.AchievedAt = w.randomTime(b, r.Season)
		case n < 80: // the same revision as old
			r.ResultKey, r.Revision = old.ResultKey, old.Revision
			r.AchievedAt = w.randomTime(b, r.Season)
		default:
			r = leaderboard.MatchResult{ResultKey: old.ResultKey, Revision: old.Revision + int64(w.rng.IntN(3)), Retracted: true,
				AchievedAt: old.AchievedAt, ReceivedAt: r.ReceivedAt}
		}
	}
	w.sent = append(w.sent, r)
	return r
}

func (w *writer) unrelatedResult(b *leaderboard.Board) leaderboard.MatchResult {
	r := leaderboard.MatchResult{
		ResultKey: leaderboard.ResultKey{User: pick(w.rng, w.users), Match: pick(w.rng, matches), SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}},
		Score:     pick(w.rng, points),
		Assigned:  w.chance(15),
		Revision:  int64(w.rng.IntN(3)),
		Amends:    w.chance(10),
		Reset:     w.chance(15) && (b.Policy == leaderboard.Sum || b.Source != nil || w.chance(5)),
	}
	if len(b.Statuses) > 0 && w.chance(25) || w.chance(3) {
		r.Finish = pick(w.rng, []leaderboard.Finish{leaderboard.DNF, leaderboard.DSQ})
	}
	if w.chance(30) {
		r.Score = leaderboard.Score(w.rng.IntN(2001) - 1000)
	}
	if w.large && w.chance(30) {
		r.Score = pick(w.rng, []leaderboard.Score{leaderboard.MaxScore, -leaderboard.MaxScore, leaderboard.MaxScore - 1})
	}
	if windows := b.Season.Windows; len(windows) > 0 {
		r.Season = pick(w.rng, windows).ID
	}
	r.AchievedAt = w.randomTime(b, r.Season)
	for range w.rng.IntN(len(b.TieBreakers) + 1) {
		r.TieBreakers = append(r.TieBreakers, int64(w.rng.IntN(5)-1))
		if w.large && w.chance(20) {
			r.TieBreakers[len(r.TieBreakers)-1] = pick(w.rng, []int64{1 << 53, -1 << 53})
		}
	}
	if b.Source == nil && w.chance(3) { // one tie-breaker more than the board has
		r.TieBreakers = append(make([]int64, len(b.TieBreakers)), 1)
	}
	if !r.Assigned && w.chance(3) { // too far in the future; the service never assigns such a time
		r.AchievedAt = w.clock.AddDate(0, 0, 2)
	}
	for _, name := range []string{"other", "country", "gender"} {
		if w.chance(60) {
			if r.Attributes == nil {
				r.Attributes = map[string]string{}
			}
			r.Attributes[name] = pick(w.rng, values)
		}
	}
	if w.chance(20) {
		r.Metadata = fmt.Sprintf(`{"n":%d}`, w.rng.IntN(3))
	}
	r.ReceivedAt = w.tick()
	if w.closes && r.Season != leaderboard.SeasonAll && w.chance(10) {
		for _, win := range b.Season.Windows {
			if win.ID == r.Season {
				r.ReceivedAt = win.End.Add(grace).Add(time.Duration(w.rng.IntN(3)-1) * time.Microsecond)
			}
		}
	}
	return r
}

// Most times are one of six in the season, so that results tie.
func (w *writer) randomTime(b *leaderboard.Board, season leaderboard.SeasonID) time.Time {
	start := epoch
	for _, win := range b.Season.Windows {
		if win.ID == season {
			start = win.Start
		}
	}
	if b.Source != nil && w.chance(20) {
		start = epoch.AddDate(0, 0, 10*w.rng.IntN(3)) // on a linked board, the time may be in another season
	}
	if w.chance(60) {
		return start.Add(time.Duration(w.rng.IntN(6)) * 24 * time.Hour)
	}
	return start.Add(time.Duration(w.rng.Int64N((10 * 24 * time.Hour).Microseconds())) * time.Microsecond)
}

func banEnd(n int) time.Time { return time.Date(2200, 1, 1+n, 0, 0, 0, 0, time.UTC) }

func (w *writer) newBan(user leaderboard.UserID, board leaderboard.BoardID) leaderboard.Ban {
	if len(w.bans) > 0 && w.chance(25) {
		return pick(w.rng, w.bans)
	}
	b := leaderboard.Ban{User: user, Banned: w.chance(55), Reason: "test", Actor: "ann", At: w.tick()}
	if w.chance(60) {
		b.Board = board
	}
	if w.chance(40) {
		b.Until = banEnd(w.rng.IntN(6))
	}
	if w.chance(60) {
		b.At = epoch.AddDate(0, 0, 24+w.rng.IntN(3)) // before or after the erasures, which are on day 25
		b.Revision = epoch.AddDate(0, 0, 25).UnixMicro() + int64(w.rng.IntN(20))
	}
	w.bans = append(w.bans, b)
	return b
}

func generate(rng *rand.Rand) []op {
	w := newWriter(rng)
	var history []op
	ids := []leaderboard.BoardID{"b", "bb", "b/é"}[:1+rng.IntN(3)]
	boards := map[leaderboard.BoardID]leaderboard.Board{}
	create := func(id leaderboard.BoardID) {
		boards[id] = w.newBoard(id, true)
		w.sent = slices.DeleteFunc(w.sent, func(r leaderboard.MatchResult) bool { return r.Board == id })
		history = append(history, op{kind: opCreateBoard, board: boards[id]})
	}
	for _, id := range ids {
		create(id)
	}
	for range 10 + rng.IntN(50) {
		id := pick(rng, ids)
		b := boards[id]
		season := leaderboard.SeasonAll
		if len(b.Season.Windows) > 0 {
			season = pick(rng, b.Season.Windows).ID
		}
		o := op{id: id, board: b, season: season, user: pick(rng, w.users)}
		switch n := rng.IntN(100); {
		case n < 62:
			o.kind = opApply
			for range 1 + rng.IntN(8) {
				o.results = append(o.results, w.newResult(&b))
			}
		case n < 65: // a replay of all results of the board
			o.kind = opApply
			for _, r := range w.sent {
				if r.Board == id {
					o.results = append(o.results, r)
				}
			}
			if w.chance(50) {
				rng.Shuffle(len(o.results), func(i, j int) { o.results[i], o.results[j] = o.results[j], o.results[i] })
			}
		case n < 70 && b.Matches:
			o.kind, o.match, o.at = opVoid, pick(rng, matches), w.tick()
		case n < 76:
			o.kind, o.ban = opBan, w.newBan(o.user, id)
		case n < 79:
			o.kind, o.at = opErase, w.tick()
		case n < 82:
			o.kind = opRecount
		case n < 85:
			o.kind, o.at = opSeal, w.tick()
		case n < 88:
			o.kind, o.at = opAmendSeason, w.tick()
		case n < 90:
			o.kind, o.at = opDeleteSeason, w.tick()
		case n < 92:
			o.kind, o.at = opDeleteBoard, w.tick()
			history = append(history, o)
			create(id)
			continue
		case n < 93:
			o.kind = opDivisions
			o.board.Divisions = pick(rng, divisions)
			boards[id] = o.board
		case n < 94:
			o.kind = opAmendBoard
			o.board.Season.Grace = grace + time.Duration(rng.IntN(2))*time.Microsecond
		case n < 96 && len(b.Season.Windows) > 0:
			o.kind, o.at = opEndSeason, w.randomTime(&b, season)
		default:
			o.kind = opCompare
		}
		history = append(history, o)
	}
	return history
}

// generateOrderFree returns a history in which no result can cause the refusal of another result.
// So the order of the results must not affect the entries.
func generateOrderFree(rng *rand.Rand) []op {
	w := newWriter(rng)
	w.large, w.closes = false, false
	b := w.newBoard("b", false)
	history := []op{{kind: opCreateBoard, board: b}}
	for range 5 + rng.IntN(15) {
		o := op{kind: opApply, id: b.ID, board: b}
		for range 1 + rng.IntN(8) {
			o.results = append(o.results, w.newResult(&b))
		}
		history = append(history, o)
	}
	return history
}
