package cql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// naiveRanks ranks standings, which must be in standing order.
func naiveRanks(standings []leaderboard.Standing) {
	distinct := map[leaderboard.RankKey]bool{}
	first := map[leaderboard.RankKey]int64{}
	for i := range standings {
		st := &standings[i]
		distinct[st.Key] = true
		if first[st.Key] == 0 {
			first[st.Key] = int64(i + 1)
		}
		st.Ranks = leaderboard.Ranks{Ordinal: int64(i + 1), Competition: first[st.Key], Dense: int64(len(distinct))}
	}
}

// checkLadder compares all reads of final standings with the entries.
func checkLadder(ctx context.Context, s *Store, l leaderboard.Ladder) error {
	var want []leaderboard.Standing
	for e, err := range s.Scan(ctx, l.SeasonKey, leaderboard.Part{}) {
		if err != nil {
			return err
		}
		if e.Ranked() && (l.Division == leaderboard.Division{} || slices.Contains(e.Divisions, l.Division)) {
			want = append(want, leaderboard.Standing{User: e.User, Key: e.Key, AchievedAt: e.AchievedAt})
		}
	}
	sort.Slice(want, func(i, j int) bool { return want[i].SortKey() < want[j].SortKey() })
	naiveRanks(want)
	got, total, err := s.FinalStandings(ctx, l, 1, len(want)+10)
	if err != nil {
		return err
	}
	if d := cmp.Diff(want, got); d != "" || total != int64(len(want)) {
		return fmt.Errorf("ladder %q: total %d, want %d (-want +got):\n%s", l.Division, total, len(want), d)
	}
	for i := 0; i < len(want); i += 1 + len(want)/20 {
		st := &want[i]
		end := sort.Search(len(want), func(j int) bool { return want[j].Key > st.Key })
		around, _, err := s.FinalAround(ctx, l, st.User, 3, 60)
		wantAround := leaderboard.Neighborhood{Standings: want[max(i-3, 0):min(i+61, len(want))], Of: min(i, 3), NotWorse: int64(end)}
		if d := cmp.Diff(wantAround, around); err != nil || d != "" {
			return fmt.Errorf("FinalAround of %q in ladder %q: error %w (-want +got):\n%s", st.User, l.Division, err, d)
		}
		one, _, err := s.FinalLookup(ctx, l, []leaderboard.UserID{st.User, "nobody"})
		if d := cmp.Diff([]leaderboard.Standing{*st, {User: "nobody"}}, one); err != nil || d != "" {
			return fmt.Errorf("FinalLookup of %q in ladder %q: error %w (-want +got):\n%s", st.User, l.Division, err, d)
		}
		after, _, _, err := s.FinalAfter(ctx, l, st.SortKey(), 5)
		if d := cmp.Diff(want[i+1:min(i+6, len(want))], after); err != nil || d != "" && i+1 < len(want) {
			return fmt.Errorf("FinalAfter %q in ladder %q: error %w (-want +got):\n%s", st.User, l.Division, err, d)
		}
		_, better, _, err := s.FinalAfter(ctx, l, leaderboard.SortKey(st.Key), 0)
		if err != nil || better.Standings != st.Ranks.Competition-1 || better.Distinct != st.Ranks.Dense-1 {
			return fmt.Errorf("FinalAfter the rank key of %q in ladder %q returns the counts %+v, error %w; want one less than the ranks %+v", st.User, l.Division, better, err, st.Ranks)
		}
	}
	return nil
}

// checkGarbage checks that the tables have only pages and directories (see directory.go)
// that the seal uses.
func checkGarbage(ctx context.Context, s *Store, m *model, key leaderboard.SeasonKey) error {
	x, err := s.readSeal(ctx, key, incarnation{})
	if err != nil {
		return err
	}
	if len(x.Pending) > 0 {
		return fmt.Errorf("generations %+v are pending, want none", x.Pending)
	}
	p := &pagedSeason{s, key, incarnation{}}
	stored, err := p.directories(ctx)
	if err != nil {
		return err
	}
	used := map[string]int64{}
	for _, d := range stored {
		if d.generation != x.directoryOf(d.division) {
			return fmt.Errorf("the directory of ladder %q has generation %s, want %s only", d.division, d.generation, x.directoryOf(d.division))
		}
		dir, err := p.readDirectory(ctx, d.division, d.generation)
		if err != nil {
			return err
		}
		for i := range dir.pages {
			used[dir.pages[i].name] = dir.pages[i].standings
		}
	}
	for name, part := range m.replicas[0]["final_pages"] {
		n := int64(0)
		for _, r := range part.rows {
			if _, ok := r.visible(part.deleted); ok {
				n++
			}
		}
		if page := strings.Trim(strings.Split(name, ";")[2], `"`); n != used[page] {
			return fmt.Errorf("page %s has %d rows, want %d", page, n, used[page])
		}
	}
	return nil
}

