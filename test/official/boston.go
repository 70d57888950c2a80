package official

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/seed"
)

// finisher is a line of the Boston Marathon's official results.
type finisher struct {
	user, gender, division        string
	seconds                       int64
	overall, inGender, inDivision int64 // official places
}

func readBoston(t *testing.T) (runners, wheelchairs []finisher) {
	for _, r := range readDataset(t, "boston2014.csv.gz") {
		f := finisher{
			user: r["user_id"], gender: r["gender"], division: r["division"], seconds: r.integer(t, "finish_s"),
			overall: r.integer(t, "official_overall"), inGender: r.integer(t, "official_gender_place"), inDivision: r.integer(t, "official_division_place"),
		}
		switch r["category"] {
		case "run":
			runners = append(runners, f)
		case "wheel":
			wheelchairs = append(wheelchairs, f)
		}
	}
	return runners, wheelchairs
}

var bostonStart = time.Date(2014, 4, 21, 14, 0, 0, 0, time.UTC)

// bostonResults are the results of finishers in the order of their official
// places. Those within a second were told apart by a finer clock that was not
// published; the microseconds stand for it.
func bostonResults(finishers []finisher, timed bool) []Result {
	finishers = slices.SortedFunc(slices.Values(finishers), func(x, y finisher) int { return int(x.overall - y.overall) })
	results := make([]Result, len(finishers))
	for i, f := range finishers {
		results[i] = Result{User: f.user, Match: "boston2014", Score: new(f.seconds), Attributes: map[string]string{"gender": f.gender}}
		if f.division != "" {
			results[i].Attributes["division"] = f.division
		}
		if timed {
			results[i].AchievedAt = bostonStart.Add(time.Duration(f.overall) * time.Microsecond)
		}
	}
	return results
}

func bostonBoard(name string) board {
	return board{
		ID: name, Title: "Boston Marathon 2014", Order: "LOWER_FIRST", Policy: "BEST", Unit: "s",
		Season: schedule{Schedule: "NONE"}, Divisions: []string{"gender", "division"},
	}
}

// bostonLadder is an official ranking: the finishers of a division with the
// places that it gave them.
type bostonLadder struct {
	division string
	places   map[string]int64 // by user
	want     []standing
}

// bostonLadders are the overall ranking, that of each gender and of each age group.
func bostonLadders(t *testing.T, finishers []finisher) []bostonLadder {
	byDivision := map[string]*bostonLadder{}
	members := map[string][]finisher{}
	add := func(division string, f finisher, place int64) {
		if byDivision[division] == nil {
			byDivision[division] = &bostonLadder{division: division, places: map[string]int64{}}
		}
		byDivision[division].places[f.user] = place
		members[division] = append(members[division], f)
	}
	for _, f := range finishers {
		add("", f, f.overall)
		if f.division != "" { // wheelchairs have an overall ranking only
			add("gender:"+f.gender, f, f.inGender)
			add("division:"+f.division, f, f.inDivision)
		}
	}
	var all []bostonLadder
	for _, division := range slices.Sorted(maps.Keys(byDivision)) {
		l := byDivision[division]
		l.want = ladder(bests(t, bostonResults(members[division], true)), lowerFirst)
		all = append(all, *l)
	}
	return all
}

// Boston checks the Boston Marathon of 2014: 31,931 runners on a board of best
// times, overall, by gender and by age group, and 53 wheelchairs on a board of
// their own, against the official places.
func Boston(t *testing.T, d Deployment) {
	runners, wheelchairs := readBoston(t)
	c := d.client()
	random := newRand(seed.New(t))
	t.Run("runners", func(t *testing.T) {
		b := checkBoston(t, d, c, runners, 23)
		ladders := bostonLadders(t, runners)
		t.Run("user by user", func(t *testing.T) { checkUsers(t, c, b, runners, ladders) })
		t.Run("lookup", func(t *testing.T) { checkLookups(t, c, b, ladders) })
		t.Run("neighbors", func(t *testing.T) { checkNeighbors(t, c, b, ladders, random) })
		t.Run("figures", func(t *testing.T) {
			for _, l := range ladders {
				checkStats(t, c, query{board: b, division: l.division}, l.want, random)
			}
		})
		t.Run("spot", func(t *testing.T) {
			for method, rank := range map[string]int64{"competition": 4658, "dense": 1902, "ordinal": 4659} {
				p, err := c.user(t.Context(), query{board: b, method: method}, "b2014-3416", 0)
				if err != nil {
					t.Fatal(err)
				}
				if p.Score != 11546 || p.Rank == nil || *p.Rank != rank {
					t.Errorf("b2014-3416: %s, want score 11546 and %s rank %d", p.Entry.line(), method, rank)
				}
			}
		})
	})
	t.Run("wheelchairs", func(t *testing.T) { checkBoston(t, d, c, wheelchairs, 1) })
}

