package official

import (
	"math/big"
	"slices"
	"testing"
	"time"
)

const (
	decayPrecision = 320 // bits of every number; sums are right to 300 at least
	decaySame      = 250 // sums that agree in so many bits are taken as equal,
	decayApart     = 150 // and no others agree in more than so many

	halfLife      = 31557600 * time.Second // a Julian year
	decayDecimals = 9
	decayUnit     = 1_000_000_000 // a point
)

// half returns 2^(-d/halfLife) for a d of any sign.
func half(d time.Duration) *big.Float {
	exponent := new(big.Rat).SetFrac64(-int64(d), int64(halfLife))
	whole := new(big.Int).Div(exponent.Num(), exponent.Denom()) // rounded down
	rest := exponent.Sub(exponent, new(big.Rat).SetInt(whole))  // from 0 to 1
	x, root := newFloat(1), newFloat(2)
	two, one := big.NewRat(2, 1), big.NewRat(1, 1)
	for range decayPrecision { // two to the power of each binary digit of rest
		root.Sqrt(root)
		if rest.Mul(rest, two).Cmp(one) >= 0 {
			rest.Sub(rest, one)
			x.Mul(x, root)
		}
	}
	return x.SetMantExp(x, int(whole.Int64()))
}

func newFloat(x float64) *big.Float { return new(big.Float).SetPrec(decayPrecision).SetFloat64(x) }

// powers returns x^0 to x^n.
func powers(x *big.Float, n int) []*big.Float {
	all := []*big.Float{newFloat(1)}
	for i := range n {
		all = append(all, newFloat(0).Mul(all[i], x))
	}
	return all
}

// decayTables hold what the times of the football results need: a whole number
// of days before a midnight, and seconds into the day.
type decayTables struct{ days, seconds []*big.Float }

func newDecayTables() decayTables {
	return decayTables{powers(half(24*time.Hour), 60_000), powers(half(-time.Second), 86_400)}
}

// decayed returns each user's sum of points at a midnight, halved with every
// half-life since the result.
func (d decayTables) decayed(results []Result, at time.Time) map[string]*big.Float {
	values := map[string]*big.Float{}
	for _, r := range results {
		day := r.AchievedAt.Truncate(24 * time.Hour)
		term := newFloat(float64(*r.Points)) // exact
		term.Mul(term, d.days[int(at.Unix()-day.Unix())/86_400])
		term.Mul(term, d.seconds[int(r.AchievedAt.Sub(day)/time.Second)])
		if values[r.User] == nil {
			values[r.User] = newFloat(0)
		}
		values[r.User].Add(values[r.User], term)
	}
	return values
}

// rounded returns x to the nearest integer, for x of 0 or more.
func rounded(x *big.Float) int64 {
	n, _ := new(big.Float).Add(x, newFloat(0.5)).Int64()
	return n
}

// agreement returns in how many leading bits two sums agree.
func agreement(x, y *big.Float) int {
	difference := new(big.Float).Sub(x, y)
	if difference.Sign() == 0 {
		return decayPrecision
	}
	return max(x.MantExp(nil), y.MantExp(nil)) - difference.MantExp(nil)
}

// decayLadder is the expected ladder at a moment, with scores rounded to the
// displayed decimals. closest is in how many bits the two sums agree that agree
// in most without being equal.
func decayLadder(results []Result, values map[string]*big.Float) (want []standing, closest int) {
	want = ladder(sums(results), func(x, y *standing) int {
		if agreement(values[x.user], values[y.user]) >= decaySame {
			return 0
		}
		return values[y.user].Cmp(values[x.user])
	})
	for i := range want {
		want[i].score = rounded(values[want[i].user])
		if i > 0 && want[i].rank["dense"] != want[i-1].rank["dense"] {
			closest = max(closest, agreement(values[want[i].user], values[want[i-1].user]))
		}
	}
	return want, closest
}

// decayMoments are the ends of five seasons that all begin with the first match.
var decayMoments = []string{"1900-01-01", "1940-01-01", "1970-07-01", "1998-07-13", "2020-01-01"}

// Decay checks trending boards of the football results, 3 points for a win and
// 1 for a draw, halved with every year: five whose season is over, which show the
// scores at its end, and one that goes on, which shows those of now. The recount
// is in arithmetic of 320 bits.
func Decay(t *testing.T, d Deployment) {
	c := d.client()
	results := footballResults(readFootball(t), 3*decayUnit, decayUnit)
	tables := newDecayTables()
	rules := board{
		ID: "decay", Title: "Football, trending", Order: "HIGHER_FIRST", Policy: "DECAY", HalfLife: "31557600s",
		Unit: "points", Decimals: decayDecimals,
	}
	first := results[0].AchievedAt.Truncate(24 * time.Hour)
	for _, moment := range decayMoments {
		t.Run(moment, func(t *testing.T) {
			end, err := time.Parse(time.DateOnly, moment)
			if err != nil {
				t.Fatal(err)
			}
			n := slices.IndexFunc(results, func(r Result) bool { return !r.AchievedAt.Before(end) })
			if n < 0 {
				n = len(results)
			}
			until := results[:n]
			ended := rules
			ended.ID += "-" + moment
			ended.Season = schedule{Schedule: "EXPLICIT", Windows: []window{{ID: "until " + moment, Start: first, End: end}}}
			b := c.createBoard(t, ended)
			if err := d.Feeder(t.Context(), b, until); err != nil {
				t.Fatal(err)
			}
			want, closest := decayLadder(until, tables.decayed(until, end))
			if closest > decayApart {
				t.Fatalf("two sums agree in %d bits without being equal: this recount cannot tell them apart", closest)
			}
			for _, m := range methods {
				readRecounted(t, c, query{board: b, season: ended.Season.Windows[0].ID, method: m}, want)
			}
			t.Logf("%d results, %d teams: order and %d decimals as recounted; different sums agree in %d bits at most; first is %s with %.9f",
				n, len(want), decayDecimals, closest, want[0].user, float64(want[0].score)/decayUnit)
		})
	}
	t.Run("now", func(t *testing.T) {
		rules.ID += "-now"
		rules.Season.Schedule = "NONE"
		b := c.createBoard(t, rules)
		if err := d.Feeder(t.Context(), b, results); err != nil {
			t.Fatal(err)
		}
		midnight := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		values := tables.decayed(results, midnight)
		want, _ := decayLadder(results, values)
		for _, m := range methods {
			before := time.Now()
			entries, _, err := c.list(t.Context(), query{board: b, method: m}, 1000)
			if err != nil {
				t.Fatal(err)
			}
			after := time.Now()
			most, least := half(before.Sub(midnight)), half(after.Sub(midnight))
			if len(entries) != len(want) {
				t.Fatalf("%d entries, want %d", len(entries), len(want))
			}
			for i, e := range entries {
				// The moment of the answer lies between before and after; the
				// stored one has microseconds only, so it may be cut by one.
				v := values[want[i].user]
				lo, hi := rounded(newFloat(0).Mul(v, least)), rounded(newFloat(0).Mul(v, most))+1
				if e.Score < lo || e.Score > hi {
					t.Errorf("%s, want a score of %d to %d", e.line(), lo, hi)
				}
				want[i].score = e.Score
			}
			if err := compareLadder(want, entries, m); err != nil {
				t.Errorf("%s: %v", m, err)
			}
		}
	})
}
