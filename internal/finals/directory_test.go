package finals

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
	"github.com/open-leaderboard/leaderboard/test/needs"
	testseed "github.com/open-leaderboard/leaderboard/test/seed"
)

var epoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func userOf(i int) leaderboard.UserID { return leaderboard.UserID(fmt.Sprintf("u%05d", i)) }

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

// The pages have about the planned size, and the ranks are exact, even if a tie spans pages.
func TestPagesAfterRandomChanges(t *testing.T) {
	seed := testseed.New(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	key := func(score, n int) leaderboard.SortKey {
		return leaderboard.MakeSortKey(leaderboard.RankKey(fmt.Sprintf("%08d", score)), epoch, userOf(n))
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
					c.inserted = append(c.inserted, pageRow{key: k, user: userOf(n)})
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

func FuzzDecodeDirectory(f *testing.F) {
	page := makePage(pageName("g", 3), []pageRow{{key: leaderboard.MakeSortKey("12345678", epoch, "u"), user: "u"}})
	f.Add(newDirectory([]ladderPage{page.ladderPage}).append(nil))
	f.Add([]byte{directoryFormat, 0, 0})
	f.Add([]byte{directoryFormat, 0, 1, 5})
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

func FuzzDecodeMark(f *testing.F) {
	f.Add(markKey("u", "id"), []byte(`{"board":"b","season":"all"}`))
	f.Add([]byte{9}, []byte(`{`))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		m, err := decodeMark(&storage.Row{Key: key, Value: value})
		if err != nil && !errors.Is(err, leaderboard.ErrFormat) {
			t.Errorf("error %v, want %v", err, leaderboard.ErrFormat)
		}
		if again := markKey(m.User, m.ID); err == nil && len(again) > len(key) {
			t.Errorf("the key %x is encoded again as %x, which is longer", key, again)
		}
	})
}
