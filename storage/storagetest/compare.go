package storagetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/open-leaderboard/leaderboard"
)

func diff(subject string, want, got any) error {
	if d := gocmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		return fmt.Errorf("%s (-want +got):\n%s", subject, d)
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

func (p *replay) checkKey(want *line, board leaderboard.BoardID, key leaderboard.RankKey) error {
	if want == nil || key == "" {
		if want != nil || key != "" {
			return fmt.Errorf("rank key is %x, want the key of %+v", string(key), want)
		}
		return nil
	}
	b, user := p.model.boards[board], want.user
	if len(key) != b.RankKeyBytes() {
		return fmt.Errorf("rank key of %q has %d bytes, want %d", user, len(key), b.RankKeyBytes())
	}
	if b.Policy == leaderboard.Decay {
		for _, after := range []time.Duration{0, b.HalfLife / 3, 10 * b.HalfLife} {
			at := micros(epoch.Add(after))
			score, exact := b.ScoreOf(key, at), want.scoreAt(at, b.HalfLife)
			// The store rounds the score, so the score differs from exact by at most 1/2. slack
			// allows for errors before the rounding, and for results too old to affect the score.
			d := newFloat().Sub(newFloat().SetInt64(int64(score)), exact)
			slack := newFloat().SetMantExp(newFloat().Quo(want.greatest, twoTo(at, b.HalfLife)), -100)
			limit := slack.Add(slack, newFloat().SetFloat64(0.5))
			saturated := newFloat().Abs(exact).Cmp(new(big.Float).SetInt64(1<<53)) > 0
			if !saturated && d.Abs(d).Cmp(limit) > 0 {
				return fmt.Errorf("score of %q at %v is %d, want %s", user, at, score, exact.Text('f', 6))
			}
		}
	} else if got := int64(b.ScoreOf(key, epoch)); got != want.score {
		return fmt.Errorf("score of %q is %d, want %d", user, got, want.score)
	}
	if b.Policy == leaderboard.Average {
		exact, ok := new(big.Rat).SetString(b.ExactScoreOf(key, epoch))
		if !ok || exact.Sub(exact, want.mean).Abs(exact).Cmp(big.NewRat(1, 1<<62)) > 0 {
			return fmt.Errorf("exact score of %q is %s, want %v", user, b.ExactScoreOf(key, epoch), want.mean)
		}
	}
	return diff(fmt.Sprintf("tie-breakers of %q", user), want.ties, b.TieBreakersOf(key))
}

func (p *replay) checkEntry(s leaderboard.SeasonKey, user leaderboard.UserID, e leaderboard.Entry) error {
	b := p.model.boards[s.Board]
	want := p.model.line(s, user)
	if e.SeasonKey != s || e.User != user {
		return fmt.Errorf("the store returned an entry of %q in %v, want the entry of %q in %v", e.User, e.SeasonKey, user, s)
	}
	if want == nil || e.Key == "" {
		if want != nil || e.Key != "" {
			return fmt.Errorf("entry of %q in %v is %+v, want %+v", user, s, e, want)
		}
		return nil
	}
	if err := p.checkKey(want, s.Board, e.Key); err != nil {
		return err
	}
	got := line{user: e.User, finish: b.FinishOf(e.Key), ties: b.TieBreakersOf(e.Key), achievedAt: b.AchievedAt(e.AchievedAt), match: e.Match, metadata: e.Metadata,
		divisions: e.Divisions, results: e.Results, hidden: e.Hidden}
	flat := *want
	flat.score, flat.mean, flat.decayed, flat.greatest, flat.terms = 0, nil, nil, nil, ""
	if d := gocmp.Diff(flat, got, gocmp.AllowUnexported(line{}), cmpopts.EquateEmpty()); d != "" {
		return fmt.Errorf("entry of %q in %v (-want +got):\n%s", user, s, d)
	}
	prev := p.lastSeen(s, user)
	if prev.Version > e.Version {
		return fmt.Errorf("version of %q went from %d to %d, want no lower version", user, prev.Version, e.Version)
	}
	if prev.Version == e.Version {
		return diff("two entries of one user with the same version differ, want equal entries; -want is the earlier entry", prev, e)
	}
	return nil
}

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
	for s := range p.keys {
		if err := p.compareSeason(s); err != nil {
			return err
		}
	}
	if unregistered, err := collect(p.store.UnregisteredUsers(p.ctx)); err != nil || len(unregistered) > 0 {
		return fmt.Errorf("UnregisteredUsers yields %v, error %v; want no users", unregistered, err)
	}
	for user := range p.users {
		keys, err := p.store.UserSeasons(p.ctx, user)
		if err != nil {
			return fmt.Errorf("UserSeasons(%q): %w", user, err)
		}
		if err := diff(fmt.Sprintf("UserSeasons(%q)", user), p.model.seasonKeys(user), keys); err != nil {
			return err
		}
		bans, err := p.store.UserBans(p.ctx, user)
		if err != nil {
			return fmt.Errorf("UserBans(%q): %w", user, err)
		}
		if err := diff(fmt.Sprintf("UserBans(%q)", user), p.model.bansOf(user), bans); err != nil {
			return err
		}
	}
	if err := p.compareBans(); err != nil {
		return err
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

func (p *replay) compareBans() error {
	all, err := collect(p.store.Bans(p.ctx, leaderboard.BanKey{}))
	if err != nil {
		return fmt.Errorf("Bans: %w", err)
	}
	byKey := map[leaderboard.BanKey]leaderboard.Ban{}
	for _, b := range all {
		byKey[b.Key()] = b
	}
	if len(byKey) != len(all) {
		return fmt.Errorf("Bans yields %d bans with %d different keys, want one ban for each key", len(all), len(byKey))
	}
	if err := diff("Bans", p.model.bans, byKey); err != nil {
		return err
	}
	for i := range all {
		rest, err := collect(p.store.Bans(p.ctx, all[i].Key()))
		if err != nil {
			return fmt.Errorf("Bans: %w", err)
		}
		if err := diff("Bans after a key", all[i+1:], rest); err != nil {
			return err
		}
	}
	for _, before := range []time.Time{epoch, banEnd(3), banEnd(100)} {
		ending, err := collect(p.store.BansEnding(p.ctx, before))
		if err != nil {
			return fmt.Errorf("BansEnding: %w", err)
		}
		got := map[leaderboard.BanKey]leaderboard.Ban{}
		for i, b := range ending {
			if got[b.Key()] = b; i > 0 && b.Until.Before(ending[i-1].Until) {
				return fmt.Errorf("BansEnding yields a ban that ends at %v after a ban that ends at %v, want the bans ordered by their end", b.Until, ending[i-1].Until)
			}
		}
		want := map[leaderboard.BanKey]leaderboard.Ban{}
		for key, b := range p.model.bans {
			if !b.Until.IsZero() && b.Until.Before(before) {
				want[key] = b
			}
		}
		if err := diff("BansEnding", want, got); err != nil {
			return err
		}
	}
	return nil
}

func (p *replay) seasons(id leaderboard.BoardID) []leaderboard.SeasonRecord {
	var out []leaderboard.SeasonRecord
	for _, s := range p.model.seasonKeys("") {
		if s.Board == id && p.model.sealed[s] == nil {
			out = append(out, leaderboard.SeasonRecord{SeasonKey: s, Rules: len(p.model.boards[id].PastDivisions)})
		}
	}
	for s, sealed := range p.model.sealed {
		if s.Board == id {
			out = append(out, sealed.record)
		}
	}
	slices.SortFunc(out, func(x, y leaderboard.SeasonRecord) int { return compareSeasonKeys(x.SeasonKey, y.SeasonKey) })
	return out
}

func (p *replay) compareSeason(s leaderboard.SeasonKey) error {
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
			e = leaderboard.Entry{SeasonKey: s, User: user}
		case err != nil:
			return fmt.Errorf("Entry(%q): %w", user, err)
		case e.Key == "":
			return fmt.Errorf("Entry(%q) returns an entry without a key, want ErrEntryNotFound", user)
		}
		if err := p.checkEntry(s, user, e); err != nil {
			return err
		}
		if e.Key != "" {
			entries[user] = e
			p.recordSeen(s, user, e)
		}
		if err := p.compareResults(s, user); err != nil {
			return err
		}
	}
	scanned, err := collect(p.store.Scan(p.ctx, s, leaderboard.Part{}))
	if err != nil {
		return fmt.Errorf("Scan: %w", err)
	}
	byUser := map[leaderboard.UserID]leaderboard.Entry{}
	for _, e := range scanned {
		byUser[e.User] = e
	}
	if len(byUser) != len(scanned) {
		return fmt.Errorf("Scan yields %d entries of %d users, want one entry for each user", len(scanned), len(byUser))
	}
	if err := diff("Scan", entries, byUser); err != nil {
		return err
	}
	orphans, err := collect(p.store.OrphanRows(p.ctx, s))
	if err != nil || len(orphans) > 0 {
		return fmt.Errorf("OrphanRows yields %v, error %v; want no rows", orphans, err)
	}
	for _, d := range append(p.model.divisions(s), leaderboard.Division{Attribute: "nobody", Value: "there"}) {
		l := leaderboard.Ladder{SeasonKey: s, Division: d}
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
		current := lines[e.User]
		if current == nil {
			return fmt.Errorf("user %q is unexpected or appears twice, want each expected user once", e.User)
		}
		if err := diff("entry", entries[e.User], e); err != nil {
			return err
		}
		delete(lines, e.User)
		if i == 0 {
			continue
		}
		prev := ladder[i-1]
		prevLine := p.model.line(l.SeasonKey, prev.User)
		c, ok := p.model.compare(b, prevLine, current)
		if !ok {
			c = strings.Compare(string(prev.Key), string(e.Key))
		}
		if c > 0 || (c == 0) != (prev.Key == e.Key) {
			return fmt.Errorf("at index %d, user %q follows %q, and their rank keys are equal: %v; the model compares %q with %q as %d, want 0 for equal keys and a negative number for others", i, e.User, prev.User, prev.Key == e.Key, prev.User, e.User, c)
		}
		byTime := prevLine.achievedAt.Compare(current.achievedAt)
		if b.Ties == leaderboard.LatestFirst {
			byTime = -byTime
		}
		if cmp.Or(c, byTime, strings.Compare(string(prev.User), string(e.User))) >= 0 {
			return fmt.Errorf("at index %d, user %q follows %q, want the reverse order because of their times and ids", i, e.User, prev.User)
		}
	}
	return nil
}

