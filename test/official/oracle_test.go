package official

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/test/seed"
)

func TestBundledFilesAreUnchanged(t *testing.T) {
	for _, f := range []struct {
		name, sha256 string
		rows         int
	}{
		{"football.csv.gz", "ea2e5fa6fc5f5ccad7da6ca0673391b4a5d163731fdcb2dd363233000cfd91c7", 43378},
		{"f1_results_2000_2012.csv.gz", "95c399658b1f48a45295dc7563a5df7cdc28a123fa8b26245ba4e77f1ae797b6", 5036},
		{"f1_standings_2000_2012.csv.gz", "d6b0216fba0be7fd161168039b91bee742a442fb25bca529acfc4de51553e7e6", 5193},
	} {
		b, err := bundled.ReadFile("testdata/" + f.name)
		if err != nil {
			t.Fatal(err)
		}
		if sum := fmt.Sprintf("%x", sha256.Sum256(b)); sum != f.sha256 {
			t.Errorf("%s has the SHA-256 sum %s, want %s", f.name, sum, f.sha256)
		}
		if rows := readBundled(t, f.name); len(rows) != f.rows {
			t.Errorf("%s: %d rows, want %d", f.name, len(rows), f.rows)
		}
	}
}

func timeAt(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

func TestLadderRanksByDefinition(t *testing.T) {
	s := seed.New(t)
	random := newRand(s)
	for range 200 {
		var all []standing
		for i := range 1 + random.IntN(30) {
			all = append(all, standing{
				user: fmt.Sprintf("u%02d", i), score: random.Int64N(5), ties: []int64{random.Int64N(2)}, at: timeAt(random.Int64N(3)),
			})
		}
		before := map[string]standing{}
		for _, x := range all {
			before[x.user] = x
		}
		better := func(x, y standing) bool { // by score and tie-breakers
			return x.score > y.score || x.score == y.score && x.ties[0] > y.ties[0]
		}
		for i, x := range ladder(all, higherFirst) {
			want := before[x.user]
			want.rank = map[string]int64{"competition": 1, "dense": 1, "ordinal": 1}
			distinct := map[string]bool{}
			for _, y := range before {
				switch {
				case better(y, x):
					want.rank["competition"]++
					want.rank["ordinal"]++
					if key := fmt.Sprint(y.score, y.ties); !distinct[key] {
						distinct[key] = true
						want.rank["dense"]++
					}
				case better(x, y):
					want.worse++
				default:
					want.tied++
					if y.at.Before(x.at) || y.at.Equal(x.at) && y.user < x.user {
						want.rank["ordinal"]++
					}
				}
			}
			if diff := cmp.Diff(want, x, cmp.AllowUnexported(standing{})); diff != "" {
				t.Fatalf("position %d (-want +got):\n%s", i+1, diff)
			}
		}
	}
}

func TestSumsAddResultsInAnyOrder(t *testing.T) {
	results := []Result{
		{User: "a", Match: "1", Points: new(int64(3)), AchievedAt: timeAt(10)},
		{User: "a", Match: "2", Points: new(int64(0)), AchievedAt: timeAt(30)}, // changes nothing
		{User: "a", Match: "3", Points: new(int64(1)), AchievedAt: timeAt(20)},
		{User: "b", Match: "1", Points: new(int64(0)), AchievedAt: timeAt(40)},
		{User: "b", Match: "2", Points: new(int64(0)), AchievedAt: timeAt(15)}, // no result of b changes the sum, so the first one determines the time
		{User: "c", Match: "1", Points: new(int64(0)), AchievedAt: timeAt(5)},
		{User: "c", Match: "2", Points: new(int64(4)), AchievedAt: timeAt(25)},
	}
	want := []standing{
		{user: "a", score: 4, ties: []int64{}, at: timeAt(20)},
		{user: "c", score: 4, ties: []int64{}, at: timeAt(25)},
		{user: "b", score: 0, ties: []int64{}, at: timeAt(15)},
	}
	for range 2 {
		got := ladder(recountSums(results), higherFirst)
		for i := range got {
			got[i].rank, got[i].tied, got[i].worse = nil, 0, 0
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(standing{})); diff != "" {
			t.Errorf("ladder of the sums (-want +got):\n%s", diff)
		}
		slices.Reverse(results) // the order does not matter
	}
}

func TestCompareLadderFindsEachDifference(t *testing.T) {
	want := ladder([]standing{
		{user: "a", score: 9, ties: []int64{1}, at: timeAt(1)}, {user: "b", score: 9, ties: []int64{1}, at: timeAt(2)}, {user: "c", score: 5, ties: []int64{0}, at: timeAt(3)},
	}, higherFirst)
	right := func() []entry {
		var all []entry
		for _, s := range want {
			all = append(all, entry{User: s.user, Score: s.score, TieBreakers: s.ties, Rank: new(s.rank["dense"]), AchievedAt: s.at})
		}
		return all
	}
	if err := compareLadder(want, right(), "dense"); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func([]entry) []entry{
		"an entry is missing":     func(e []entry) []entry { return e[:2] },
		"an entry is extra":       func(e []entry) []entry { return append(e, e[2]) },
		"two entries are swapped": func(e []entry) []entry { e[0], e[1] = e[1], e[0]; return e },
		"a score is wrong":        func(e []entry) []entry { e[2].Score++; return e },
		"a rank is wrong":         func(e []entry) []entry { *e[2].Rank = 3; return e },
		"a rank is missing":       func(e []entry) []entry { e[2].Rank = nil; return e },
		"a tie-breaker is wrong":  func(e []entry) []entry { e[2].TieBreakers = []int64{7}; return e },
		"a time is wrong":         func(e []entry) []entry { e[2].AchievedAt = timeAt(9); return e },
		"a user is wrong":         func(e []entry) []entry { e[2].User = "d"; return e },
	} {
		if compareLadder(want, spoil(right()), "dense") == nil {
			t.Errorf("%s: compareLadder found no difference, want one", name)
		}
	}
}

func TestShuffledAndDuplicatedKeepAllResults(t *testing.T) {
	s := seed.New(t)
	var results []Result
	for i := range 1000 {
		results = append(results, Result{User: "u", Match: fmt.Sprint(i)})
	}
	var got []string // matches in the order of the submits
	record := func(_ context.Context, _ string, results []Result) error {
		got = nil
		for _, r := range results {
			got = append(got, r.Match)
		}
		return nil
	}
	feed := func(to Feeder) (moved int) { // moved: how many places earlier a result comes, at most
		if err := to(t.Context(), "b", results); err != nil {
			t.Fatal(err)
		}
		first := map[string]int{}
		for i, match := range got {
			if _, ok := first[match]; !ok {
				first[match] = i
			}
		}
		for i, r := range results {
			place, ok := first[r.Match]
			if !ok {
				t.Fatalf("match %s is lost", r.Match)
			}
			moved = max(moved, i-place)
		}
		return moved
	}
	const window = 20
	if moved := feed(Shuffled(record, window, s)); moved < 1 || moved > window || len(got) != len(results) {
		t.Errorf("Shuffled submits %d results, and the largest move forward is %d places; want %d results and 1 to %d places", len(got), moved, len(results), window)
	}
	if feed(Duplicated(record, 0.2, s)); len(got) < 1100 || len(got) > 1300 {
		t.Errorf("Duplicated submits %d results for %d, want 1100 to 1300", len(got), len(results))
	}
	if moved := feed(Shuffled(record, len(results), s)); moved < len(results)/4 {
		t.Errorf("Shuffled with a window of all results: the largest move forward is %d places, want at least %d", moved, len(results)/4)
	}
}

// Decay weights must have more correct bits than decaySame.
func TestDecayArithmetic(t *testing.T) {
	for _, d := range []time.Duration{0, halfLife, 3 * halfLife, -2 * halfLife, time.Second, 86400 * time.Second, -12345 * time.Second, 40 * halfLife / 7} {
		got, _ := decayWeight(d).Float64()
		want := math.Exp2(-d.Seconds() / halfLife.Seconds())
		if math.Abs(got/want-1) > 1e-14 {
			t.Errorf("decayWeight(%v) = %v, want %v", d, got, want)
		}
	}
	// The 1024th power of the weight of 1/1024 half-life is 1/2.
	product := newFloat(1)
	for _, step := range powers(decayWeight(halfLife/1024), 1024)[1024:] {
		product.Mul(product, step)
	}
	if n := agreement(product, newFloat(0.5)); n < 300 {
		t.Errorf("the 1024th power of the weight of 1/1024 half-life agrees with 1/2 in %d bits, want at least 300", n)
	}
	tables := newDecayTables()
	for _, at := range []time.Duration{0, time.Second, 100 * 24 * time.Hour, 148*365*24*time.Hour + 12345*time.Second} {
		end := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		r := Result{User: "u", Points: new(int64(1)), AchievedAt: end.Add(-at)}
		if n := agreement(tables.decayedSums([]Result{r}, end)["u"], decayWeight(at)); n < 280 {
			t.Errorf("for %v, the weight from the tables agrees with decayWeight in %d bits, want at least 280", at, n)
		}
	}
	if got := roundToInteger(new(big.Float).SetPrec(decayPrecision).SetFloat64(2.5)); got != 3 {
		t.Errorf("2.5 rounds to %d, want 3", got)
	}
}

func TestEscapeMakesOnePathSegment(t *testing.T) {
	for id, want := range map[string]string{"a/b": "a%2Fb", "a:b": "a%3Ab", "a%2Fb": "a%252Fb", "a b?": "a%20b%3F", "Käthe": "K%C3%A4the"} {
		if got := escape(id); got != want {
			t.Errorf("escape(%q) = %q, want %q", id, got, want)
		}
	}
	if got := (query{board: "a/b"}).path("scores", escape("x:y")); !strings.HasPrefix(got, "/v1/boards/a%2Fb/scores/x%3Ay") {
		t.Errorf("path is %q, want each id as one segment", got)
	}
}
