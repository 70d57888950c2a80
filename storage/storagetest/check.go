package storagetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// replay runs operations on a store and on the model at once, and compares what
// both say.
type replay struct {
	ctx   context.Context
	store leaderboard.Store
	model *model
	// seen holds the last entry that the store gave of each user and scope.
	seen map[leaderboard.Scope]map[leaderboard.UserID]leaderboard.Entry
	// boards that there ever were, and users, to ask for what is gone too.
	scopes map[leaderboard.Scope]bool
	users  map[leaderboard.UserID]bool
}

func newReplay(ctx context.Context, store leaderboard.Store) *replay {
	return &replay{
		ctx: ctx, store: store, model: newModel(),
		seen:   map[leaderboard.Scope]map[leaderboard.UserID]leaderboard.Entry{},
		scopes: map[leaderboard.Scope]bool{}, users: map[leaderboard.UserID]bool{},
	}
}

func (p *replay) last(s leaderboard.Scope, user leaderboard.UserID) leaderboard.Entry {
	return p.seen[s][user]
}

func (p *replay) look(s leaderboard.Scope, user leaderboard.UserID, e leaderboard.Entry) {
	if p.seen[s] == nil {
		p.seen[s] = map[leaderboard.UserID]leaderboard.Entry{}
	}
	p.seen[s][user] = e
}

// results compares results field by field: their Equal is not made for nil.
var results = gocmp.FilterPath(func(p gocmp.Path) bool {
	return p.Last().Type() == reflect.TypeFor[*leaderboard.MatchResult]()
}, gocmp.Transformer("Fields", func(r *leaderboard.MatchResult) []leaderboard.MatchResult {
	if r == nil {
		return nil
	}
	return []leaderboard.MatchResult{*r}
}))

func diff(what string, want, got any) error {
	if d := gocmp.Diff(want, got, cmpopts.EquateEmpty(), results); d != "" {
		return fmt.Errorf("%s (-want +got):\n%s", what, d)
	}
	return nil
}

func collect[T any](seq iter.Seq2[T, error]) ([]T, error) {
	var out []T
	for v, err := range seq {
		if err != nil {
			return out, err
		}
		out = append(out, v)
	}
	return out, nil
}

// createBoard makes a board on both sides.
func (p *replay) createBoard(b leaderboard.Board) error {
	if err := p.store.CreateBoard(p.ctx, b); err != nil {
		return fmt.Errorf("CreateBoard(%q): %w", b.ID, err)
	}
	p.model.boards[b.ID] = b
	return nil
}

// apply applies results to both sides and compares outcomes and changes.
func (p *replay) apply(board leaderboard.Board, results []leaderboard.MatchResult) error {
	b, ok := p.model.boards[board.ID]
	if !ok || !b.CreatedAt.Equal(board.CreatedAt) {
		_, err := p.store.Apply(p.ctx, &board, results)
		if len(results) > 0 && !errors.Is(err, leaderboard.ErrBoardNotFound) {
			return fmt.Errorf("Apply to a board that is no more: %w", err)
		}
		return nil
	}
	report, err := p.store.Apply(p.ctx, &b, results)
	if err != nil {
		return fmt.Errorf("Apply: %w", err)
	}
	if len(report.Outcomes) != len(results) {
		return fmt.Errorf("Apply of %d results gave %d outcomes", len(results), len(report.Outcomes))
	}
	for i, r := range results {
		p.scopes[r.Scope], p.users[r.User] = true, true
		want := p.model.apply(r)
		o := report.Outcomes[i]
		if o.Err != nil || o.Status != want.status || o.Reason != want.reason {
			return fmt.Errorf("Apply: result %d is %v %q, error %v; want %v %q", i, o.Status, o.Reason, o.Err, want.status, want.reason)
		}
	}
	for i, r := range results {
		o := report.Outcomes[i]
		if err := p.checkEntry(r.Scope, r.User, o.Entry); err != nil {
			return fmt.Errorf("Apply: entry of outcome %d: %w", i, err)
		}
		if prev := p.last(r.Scope, r.User); (prev.Key != "" || o.Entry.Key != "") && prev.Version != o.Entry.Version && !slices.ContainsFunc(report.Changes, func(c leaderboard.Change) bool {
			return c.After.Scope == r.Scope && c.After.User == r.User
		}) {
			return fmt.Errorf("Apply: version of user %q went from %d to %d and is not among the changes", r.User, prev.Version, o.Entry.Version)
		}
	}
	return p.changes("Apply", report.Changes)
}

