package storagetest

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// model is the naive store: plain lists, every answer counted from scratch. It
// has its own code for every rule, so that it and the real code err apart.
type model struct {
	boards map[leaderboard.BoardID]leaderboard.Board
	// records of all users in all scopes, by key.
	records map[leaderboard.ResultKey]*leaderboard.Record
	banned  map[leaderboard.UserID]bool
	erased  map[leaderboard.UserID]time.Time
	sealed  map[leaderboard.Scope]*sealed
}

// sealed is a sealed season: its record, and the final standings of each ladder.
type sealed struct {
	record leaderboard.SeasonRecord
	final  map[leaderboard.Division][]leaderboard.Standing
}

func newModel() *model {
	return &model{
		boards:  map[leaderboard.BoardID]leaderboard.Board{},
		records: map[leaderboard.ResultKey]*leaderboard.Record{},
		banned:  map[leaderboard.UserID]bool{},
		erased:  map[leaderboard.UserID]time.Time{},
		sealed:  map[leaderboard.Scope]*sealed{},
	}
}

// expected is what has to become of a result.
type expected struct {
	status leaderboard.Status
	reason leaderboard.Reason
}

func (m *model) apply(r leaderboard.MatchResult) expected {
	r = plain(r)
	if at, ok := m.erased[r.User]; ok && !r.ReceivedAt.After(at) {
		return expected{leaderboard.Rejected, leaderboard.ReasonErased}
	}
	rec := m.records[r.ResultKey]
	if rec == nil {
		rec = &leaderboard.Record{}
	}
	have := rec.Result
	if have != nil && have.Revision > r.Revision {
		return expected{status: leaderboard.Superseded}
	}
	for _, f := range rec.Refusals {
		if f.Revision == r.Revision && f.Content == r.ContentID() {
			return expected{leaderboard.Rejected, f.Reason}
		}
	}
	var status leaderboard.Status
	if have != nil && have.Revision == r.Revision {
		switch c := compareContents(&r, have); {
		case c == 0 && r.Assigned && r.AchievedAt.Before(have.AchievedAt):
			rec.Result = &r
			return expected{status: leaderboard.Duplicate}
		case c == 0:
			return expected{status: leaderboard.Duplicate}
		case c < 0:
			return expected{status: leaderboard.Conflict}
		}
		status = leaderboard.Conflict
	}
	m.records[r.ResultKey] = rec
	if reason := m.refuses(rec.Result, &r); reason != "" {
		rec.Refusals = append(rec.Refusals, leaderboard.Refusal{
			Revision: r.Revision, Reason: reason, Content: r.ContentID(), ReceivedAt: r.ReceivedAt})
		return expected{leaderboard.Rejected, reason}
	}
	rec.Result = &r
	return expected{status: status}
}

// plain returns r as a store gives it back.
func plain(r leaderboard.MatchResult) leaderboard.MatchResult {
	if r.Retracted {
		return leaderboard.MatchResult{ResultKey: r.ResultKey, Revision: r.Revision, Retracted: true,
			AchievedAt: time.Unix(0, 0).UTC(), ReceivedAt: micros(r.ReceivedAt)}
	}
	r.AchievedAt, r.ReceivedAt = micros(r.AchievedAt), micros(r.ReceivedAt)
	r.TieBreakers = slices.Clone(r.TieBreakers)
	for n := len(r.TieBreakers); n > 0 && r.TieBreakers[n-1] == 0; n-- {
		r.TieBreakers = r.TieBreakers[:n-1]
	}
	if len(r.TieBreakers) == 0 {
		r.TieBreakers = nil
	}
	if len(r.Attributes) == 0 {
		r.Attributes = nil
	}
	return r
}

func micros(t time.Time) time.Time {
	return time.Unix(t.Unix(), int64(t.Nanosecond())/1000*1000).UTC()
}

// compareContents orders the contents of two results of one revision; of two
// that differ the greater stands. It reads the documented order of payloads off
// the fields. Texts are shorter than 128 bytes here, so shorter is smaller.
func compareContents(x, y *leaderboard.MatchResult) int {
	text := func(x, y string) int { return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)) }
	flag := func(x, y bool) int {
		switch {
		case x == y:
			return 0
		case x:
			return 1
		default:
			return -1
		}
	}
	if c := cmp.Or(flag(x.Retracted, y.Retracted), flag(x.Assigned, y.Assigned), cmp.Compare(x.Score, y.Score),
		cmp.Compare(len(x.TieBreakers), len(y.TieBreakers)), slices.Compare(x.TieBreakers, y.TieBreakers)); c != 0 {
		return c
	}
	if !x.Assigned {
		if c := x.AchievedAt.Compare(y.AchievedAt); c != 0 {
			return c
		}
	}
	if c := cmp.Compare(len(x.Attributes), len(y.Attributes)); c != 0 {
		return c
	}
	xs, ys := slices.Sorted(maps.Keys(x.Attributes)), slices.Sorted(maps.Keys(y.Attributes))
	for i := range xs {
		if c := cmp.Or(text(xs[i], ys[i]), text(x.Attributes[xs[i]], y.Attributes[ys[i]])); c != 0 {
			return c
		}
	}
	return text(x.Metadata, y.Metadata)
}

