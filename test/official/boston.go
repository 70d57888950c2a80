package official

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

type finisher struct {
	user, gender, division        string
	seconds                       int64
	overall, inGender, inDivision int64 // official places: the published ranks
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

func (f *finisher) ageGroup() string { return f.division[1:] }

// crossed escapes the "+" of the age group 80+, because a "+" separates values.
func (f *finisher) crossed() string {
	return "gender+age_group:" + f.gender + "+" + strings.ReplaceAll(f.ageGroup(), "+", `\+`)
}

var bostonStart = time.Date(2014, 4, 21, 14, 0, 0, 0, time.UTC)

// The results are in the order of their official places. The organizers ordered equal times by a
// finer clock that was not published. If timed is set, AchievedAt gives this order: each result is
// a microsecond later than the result before.
func bostonResults(finishers []finisher, timed bool) []Result {
	finishers = slices.SortedFunc(slices.Values(finishers), func(x, y finisher) int { return int(x.overall - y.overall) })
	results := make([]Result, len(finishers))
	for i, f := range finishers {
		results[i] = Result{User: f.user, Match: "boston2014", Score: new(f.seconds), Attributes: map[string]string{"gender": f.gender}}
		if f.division != "" {
			results[i].Attributes["division"], results[i].Attributes["age_group"] = f.division, f.ageGroup()
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
		Season: schedule{Schedule: "NONE"}, Divisions: []string{"gender", "division", "gender+age_group"},
	}
}

type bostonLadder struct {
	division string
	places   map[string]int64 // by user
	want     []standing       // the recount of the same finishers
}

// An official division, such as F40-44, is a gender and an age group. So the crossed division of
// both has equal places.
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
			add(f.crossed(), f, f.inDivision)
		}
	}
	var all []bostonLadder
	for _, division := range slices.Sorted(maps.Keys(byDivision)) {
		l := byDivision[division]
		l.want = ladder(recountBests(t, bostonResults(members[division], true)), lowerFirst)
		all = append(all, *l)
	}
	return all
}

// Boston compares the Boston Marathon of 2014 with the official places: 31,931 runners overall, by
// gender and by age group, and 53 wheelchairs.
func Boston(t *testing.T, d Deployment) {
	runners, wheelchairs := readBoston(t)
	c := d.client()
	random := newRand(seed.New(t))
	t.Run("runners", func(t *testing.T) {
		b := checkBoston(t, d, c, runners, 43)
		ladders := bostonLadders(t, runners)
		if needs.Running("official") {
			t.Run("every user", func(t *testing.T) { checkUsers(t, c, b, runners, ladders) })
		}
		t.Run("one user in fifty", func(t *testing.T) {
			checkUsers(t, c, b, everyFiftieth(runners, random.IntN(50)), ladders)
		})
		t.Run("lookup", func(t *testing.T) { checkLookups(t, c, b, ladders) })
		t.Run("neighbors", func(t *testing.T) { checkNeighbors(t, c, b, ladders, random) })
		t.Run("statistics", func(t *testing.T) {
			for _, l := range ladders {
				checkStats(t, c, query{board: b, division: l.division}, l.want, random)
			}
		})
		t.Run("one known runner", func(t *testing.T) {
			for method, rank := range map[string]int64{"competition": 4658, "dense": 1902, "ordinal": 4659} {
				p, err := c.user(t.Context(), query{board: b, method: method}, "b2014-3416", 0)
				if err != nil {
					t.Fatal(err)
				}
				if p.Score != 11546 || p.Rank == nil || *p.Rank != rank {
					t.Errorf("entry of b2014-3416 is %s, want score 11546 and %s rank %d", p.entry.line(), method, rank)
				}
			}
		})
	})
	t.Run("wheelchairs", func(t *testing.T) { checkBoston(t, d, c, wheelchairs, 1) })
}

// BostonInOrderOfArrival checks that results with equal scores and without times rank in the order
// of their arrival. The deployment's feeder must keep the order of results. Only the first runners
// take part, at most the given number.
func BostonInOrderOfArrival(t *testing.T, d Deployment, most int64) {
	runners, _ := readBoston(t)
	runners = slices.DeleteFunc(runners, func(f finisher) bool { return f.overall > most })
	c := d.client()
	b := c.createBoard(t, bostonBoard("boston-arrival"))
	if err := d.Feeder(t.Context(), b, bostonResults(runners, false)); err != nil {
		t.Fatal(err)
	}
	entries, err := c.list(t.Context(), query{board: b, method: "ordinal"})
	if err != nil {
		t.Fatal(err)
	}
	checkPlaces(t, bostonLadders(t, runners)[0], map[string][]entry{"ordinal": entries})
}