// changes compares changes with what was seen before and what the model says.
func (p *replay) changes(what string, changes []leaderboard.Change) error {
	type who struct {
		leaderboard.Scope
		leaderboard.UserID
	}
	once := map[who]bool{}
	for _, c := range changes {
		s, user := c.After.Scope, c.After.User
		if c.Before.Scope != s || c.Before.User != user {
			return fmt.Errorf("%s: a change from %v of %q to %v of %q", what, c.Before.Scope, c.Before.User, s, user)
		}
		if once[who{s, user}] {
			return fmt.Errorf("%s: two changes of user %q in %v", what, user, s)
		}
		once[who{s, user}] = true
		if c.After.Version <= c.Before.Version {
			return fmt.Errorf("%s: version of user %q went from %d to %d", what, user, c.Before.Version, c.After.Version)
		}
		if prev := p.last(s, user); prev.Key != "" || c.Before.Key != "" {
			if err := diff(what+": Before of user "+string(user), prev, c.Before); err != nil {
				return err
			}
		}
		if err := p.checkEntry(s, user, c.After); err != nil {
			return fmt.Errorf("%s: After: %w", what, err)
		}
		p.look(s, user, c.After)
	}
	return nil
}

// checkEntry compares an entry, whose Key may be empty, with the model's.
func (p *replay) checkEntry(s leaderboard.Scope, user leaderboard.UserID, e leaderboard.Entry) error {
	b := p.model.boards[s.Board]
	want := p.model.line(s, user)
	if e.Scope != s || e.User != user {
		return fmt.Errorf("entry of %q in %v is of %q in %v", user, s, e.User, e.Scope)
	}
	if want == nil || e.Key == "" {
		if want != nil || e.Key != "" {
			return fmt.Errorf("entry of %q in %v is %+v, want %+v", user, s, e, want)
		}
		return nil
	}
	if len(e.Key) != b.RankKeyBytes() {
		return fmt.Errorf("rank key of %q has %d bytes, those of its board %d", user, len(e.Key), b.RankKeyBytes())
	}
	if b.Policy == leaderboard.Decay {
		for _, after := range []time.Duration{0, b.HalfLife / 3, 10 * b.HalfLife} {
			at := micros(epoch.Add(after))
			score, exact := b.ScoreOf(e.Key, at), want.scoreAt(at, b.HalfLife)
			// Off by at most a half, and a little for rounding near the half and
			// for terms that decay has cut off.
			d := newFloat().Sub(newFloat().SetInt64(int64(score)), exact)
			slack := newFloat().SetMantExp(newFloat().Quo(want.greatest, twoTo(at, b.HalfLife)), -100)
			limit := slack.Add(slack, newFloat().SetFloat64(0.5))
			saturated := newFloat().Abs(exact).Cmp(new(big.Float).SetInt64(1<<53)) > 0
			if !saturated && d.Abs(d).Cmp(limit) > 0 {
				return fmt.Errorf("score of %q at %v is %d, want %s", user, at, score, exact.Text('f', 6))
			}
		}
	} else if got := int64(b.ScoreOf(e.Key, epoch)); got != want.score {
		return fmt.Errorf("score of %q is %d, want %d", user, got, want.score)
	}
	got := line{user: e.User, ties: b.TieBreakersOf(e.Key), achievedAt: e.AchievedAt, match: e.Match, metadata: e.Metadata,
		divisions: e.Divisions, results: e.Results, hidden: e.Hidden}
	flat := *want
	flat.score, flat.decayed, flat.greatest, flat.terms = 0, nil, nil, ""
	if d := gocmp.Diff(flat, got, gocmp.AllowUnexported(line{}), cmpopts.EquateEmpty()); d != "" {
		return fmt.Errorf("entry of %q in %v (-want +got):\n%s", user, s, d)
	}
	prev := p.last(s, user)
	if prev.Version > e.Version {
		return fmt.Errorf("version of %q went back from %d to %d", user, prev.Version, e.Version)
	}
	if prev.Version == e.Version {
		return diff("two entries of one version", prev, e)
	}
	return nil
}