// BostonInOrderOfArrival checks that of equal times the one that arrived first
// stands first where results carry no time of their own. The deployment's feeder
// must keep the order of results.
func BostonInOrderOfArrival(t *testing.T, d Deployment) {
	runners, _ := readBoston(t)
	c := d.client()
	b := c.createBoard(t, bostonBoard("boston-arrival"))
	if err := d.Feeder(t.Context(), b, bostonResults(runners, false)); err != nil {
		t.Fatal(err)
	}
	entries, _, err := c.list(t.Context(), query{board: b, method: "ordinal"}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	checkPlaces(t, bostonLadders(t, runners)[0], map[string][]Entry{"ordinal": entries})
}

// checkBoston feeds finishers to a new board, whose id it returns, and compares
// each of its ladders, read page by page, with the official places and with a
// recount.
func checkBoston(t *testing.T, d Deployment, c *client, finishers []finisher, wantLadders int) string {
	b := c.createBoard(t, bostonBoard("boston"))
	began := time.Now()
	if err := d.Feeder(t.Context(), b, bostonResults(finishers, true)); err != nil {
		t.Fatal(err)
	}
	t.Logf("fed %d results in %v", len(finishers), time.Since(began).Round(time.Millisecond))
	ladders := bostonLadders(t, finishers)
	if len(ladders) != wantLadders {
		t.Fatalf("%d ladders, want %d", len(ladders), wantLadders)
	}
	rows, distinct := map[bool]int{}, map[bool]int64{}
	for _, l := range ladders {
		read := map[string][]Entry{}
		for _, m := range methods {
			q := query{board: b, division: l.division, method: m}
			entries, _, err := c.list(t.Context(), q, 1000)
			if err != nil {
				t.Fatal(err)
			}
			if err := compareLadder(l.want, entries, m); err != nil {
				t.Errorf("%v: %v", q, err)
			}
			read[m] = entries
		}
		checkPlaces(t, l, read)
		rows[l.division == ""] += len(read["ordinal"])
		distinct[l.division == ""] += l.want[len(l.want)-1].rank["dense"]
	}
	t.Logf("%d ladders as the official places say: overall %d rows with %d times, divisions %d rows with %d times",
		len(ladders), rows[true], distinct[true], rows[false], distinct[false])
	return b
}

// checkPlaces compares what was read of a ladder, by method, with the official
// places, by the four rules of which nothing is excepted: min, block, ordinal
// and order. It checks those for which a method was read.
func checkPlaces(t *testing.T, l bostonLadder, read map[string][]Entry) {
	t.Helper()
	failures := map[string]int{}
	best := map[int64]int64{} // official place by time
	level := map[int64]int64{}
	for _, e := range read["competition"] {
		place := l.places[e.User]
		if old, ok := best[e.Score]; !ok || place < old {
			best[e.Score] = place
		}
		level[e.Score]++
	}
	for _, e := range read["competition"] {
		place := l.places[e.User]
		if *e.Rank != best[e.Score] {
			failures["min"]++
		}
		if place < *e.Rank || place > *e.Rank+level[e.Score]-1 {
			failures["block"]++
		}
	}
	byPlace := make([]int64, len(l.places)+1)
	for _, e := range read["ordinal"] {
		place := l.places[e.User]
		if *e.Rank != place {
			failures["ordinal"]++
		}
		byPlace[place] = e.Score
	}
	if !slices.IsSorted(byPlace[1:]) {
		failures["order"]++
	}
	for method, entries := range read {
		if len(entries) != len(l.places) {
			t.Errorf("division %q: %d entries by %s, want %d", l.division, len(entries), method, len(l.places))
		}
	}
	if len(failures) > 0 {
		t.Errorf("division %q: rows against the official places: %v", l.division, failures)
	}
}

// checkUsers asks for every runner by id: overall by every method, and in the
// runner's other two ladders by one, which goes round.
func checkUsers(t *testing.T, c *client, b string, runners []finisher, ladders []bostonLadder) {
	want := map[string]map[string]*standing{} // by division and user
	for _, l := range ladders {
		want[l.division] = map[string]*standing{}
		for i := range l.want {
			want[l.division][l.want[i].user] = &l.want[i]
		}
	}
	began := time.Now()
	err := each(t.Context(), len(runners), func(ctx context.Context, i int) error {
		f := runners[i]
		queries := []query{
			{board: b, division: "gender:" + f.gender, method: methods[i%len(methods)]},
			{board: b, division: "division:" + f.division, method: methods[(i+1)%len(methods)]},
		}
		for _, m := range methods {
			queries = append(queries, query{board: b, method: m})
		}
		for _, q := range queries {
			ladder := want[q.division]
			if err := c.checkUser(ctx, q, ladder[f.user], int64(len(ladder))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("asked for %d runners in three ladders in %v", len(runners), time.Since(began).Round(time.Millisecond))
}

// checkUser asks for one user's entry.
func (c *client) checkUser(ctx context.Context, q query, want *standing, total int64) error {
	p, err := c.user(ctx, q, want.user, 0)
	if err != nil {
		return err
	}
	if err := compareEntry(want, &p.Entry, q.method); err != nil {
		return fmt.Errorf("%v: user %w", q, err)
	}
	if percentile := 100 * float64(want.worse) / float64(total); math.Abs(p.Percentile-percentile) > 1e-9 {
		return fmt.Errorf("%v: user %q is at percentile %v, want %v", q, want.user, p.Percentile, percentile)
	}
	if p.Total != total {
		return fmt.Errorf("%v: user %q: total is %d, want %d", q, want.user, p.Total, total)
	}
	return nil
}

// checkLookups asks for all users of the ladders in lookups as large as may be,
// by each method.
func checkLookups(t *testing.T, c *client, b string, ladders []bostonLadder) {
	for _, l := range ladders {
		for _, m := range methods {
			q := query{board: b, division: l.division, method: m}
			for part := range slices.Chunk(l.want, 4999) {
				users := []string{"nobody"} // and 4,999 others
				for _, s := range slices.Backward(part) {
					users = append(users, s.user)
				}
				p, err := c.lookup(t.Context(), q, users)
				if err != nil {
					t.Fatal(err)
				}
				if err := compareLadder(part, p.Entries, m); err != nil {
					t.Errorf("%v: looked up: %v", q, err)
					continue
				}
				// The ranks in the list are those of a ladder of its users alone.
				alone := ladder(slices.Clone(part), lowerFirst)
				for i, e := range p.Entries {
					if e.ListRank == nil || *e.ListRank != alone[i].rank[m] {
						t.Errorf("%v: looked up: %s has list_rank %v, want %d", q, e.line(), e.ListRank, alone[i].rank[m])
						break
					}
				}
				if !slices.Equal(p.Missing, users[:1]) {
					t.Errorf("%v: missing are %q, want %q", q, p.Missing, users[:1])
				}
			}
		}
	}
}

// checkNeighbors asks for the neighbors of users at both ends and of random ones.
func checkNeighbors(t *testing.T, c *client, b string, ladders []bostonLadder, random *rand.Rand) {
	const most = 50
	for _, l := range ladders {
		n := len(l.want) // 1 in the smallest
		positions := []int{0, min(1, n-1), max(n-2, 0), n - 1}
		for range 10 {
			positions = append(positions, random.IntN(n))
		}
		for _, i := range positions {
			q := query{board: b, division: l.division, method: methods[random.IntN(len(methods))]}
			if err := c.checkWindow(t.Context(), q, l.want, i, random.IntN(most+1)); err != nil {
				t.Error(err)
			}
		}
	}
}

// checkWindow asks for the user at position i with n neighbors on each side.
func (c *client) checkWindow(ctx context.Context, q query, want []standing, i, n int) error {
	p, err := c.user(ctx, q, want[i].user, n)
	if err != nil {
		return err
	}
	return compareWindow(q, want, i, n, &p)
}

func compareWindow(q query, want []standing, i, n int, p *userPage) error {
	method := q.method
	if method == "" {
		method = "competition"
	}
	from, to := max(i-n, 0), min(i+n, len(want)-1)
	if err := compareEntry(&want[i], &p.Entry, method); err != nil {
		return fmt.Errorf("%v: user %w", q, err)
	}
	if err := compareLadder(want[from:to+1], p.Neighbors, method); err != nil {
		return fmt.Errorf("%v: %d neighbors of %q: %w", q, n, want[i].user, err)
	}
	for j, e := range p.Neighbors {
		if e.Current != (from+j == i) {
			return fmt.Errorf("%v: neighbors of %q: is_current_user is %t at %q", q, want[i].user, e.Current, e.User)
		}
	}
	if above, below := i-n < 0, i+n > len(want)-1; p.ClippedAbove != above || p.ClippedBelow != below {
		return fmt.Errorf("%v: %d neighbors of %q: clipped above %t and below %t, want %t and %t", q, n, want[i].user, p.ClippedAbove, p.ClippedBelow, above, below)
	}
	return nil
}

// checkStats compares the figures of a ladder, lower first, with a recount.
func checkStats(t *testing.T, c *client, q query, want []standing, random *rand.Rand) {
	t.Helper()
	n := int64(len(want))
	position, buckets := 1+random.Int64N(n), 1+random.IntN(100)
	lowest, highest := want[0].score, want[n-1].score
	score := lowest - 1 + random.Int64N(highest-lowest+3) // from just better than all to just worse
	q.method = methods[random.IntN(2)]                    // an ordinal rank of a score alone there is not
	s, err := c.stats(t.Context(), q, url.Values{
		"rank": {strconv.FormatInt(position, 10)}, "score": {strconv.FormatInt(score, 10)}, "buckets": {strconv.Itoa(buckets)},
	})
	if err != nil {
		t.Fatal(err)
	}
	rank := int64(1)
	distinct := map[int64]bool{}
	for _, w := range want {
		if w.score < score && (q.method == "competition" || !distinct[w.score]) {
			distinct[w.score] = true
			rank++
		}
	}
	for _, f := range []struct {
		name      string
		got       *int64
		wantValue int64
	}{
		{"total", &s.Total, n},
		{"best_score", s.Best, lowest},
		{"worst_score", s.Worst, highest},
		{fmt.Sprintf("score_at_rank %d", position), s.ScoreAtRank, want[position-1].score},
		{fmt.Sprintf("rank_of_score %d", score), s.RankOfScore, rank},
	} {
		if f.got == nil || *f.got != f.wantValue {
			t.Errorf("%v: %s is %s, want %d", q, f.name, show(f.got), f.wantValue)
		}
	}

	if len(s.Histogram) == 0 || len(s.Histogram) > buckets {
		t.Fatalf("%v: %d buckets, want 1 to %d", q, len(s.Histogram), buckets)
	}
	if first, last := s.Histogram[0], s.Histogram[len(s.Histogram)-1]; first.Lower != lowest || last.Upper != highest {
		t.Errorf("%v: the histogram goes from %d to %d, want %d to %d", q, first.Lower, last.Upper, lowest, highest)
	}
	sum := int64(0)
	for i, bucket := range s.Histogram {
		if i > 0 && bucket.Lower != s.Histogram[i-1].Upper+1 {
			t.Errorf("%v: a bucket from %d follows one to %d", q, bucket.Lower, s.Histogram[i-1].Upper)
		}
		count := int64(0)
		for _, w := range want {
			if w.score >= bucket.Lower && w.score <= bucket.Upper {
				count++
			}
		}
		if bucket.Count != count {
			t.Errorf("%v: %d have %d to %d, want %d", q, bucket.Count, bucket.Lower, bucket.Upper, count)
		}
		sum += bucket.Count
	}
	if sum != n {
		t.Errorf("%v: the histogram counts %d, want %d", q, sum, n)
	}

	if len(s.Percentiles) == 0 {
		t.Errorf("%v: no percentiles", q)
	}
	for _, p := range s.Percentiles {
		// The share, of all entrants, that stand worse than the score is no
		// more than the percentage, and with those on the score no less.
		worse, notBetter := 0.0, 0.0
		for _, w := range want {
			if w.score > p.Score {
				worse++
			}
			if w.score >= p.Score {
				notBetter++
			}
		}
		if share := p.Percentile / 100 * float64(n); worse > share || notBetter < share || notBetter == worse {
			t.Errorf("%v: at %v percent is %d, where %v of %d stand worse and %v not better", q, p.Percentile, p.Score, worse, n, notBetter)
		}
	}
}

func show(n *int64) string {
	if n == nil {
		return "absent"
	}
	return strconv.FormatInt(*n, 10)
}