// refuses returns why r may not take the place of old, or "".
func (m *model) refuses(old, r *leaderboard.MatchResult) leaderboard.Reason {
	b := m.boards[r.Board]
	if r.Retracted {
		return ""
	}
	lo, hi := leaderboard.Score(-1<<53), leaderboard.Score(1<<53)
	if b.MinScore != nil {
		lo = *b.MinScore
	}
	if b.MaxScore != nil {
		hi = *b.MaxScore
	}
	if r.Score < lo || r.Score > hi || len(r.TieBreakers) > len(b.TieBreakers) ||
		r.AchievedAt.After(r.ReceivedAt.Add(24*time.Hour)) {
		return leaderboard.ReasonInvalid
	}
	for _, w := range b.Season.Windows {
		if w.ID != r.Season {
			continue
		}
		closes := w.End
		if b.CreatedAt.After(closes) {
			closes = b.CreatedAt
		}
		if !r.ReceivedAt.Before(closes.Add(b.Season.Grace)) {
			return leaderboard.ReasonClosed
		}
	}
	if b.Policy != leaderboard.Sum && b.Policy != leaderboard.Decay {
		return ""
	}
	now, nowTies := totals(m.standing(r.Scope, r.User), len(b.TieBreakers))
	then, thenTies := now+int64(r.Score), slices.Clone(nowTies)
	for i, v := range r.TieBreakers {
		thenTies[i] += v
	}
	if old != nil {
		then -= int64(old.Score)
		for i, v := range old.TieBreakers {
			thenTies[i] -= v
		}
	}
	further := func(now, then int64) bool {
		const bound = 1 << 53
		return then > bound && then > now || then < -bound && then < now
	}
	if b.Policy == leaderboard.Sum {
		if b.Floor != nil && then < int64(*b.Floor) && then < now {
			return leaderboard.ReasonFloor
		}
		if further(now, then) {
			return leaderboard.ReasonRange
		}
	}
	for i := range thenTies {
		if further(nowTies[i], thenTies[i]) {
			return leaderboard.ReasonRange
		}
	}
	return ""
}

func totals(results []leaderboard.MatchResult, n int) (score int64, ties []int64) {
	ties = make([]int64, n)
	for i := range results {
		score += int64(results[i].Score)
		for j, v := range results[i].TieBreakers {
			ties[j] += v
		}
	}
	return score, ties
}

// standing returns the results of a user in a scope that count, by match id.
func (m *model) standing(s leaderboard.Scope, user leaderboard.UserID) []leaderboard.MatchResult {
	return slices.DeleteFunc(m.results(s, user), func(r leaderboard.MatchResult) bool { return r.Retracted })
}

// results returns the results of a user in a scope, by match id.
func (m *model) results(s leaderboard.Scope, user leaderboard.UserID) []leaderboard.MatchResult {
	var out []leaderboard.MatchResult
	for key, rec := range m.records {
		if key.Scope == s && key.User == user && rec.Result != nil {
			out = append(out, *rec.Result)
		}
	}
	slices.SortFunc(out, func(x, y leaderboard.MatchResult) int { return strings.Compare(string(x.Match), string(y.Match)) })
	return out
}

// line is an entry as the model has it.
type line struct {
	user       leaderboard.UserID
	score      int64      // unless the board decays
	decayed    *big.Float // if it does: the sum of points·2^(t/h)
	greatest   *big.Float // the greatest of its terms, by magnitude
	terms      string     // the terms as text; equal terms, equal sums
	ties       []int64
	achievedAt time.Time
	match      leaderboard.MatchID
	metadata   string
	divisions  []leaderboard.Division
	results    int64
	hidden     bool
}

// precision is that of decayed sums, in bits.
const precision = 400

func eventOrder(x, y leaderboard.MatchResult) int {
	return cmp.Or(x.AchievedAt.Compare(y.AchievedAt), strings.Compare(string(x.Match), string(y.Match)))
}