func TestRandomAmendments(t *testing.T) {
	seed := stepsSeed(t)
	for round := range needs.More(t, 1) {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		if err := amendRandomly(t, rng); err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
	}
}

func amendRandomly(t *testing.T, rng *rand.Rand) error {
	m := newModel(nil)
	s := open(m, Options{DataCenter: "dc1", Buckets: 1, CacheUsers: 100})
	ctx := t.Context()
	b := stepsBoard(leaderboard.Best)
	if err := s.CreateBoard(ctx, b); err != nil {
		return err
	}
	key := leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}
	n, scores := 1+rng.IntN(700), []int{1, 3, 40, 10_000}[rng.IntN(4)] // few scores mean ties across pages
	clock, matches := stepsEpoch, map[leaderboard.UserID]int{}
	result := func(user leaderboard.UserID) leaderboard.MatchResult {
		clock = clock.Add(time.Second)
		matches[user]++
		r := leaderboard.MatchResult{Score: leaderboard.Score(rng.IntN(scores)), AchievedAt: clock, ReceivedAt: clock,
			Attributes: map[string]string{"team": []string{"red", "blue", "green"}[rng.IntN(3)]}}
		r.Board, r.Season, r.User, r.Match = b.ID, key.Season, user, leaderboard.MatchID(fmt.Sprint("m", matches[user]))
		return r
	}
	var first []leaderboard.MatchResult
	for i := range n {
		first = append(first, result(finalUser(i)))
	}
	if _, err := s.Apply(ctx, &b, first); err != nil {
		return err
	}
	if _, err := s.Seal(ctx, &b, key.Season, clock); err != nil {
		return err
	}
	for step := range 12 {
		var users []leaderboard.UserID
		var results []leaderboard.MatchResult
		for range 1 + rng.IntN(4)*rng.IntN(40) {
			user := finalUser(rng.IntN(n + 20)) // some users are new
			users = append(users, user)
			switch rng.IntN(6) {
			case 0, 1:
				results = append(results, result(user))
			case 2, 3:
				for i := range matches[user] {
					r := result(user)
					r.Match, r.Revision, r.Retracted = leaderboard.MatchID(fmt.Sprint("m", i+1)), int64(step+1), true
					matches[user]--
					results = append(results, r)
				}
			case 4:
				if _, err := s.SetBan(ctx, leaderboard.Ban{User: user, Banned: rng.IntN(2) == 0, At: clock}); err != nil {
					return err
				}
			default:
				if rng.IntN(4) == 0 {
					clock = clock.Add(time.Second)
					if _, err := s.Erase(ctx, user, clock); err != nil {
						return err
					}
				}
			}
		}
		if _, err := s.Apply(ctx, &b, results); err != nil {
			return err
		}
		// An erased user leaves a gap in the ladder. An amendment closes it only if a standing
		// changes. So each step changes the standing of the user best.
		best := result("best")
		best.Score = leaderboard.Score(scores + step)
		if _, err := s.Apply(ctx, &b, []leaderboard.MatchResult{best}); err != nil {
			return err
		}
		clock = clock.Add(time.Second)
		if rng.IntN(2) == 0 {
			s.pages = newPageCache()
		}
		if _, err := s.Amend(ctx, &b, key.Season, leaderboard.Amendment{At: clock, Reason: "test"}, append(users, "best")); err != nil {
			return err
		}
		for _, team := range []string{"", "red", "blue", "green"} {
			l := leaderboard.Ladder{SeasonKey: key}
			if team != "" {
				l.Division = leaderboard.Division{Attribute: "team", Value: team}
			}
			if err := errors.Join(checkLadder(ctx, s, l), checkGarbage(ctx, s, m, key)); err != nil {
				return fmt.Errorf("%d users, %d scores, step %d: %w", n, scores, step, err)
			}
		}
	}
	return nil
}