// BostonDivisionAdded adds the crossed division to a board with half of the runners, while results
// of the other half arrive. Each consumer must apply results during the fill. Afterwards, the board
// must have the official ladders.
func BostonDivisionAdded(t *testing.T, d Deployment) {
	runners, _ := readBoston(t)
	c := d.client()
	settings := bostonBoard("boston-division-added")
	divisions := settings.Divisions
	settings.Divisions, settings.Attributes = divisions[:len(divisions)-1], []string{"age_group"}
	b := c.createBoard(t, settings)
	results := bostonResults(runners, true)
	newRand(seed.New(t)).Shuffle(len(results), func(i, j int) { results[i], results[j] = results[j], results[i] })
	half := len(results) / 2
	if err := d.Feeder(t.Context(), b, results[:half]); err != nil {
		t.Fatal(err)
	}
	fed := make(chan error, 1)
	go func() { fed <- d.Feeder(t.Context(), b, results[half:]) }()
	var answer struct {
		Filling bool
		Fills   []string `json:"filling_divisions"`
	}
	err := c.call(t.Context(), http.MethodPatch, boardPath(b), nil, map[string]any{"divisions": divisions}, &answer)
	if err != nil || !answer.Filling || !slices.Equal(answer.Fills, divisions[len(divisions)-1:]) {
		t.Errorf("the board with another division is %+v, error %v; want filling true, and only this division in filling_divisions", answer, err)
	}
	if d.Applied != nil {
		checkAppliedWhileFilling(t, d, c, b)
	}
	if err := <-fed; err != nil {
		t.Fatal(err)
	}
	c.waitFilled(t, b)
	compareBoston(t, c, b, runners, 43)
}