// line returns a user's entry, or nil if no result stands.
func (m *model) line(s leaderboard.Scope, user leaderboard.UserID) *line {
	b := m.boards[s.Board]
	results := m.standing(s, user)
	if len(results) == 0 {
		return nil
	}
	slices.SortFunc(results, eventOrder)
	l := &line{user: user, results: int64(len(results)), hidden: m.banned[user]}
	var decides leaderboard.MatchResult
	switch b.Policy {
	case leaderboard.Best:
		decides = slices.MinFunc(results, func(x, y leaderboard.MatchResult) int {
			return cmp.Or(inOrder(b.Order, int64(x.Score), int64(y.Score)),
				compareTies(b.TieBreakers, padded(x.TieBreakers, b), padded(y.TieBreakers, b)), eventOrder(x, y))
		})
		l.score, l.ties = int64(decides.Score), padded(decides.TieBreakers, b)
	case leaderboard.Latest:
		decides = results[len(results)-1]
		l.score, l.ties = int64(decides.Score), padded(decides.TieBreakers, b)
	default:
		decides = results[0]
		for _, r := range results {
			if r.Score != 0 || slices.ContainsFunc(r.TieBreakers, func(v int64) bool { return v != 0 }) {
				decides = r
			}
		}
		l.score, l.ties = totals(results, len(b.TieBreakers))
		l.score = min(max(l.score, -1<<53), 1<<53)
	}
	if b.Policy == leaderboard.Decay {
		l.decay(results, b.HalfLife)
	}
	l.achievedAt, l.match, l.metadata = decides.AchievedAt, decides.Match, decides.Metadata
	for _, name := range b.Divisions {
		value := ""
		for _, r := range results {
			if v, ok := r.Attributes[name]; ok {
				value = v
			}
		}
		if value != "" {
			l.divisions = append(l.divisions, leaderboard.Division{Attribute: name, Value: value})
		}
	}
	return l
}

func padded(ties []int64, b leaderboard.Board) []int64 {
	out := make([]int64, len(b.TieBreakers))
	copy(out, ties)
	return out
}

func (l *line) decay(results []leaderboard.MatchResult, half time.Duration) {
	l.score = 0
	l.decayed, l.greatest = newFloat(), newFloat()
	var terms []string
	for _, r := range results {
		if r.Score == 0 {
			continue
		}
		term := newFloat().SetInt64(int64(r.Score))
		term.Mul(term, twoTo(r.AchievedAt, half))
		l.decayed.Add(l.decayed, term)
		if magnitude := newFloat().Abs(term); magnitude.Cmp(l.greatest) > 0 {
			l.greatest = magnitude
		}
		terms = append(terms, fmt.Sprint(r.Score, r.AchievedAt.UnixMicro()))
	}
	slices.Sort(terms)
	l.terms = strings.Join(terms, ",")
}

func newFloat() *big.Float { return new(big.Float).SetPrec(precision) }

// roots are two to the power of 1/2, 1/4, 1/8 and so on.
var roots = sync.OnceValue(func() (roots [precision]*big.Float) {
	root := newFloat().SetInt64(2)
	for i := range roots {
		roots[i] = newFloat().Sqrt(root)
		root = roots[i]
	}
	return roots
})

// twoTo returns 2^(t/half), with t in microseconds since 1970.
func twoTo(t time.Time, half time.Duration) *big.Float {
	h := half.Microseconds()
	whole, part := t.UnixMicro()/h, t.UnixMicro()%h
	if part < 0 {
		whole, part = whole-1, part+h
	}
	// 2^(part/h), bit by bit of the fraction.
	v := newFloat().SetInt64(1)
	for _, root := range roots() {
		if part *= 2; part >= h {
			part -= h
			v.Mul(v, root)
		}
	}
	return v.SetMantExp(v, int(whole))
}

// scoreAt returns what a decayed sum is worth at a moment, not rounded.
func (l *line) scoreAt(t time.Time, half time.Duration) *big.Float {
	return newFloat().Quo(l.decayed, twoTo(t, half))
}