func (p *replay) compareResults(s leaderboard.SeasonKey, user leaderboard.UserID) error {
	results, err := collect(p.store.Results(p.ctx, s, user))
	if err != nil {
		return fmt.Errorf("Results(%q): %w", user, err)
	}
	if err := diff(fmt.Sprintf("Results(%q)", user), p.model.standingResults(s, user), results); err != nil {
		return err
	}
	for key, want := range p.model.records {
		if key.SeasonKey != s || key.User != user {
			continue
		}
		rec, err := p.store.Result(p.ctx, key)
		if err != nil {
			return fmt.Errorf("Result(%q, %q): %w", user, key.Match, err)
		}
		call := fmt.Sprintf("Result(%q, %q)", user, key.Match)
		if err := cmp.Or(diff(call, want.Result, rec.Result), compareRefusals(call, want.Refusals, rec.Refusals)); err != nil {
			return err
		}
	}
	b := p.model.boards[s.Board]
	for key, want := range p.model.recent {
		if key.SeasonKey != s || key.User != user {
			continue
		}
		recent, err := p.store.RecentRefusals(p.ctx, &b, key)
		if err != nil {
			return fmt.Errorf("RecentRefusals(%q, %q): %w", user, key.Match, err)
		}
		var got []leaderboard.Refusal
		for _, f := range recent {
			got = append(got, f.Refusal)
		}
		if err := compareRefusals(fmt.Sprintf("RecentRefusals(%q, %q)", user, key.Match), want, got); err != nil {
			return err
		}
	}
	return nil
}

