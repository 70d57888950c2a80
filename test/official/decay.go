package official

import (
	"math/big"
	"slices"
	"testing"
	"time"
)

const (
	decayPrecision = 320 // bits of every number; at least 280 bits of a weight are correct
	decaySame      = 250 // sums that agree in at least this many bits count as equal
	decayApart     = 150 // different sums agree in at most this many bits

	halfLife      = 31557600 * time.Second // a Julian year
	decayDecimals = 9
	decayUnit     = 1_000_000_000 // the score of one point, with decayDecimals decimals
)

// decayWeight returns 2^(-d/halfLife). d may be negative.
func decayWeight(d time.Duration) *big.Float {
	exponent := new(big.Rat).SetFrac64(-int64(d), int64(halfLife))
	whole := new(big.Int).Div(exponent.Num(), exponent.Denom())    // rounded down
	fraction := exponent.Sub(exponent, new(big.Rat).SetInt(whole)) // at least 0, less than 1
	x, root := newFloat(1), newFloat(2)
	two, one := big.NewRat(2, 1), big.NewRat(1, 1)
	for range decayPrecision { // step k: the k-th binary digit of fraction, and the root 2^(2^-k)
		root.Sqrt(root)
		if fraction.Mul(fraction, two).Cmp(one) >= 0 {
			fraction.Sub(fraction, one)
			x.Mul(x, root)
		}
	}
	return x.SetMantExp(x, int(whole.Int64()))
}

func newFloat(x float64) *big.Float { return new(big.Float).SetPrec(decayPrecision).SetFloat64(x) }

func powers(x *big.Float, n int) []*big.Float {
	all := []*big.Float{newFloat(1)}
	for i := range n {
		all = append(all, newFloat(0).Mul(all[i], x))
	}
	return all
}

// decayTables has the factors of a result's weight. days[n] is the weight after n days. seconds[n]
// is the factor for a result n seconds after midnight.
type decayTables struct{ days, seconds []*big.Float }

func newDecayTables() decayTables {
	return decayTables{powers(decayWeight(24*time.Hour), 60_000), powers(decayWeight(-time.Second), 86_400)}
}

// decayedSums returns each user's sum of decayed points at the time at, which must be a midnight.
func (d decayTables) decayedSums(results []Result, at time.Time) map[string]*big.Float {
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

// x must not be negative.
func roundToInteger(x *big.Float) int64 {
	n, _ := new(big.Float).Add(x, newFloat(0.5)).Int64()
	return n
}

// agreement returns the number of leading bits in which x and y agree.
func agreement(x, y *big.Float) int {
	difference := new(big.Float).Sub(x, y)
	if difference.Sign() == 0 {
		return decayPrecision
	}
	return max(x.MantExp(nil), y.MantExp(nil)) - difference.MantExp(nil)
}

// decayLadder ranks users by their sums in values. closest is the largest agreement of two adjacent
// sums with different ranks.
func decayLadder(results []Result, values map[string]*big.Float) (want []standing, closest int) {
	want = ladder(recountSums(results), func(x, y *standing) int {
		if agreement(values[x.user], values[y.user]) >= decaySame {
			return 0
		}
		return values[y.user].Cmp(values[x.user])
	})
	for i := range want {
		want[i].score = roundToInteger(values[want[i].user])
		if i > 0 && want[i].rank["dense"] != want[i-1].rank["dense"] {
			closest = max(closest, agreement(values[want[i].user], values[want[i-1].user]))
		}
	}
	return want, closest
}

// DecayMoments are the ends of the seasons that Decay checks. The later they are, the more results they have.
var DecayMoments = []string{"1900-01-01", "1940-01-01", "1970-07-01", "1998-07-13", "2020-01-01"}

// Decay checks boards of decaying football points: 3 for a win and 1 for a draw, with a half-life
// of a year. A board for each moment has a season that has ended. One more board has a season
// without end, with scores at the time of the answer; it has the last results, at most recent.
func Decay(t *testing.T, d Deployment, moments []string, recent int) {
	c := d.client()
	results := footballResults(readFootball(t), 3*decayUnit, decayUnit)
	tables := newDecayTables()
	settings := board{
		ID: "decay", Title: "Football, trending", Order: "HIGHER_FIRST", Policy: "DECAY", HalfLife: "31557600s",
		Unit: "points", Decimals: decayDecimals,
	}
	first := results[0].AchievedAt.Truncate(24 * time.Hour)
	for _, moment := range moments {
		t.Run(moment, func(t *testing.T) {
			end, err := time.Parse(time.DateOnly, moment)
			if err != nil {
				t.Fatal(err)
			}
			n := slices.IndexFunc(results, func(r Result) bool { return !r.AchievedAt.Before(end) })
			if n < 0 {
				n = len(results)
			}
			played := results[:n]
			dated := settings
			dated.ID += "-" + moment
			dated.Season = schedule{Schedule: "EXPLICIT", Windows: []window{{ID: "until " + moment, Start: first, End: end}}}
			b := c.createBoard(t, dated)
			if err := d.Feeder(t.Context(), b, played); err != nil {
				t.Fatal(err)
			}
			want, closest := decayLadder(played, tables.decayedSums(played, end))
			if closest > decayApart {
				t.Fatalf("two different sums agree in %d bits, want at most %d: the recount cannot order them", closest, decayApart)
			}
			for _, m := range methods {
				readRecounted(t, c, query{board: b, season: dated.Season.Windows[0].ID, method: m}, want)
			}
			t.Logf("%d results of %d teams: compared the order and %d decimals; different sums agree in at most %d bits; the first team is %s with %.9f",
				n, len(want), decayDecimals, closest, want[0].user, float64(want[0].score)/decayUnit)
		})
	}
	t.Run("now", func(t *testing.T) {
		settings.ID += "-now"
		settings.Season.Schedule = "NONE"
		b := c.createBoard(t, settings)
		results := results[max(0, len(results)-recent):]
		if err := d.Feeder(t.Context(), b, results); err != nil {
			t.Fatal(err)
		}
		midnight := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		values := tables.decayedSums(results, midnight)
		want, _ := decayLadder(results, values)
		for _, m := range methods {
			before := time.Now()
			entries, err := c.list(t.Context(), query{board: b, method: m})
			if err != nil {
				t.Fatal(err)
			}
			after := time.Now()
			highestWeight, lowestWeight := decayWeight(before.Sub(midnight)), decayWeight(after.Sub(midnight))
			if len(entries) != len(want) {
				t.Fatalf("%d entries, want %d", len(entries), len(want))
			}
			for i, e := range entries {
				// The service computes the score at a time from before to after, rounded down to
				// microseconds. Rounding makes the time earlier, and the score at most one higher.
				v := values[want[i].user]
				low, high := roundToInteger(newFloat(0).Mul(v, lowestWeight)), roundToInteger(newFloat(0).Mul(v, highestWeight))+1
				if e.Score < low || e.Score > high {
					t.Errorf("entry is %s, want a score from %d to %d", e.line(), low, high)
				}
				want[i].score = e.Score
			}
			if err := compareLadder(want, entries, m); err != nil {
				t.Errorf("%s: %v", m, err)
			}
		}
	})
}
