package storagetest

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// model is a naive store. It has its own code for every rule of the contract, so it does not repeat
// the faults of the tested code.
type model struct {
	boards  map[leaderboard.BoardID]leaderboard.Board
	records map[leaderboard.ResultKey]*leaderboard.Record
	recent  map[leaderboard.ResultKey][]leaderboard.Refusal // they do not depend on the user's other results
	matches map[leaderboard.MatchKey]leaderboard.MatchState
	bans    map[leaderboard.BanKey]leaderboard.Ban
	erased  map[leaderboard.UserID]time.Time
	deleted map[leaderboard.SeasonKey]time.Time // a key without a season is a board
	sealed  map[leaderboard.SeasonKey]*sealedSeason
}

type sealedSeason struct {
	record    leaderboard.SeasonRecord
	divisions []string // the divisions of the board when the season was sealed
	final     map[leaderboard.Division][]leaderboard.Standing
}

func newModel() *model {
	return &model{
		boards:  map[leaderboard.BoardID]leaderboard.Board{},
		records: map[leaderboard.ResultKey]*leaderboard.Record{},
		recent:  map[leaderboard.ResultKey][]leaderboard.Refusal{},
		matches: map[leaderboard.MatchKey]leaderboard.MatchState{},
		bans:    map[leaderboard.BanKey]leaderboard.Ban{},
		erased:  map[leaderboard.UserID]time.Time{},
		deleted: map[leaderboard.SeasonKey]time.Time{},
		sealed:  map[leaderboard.SeasonKey]*sealedSeason{},
	}
}

// A wantOutcome is the outcome that the store must report for a result.
type wantOutcome struct {
	status   leaderboard.Status
	reason   leaderboard.Reason
	repeated bool // the store had refused the same result before
	stands   bool // in a conflict, the new result stands
}

// apply also gives the stored result the Voids of its match.
func (m *model) apply(r leaderboard.MatchResult) wantOutcome {
	o := m.applyContent(r)
	if rec := m.records[r.ResultKey]; rec != nil && rec.Result != nil {
		result := *rec.Result
		result.Voids = m.matches[matchKey(&r)].Voids
		rec.Result = &result
	}
	return o
}

func matchKey(r *leaderboard.MatchResult) leaderboard.MatchKey {
	return leaderboard.MatchKey{SeasonKey: r.SeasonKey, Match: r.Match}
}

func (m *model) setVoids(state leaderboard.MatchState) {
	m.matches[state.MatchKey] = state
	for key, rec := range m.records {
		if rec.Result != nil && key.SeasonKey == state.SeasonKey && key.Match == state.Match {
			result := *rec.Result
			result.Voids = state.Voids
			rec.Result = &result
		}
	}
}

func (m *model) matchUsers(match leaderboard.MatchKey) (users []leaderboard.UserID) {
	for key, rec := range m.records {
		if rec.Result != nil && key.SeasonKey == match.SeasonKey && key.Match == match.Match {
			users = append(users, key.User)
		}
	}
	slices.Sort(users)
	return users
}

func (m *model) isDeleted(state *leaderboard.MatchState) bool {
	for _, s := range []leaderboard.SeasonKey{state.SeasonKey, {Board: state.Board}} {
		if at, ok := m.deleted[s]; ok && !state.At.After(at) {
			return true
		}
	}
	return false
}