func inOrder(o leaderboard.Order, x, y int64) int {
	if o == leaderboard.LowerFirst {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(y, x)
}

func compareTies(breakers []leaderboard.TieBreaker, x, y []int64) int {
	for i, tb := range breakers {
		if c := inOrder(tb.Order, x[i], y[i]); c != 0 {
			return c
		}
	}
	return 0
}

// compare says which of two lines ranks better: negative is x, 0 is a tie. ok
// is false for decayed sums too close together to tell in the model.
func (m *model) compare(b leaderboard.Board, x, y *line) (c int, ok bool) {
	if b.Policy != leaderboard.Decay {
		return cmp.Or(inOrder(b.Order, x.score, y.score), compareTies(b.TieBreakers, x.ties, y.ties)), true
	}
	if x.terms != y.terms {
		diff := newFloat().Sub(x.decayed, y.decayed)
		greatest := x.greatest
		if y.greatest.Cmp(greatest) > 0 {
			greatest = y.greatest
		}
		if newFloat().Abs(diff).Cmp(newFloat().SetMantExp(greatest, -100)) <= 0 {
			return 0, false
		}
		if c = diff.Sign(); b.Order == leaderboard.HigherFirst {
			c = -c
		}
		return c, true
	}
	return compareTies(b.TieBreakers, x.ties, y.ties), true
}

// ladder returns the lines that stand in a ladder, in any order.
func (m *model) ladder(l leaderboard.Ladder) []*line {
	var out []*line
	for _, user := range m.users(l.Scope) {
		ln := m.line(l.Scope, user)
		if ln != nil && !ln.hidden && (l.Division.Overall() || slices.Contains(ln.divisions, l.Division)) {
			out = append(out, ln)
		}
	}
	return out
}

// users returns the users with a record in a scope, sorted.
func (m *model) users(s leaderboard.Scope) []leaderboard.UserID {
	set := map[leaderboard.UserID]bool{}
	for key := range m.records {
		if key.Scope == s {
			set[key.User] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// scopes returns the scopes with a record of a user, or, for "", of anybody.
func (m *model) scopes(user leaderboard.UserID) []leaderboard.Scope {
	set := map[leaderboard.Scope]bool{}
	for key := range m.records {
		if user == "" || key.User == user {
			set[key.Scope] = true
		}
	}
	return slices.SortedFunc(maps.Keys(set), compareScopes)
}

func compareScopes(x, y leaderboard.Scope) int {
	return cmp.Or(strings.Compare(string(x.Board), string(y.Board)), strings.Compare(string(x.Season), string(y.Season)))
}

// divisions returns the divisions that anybody of a scope is in, and overall.
func (m *model) divisions(s leaderboard.Scope) []leaderboard.Division {
	set := map[leaderboard.Division]bool{{}: true}
	for _, user := range m.users(s) {
		if l := m.line(s, user); l != nil {
			for _, d := range l.divisions {
				set[d] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(set), func(x, y leaderboard.Division) int {
		return cmp.Or(strings.Compare(x.Attribute, y.Attribute), strings.Compare(x.Value, y.Value))
	})
}

func (m *model) erase(user leaderboard.UserID, at time.Time) {
	maps.DeleteFunc(m.records, func(key leaderboard.ResultKey, _ *leaderboard.Record) bool { return key.User == user })
	delete(m.banned, user)
	if at = micros(at); at.After(m.erased[user]) {
		m.erased[user] = at
	}
	for _, s := range m.sealed {
		for d, standings := range s.final {
			s.final[d] = slices.DeleteFunc(standings, func(st leaderboard.Standing) bool { return st.User == user })
		}
	}
}

func (m *model) deleteSeason(s leaderboard.Scope) {
	maps.DeleteFunc(m.records, func(key leaderboard.ResultKey, _ *leaderboard.Record) bool { return key.Scope == s })
	delete(m.sealed, s)
}

func (m *model) deleteBoard(id leaderboard.BoardID) {
	maps.DeleteFunc(m.records, func(key leaderboard.ResultKey, _ *leaderboard.Record) bool { return key.Board == id })
	maps.DeleteFunc(m.sealed, func(s leaderboard.Scope, _ *sealed) bool { return s.Board == id })
	delete(m.boards, id)
}

// seal makes the final standings, given the ladders as the store has them, which
// have been compared with the model's before.
func (m *model) seal(s leaderboard.Scope, a leaderboard.Amendment, ladders map[leaderboard.Division][]leaderboard.Entry) {
	a.At = micros(a.At)
	have := m.sealed[s]
	if have == nil {
		have = &sealed{record: leaderboard.SeasonRecord{Scope: s, SealedAt: a.At}}
		m.sealed[s] = have
	} else if !a.At.Equal(have.record.SealedAt) && !slices.ContainsFunc(have.record.Amendments, func(o leaderboard.Amendment) bool {
		return o.At.Equal(a.At) && o.Reason == a.Reason
	}) {
		have.record.Amendments = append(slices.Clone(have.record.Amendments), a)
	}
	have.final = map[leaderboard.Division][]leaderboard.Standing{}
	for d, entries := range ladders {
		have.final[d] = number(entries)
	}
}

// number gives entries in standing order their ranks.
func number(entries []leaderboard.Entry) []leaderboard.Standing {
	var out []leaderboard.Standing
	distinct := map[leaderboard.RankKey]bool{}
	for i, e := range entries {
		better := 0
		for _, o := range entries {
			if bytes.Compare([]byte(o.Key), []byte(e.Key)) < 0 {
				better++
			}
		}
		distinct[e.Key] = true
		out = append(out, leaderboard.Standing{User: e.User, Key: e.Key, AchievedAt: e.AchievedAt, Ranks: leaderboard.Ranks{
			Competition: int64(better + 1), Dense: int64(len(distinct)), Ordinal: int64(i + 1)}})
	}
	return out
}
