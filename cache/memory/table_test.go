package memory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

func random(tb testing.TB) *rand.Rand {
	tb.Helper()
	return rand.New(rand.NewPCG(seed.New(tb), 0))
}

func key(score uint64) leaderboard.RankKey {
	return leaderboard.RankKey(binary.BigEndian.AppendUint64(nil, score))
}

func entry(user string, score uint64, achieved int64, version uint64) leaderboard.Entry {
	return leaderboard.Entry{
		User: leaderboard.UserID(user), Key: key(score),
		AchievedAt: time.UnixMicro(achieved).UTC(), Version: version,
	}
}

func unranked(user string, version uint64) leaderboard.Entry {
	return leaderboard.Entry{User: leaderboard.UserID(user), Version: version}
}

func division(value string) []leaderboard.Division {
	return []leaderboard.Division{{Attribute: "a", Value: value}}
}

// modeledTable is a table and the entries that it must hold.
type modeledTable struct {
	tb testing.TB
	*table
	all     []leaderboard.Entry // the overall ladder in standing order
	version map[leaderboard.UserID]uint64
}

func newModeledTable(tb testing.TB) *modeledTable {
	return &modeledTable{tb: tb, table: newTable(layout{keyBytes: 8, attributes: []string{"a"}}), version: map[leaderboard.UserID]uint64{}}
}

func (t *modeledTable) put(e leaderboard.Entry) {
	t.tb.Helper()
	if err := t.apply(&e); err != nil {
		t.tb.Fatal(err)
	}
	if e.Version <= t.version[e.User] {
		return
	}
	t.version[e.User] = e.Version
	t.all = slices.DeleteFunc(t.all, func(o leaderboard.Entry) bool { return o.User == e.User })
	if e.Ranked() {
		i := sort.Search(len(t.all), func(i int) bool { return t.all[i].SortKey() > e.SortKey() })
		t.all = slices.Insert(t.all, i, e)
	}
}

func (t *modeledTable) verify() {
	t.tb.Helper()
	if err := t.check(); err != nil {
		t.tb.Fatal(err)
	}
	for n := range t.ladders {
		if slices.Contains(t.spare, uint32(n)) {
			continue
		}
		var want []leaderboard.Standing
		for _, e := range t.all {
			if d := t.ladders[n].division; !d.Overall() && !slices.Contains(e.Divisions, d) {
				continue
			}
			s := leaderboard.Standing{User: e.User, Key: e.Key, AchievedAt: e.AchievedAt}
			s.Ranks = leaderboard.Ranks{Competition: 1, Dense: 1, Ordinal: int64(len(want) + 1)}
			for i := range want {
				if want[i].Key < e.Key {
					s.Ranks.Competition++
					if i == 0 || want[i-1].Key != want[i].Key {
						s.Ranks.Dense++
					}
				}
			}
			want = append(want, s)
		}
		tr := &t.ladders[n]
		if got := t.page(tr, t.sectionAt(tr, 0, len(want)+1)).finish(); !slices.Equal(want, got) {
			t.tb.Fatalf("ladder %q: (-want +got)\n%s", tr.division, cmp.Diff(want, got))
		}
		for i, s := range want {
			p := t.placeOf(tr, s.User)
			at, before := t.forest.placeAt(tr, int64(i))
			if got := t.ranksAt(tr, p, before); p != at || got != s.Ranks {
				t.tb.Fatalf("ladder %q: %q at %v, want %v; ranks %+v, want %+v", tr.division, s.User, p, at, got, s.Ranks)
			}
			if got := t.forest.countsBefore(p.leaf); got != before {
				t.tb.Fatalf("ladder %q: countsBefore of the leaf of %q is %d, placeAt returns %d", tr.division, s.User, got, before)
			}
		}
	}
}