// The amendment bans every 50th user, so it changes every page.
func TestReadsOfAnAmendedSeasonAreCheap(t *testing.T) {
	const n = 2500
	s, rec, b := newClosed(t, n)
	ctx := t.Context()
	l := leaderboard.Ladder{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}}
	if _, err := s.Seal(ctx, b, leaderboard.SeasonAll, stepsEpoch); err != nil {
		t.Fatal(err)
	}
	var banned, users []leaderboard.UserID
	for i := range n / 50 {
		banned = append(banned, finalUser(50*i))
	}
	for i := range 99 {
		users = append(users, finalUser(25*i+7))
	}
	for _, user := range banned {
		if _, err := s.SetBan(ctx, leaderboard.Ban{User: user, Banned: true, At: stepsEpoch}); err != nil {
			t.Fatal(err)
		}
	}
	record, err := s.Amend(ctx, b, leaderboard.SeasonAll, leaderboard.Amendment{At: stepsEpoch, Reason: "ban"}, banned)
	if err != nil || len(record.Amendments) != 1 {
		t.Fatalf("Amend returns %+v, error %v; want one amendment", record, err)
	}
	for name, tt := range map[string]struct {
		most int
		read func() error
	}{
		"100 users, one without a standing": {10, func() error {
			got, total, err := s.FinalLookup(ctx, l, append(slices.Clone(users), "nobody"))
			if err == nil && (total != n-int64(len(banned)) || slices.ContainsFunc(got[:99], func(st leaderboard.Standing) bool { return st.Key == "" })) {
				err = fmt.Errorf("standings %+v of %d, want 99 standings of %d", got, total, n-len(banned))
			}
			return err
		}},
		"a user with neighbors": {3, func() error { _, _, err := s.FinalAround(ctx, l, finalUser(1001), 4, 4); return err }},
		"1000 standings":        {3, func() error { _, _, err := s.FinalStandings(ctx, l, 501, 1000); return err }},
		"the rank of a key": {3, func() error {
			_, _, _, err := s.FinalAfter(ctx, l, leaderboard.SortKey(leaderboard.RankKey("\x7f")), 0)
			return err
		}},
	} {
		s.pages = newPageCache()
		rec.cost = cost{}
		if err := tt.read(); err != nil || rec.cost.statements > tt.most {
			t.Errorf("%s: %d statements, error %v; want at most %d", name, rec.cost.statements, err, tt.most)
		}
	}
}

// A data center amends the season before Cassandra has replicated a user's place (see
// directory.go) to it. After a ban and an unban, the ladder must have the user once.
func TestAmendmentFromAnotherDataCenter(t *testing.T) {
	first, rec, b := newClosed(t, 300)
	ctx := t.Context()
	l := leaderboard.Ladder{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}}
	if _, err := first.Seal(ctx, b, leaderboard.SeasonAll, stepsEpoch); err != nil {
		t.Fatal(err)
	}
	user := finalUser(150)
	for key, p := range rec.conn.(*model).replicas[0]["final_places"] {
		if strings.Contains(key, string(user)) {
			p.deleted = 1 << 40
		}
	}
	second := open(rec.conn, Options{DataCenter: "dc2", Buckets: 2, CacheUsers: -1})
	for day, banned := range []bool{true, false} {
		if _, err := second.SetBan(ctx, leaderboard.Ban{User: user, Banned: banned, At: stepsEpoch}); err != nil {
			t.Fatal(err)
		}
		// Without the place, the user seems to have no standing. A banned user needs none,
		// so the first amendment writes nothing. An unbanned user needs a standing, so the
		// second amendment writes all standings (see pagedSeason.amend).
		record, err := second.Amend(ctx, b, leaderboard.SeasonAll, leaderboard.Amendment{At: stepsEpoch.AddDate(0, 0, day)}, []leaderboard.UserID{user})
		if err != nil || len(record.Amendments) != day {
			t.Fatalf("Amend with the user banned %v returns %+v, error %v; want %d amendments", banned, record, err, day)
		}
	}
	if err := errors.Join(checkLadder(ctx, first, l), checkLadder(ctx, second, l)); err != nil {
		t.Fatal(err)
	}
}