func checkAppliedWhileFilling(t *testing.T, d Deployment, c *client, b string) {
	t.Helper()
	applied := func() []int {
		counts, err := d.Applied(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return counts
	}
	began := time.Now()
	before := applied()
	last, during := before, before
	// The fill may end while applied reads the counts. Only a later poll proves that the fill had
	// not ended. So during has the counts of the last poll but one.
	c.waitFilledWhile(t, b, func() { during, last = last, applied() })
	t.Logf("the division was filled in %v; the consumers had applied %v results before the fill, and %v shortly before its end", time.Since(began).Round(time.Millisecond), before, during)
	for i := range during {
		if during[i] == before[i] {
			t.Errorf("consumer %d applied no results while the division was filled", i)
		}
	}
}

func checkBoston(t *testing.T, d Deployment, c *client, finishers []finisher, wantLadders int) string {
	b := c.createBoard(t, bostonBoard("boston"))
	began := time.Now()
	if err := d.Feeder(t.Context(), b, bostonResults(finishers, true)); err != nil {
		t.Fatal(err)
	}
	t.Logf("submitted %d results in %v", len(finishers), time.Since(began).Round(time.Millisecond))
	compareBoston(t, c, b, finishers, wantLadders)
	return b
}

func compareBoston(t *testing.T, c *client, b string, finishers []finisher, wantLadders int) {
	t.Helper()
	ladders := bostonLadders(t, finishers)
	if len(ladders) != wantLadders {
		t.Fatalf("%d ladders, want %d", len(ladders), wantLadders)
	}
	rows, distinct := map[bool]int{}, map[bool]int64{}
	if !needs.Running("official") { // make check reads the overall ladder and some of the divisions
		random := newRand(seed.New(t))
		ladders = slices.DeleteFunc(ladders, func(l bostonLadder) bool { return l.division != "" && random.IntN(4) > 0 })
	}
	for _, l := range ladders {
		byMethod := map[string][]entry{}
		for _, m := range methods {
			q := query{board: b, division: l.division, method: m}
			entries, err := c.list(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if err := compareLadder(l.want, entries, m); err != nil {
				t.Errorf("%v: %v", q, err)
			}
			byMethod[m] = entries
		}
		checkPlaces(t, l, byMethod)
		rows[l.division == ""] += len(byMethod["ordinal"])
		distinct[l.division == ""] += l.want[len(l.want)-1].rank["dense"]
	}
	t.Logf("compared %d ladders with the official places: overall %d rows with %d different times, divisions %d rows with %d different times",
		len(ladders), rows[true], distinct[true], rows[false], distinct[false])
}

// A tie is a group of users with equal times. checkPlaces checks competition ranks by the rules min
// and block, and ordinal ranks by the rules ordinal and order:
//
//	min      the competition rank of a tie is its best official place
//	block    the official places of a tie of n users are the n places from its competition rank on
//	ordinal  an ordinal rank is the official place
//	order    no official place has a shorter time than the place before
func checkPlaces(t *testing.T, l bostonLadder, byMethod map[string][]entry) {
	t.Helper()
	failures := map[string]int{}
	best := map[int64]int64{} // best official place by time
	tied := map[int64]int64{} // number of entries by time
	for _, e := range byMethod["competition"] {
		place := l.places[e.User]
		if known, ok := best[e.Score]; !ok || place < known {
			best[e.Score] = place
		}
		tied[e.Score]++
	}
	for _, e := range byMethod["competition"] {
		place := l.places[e.User]
		if *e.Rank != best[e.Score] {
			failures["min"]++
		}
		if place < *e.Rank || place > *e.Rank+tied[e.Score]-1 {
			failures["block"]++
		}
	}
	byPlace := make([]int64, len(l.places)+1)
	for _, e := range byMethod["ordinal"] {
		place := l.places[e.User]
		if *e.Rank != place {
			failures["ordinal"]++
		}
		byPlace[place] = e.Score
	}
	if !slices.IsSorted(byPlace[1:]) {
		failures["order"]++
	}
	for method, entries := range byMethod {
		if len(entries) != len(l.places) {
			t.Errorf("division %q: %d entries by %s, want %d", l.division, len(entries), method, len(l.places))
		}
	}
	if len(failures) > 0 {
		t.Errorf("division %q: number of breaches by rule of checkPlaces: %v, want none", l.division, failures)
	}
}

func everyFiftieth(finishers []finisher, first int) (sample []finisher) {
	for i := first; i < len(finishers); i += 50 {
		sample = append(sample, finishers[i])
	}
	return sample
}

// checkUsers reads each runner overall by every method, and in three divisions by one method each.
func checkUsers(t *testing.T, c *client, b string, runners []finisher, ladders []bostonLadder) {
	want := map[string]map[string]*standing{} // by division and user
	for _, l := range ladders {
		want[l.division] = map[string]*standing{}
		for i := range l.want {
			want[l.division][l.want[i].user] = &l.want[i]
		}
	}
	began := time.Now()
	err := forEach(t.Context(), len(runners), func(ctx context.Context, i int) error {
		f := runners[i]
		queries := []query{
			{board: b, division: "gender:" + f.gender, method: methods[i%len(methods)]},
			{board: b, division: "division:" + f.division, method: methods[(i+1)%len(methods)]},
			{board: b, division: f.crossed(), method: methods[(i+2)%len(methods)]},
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
	t.Logf("read %d runners in four ladders in %v", len(runners), time.Since(began).Round(time.Millisecond))
}

func (c *client) checkUser(ctx context.Context, q query, want *standing, total int64) error {
	p, err := c.user(ctx, q, want.user, 0)
	if err != nil {
		return err
	}
	if err := compareEntry(want, &p.entry, q.method); err != nil {
		return fmt.Errorf("%v: user %w", q, err)
	}
	if percentile := 100 * float64(want.worse) / float64(total); math.Abs(p.Percentile-percentile) > 1e-9 {
		return fmt.Errorf("%v: user %q has percentile %v, want %v", q, want.user, p.Percentile, percentile)
	}
	if p.Total != total {
		return fmt.Errorf("%v: user %q: total is %d, want %d", q, want.user, p.Total, total)
	}
	return nil
}

func checkLookups(t *testing.T, c *client, b string, ladders []bostonLadder) {
	for _, l := range ladders {
		for _, m := range methods {
			q := query{board: b, division: l.division, method: m}
			for part := range slices.Chunk(l.want, 4999) {
				users := []string{"nobody"} // has no entry
				for _, s := range slices.Backward(part) {
					users = append(users, s.user)
				}
				p, err := c.lookup(t.Context(), q, users)
				if err != nil {
					t.Fatal(err)
				}
				if err := compareLadder(part, p.Entries, m); err != nil {
					t.Errorf("%v: lookup: %v", q, err)
					continue
				}
				// A list rank is the rank in a ladder of only the requested users.
				list := ladder(slices.Clone(part), lowerFirst)
				for i, e := range p.Entries {
					if e.ListRank == nil || *e.ListRank != list[i].rank[m] {
						t.Errorf("%v: lookup: %s has list_rank %s, want %d", q, e.line(), show(e.ListRank), list[i].rank[m])
						break
					}
				}
				if !slices.Equal(p.Missing, users[:1]) {
					t.Errorf("%v: lookup: missing users are %q, want %q", q, p.Missing, users[:1])
				}
			}
		}
	}
}

func checkNeighbors(t *testing.T, c *client, b string, ladders []bostonLadder, random *rand.Rand) {
	const limit = 50
	for _, l := range ladders {
		n := len(l.want) // the smallest ladder has 1 user
		positions := []int{0, min(1, n-1), max(n-2, 0), n - 1}
		for range 10 {
			positions = append(positions, random.IntN(n))
		}
		for _, i := range positions {
			q := query{board: b, division: l.division, method: methods[random.IntN(len(methods))]}
			if err := c.checkNeighborsOf(t.Context(), q, l.want, i, random.IntN(limit+1)); err != nil {
				t.Error(err)
			}
		}
	}
}

func (c *client) checkNeighborsOf(ctx context.Context, q query, want []standing, i, n int) error {
	p, err := c.user(ctx, q, want[i].user, n)
	if err != nil {
		return err
	}
	return compareNeighbors(q, want, i, n, &p)
}

// compareNeighbors expects the user at position i of want, with n neighbors on each side, or fewer
// near an end of the ladder.
func compareNeighbors(q query, want []standing, i, n int, p *userPage) error {
	method := q.method
	if method == "" {
		method = "competition"
	}
	start, end := max(i-n, 0), min(i+n, len(want)-1)
	if err := compareEntry(&want[i], &p.entry, method); err != nil {
		return fmt.Errorf("%v: user %w", q, err)
	}
	if err := compareLadder(want[start:end+1], p.Neighbors, method); err != nil {
		return fmt.Errorf("%v: %d neighbors of %q: %w", q, n, want[i].user, err)
	}
	for j, e := range p.Neighbors {
		if e.Current != (start+j == i) {
			return fmt.Errorf("%v: neighbors of %q: is_current_user of %q is %t, want %t", q, want[i].user, e.User, e.Current, !e.Current)
		}
	}
	if above, below := i-n < 0, i+n > len(want)-1; p.ClippedAbove != above || p.ClippedBelow != below {
		return fmt.Errorf("%v: %d neighbors of %q: clipped above %t and below %t, want %t and %t", q, n, want[i].user, p.ClippedAbove, p.ClippedBelow, above, below)
	}
	return nil
}

// The board must rank lower scores first.
func checkStats(t *testing.T, c *client, q query, want []standing, random *rand.Rand) {
	t.Helper()
	n := int64(len(want))
	position, buckets := 1+random.Int64N(n), 1+random.IntN(100)
	lowest, highest := want[0].score, want[n-1].score
	score := lowest - 1 + random.Int64N(highest-lowest+3) // from better than all to worse than all
	q.method = methods[random.IntN(2)]                    // a score without a user has no ordinal rank
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
		t.Errorf("%v: the histogram covers %d to %d, want %d to %d", q, first.Lower, last.Upper, lowest, highest)
	}
	sum := int64(0)
	for i, bucket := range s.Histogram {
		if i > 0 && bucket.Lower != s.Histogram[i-1].Upper+1 {
			t.Errorf("%v: bucket %d starts at %d, want %d", q, i, bucket.Lower, s.Histogram[i-1].Upper+1)
		}
		count := int64(0)
		for _, w := range want {
			if w.score >= bucket.Lower && w.score <= bucket.Upper {
				count++
			}
		}
		if bucket.Count != count {
			t.Errorf("%v: the bucket of %d to %d counts %d users, want %d", q, bucket.Lower, bucket.Upper, bucket.Count, count)
		}
		sum += bucket.Count
	}
	if sum != n {
		t.Errorf("%v: the histogram counts %d users, want %d", q, sum, n)
	}

	if len(s.Percentiles) == 0 {
		t.Errorf("%v: the answer has no percentiles, want some", q)
	}
	for _, p := range s.Percentiles {
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
			t.Errorf("%v: percentile %v is score %d: %v of %d users are worse, and %v are worse or equal; want at most %v worse, at least %v worse or equal, and a user with the score", q, p.Percentile, p.Score, worse, n, notBetter, share, share)
		}
	}
}

func show(n *int64) string {
	if n == nil {
		return "absent"
	}
	return strconv.FormatInt(*n, 10)
}