func TestEachChangeKeepsTheInvariants(t *testing.T) {
	needs.NoRace(t, "one change follows another")
	for _, c := range []struct {
		name          string
		users, scores int
		times         int64
	}{
		{"few ties", 400, 1 << 40, 1 << 40}, {"many ties", 400, 5, 3}, {"one score", 300, 1, 1}, {"users fill two leaves", 80, 10, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := random(t)
			tb := newModeledTable(t)
			const changes = 1500
			for i := range changes {
				e := entry(fmt.Sprintf("u%d", rng.IntN(c.users)), uint64(rng.IntN(c.scores)), rng.Int64N(c.times), uint64(i+1))
				if rng.IntN(2) == 0 {
					e.Divisions = division(fmt.Sprint(rng.IntN(3)))
				}
				if rng.IntN(changes) < i { // removals become more frequent
					e.Key = ""
				}
				tb.put(e)
				if err := tb.check(); err != nil {
					t.Fatalf("after change %d: %v", i, err)
				}
				if i%100 == 0 {
					tb.verify()
				}
			}
			tb.verify()
		})
	}
}

// fill returns the average fill of the leaves, from 0 to 1.
func (t *table) fill() float64 {
	return float64(t.rankedUsers) / float64(t.forest.leaves.used()) / fan
}