// compareAll compares all that the store says with the model.
func (p *replay) compareAll() error {
	boards, err := p.store.Boards(p.ctx)
	if err != nil {
		return fmt.Errorf("Boards: %w", err)
	}
	var ids []leaderboard.BoardID
	for _, b := range boards {
		ids = append(ids, b.ID)
	}
	var want []leaderboard.BoardID
	for id := range p.model.boards {
		want = append(want, id)
	}
	slices.Sort(want)
	if err := diff("Boards", want, ids); err != nil {
		return err
	}
	for s := range p.scopes {
		if err := p.compareScope(s); err != nil {
			return err
		}
	}
	if unlisted, err := collect(p.store.Unlisted(p.ctx)); err != nil || len(unlisted) > 0 {
		return fmt.Errorf("Unlisted yields %v, error %v", unlisted, err)
	}
	for user := range p.users {
		scopes, err := p.store.UserScopes(p.ctx, user)
		if err != nil {
			return fmt.Errorf("UserScopes(%q): %w", user, err)
		}
		if err := diff(fmt.Sprintf("UserScopes(%q)", user), p.model.scopes(user), scopes); err != nil {
			return err
		}
		ban, err := p.store.Ban(p.ctx, user)
		if err != nil || ban.User != user || ban.Banned != p.model.banned[user] {
			return fmt.Errorf("Ban(%q) = %+v, %w; want banned %v", user, ban, err, p.model.banned[user])
		}
	}
	for _, id := range want {
		records, err := p.store.Seasons(p.ctx, id)
		if err != nil {
			return fmt.Errorf("Seasons(%q): %w", id, err)
		}
		if err := diff(fmt.Sprintf("Seasons(%q)", id), p.seasons(id), records); err != nil {
			return err
		}
	}
	return nil
}

func (p *replay) seasons(id leaderboard.BoardID) []leaderboard.SeasonRecord {
	var out []leaderboard.SeasonRecord
	for _, s := range p.model.scopes("") {
		if s.Board == id && p.model.sealed[s] == nil {
			out = append(out, leaderboard.SeasonRecord{Scope: s})
		}
	}
	for s, sealed := range p.model.sealed {
		if s.Board == id {
			out = append(out, sealed.record)
		}
	}
	slices.SortFunc(out, func(x, y leaderboard.SeasonRecord) int { return compareScopes(x.Scope, y.Scope) })
	return out
}

func (p *replay) compareScope(s leaderboard.Scope) error {
	users, err := collect(p.store.Users(p.ctx, s))
	if err != nil {
		return fmt.Errorf("Users: %w", err)
	}
	slices.Sort(users)
	if err := diff("Users", p.model.users(s), users); err != nil {
		return err
	}
	entries := map[leaderboard.UserID]leaderboard.Entry{}
	for user := range p.users {
		e, err := p.store.Entry(p.ctx, s, user)
		switch {
		case errors.Is(err, leaderboard.ErrEntryNotFound):
			e = leaderboard.Entry{Scope: s, User: user}
		case err != nil:
			return fmt.Errorf("Entry(%q): %w", user, err)
		case e.Key == "":
			return fmt.Errorf("Entry(%q) has no key and no error", user)
		}
		if err := p.checkEntry(s, user, e); err != nil {
			return err
		}
		if e.Key != "" {
			entries[user] = e
			p.look(s, user, e)
		}
		if err := p.compareResults(s, user); err != nil {
			return err
		}
	}
	scanned, err := collect(p.store.Scan(p.ctx, s))
	if err != nil {
		return fmt.Errorf("Scan: %w", err)
	}
	byUser := map[leaderboard.UserID]leaderboard.Entry{}
	for _, e := range scanned {
		byUser[e.User] = e
	}
	if len(byUser) != len(scanned) {
		return fmt.Errorf("Scan yields %d entries of %d users", len(scanned), len(byUser))
	}
	if err := diff("Scan", entries, byUser); err != nil {
		return err
	}
	strays, err := collect(p.store.Strays(p.ctx, s))
	if err != nil || len(strays) > 0 {
		return fmt.Errorf("Strays yields %v, error %v", strays, err)
	}
	for _, d := range append(p.model.divisions(s), leaderboard.Division{Attribute: "nobody", Value: "there"}) {
		l := leaderboard.Ladder{Scope: s, Division: d}
		ladder, err := collect(p.store.Entries(p.ctx, l, ""))
		if err != nil {
			return fmt.Errorf("Entries(%v): %w", d, err)
		}
		if err := p.compareLadder(l, ladder, entries); err != nil {
			return fmt.Errorf("Entries(%v): %w", d, err)
		}
	}
	return p.compareFinal(s)
}

