package cql

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

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
func checkLadder(ctx context.Context, s *testStore, l leaderboard.Ladder) error {
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
	if d := gocmp.Diff(want, got); d != "" || total != int64(len(want)) {
		return fmt.Errorf("ladder %q: total %d, want %d (-want +got):\n%s", l.Division, total, len(want), d)
	}
	for i := 0; i < len(want); i += 1 + len(want)/20 {
		st := &want[i]
		end := sort.Search(len(want), func(j int) bool { return want[j].Key > st.Key })
		around, _, err := s.FinalAround(ctx, l, st.User, 3, 60)
		wantAround := leaderboard.Neighborhood{Standings: want[max(i-3, 0):min(i+61, len(want))], Of: min(i, 3), NotWorse: int64(end)}
		if d := gocmp.Diff(wantAround, around); err != nil || d != "" {
			return fmt.Errorf("FinalAround of %q in ladder %q: error %w (-want +got):\n%s", st.User, l.Division, err, d)
		}
		one, _, err := s.FinalLookup(ctx, l, []leaderboard.UserID{st.User, "nobody"})
		if d := gocmp.Diff([]leaderboard.Standing{*st, {User: "nobody"}}, one); err != nil || d != "" {
			return fmt.Errorf("FinalLookup of %q in ladder %q: error %w (-want +got):\n%s", st.User, l.Division, err, d)
		}
		after, _, _, err := s.FinalAfter(ctx, l, st.SortKey(), 5)
		if d := gocmp.Diff(want[i+1:min(i+6, len(want))], after); err != nil || d != "" && i+1 < len(want) {
			return fmt.Errorf("FinalAfter %q in ladder %q: error %w (-want +got):\n%s", st.User, l.Division, err, d)
		}
		_, better, _, err := s.FinalAfter(ctx, l, leaderboard.SortKey(st.Key), 0)
		if err != nil || better.Standings != st.Ranks.Competition-1 || better.Distinct != st.Ranks.Dense-1 {
			return fmt.Errorf("FinalAfter the rank key of %q in ladder %q returns the counts %+v, error %w; want one less than the ranks %+v", st.User, l.Division, better, err, st.Ranks)
		}
	}
	return nil
}

// checkGarbage checks that the table rows has only pages and directories that the seal uses: each
// standing of each ladder is on one page, and each ladder has one directory.
func checkGarbage(ctx context.Context, s *testStore, m *model, key leaderboard.SeasonKey) error {
	x, err := readSeal(ctx, s, key)
	if err != nil {
		return err
	}
	if len(x.Pending) > 0 {
		return fmt.Errorf("generations %+v are pending, want none", x.Pending)
	}
	onPages, standings, directories := 0, int64(0), map[string]int{}
	for _, n := range rowsOf(m, "final page/") {
		onPages += n
	}
	for row, err := range s.Rows(ctx, "final directories/"+(&incarnation{}).known(key).ID, nil) {
		if err != nil {
			return err
		}
		division, generation := string(row.Key[1:1+row.Key[0]]), string(row.Key[1+row.Key[0]:])
		if directories[division]++; directories[division] > 1 || generation != cmp.Or(x.Ladders[division], x.Base) {
			return fmt.Errorf("the ladder %q has directory %d of generation %s, want one of generation %s", division, directories[division], generation, cmp.Or(x.Ladders[division], x.Base))
		}
		l := leaderboard.Ladder{SeasonKey: key}
		if attribute, value, ok := strings.Cut(division, ":"); ok {
			l.Division = leaderboard.Division{Attribute: attribute, Value: value}
		}
		_, total, err := s.FinalStandings(ctx, l, 1, 1)
		if err != nil {
			return err
		}
		standings += total
	}
	if int64(onPages) != standings {
		return fmt.Errorf("the pages have %d rows, want %d, one for each standing", onPages, standings)
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
	s := openTest(m, Options{DataCenter: "dc1", Buckets: 1, CacheUsers: 100})
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
			s.forgetPages()
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
		s.forgetPages()
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
	places := fmt.Sprintf("final places/%x/", sha256.Sum256([]byte(user)))
	for key, p := range rec.conn.(*model).replicas[0]["rows"] {
		if strings.HasPrefix(listOf(key), places) {
			p.deleted = 1 << 40
		}
	}
	second := openTest(rec.conn, Options{DataCenter: "dc2", Buckets: 2, CacheUsers: -1})
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
		s := openTest(c, Options{DataCenter: "dc1", Buckets: 1, CacheUsers: 10})
		ctx := t.Context()
		b := stepsBoard(leaderboard.Best)
		key := leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}
		results := closedResults(&b, n)
		err := s.CreateBoard(ctx, b)
		if err == nil {
			_, err = s.Apply(ctx, &b, results)
		}
		if err == nil {
			_, err = s.Seal(ctx, &b, key.Season, stepsEpoch)
		}
		if err == nil {
			retracted := results[n/2]
			retracted.Revision, retracted.Retracted = 1, true
			_, err = s.Apply(ctx, &b, []leaderboard.MatchResult{retracted})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.forgetPages()
		c.written, c.deleted, c.readRows = 0, 0, 0
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
