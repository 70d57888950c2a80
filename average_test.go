package leaderboard

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/seed"
)

// averaged returns a tally whose sum of points is sum, and the mean.
func averaged(sum *big.Int, n int64) (Tally, *big.Rat) {
	low := new(big.Int).And(sum, new(big.Int).SetUint64(1<<64-1)).Uint64()
	high := new(big.Int).Rsh(sum, 64).Int64()
	if int64(low) < 0 {
		high++ // low counts as negative
	}
	return Tally{results: n, score: Score(low), overflow: high}, new(big.Rat).SetFrac(sum, big.NewInt(n))
}

// randomMean returns means that are often equal, close to each other, or close to a half.
func randomMean(rng *rand.Rand) (Tally, *big.Rat) {
	n := []int64{1, 2, 3, 4, 7, 10, 1 << 31, maxAveraged - 1, maxAveraged}[rng.IntN(9)]
	mean := []int64{0, 1, -1, 7, -7, 1 << 53, -1 << 53}[rng.IntN(7)]
	offset := []int64{0, 1, -1, n / 2, -n / 2, n/2 + 1, n - 1}[rng.IntN(7)]
	if mean == 1<<53 && offset > 0 || mean == -1<<53 && offset < 0 {
		offset = -offset
	}
	sum := new(big.Int).Mul(big.NewInt(mean), big.NewInt(n))
	return averaged(sum.Add(sum, big.NewInt(offset)), n)
}

// rounded returns the nearest integer, a half away from zero.
func rounded(x *big.Rat) int64 {
	text := x.FloatString(0) // as documented, "rounded away from zero"
	n, _ := new(big.Int).SetString(text, 10)
	return n.Int64()
}

func ceiling(x *big.Rat) int64 {
	floor := new(big.Int).Div(new(big.Int).Neg(x.Num()), x.Denom())
	return new(big.Int).Neg(floor).Int64()
}

func TestAveragesAreExact(t *testing.T) {
	runSeed := seed.New(t)
	rng := rand.New(rand.NewPCG(runSeed, 4))
	for range 20_000 {
		b := Board{ID: "b", Policy: Average, Order: Order(rng.IntN(2))}
		tx, x := randomMean(rng)
		ty, y := randomMean(rng)
		kx, ky := b.RankKey(&tx), b.RankKey(&ty)
		want := x.Cmp(y)
		if b.Order == HigherFirst {
			want = -want
		}
		if got := strings.Compare(string(kx), string(ky)); got != want || len(kx) != b.RankKeyBytes() {
			t.Fatalf("seed %d: %v: the keys of the means %v and %v compare as %d, want %d", runSeed, b.Order, x, y, got, want)
		}
		if got := b.ScoreOf(kx, received); int64(got) != rounded(x) {
			t.Fatalf("seed %d: ScoreOf of the mean %v = %d, want %d", runSeed, x, got, rounded(x))
		}
		if got := b.ExactScoreOf(kx, received); got != decimal(x) {
			t.Fatalf("seed %d: ExactScoreOf of the mean %v = %q, want %q", runSeed, x, got, decimal(x))
		}
		gap := int64(0)
		if want > 0 {
			gap = ceiling(new(big.Rat).Abs(new(big.Rat).Sub(x, y)))
		}
		if got := b.Gap(kx, ky, received); int64(got) != gap {
			t.Fatalf("seed %d: %v: Gap from the mean %v to %v = %d, want %d", runSeed, b.Order, x, y, got, gap)
		}
		for s := rounded(y) - 1; s <= rounded(y)+1; s++ {
			checkMeanBounds(t, &b, kx, x, s)
		}
	}
}

func checkMeanBounds(t *testing.T, b *Board, k RankKey, x *big.Rat, s int64) {
	t.Helper()
	better := func(c int) bool { return c > 0 && b.Order == HigherFirst || c < 0 && b.Order == LowerFirst }
	first, beyond := b.ScoreBounds(Score(s), received)
	exact := x.Cmp(new(big.Rat).SetInt64(s))
	nearest := new(big.Rat).SetInt64(rounded(x)).Cmp(new(big.Rat).SetInt64(s))
	got := []bool{k < b.ScorePrefix(Score(s), received), k < first, k >= beyond}
	if want := []bool{better(nearest), better(exact), exact != 0 && !better(exact)}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%v: the mean %v is below the prefix of the score %d, below its first bound, and not below its last: %v, want %v", b.Order, x, s, got, want)
	}
}

func decimal(x *big.Rat) string {
	text := x.FloatString(20)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

func TestAverageOfSumsBeyond64Bits(t *testing.T) {
	for _, score := range []Score{MaxScore, -MaxScore, MaxScore - 1} {
		b := Board{ID: "b", Policy: Average}
		var tally Tally
		const n = 5000 // the sum is above 2^65
		for i := range n {
			r := result(fmt.Sprint(i), 0, score)
			tally = b.Add(tally, &r)
		}
		data, err := tally.AppendBinary(nil)
		var decoded Tally
		if err != nil || decoded.UnmarshalBinary(data) != nil {
			t.Fatalf("the tally %+v cannot be encoded and decoded", tally)
		}
		if again, _ := decoded.AppendBinary(nil); tally.overflow == 0 || !bytes.Equal(data, again) {
			t.Fatalf("the tally %+v is decoded as %+v", tally, decoded)
		}
		for i := range n { // back to a small sum
			if got, want := b.ExactScoreOf(b.RankKey(&decoded), received), averageText(n, i, score); got != want {
				t.Fatalf("after %d results of %d and %d of 0: mean %s, want %s", n, score, i, got, want)
			}
			r := result("zero", 0, 0)
			decoded = b.Add(decoded, &r)
		}
	}
}

func averageText(n, zeros int, score Score) string {
	sum := new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(int64(score)))
	return decimal(new(big.Rat).SetFrac(sum, big.NewInt(int64(n+zeros))))
}

func TestAverageRefusesMoreResultsThanItRanksExactly(t *testing.T) {
	b := Board{ID: "b", Policy: Average}
	full := Known{Tally: Tally{results: maxAveraged}}
	if d := b.Merge(full, result("new", 0, 1)); d.Reason != ReasonRange {
		t.Errorf("a result beyond the limit: %v %v, want %v", d.Status, d.Reason, ReasonRange)
	}
	old := result("old", 0, 1)
	full.Result = &old
	if d := b.Merge(full, result("old", 1, 2)); d.Status != Applied {
		t.Errorf("a correction at the limit: %v %v, want %v", d.Status, d.Reason, Applied)
	}
}

func TestDamagedAverageHasAKey(t *testing.T) {
	b := Board{ID: "b", Policy: Average}
	rng := rand.New(rand.NewPCG(seed.New(t), 5))
	for range 1000 {
		key := RankKey(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, rng.Uint64()), rng.Uint64()>>rng.IntN(64)))
		if text := b.ExactScoreOf(key, received); text == "" {
			t.Errorf("ExactScoreOf of the damaged key %x is empty", key)
		}
	}
	for _, tally := range []Tally{{results: 1, overflow: 1 << 40}, {results: -5, overflow: -7}, {results: 3, score: -1 << 63, overflow: -1}} {
		if key := b.RankKey(&tally); len(key) != b.RankKeyBytes() {
			t.Errorf("the key of %+v has %d bytes", tally, len(key))
		}
	}
}