// compareLadder checks that a ladder holds the entries that it should, in order.
func (p *replay) compareLadder(l leaderboard.Ladder, ladder []leaderboard.Entry, entries map[leaderboard.UserID]leaderboard.Entry) error {
	b := p.model.boards[l.Board]
	want := p.model.ladder(l)
	if len(ladder) != len(want) {
		return fmt.Errorf("%d entries, want %d", len(ladder), len(want))
	}
	lines := map[leaderboard.UserID]*line{}
	for _, ln := range want {
		lines[ln.user] = ln
	}
	for i, e := range ladder {
		x := lines[e.User]
		if x == nil {
			return fmt.Errorf("user %q is there and should not be, or twice", e.User)
		}
		if err := diff("entry", entries[e.User], e); err != nil {
			return err
		}
		delete(lines, e.User)
		if i == 0 {
			continue
		}
		prev := ladder[i-1]
		before := p.model.line(l.Scope, prev.User)
		c, ok := p.model.compare(b, before, x)
		if !ok {
			c = strings.Compare(string(prev.Key), string(e.Key))
		}
		if c > 0 || (c == 0) != (prev.Key == e.Key) {
			return fmt.Errorf("user %q at %d stands after %q; compare = %d, keys equal %v", e.User, i, prev.User, c, prev.Key == e.Key)
		}
		if cmp.Or(c, before.achievedAt.Compare(x.achievedAt), strings.Compare(string(prev.User), string(e.User))) >= 0 {
			return fmt.Errorf("user %q at %d stands after %q, against the order inside a tie", e.User, i, prev.User)
		}
	}
	return nil
}

func (p *replay) compareResults(s leaderboard.Scope, user leaderboard.UserID) error {
	results, err := collect(p.store.Results(p.ctx, s, user))
	if err != nil {
		return fmt.Errorf("Results(%q): %w", user, err)
	}
	if err := diff(fmt.Sprintf("Results(%q)", user), p.model.results(s, user), results); err != nil {
		return err
	}
	for key, want := range p.model.records {
		if key.Scope != s || key.User != user {
			continue
		}
		rec, err := p.store.Result(p.ctx, key)
		if err != nil {
			return fmt.Errorf("Result(%q, %q): %w", user, key.Match, err)
		}
		sorted := *want
		sorted.Refusals = slices.Clone(want.Refusals)
		// Of one revision and time, any order will do.
		order := func(x, y leaderboard.Refusal) int {
			return cmp.Or(cmp.Compare(x.Revision, y.Revision), x.ReceivedAt.Compare(y.ReceivedAt), strings.Compare(string(x.Content[:]), string(y.Content[:])))
		}
		slices.SortFunc(sorted.Refusals, order)
		if !slices.IsSortedFunc(rec.Refusals, func(x, y leaderboard.Refusal) int {
			return cmp.Or(cmp.Compare(x.Revision, y.Revision), x.ReceivedAt.Compare(y.ReceivedAt))
		}) {
			return fmt.Errorf("Result(%q, %q): refusals out of order: %+v", user, key.Match, rec.Refusals)
		}
		slices.SortFunc(rec.Refusals, order)
		if err := diff(fmt.Sprintf("Result(%q, %q)", user, key.Match), sorted, rec); err != nil {
			return err
		}
	}
	return nil
}