func (m *model) applyContent(r leaderboard.MatchResult) wantOutcome {
	amends := r.Amends
	r = normalize(r)
	r.Amends = false
	for _, s := range []leaderboard.SeasonKey{r.SeasonKey, {Board: r.Board}} {
		b := m.boards[r.Board]
		if at, ok := m.deleted[s]; ok && !r.ReceivedAt.After(at) && (b.Source == nil || at.After(b.CreatedAt)) {
			return wantOutcome{status: leaderboard.Rejected, reason: leaderboard.ReasonDeleted}
		}
	}
	if at, ok := m.erased[r.User]; ok && !r.ReceivedAt.After(at) {
		return wantOutcome{status: leaderboard.Rejected, reason: leaderboard.ReasonErased}
	}
	rec := m.records[r.ResultKey]
	if rec == nil {
		rec = &leaderboard.Record{}
	}
	stored := rec.Result
	if stored != nil && stored.Revision > r.Revision {
		return wantOutcome{status: leaderboard.Superseded}
	}
	refusals := rec.Refusals
	reason, widenedAt := m.refusal(stored, &r, amends), m.boards[r.Board].WidenedAt
	// Otherwise r is a copy that was received in time, of a result that was also received too late.
	if isRecent(reason) || !r.Retracted && !widenedAt.IsZero() && r.ReceivedAt.Before(widenedAt.AddDate(0, 0, 30)) {
		refusals = slices.Concat(refusals, m.recent[r.ResultKey])
	}
	for _, f := range refusals {
		if f.Revision == r.Revision && f.Content == r.ContentID() {
			return wantOutcome{status: leaderboard.Rejected, reason: f.Reason, repeated: true}
		}
	}
	var status leaderboard.Status
	if stored != nil && stored.Revision == r.Revision {
		switch c := compareContents(&r, stored); {
		case c == 0 && r.Assigned && r.AchievedAt.Before(stored.AchievedAt):
			rec.Result = &r
			return wantOutcome{status: leaderboard.Duplicate}
		case c == 0:
			return wantOutcome{status: leaderboard.Duplicate}
		case c < 0:
			return wantOutcome{status: leaderboard.Conflict}
		}
		status = leaderboard.Conflict
	}
	if reason != "" {
		f := leaderboard.Refusal{Revision: r.Revision, Reason: reason, Content: r.ContentID(), ReceivedAt: r.ReceivedAt}
		if isRecent(reason) {
			m.recent[r.ResultKey] = append(m.recent[r.ResultKey], f)
		} else {
			m.records[r.ResultKey] = rec
			rec.Refusals = append(rec.Refusals, f)
		}
		return wantOutcome{status: leaderboard.Rejected, reason: reason}
	}
	m.records[r.ResultKey] = rec
	rec.Result = &r
	return wantOutcome{status: status, stands: status == leaderboard.Conflict}
}

func isRecent(reason leaderboard.Reason) bool {
	return reason != "" && reason != leaderboard.ReasonFloor && reason != leaderboard.ReasonRange
}