func TestLeavesStayFullWithAnyOrderOfInsertion(t *testing.T) {
	needs.NoRace(t, "one change follows another")
	const n = 20_000
	rng := random(t)
	random := rng.Perm(n)
	for _, c := range []struct {
		name  string
		fill  float64 // least fill that the test accepts
		entry func(i int) leaderboard.Entry
	}{
		{"in order", 0.85, func(i int) leaderboard.Entry { return entry(fmt.Sprint(i), uint64(i), 0, 1) }},
		{"in reverse order", 0.85, func(i int) leaderboard.Entry { return entry(fmt.Sprint(i), uint64(n-i), 0, 1) }},
		{"in random order", 0.70, func(i int) leaderboard.Entry { return entry(fmt.Sprint(i), uint64(random[i]), 0, 1) }},
		{"at both ends of the ladder in turn", 0.85, func(i int) leaderboard.Entry {
			return entry(fmt.Sprint(i), uint64(n+i*(i%2*2-1)), 0, 1)
		}},
		{"in turn from both ends towards the middle", 0.45, func(i int) leaderboard.Entry {
			return entry(fmt.Sprint(i), uint64(n+(n-i)*(i%2*2-1)), 0, 1)
		}},
		{"equal scores and times", 0.70, func(i int) leaderboard.Entry { return entry(fmt.Sprint(random[i]), 7, 7, 1) }},
		{"equal scores", 0.85, func(i int) leaderboard.Entry { return entry(fmt.Sprint(random[i]), 7, int64(i), 1) }},
		{"two scores", 0.70, func(i int) leaderboard.Entry { return entry(fmt.Sprint(i), uint64(i%2), int64(random[i]), 1) }},
		{"100 interleaved runs, each in order", 0.60, func(i int) leaderboard.Entry { return entry(fmt.Sprint(i), uint64(i%100*n+i/100), 0, 1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			tb := newTable(layout{keyBytes: 8})
			put := func(e leaderboard.Entry) {
				if err := tb.apply(&e); err != nil {
					t.Fatal(err)
				}
			}
			for i := range n {
				put(c.entry(i))
			}
			if err := tb.check(); err != nil {
				t.Fatal(err)
			}
			if got := tb.fill(); got < c.fill {
				t.Errorf("leaves are filled to %.2f, want at least %.2f", got, c.fill)
			}
			// Removals must join leaves, so that few users do not occupy many leaves.
			for i := range n {
				if i%10 != 0 {
					put(unranked(string(c.entry(i).User), 2))
				}
			}
			if err := tb.check(); err != nil {
				t.Fatal(err)
			}
			if got := tb.fill(); got < 0.35 {
				t.Errorf("after the removal of 90%% of the users, leaves are filled to %.2f, want at least 0.35", got)
			}
			for i := 0; i < n; i += 10 {
				put(unranked(string(c.entry(i).User), 2))
			}
			if err := tb.check(); err != nil {
				t.Fatal(err)
			}
			if tb.forest.leaves.used() != 0 || tb.forest.inners.used() != 0 {
				t.Errorf("an empty ladder has %d leaves and %d inner nodes, want none", tb.forest.leaves.used(), tb.forest.inners.used())
			}
		})
	}
}

func TestOneMovingUserDoesNotAddLeaves(t *testing.T) {
	tb := newTable(layout{keyBytes: 8})
	put := func(e leaderboard.Entry) {
		if err := tb.apply(&e); err != nil {
			t.Fatal(err)
		}
	}
	const n = fan * fan
	for i := range n {
		put(entry(fmt.Sprint(i), uint64(i), 0, 1))
	}
	leaves := tb.forest.leaves.last
	for v := range uint64(20_000) {
		put(entry("hot", n/2, 0, 2*v+1))
		switch v % 3 {
		case 0:
			put(unranked("hot", 2*v+2))
		case 1:
			put(entry("hot", n/2+1, 0, 2*v+2))
		case 2:
			put(entry("hot", v%2*n, 0, 2*v+2))
		}
	}
	if err := tb.check(); err != nil {
		t.Fatal(err)
	}
	if got := tb.forest.leaves.last; got > leaves+2 {
		t.Errorf("one moving user added %d leaves, want at most 2", got-leaves)
	}
}

func TestUsersWithEqualHashesAreDistinct(t *testing.T) {
	tb := newModeledTable(t)
	byHash := map[uint32]string{}
	var pairs [][2]string
	for i := 0; len(pairs) < 8; i++ { // takes about 260,000 ids
		id := fmt.Sprint("user ", i)
		hash := tb.dict.hash(id)
		if other, ok := byHash[hash]; ok {
			pairs = append(pairs, [2]string{other, id})
		}
		byHash[hash] = id
	}
	version := uint64(0)
	newVersion := func() uint64 { version++; return version }
	for i := range 200 { // fills several leaves
		tb.put(entry(fmt.Sprint("other ", i), uint64(i), 0, newVersion()))
	}
	rng := random(t)
	for range 300 {
		pair := pairs[rng.IntN(len(pairs))]
		user := pair[rng.IntN(2)]
		switch rng.IntN(4) {
		case 0:
			tb.put(unranked(user, newVersion()))
		case 1: // both users, next to each other in the ladder
			tb.put(entry(pair[0], 100, 0, newVersion()))
			tb.put(entry(pair[1], 100, 0, newVersion()))
		default:
			tb.put(entry(user, uint64(rng.IntN(200)), 0, newVersion()))
		}
		for _, id := range pair {
			if ref, _ := tb.lookUp(tb.dict.hash(id), id); ref != 0 && string(tb.users.id(ref)) != id {
				t.Fatalf("the look-up of user %q finds the different user %q", id, tb.users.id(ref))
			}
		}
		tb.verify()
	}
}

func TestUnknownDivisionsAreIgnored(t *testing.T) {
	tb := newModeledTable(t)
	unknown := leaderboard.Division{Attribute: "b", Value: "x"}
	e := entry("ann", 1, 0, 1)
	e.Divisions = append(division("x"), unknown)
	if err := tb.apply(&e); err != nil {
		t.Fatal(err)
	}
	if known := tb.treeOf(e.Divisions[0]); known == nil || tb.treeOf(unknown) != nil {
		t.Errorf("the ladder of %q is %v and the ladder of %q is %v, want only the first to exist", e.Divisions[0], known, unknown, tb.treeOf(unknown))
	}
	tb.put(entry("ann", 2, 0, 2))
	tb.verify()
}

func TestEntriesThatDoNotFitTheBoardAreRejected(t *testing.T) {
	tb := newModeledTable(t)
	tb.put(entry("ann", 1, 0, 1))
	for name, e := range map[string]leaderboard.Entry{
		"the key is too short":             {User: "ann", Key: "1234567", Version: 2},
		"the key is too long":              {User: "ann", Key: "123456789", Version: 2},
		"the user id is empty":             {Key: key(1), Version: 2},
		"the user id is too long":          {User: leaderboard.UserID(strings.Repeat("x", maxID+1)), Key: key(1), Version: 2},
		"two divisions have one attribute": {User: "ann", Key: key(1), Version: 2, Divisions: append(division("x"), division("y")...)},
	} {
		if err := tb.apply(&e); !errors.Is(err, leaderboard.ErrFormat) {
			t.Errorf("%s: error %v, want ErrFormat", name, err)
		}
		tb.verify()
	}
}

func TestTheLongestRecordsFitTheTable(t *testing.T) {
	b := &leaderboard.Board{ID: "b", Policy: leaderboard.Decay, HalfLife: time.Hour}
	for i := range leaderboard.MaxTieBreakers {
		b.TieBreakers = append(b.TieBreakers, leaderboard.TieBreaker{Name: fmt.Sprint("t", i)})
	}
	for i := range leaderboard.MaxDivisions {
		b.Divisions = append(b.Divisions, fmt.Sprint("d", i))
	}
	l := layoutOf(b)
	tb := newTable(l)
	if tb.forest.words > maxWords {
		t.Fatalf("an entry of the board has %d sort words, want at most maxWords, %d", tb.forest.words, maxWords)
	}
	for length := 1; length <= maxID; length++ {
		for v := uint64(1); v <= 4; v++ {
			e := leaderboard.Entry{User: leaderboard.UserID(strings.Repeat("x", length)), Key: leaderboard.RankKey(strings.Repeat("k", l.keyBytes)), Version: v}
			for _, a := range l.attributes {
				e.Divisions = append(e.Divisions, leaderboard.Division{Attribute: a, Value: fmt.Sprint(v)})
			}
			if v == 3 {
				e.Key = ""
			}
			if err := tb.apply(&e); err != nil {
				t.Fatal(err)
			}
		}
		if err := tb.check(); err != nil {
			t.Fatal(err)
		}
	}
}

// Each two bytes of data encode a change or a series of changes.
func FuzzTable(f *testing.F) {
	f.Add([]byte("\x01\x02\x03\x04\x05\x06"))
	f.Add([]byte("\xf0\x50\xf1\x50\xf2\x50\xf3\x50\x01\x02"))
	f.Add([]byte("\xf0\xff\xf4\x80\xf1\xff\xf4\xff\x10\x20\xf2\xff\xf5\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 200 {
			return
		}
		tb := newModeledTable(t)
		version, changes := uint64(0), 0
		put := func(e leaderboard.Entry) {
			version++
			e.Version = version
			tb.put(e)
		}
		for ; len(data) >= 2 && changes < 1000; data = data[2:] {
			op, arg := data[0], int(data[1])
			if op < 0xf0 { // op%64 selects the user, and op/64 selects the change
				changes++
				e := entry(fmt.Sprint(op%64), uint64(arg/4), int64(arg%4), 0)
				switch op / 64 {
				case 0:
					e.Key = ""
				case 1:
					e.Divisions = division(fmt.Sprint(arg % 3))
				}
				put(e)
				continue
			}
			changes += arg
			for i := range arg {
				user := fmt.Sprint("run", op%4, ".", i)
				switch op % 8 {
				case 0:
					put(entry(user, uint64(i), 0, 0))
				case 1:
					put(entry(user, uint64(300-i), 0, 0))
				case 2:
					put(entry(user, 32, 2, 0))
				case 3:
					e := entry(user, uint64(i*7919%256), int64(i%3), 0)
					e.Divisions = division(fmt.Sprint(i % 2))
					put(e)
				case 4, 5, 6: // removals from either end or in between
					put(unranked(fmt.Sprint("run", op%4, ".", []int{i, 255 - i, i * 101 % 256}[op%8-4]), 0))
				case 7:
					put(unranked(fmt.Sprint("run", i%4, ".", i), 0))
				}
			}
			if err := tb.check(); err != nil {
				t.Fatal(err)
			}
		}
		tb.verify()
	})
}