func (p *replay) compareFinal(s leaderboard.Scope) error {
	want := p.model.sealed[s]
	divisions := p.model.divisions(s)
	if want != nil {
		for d := range want.final {
			if !slices.Contains(divisions, d) {
				divisions = append(divisions, d)
			}
		}
	}
	for _, d := range divisions {
		l := leaderboard.Ladder{Scope: s, Division: d}
		got, total, err := p.store.FinalStandings(p.ctx, l, 1, 1000)
		if want == nil {
			if !errors.Is(err, leaderboard.ErrNotSealed) {
				return fmt.Errorf("FinalStandings(%v) of a season that is not sealed: %w", l, err)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("FinalStandings(%v): %w", l, err)
		}
		if total != int64(len(want.final[d])) {
			return fmt.Errorf("FinalStandings(%v): %d in all, want %d", l, total, len(want.final[d]))
		}
		if err := diff(fmt.Sprintf("FinalStandings(%v)", l), want.final[d], got); err != nil {
			return err
		}
		for user := range p.users {
			st, err := p.store.FinalStanding(p.ctx, l, user)
			i := slices.IndexFunc(want.final[d], func(st leaderboard.Standing) bool { return st.User == user })
			if i < 0 {
				if !errors.Is(err, leaderboard.ErrEntryNotFound) {
					return fmt.Errorf("FinalStanding(%v, %q) = %+v, %w", l, user, st, err)
				}
				continue
			}
			if err != nil {
				return fmt.Errorf("FinalStanding(%v, %q): %w", l, user, err)
			}
			if err := diff(fmt.Sprintf("FinalStanding(%v, %q)", l, user), want.final[d][i], st); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *replay) setBan(user leaderboard.UserID, banned bool) error {
	changes, err := p.store.SetBan(p.ctx, leaderboard.Ban{User: user, Banned: banned, Reason: "test", At: epoch})
	if err != nil {
		return fmt.Errorf("SetBan: %w", err)
	}
	p.users[user] = true
	p.model.banned[user] = banned
	return p.changes("SetBan", changes)
}

func (p *replay) erase(user leaderboard.UserID, at time.Time) error {
	changes, err := p.store.Erase(p.ctx, user, at)
	if err != nil {
		return fmt.Errorf("Erase: %w", err)
	}
	p.users[user] = true
	for s := range p.scopes {
		if e := p.last(s, user); e.Key != "" && !slices.ContainsFunc(changes, func(c leaderboard.Change) bool { return c.After.Scope == s }) {
			return fmt.Errorf("Erase: no change in %v", s)
		}
	}
	p.model.erase(user, at)
	return p.changes("Erase", changes)
}

func (p *replay) recount(s leaderboard.Scope, user leaderboard.UserID) error {
	b, ok := p.model.boards[s.Board]
	if !ok {
		return nil
	}
	c, err := p.store.Recount(p.ctx, &b, s.Season, user)
	if err != nil {
		return fmt.Errorf("Recount: %w", err)
	}
	if err := diff("Recount of a whole entry", c.Before, c.After); err != nil {
		return err
	}
	return p.checkEntry(s, user, c.After)
}

func (p *replay) seal(s leaderboard.Scope, a leaderboard.Amendment) error {
	return p.makeFinal(s, a, "Seal", p.store.Seal)
}

func (p *replay) amendSeason(s leaderboard.Scope, a leaderboard.Amendment) error {
	b, ok := p.model.boards[s.Board]
	if !ok || p.model.sealed[s] != nil {
		return p.makeFinal(s, a, "Amend", p.store.Amend)
	}
	if _, err := p.store.Amend(p.ctx, &b, s.Season, a); !errors.Is(err, leaderboard.ErrNotSealed) {
		return fmt.Errorf("Amend of a season that is not sealed: error %w", err)
	}
	return nil
}

// makeFinal seals or amends a season.
func (p *replay) makeFinal(s leaderboard.Scope, a leaderboard.Amendment, what string,
	call func(context.Context, *leaderboard.Board, leaderboard.SeasonID, leaderboard.Amendment) (leaderboard.SeasonRecord, error)) error {
	b, ok := p.model.boards[s.Board]
	if !ok {
		return nil
	}
	p.scopes[s] = true
	if err := p.compareScope(s); err != nil {
		return err
	}
	ladders := map[leaderboard.Division][]leaderboard.Entry{}
	for _, d := range p.model.divisions(s) {
		var err error
		if ladders[d], err = collect(p.store.Entries(p.ctx, leaderboard.Ladder{Scope: s, Division: d}, "")); err != nil {
			return fmt.Errorf("Entries: %w", err)
		}
	}
	record, err := call(p.ctx, &b, s.Season, a)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	p.model.seal(s, a, ladders)
	if err := diff(what, p.model.sealed[s].record, record); err != nil {
		return err
	}
	return p.compareFinal(s)
}

func (p *replay) deleteSeason(s leaderboard.Scope) error {
	if err := p.store.DeleteSeason(p.ctx, s); err != nil {
		return fmt.Errorf("DeleteSeason: %w", err)
	}
	p.model.deleteSeason(s)
	delete(p.seen, s) // versions may begin again
	return nil
}

func (p *replay) deleteBoard(id leaderboard.BoardID) error {
	_, there := p.model.boards[id]
	err := p.store.DeleteBoard(p.ctx, id)
	if !there {
		if !errors.Is(err, leaderboard.ErrBoardNotFound) {
			return fmt.Errorf("DeleteBoard of none: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("DeleteBoard: %w", err)
	}
	p.model.deleteBoard(id)
	for s := range p.seen {
		if s.Board == id {
			delete(p.seen, s)
		}
	}
	return nil
}