// normalize returns r in the form in which a store returns it.
func normalize(r leaderboard.MatchResult) leaderboard.MatchResult {
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

// compareContents compares the encodings of two results with equal revisions: the greater result
// stands. In the encoding, the length of each text precedes the text. Texts in tests are shorter
// than 128 bytes, so their length takes one byte, and a shorter text is smaller.
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
	if c := cmp.Or(flag(x.Retracted, y.Retracted), cmp.Compare(x.Finish, y.Finish), flag(x.Reset, y.Reset), flag(x.Assigned, y.Assigned), cmp.Compare(x.Score, y.Score),
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

// refusal returns the reason why r must not replace old, if any. old is nil if no result is stored.
// If amends is true, a closed season accepts r.
func (m *model) refusal(old, r *leaderboard.MatchResult, amends bool) leaderboard.Reason {
	b := m.boards[r.Board]
	if b.Source == nil && !r.Retracted && m.isEnded(r) {
		return leaderboard.ReasonEnded
	}
	if !m.isCounted(r) {
		return ""
	}
	lo, hi := leaderboard.Score(-1<<53), leaderboard.Score(1<<53)
	if b.Policy == leaderboard.BestK {
		n := leaderboard.Score(max(b.K, 1))
		if b.DropWorst > 0 {
			n = 10_000
		}
		lo, hi = lo/n, hi/n
	}
	largest := hi
	if b.MinScore != nil {
		lo = *b.MinScore
	}
	if b.MaxScore != nil {
		hi = *b.MaxScore
	}
	badStatus := r.Finish != leaderboard.Ranked && !slices.Contains(b.Statuses, r.Finish)
	badScore := (r.Score < lo || r.Score > hi) && (r.Finish == leaderboard.Ranked || r.Score != 0)
	if b.Source == nil && (badStatus || r.Reset && b.Policy != leaderboard.Sum || badScore || len(r.TieBreakers) > len(b.TieBreakers) ||
		r.AchievedAt.After(r.ReceivedAt.Add(24*time.Hour))) {
		return leaderboard.ReasonInvalid
	}
	for _, w := range b.Season.Windows {
		if w.ID != r.Season {
			continue
		}
		closes := w.End
		for _, e := range b.Season.Ends {
			if e.ID == w.ID {
				closes = e.DecidedAt // in the tests, later than w.End
			}
		}
		if b.CreatedAt.After(closes) {
			closes = b.CreatedAt
		}
		if !amends && !r.ReceivedAt.Before(closes.Add(b.Season.Grace)) {
			return leaderboard.ReasonClosed
		}
	}
	if b.Policy == leaderboard.BestK {
		for i, v := range append([]int64{int64(r.Score)}, m.ties(r)...) {
			if i > 0 && b.TieBreakers[i-1].Combine != leaderboard.Added {
				continue
			}
			if v < -int64(largest) || v > int64(largest) {
				return leaderboard.ReasonRange
			}
		}
		return ""
	}
	if slices.Contains([]leaderboard.Policy{leaderboard.Best, leaderboard.Latest, leaderboard.First}, b.Policy) {
		return ""
	}
	results := m.countingResults(r.SeasonKey, r.User)
	slices.SortFunc(results, eventOrder)
	counting := sinceReset(b, results)
	before, tiesBefore := totals(counting, len(b.TieBreakers))
	isSet := len(counting) > 0 && counting[0].Reset && b.Policy == leaderboard.Sum
	if isSet && counting[0].Match == r.Match && !r.Reset {
		return "" // what the reset hid counts again, and is not checked
	}
	hidden := func(x *leaderboard.MatchResult) bool {
		return isSet && counting[0].Match != r.Match && eventOrder(*x, counting[0]) < 0
	}
	after, tiesAfter := before, slices.Clone(tiesBefore)
	change := func(x *leaderboard.MatchResult, sign int64) {
		if hidden(x) {
			return
		}
		if x == r && r.Reset && b.Policy == leaderboard.Sum {
			after = 0
			clear(tiesBefore)
			clear(tiesAfter)
		}
		after += sign * int64(x.Score)
		for i, v := range m.ties(x) {
			tiesAfter[i] += sign * v
		}
	}
	if old != nil && m.isCounted(old) {
		change(old, -1)
	}
	change(r, 1)
	// movesOutside reports whether the sum moves outside the allowed range, or further outside.
	movesOutside := func(before, after int64) bool {
		const bound = 1 << 53
		return after > bound && after > before || after < -bound && after < before
	}
	if b.Policy == leaderboard.Sum {
		if b.Floor != nil && after < int64(*b.Floor) && after < before {
			return leaderboard.ReasonFloor
		}
		if movesOutside(before, after) {
			return leaderboard.ReasonRange
		}
	}
	for i := range tiesAfter {
		if b.TieBreakers[i].Combine == leaderboard.Added && movesOutside(tiesBefore[i], tiesAfter[i]) {
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

// The results are ordered by match id.
func (m *model) countingResults(s leaderboard.SeasonKey, user leaderboard.UserID) []leaderboard.MatchResult {
	counting := slices.DeleteFunc(m.standingResults(s, user), func(r leaderboard.MatchResult) bool { return !m.isCounted(&r) })
	for i := range counting {
		counting[i].TieBreakers = m.ties(&counting[i])
	}
	return counting
}

// ties returns the tie-breakers in the board's order. Results of a linked board have the
// tie-breakers in the source's order.
func (m *model) ties(r *leaderboard.MatchResult) []int64 {
	source := m.boards[r.Board].Source
	if source == nil {
		return r.TieBreakers
	}
	var ties []int64
	for _, i := range source.TieBreakers {
		ties = append(ties, append(slices.Clone(r.TieBreakers), make([]int64, i+1)...)[i])
	}
	return ties
}

// isEnded reports whether the season of r ended early, at or before the event time of r.
func (m *model) isEnded(r *leaderboard.MatchResult) bool {
	for _, e := range m.boards[r.Board].Season.Ends {
		if e.ID == r.Season && !r.AchievedAt.Before(e.At) {
			return true
		}
	}
	return false
}

// On a linked board, only results with the required attributes and an event time in the season
// count.
func (m *model) isCounted(r *leaderboard.MatchResult) bool {
	b := m.boards[r.Board]
	if m.isEnded(r) {
		return false
	}
	if r.Retracted || r.Voids%2 != 0 || b.Source == nil {
		return !r.Retracted && r.Voids%2 == 0
	}
	if r.Finish != leaderboard.Ranked && !slices.Contains(b.Statuses, r.Finish) {
		return false
	}
	for name, value := range b.Source.Match {
		if r.Attributes[name] != value {
			return false
		}
	}
	for _, w := range b.Season.Windows {
		if w.ID == r.Season {
			return !r.AchievedAt.Before(w.Start) && r.AchievedAt.Before(w.End)
		}
	}
	return true
}

// The results include retractions, and are ordered by match id.
func (m *model) standingResults(s leaderboard.SeasonKey, user leaderboard.UserID) []leaderboard.MatchResult {
	var out []leaderboard.MatchResult
	for key, rec := range m.records {
		if key.SeasonKey == s && key.User == user && rec.Result != nil {
			out = append(out, *rec.Result)
		}
	}
	slices.SortFunc(out, func(x, y leaderboard.MatchResult) int { return strings.Compare(string(x.Match), string(y.Match)) })
	return out
}

func (m *model) users(s leaderboard.SeasonKey) []leaderboard.UserID {
	set := map[leaderboard.UserID]bool{}
	for key := range m.records {
		if key.SeasonKey == s {
			set[key.User] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

func (m *model) seasonKeys(user leaderboard.UserID) []leaderboard.SeasonKey {
	set := map[leaderboard.SeasonKey]bool{}
	for key := range m.records {
		if user == "" || key.User == user {
			set[key.SeasonKey] = true
		}
	}
	return slices.SortedFunc(maps.Keys(set), compareSeasonKeys)
}

func compareSeasonKeys(x, y leaderboard.SeasonKey) int {
	return cmp.Or(strings.Compare(string(x.Board), string(y.Board)), strings.Compare(string(x.Season), string(y.Season)))
}

func (m *model) divisions(s leaderboard.SeasonKey) []leaderboard.Division {
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
	maps.DeleteFunc(m.recent, func(key leaderboard.ResultKey, _ []leaderboard.Refusal) bool { return key.User == user })
	maps.DeleteFunc(m.bans, func(key leaderboard.BanKey, _ leaderboard.Ban) bool { return key.User == user })
	if at = micros(at); at.After(m.erased[user]) {
		m.erased[user] = at
	}
	for _, s := range m.sealed {
		for d, standings := range s.final {
			s.final[d] = slices.DeleteFunc(standings, func(st leaderboard.Standing) bool { return st.User == user })
		}
	}
}

// The ban with the higher revision stands. At equal revisions, a ban wins over a lifted ban, then
// the later end wins, then the later At.
func (m *model) setBan(ban leaderboard.Ban) {
	key := leaderboard.BanKey{User: ban.User, Board: ban.Board}
	stored, exists := m.bans[key]
	endOf := func(b leaderboard.Ban) time.Time {
		if b.Until.IsZero() {
			return epoch.AddDate(1000, 0, 0)
		}
		return b.Until
	}
	erasedAt, erased := m.erased[ban.User]
	switch {
	case ban.Revision == 0 && !ban.Banned && !stored.Banned:
		return
	case ban.Revision == 0:
		ban.Revision = max(stored.Revision+1, ban.At.UnixMicro())
	case erased && !ban.At.After(erasedAt):
		return
	case exists && ban.Revision < stored.Revision:
		return
	case exists && ban.Revision == stored.Revision:
		if stored.Banned && !ban.Banned ||
			stored.Banned == ban.Banned && cmp.Or(endOf(ban).Compare(endOf(stored)), ban.At.Compare(stored.At)) <= 0 {
			return
		}
	}
	m.bans[key] = ban
}

func (m *model) isBanned(user leaderboard.UserID, board leaderboard.BoardID) bool {
	if source := m.boards[board].Source; source != nil && m.bans[leaderboard.BanKey{User: user, Board: source.Board}].Banned {
		return true
	}
	return m.bans[leaderboard.BanKey{User: user}].Banned || m.bans[leaderboard.BanKey{User: user, Board: board}].Banned
}

func (m *model) bansOf(user leaderboard.UserID) (bans []leaderboard.Ban) {
	for key, b := range m.bans {
		if key.User == user {
			bans = append(bans, b)
		}
	}
	slices.SortFunc(bans, func(x, y leaderboard.Ban) int { return strings.Compare(string(x.Board), string(y.Board)) })
	return bans
}

func (m *model) deleteSeason(s leaderboard.SeasonKey, at time.Time) {
	if b, ok := m.boards[s.Board]; ok && at.After(m.deleted[s]) {
		m.deleted[s] = micros(at)
		for key, refusals := range m.recent {
			if key.SeasonKey == s && (b.Source == nil || at.After(b.CreatedAt)) {
				m.recent[key] = slices.DeleteFunc(refusals, func(f leaderboard.Refusal) bool { return !f.ReceivedAt.After(micros(at)) })
			}
		}
	}
	maps.DeleteFunc(m.records, func(key leaderboard.ResultKey, _ *leaderboard.Record) bool { return key.SeasonKey == s })
	maps.DeleteFunc(m.matches, func(key leaderboard.MatchKey, _ leaderboard.MatchState) bool { return key.SeasonKey == s })
	delete(m.sealed, s)
}

func (m *model) deleteBoard(id leaderboard.BoardID, at time.Time) {
	if boardKey := (leaderboard.SeasonKey{Board: id}); at.After(m.deleted[boardKey]) {
		m.deleted[boardKey] = micros(at)
	}
	maps.DeleteFunc(m.records, func(key leaderboard.ResultKey, _ *leaderboard.Record) bool { return key.Board == id })
	maps.DeleteFunc(m.recent, func(key leaderboard.ResultKey, _ []leaderboard.Refusal) bool { return key.Board == id })
	maps.DeleteFunc(m.matches, func(key leaderboard.MatchKey, _ leaderboard.MatchState) bool { return key.Board == id })
	maps.DeleteFunc(m.sealed, func(s leaderboard.SeasonKey, _ *sealedSeason) bool { return s.Board == id })
	delete(m.boards, id)
}

// ladders has the store's entries. The caller must have compared these entries with the model.
func (m *model) seal(s leaderboard.SeasonKey, a leaderboard.Amendment, ladders map[leaderboard.Division][]leaderboard.Entry) {
	a.At = micros(a.At)
	sealed := m.sealed[s]
	if sealed == nil {
		sealed = &sealedSeason{record: leaderboard.SeasonRecord{SeasonKey: s, SealedAt: a.At, Rules: len(m.boards[s.Board].PastDivisions)}, divisions: m.boards[s.Board].Divisions}
		m.sealed[s] = sealed
	} else if !slices.ContainsFunc(sealed.record.Amendments, func(o leaderboard.Amendment) bool {
		return o.At.Equal(a.At) && o.Reason == a.Reason
	}) {
		sealed.record.Amendments = append(slices.Clone(sealed.record.Amendments), a)
	}
	sealed.final = map[leaderboard.Division][]leaderboard.Standing{}
	for d, entries := range ladders {
		sealed.final[d] = assignRanks(entries)
	}
}

// agrees ignores the ranks, because an erasure leaves gaps in the final ranks.
func (m *model) agrees(s leaderboard.SeasonKey, ladders map[leaderboard.Division][]leaderboard.Entry) bool {
	for d, standings := range m.sealed[s].final {
		if len(ladders[d]) != len(standings) {
			return false
		}
	}
	for d, entries := range ladders {
		standings := m.sealed[s].final[d]
		for i := range entries {
			if len(standings) != len(entries) || standings[i].SortKey() != entries[i].SortKey() {
				return false
			}
		}
	}
	return true
}

// The entries must be in standing order.
func assignRanks(entries []leaderboard.Entry) []leaderboard.Standing {
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