// The pages have about the planned size, and the ranks are exact, even if a tie spans pages.
func TestPagesAfterRandomChanges(t *testing.T) {
	seed := stepsSeed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	key := func(score, n int) leaderboard.SortKey {
		return leaderboard.MakeSortKey(leaderboard.RankKey(fmt.Sprintf("%08d", score)), stepsEpoch, finalUser(n))
	}
	for round := range needs.More(t, 5) {
		scores := 1 + rng.IntN(1+rng.IntN(2000))
		stored := map[string][]pageRow{}
		present := map[leaderboard.SortKey]leaderboard.UserID{}
		d := newDirectory(nil)
		names := 0
		for step := range 12 {
			c, added := &ladderChange{}, map[leaderboard.SortKey]bool{}
			for k := range present {
				if rng.IntN(10+step*30) == 0 {
					c.removed = append(c.removed, k)
				}
			}
			for range 1 + rng.IntN(1+rng.IntN(1500)) {
				n := rng.IntN(100_000)
				if k := key(rng.IntN(scores), n); present[k] == "" && !added[k] {
					added[k] = true
					c.inserted = append(c.inserted, pageRow{key: k, user: finalUser(n)})
				}
			}
			slices.Sort(c.removed)
			pages, err := d.amend(c, func(p *ladderPage) ([]pageRow, error) { return stored[p.name], nil }, func() string { names++; return pageName("g", names) })
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range c.removed {
				delete(present, k)
			}
			for _, r := range c.inserted {
				present[r.key] = r.user
			}
			list := make([]ladderPage, len(pages))
			for i := range pages {
				if list[i] = pages[i].ladderPage; pages[i].rows != nil {
					stored[list[i].name] = pages[i].rows
				}
			}
			if d, err = decodeDirectory(newDirectory(list).append(nil)); err != nil {
				t.Fatal(err)
			}
			var want, got []leaderboard.Standing
			for k := range present {
				st := leaderboard.Standing{}
				st.Key, st.AchievedAt, st.User, _ = k.Split(8)
				want = append(want, st)
			}
			sort.Slice(want, func(i, j int) bool { return want[i].SortKey() < want[j].SortKey() })
			naiveRanks(want)
			should := pageStandings(d.total)
			for i := range d.pages {
				p := &d.pages[i]
				if len(d.pages) > 1 && (p.standings > int64(should)*2 || p.standings < int64(should)/3) {
					t.Fatalf("seed %d, round %d, step %d: page %d of %d has %d standings, want %d to %d", seed, round, step, i, len(d.pages), p.standings, should/3, should*2)
				}
				for _, r := range stored[p.name] {
					st, err := r.standing(p)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, st)
				}
			}
			if !slices.EqualFunc(want, got, equalStandings) {
				t.Fatalf("seed %d, round %d, step %d: (-want +got)\n%s", seed, round, step, cmp.Diff(want, got))
			}
		}
	}
}

// equalStandings is cheaper than cmp.Diff, which takes seconds for thousands of standings.
func equalStandings(a, b leaderboard.Standing) bool {
	equal := a.AchievedAt.Equal(b.AchievedAt)
	a.AchievedAt, b.AchievedAt = time.Time{}, time.Time{}
	return equal && a == b
}

type rowCounter struct {
	conn
	mu                         sync.Mutex
	written, deleted, readRows int
}

func (c *rowCounter) write(ctx context.Context, ops ...op) error {
	c.mu.Lock()
	for _, o := range ops {
		if strings.HasPrefix(o.stmt, "DELETE") {
			c.deleted++
		} else {
			c.written++
		}
	}
	c.mu.Unlock()
	return c.conn.write(ctx, ops...)
}

func (c *rowCounter) swap(ctx context.Context, q op, row map[string]any) (bool, error) {
	c.mu.Lock()
	c.written++
	c.mu.Unlock()
	return c.conn.swap(ctx, q, row)
}

func (c *rowCounter) read(ctx context.Context, q op, dest []any, visit func() bool) error {
	return c.conn.read(ctx, q, dest, func() bool {
		c.mu.Lock()
		c.readRows++
		c.mu.Unlock()
		return visit()
	})
}