// Refusals of the same revision and time may be in any order.
func compareRefusals(call string, want, got []leaderboard.Refusal) error {
	ordered := func(x, y leaderboard.Refusal) int {
		return cmp.Or(cmp.Compare(x.Revision, y.Revision), x.ReceivedAt.Compare(y.ReceivedAt))
	}
	if !slices.IsSortedFunc(got, ordered) {
		return fmt.Errorf("%s: refusals are %+v, want them ordered by revision and time", call, got)
	}
	byContent := func(x, y leaderboard.Refusal) int {
		return cmp.Or(ordered(x, y), strings.Compare(string(x.Content[:]), string(y.Content[:])))
	}
	sorted := func(refusals []leaderboard.Refusal) []leaderboard.Refusal {
		return slices.SortedFunc(slices.Values(refusals), byContent) // nil if empty
	}
	return diff(call+": refusals", sorted(want), sorted(got))
}

func (p *replay) compareFinal(s leaderboard.SeasonKey) error {
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
		l := leaderboard.Ladder{SeasonKey: s, Division: d}
		got, total, err := p.store.FinalStandings(p.ctx, l, 1, 1000)
		if want == nil {
			if !errors.Is(err, leaderboard.ErrNotSealed) {
				return fmt.Errorf("FinalStandings(%v) of a season that is not sealed: error %v, want ErrNotSealed", l, err)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("FinalStandings(%v): %w", l, err)
		}
		if total != int64(len(want.final[d])) {
			return fmt.Errorf("FinalStandings(%v) returns the total %d, want %d", l, total, len(want.final[d]))
		}
		if err := diff(fmt.Sprintf("FinalStandings(%v)", l), want.final[d], got); err != nil {
			return err
		}
		if err := p.compareFinalReads(l, want.final[d]); err != nil {
			return err
		}
	}
	return nil
}