// The golden file shows that an amendment costs the rows of some pages only.
func TestCostOfAnAmendment(t *testing.T) {
	needs.Slow(t, "sizes")
	var text strings.Builder
	for _, n := range []int{1000, 10_000, 100_000} {
		c := &rowCounter{conn: newModel(nil)}
		s := open(c, Options{DataCenter: "dc1", Buckets: 1, CacheUsers: 10})
		ctx := t.Context()
		b := stepsBoard(leaderboard.Best)
		w := &writers{clock: stepsEpoch, board: &b, user: "u"}
		if err := errors.Join(s.CreateBoard(ctx, b), w.apply(ctx, s, "m 5")); err != nil {
			t.Fatal(err)
		}
		key := leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}
		if err := sealSynthetic(ctx, s, &b, n); err != nil {
			t.Fatal(err)
		}
		s.pages = newPageCache()
		c.written, c.deleted, c.readRows = 0, 0, 0
		// The user has no entry, as after the retraction of the only result.
		record, err := s.Amend(ctx, &b, key.Season, leaderboard.Amendment{At: stepsEpoch, Reason: "retraction"}, []leaderboard.UserID{finalUser(n / 2)})
		if err != nil || len(record.Amendments) != 1 {
			t.Fatalf("Amend returns %+v, error %v; want one amendment", record, err)
		}
		fmt.Fprintf(&text, "%d entries: %d rows written, %d deletions, %d rows read\n", n, c.written, c.deleted, c.readRows)
		got, total, err := s.FinalStandings(ctx, leaderboard.Ladder{SeasonKey: key}, int64(n/2), 2)
		if err != nil || total != int64(n-1) || got[0].User != finalUser(n/2-1) || got[1].User != finalUser(n/2+1) {
			t.Fatalf("FinalStandings returns %+v of %d, error %v; want the neighbors of the removed user, of %d", got, total, err, n-1)
		}
	}
	golden(t, "amendments.golden", text.String())
}

// sealSynthetic seals standings of n users without entries.
func sealSynthetic(ctx context.Context, s *Store, b *leaderboard.Board, n int) error {
	inc, err := s.openIncarnation(ctx, b, leaderboard.SeasonAll, nil)
	if err != nil {
		return err
	}
	p := &pagedSeason{s, leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}, inc}
	before, w, err := p.newPageWriter(ctx, func(*seal) bool { return true })
	if err != nil {
		return err
	}
	var pages []newPage
	for first := 0; first < n; first += pageStandings(int64(n)) {
		var rows []pageRow
		for i := first; i < min(first+pageStandings(int64(n)), n); i++ {
			k := leaderboard.MakeSortKey(leaderboard.RankKey(fmt.Sprintf("%08d", i/3)), stepsEpoch, finalUser(i))
			rows = append(rows, pageRow{key: k, user: finalUser(i)})
		}
		page := makePage(w.nextName(), rows)
		if err := w.writePage(ctx, "", &page, page.rows); err != nil {
			return err
		}
		pages = append(pages, page)
	}
	if err := errors.Join(w.writeCount(ctx), w.writeDirectory(ctx, "", pages)); err != nil {
		return err
	}
	_, ok, err := w.validate(ctx, &before, leaderboard.Amendment{At: stepsEpoch})
	if err == nil && !ok {
		err = errors.New("the season is already sealed")
	}
	return err
}

func FuzzDecodeDirectory(f *testing.F) {
	page := makePage(pageName("g", 3), []pageRow{{key: leaderboard.MakeSortKey("12345678", stepsEpoch, "u"), user: "u"}})
	f.Add(newDirectory([]ladderPage{page.ladderPage}).append(nil))
	f.Add([]byte{codecFormat, 0, 0})
	f.Add([]byte{codecFormat, 0, 1, 5})
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeDirectory(b)
		if err != nil {
			if !errors.Is(err, leaderboard.ErrFormat) {
				t.Errorf("error %v, want %v", err, leaderboard.ErrFormat)
			}
			return
		}
		if got := d.append(nil); string(got) != string(b) {
			t.Errorf("the directory is encoded again as %x, want %x", got, b)
		}
	})
}