func (p *replay) compareFinalReads(l leaderboard.Ladder, want []leaderboard.Standing) error {
	var users []leaderboard.UserID
	var places []leaderboard.Standing
	for user := range p.users {
		st := leaderboard.Standing{User: user}
		if i := slices.IndexFunc(want, func(st leaderboard.Standing) bool { return st.User == user }); i >= 0 {
			st = want[i]
		}
		users, places = append(users, user), append(places, st)
	}
	got, total, err := p.store.FinalLookup(p.ctx, l, users)
	if err == nil {
		err = errors.Join(diff(fmt.Sprintf("FinalLookup(%v)", l), places, got), diff("total", int64(len(want)), total))
	}
	if err != nil {
		return fmt.Errorf("FinalLookup(%v): %w", l, err)
	}
	const checks = 5
	step := max(len(want)/checks, 1)
	for i := 0; i < len(want); i += step {
		st := &want[i]
		first := slices.IndexFunc(want, func(o leaderboard.Standing) bool { return o.Ranks.Ordinal >= st.Ranks.Ordinal-1 })
		last := i
		for last+1 < len(want) && want[last+1].Ranks.Ordinal <= st.Ranks.Ordinal+2 {
			last++
		}
		// Neighborhood.NotWorse also counts erased users with this rank key. Their positions may follow
		// the last remaining standing with this rank key, but not the first worse standing.
		notWorse, worse := st.Ranks.Ordinal, int64(math.MaxInt64)
		for _, o := range want[i:] {
			if o.Key == st.Key {
				notWorse = o.Ranks.Ordinal
			} else {
				worse = min(worse, o.Ranks.Ordinal)
			}
		}
		around, n, err := p.store.FinalAround(p.ctx, l, st.User, 1, 2)
		if err == nil {
			notWorse = min(max(notWorse, around.NotWorse), worse-1)
			err = errors.Join(diff("FinalAround", leaderboard.Neighborhood{
				Standings: want[first : last+1], Of: i - first, NotWorse: notWorse,
			}, around), diff("total", int64(len(want)), n))
		}
		if err != nil {
			return fmt.Errorf("FinalAround(%v, %q): %w", l, st.User, err)
		}
		after, _, _, err := p.store.FinalAfter(p.ctx, l, st.SortKey(), 2)
		if err == nil {
			err = diff("FinalAfter", want[i+1:min(i+3, len(want))], after)
		}
		if err != nil {
			return fmt.Errorf("FinalAfter(%v) of user %q: %w", l, st.User, err)
		}
		_, better, n, err := p.store.FinalAfter(p.ctx, l, leaderboard.SortKey(st.Key), 0)
		if err == nil {
			err = diff("FinalAfter", leaderboard.Counts{Standings: st.Ranks.Competition - 1, Distinct: st.Ranks.Dense - 1}, better)
		}
		if err != nil || n != int64(len(want)) {
			return fmt.Errorf("FinalAfter(%v) of the rank key of user %q returns the total %d, want %d; error %v", l, st.User, n, len(want), err)
		}
	}
	return nil
}

func finalStanding(ctx context.Context, store leaderboard.Store, l leaderboard.Ladder, user leaderboard.UserID) (leaderboard.Standing, error) {
	got, _, err := store.FinalLookup(ctx, l, []leaderboard.UserID{user})
	if err == nil && got[0].Key == "" {
		err = leaderboard.ErrEntryNotFound
	}
	if err != nil {
		return leaderboard.Standing{}, err
	}
	return got[0], nil
}
