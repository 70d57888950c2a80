package cli

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/seed"
)

func TestFormatUsesTheBoardsUnit(t *testing.T) {
	tests := []struct {
		unit  Unit
		score int64
		want  string
	}{
		{Unit{"points", 0}, 12, "12 points"},
		{Unit{"", 0}, -3, "-3"},
		{Unit{"EUR", 2}, 1234, "12.34 EUR"},
		{Unit{"EUR", 2}, -5, "-0.05 EUR"},
		{Unit{"EUR", 2}, 0, "0.00 EUR"},
		{Unit{"s", 0}, 7717, "2:08:37"},
		{Unit{"s", 0}, 59, "59 s"},
		{Unit{"s", 0}, 60, "1:00"},
		{Unit{"s", 2}, 958, "9.58 s"},
		{Unit{"s", 2}, 10123, "1:41.23"},
		{Unit{"s", 0}, -61, "-1:01"},
		{Unit{"ms", 0}, 83456, "1:23.456"},
		{Unit{"ms", 0}, 7, "0.007 s"},
		{Unit{"points", 9}, math.MinInt64, "-9223372036.854775808 points"},
	}
	for _, tt := range tests {
		if got := tt.unit.FormatWithUnit(tt.score); got != tt.want {
			t.Errorf("%+v.FormatWithUnit(%d) = %q, want %q", tt.unit, tt.score, got, tt.want)
		}
	}
}

func TestParseReadsWhatFormatWrites(t *testing.T) {
	runSeed := seed.New(t)
	r := rand.New(rand.NewPCG(runSeed, 0))
	for range 10_000 {
		u := Unit{[]string{"", "points", "s"}[r.IntN(3)], r.IntN(10)}
		score := r.Int64N(1<<54) - 1<<53
		if r.IntN(2) == 0 {
			score = r.Int64N(20_000) - 10_000
		}
		if got, err := u.Parse(u.Format(score)); err != nil || got != score {
			t.Fatalf("seed %d: %+v formats %[3]d as %[4]q and parses %[4]q as %[5]d, error %[6]v; want %[3]d", runSeed, u, score, u.Format(score), got, err)
		}
	}
}

func TestParseRejectsOtherTexts(t *testing.T) {
	for _, tt := range []struct {
		unit       Unit
		text, want string
	}{
		{Unit{"", 0}, "", "not a number"}, {Unit{"", 0}, "NaN", "not a number"}, {Unit{"", 0}, "Infinity", "not a number"},
		{Unit{"", 0}, "1e3", "not a number"}, {Unit{"", 0}, "0x10", "not a number"}, {Unit{"", 0}, "1,000", "not a number"},
		{Unit{"", 0}, " 1", "not a number"}, {Unit{"", 0}, "+1", "not a number"}, {Unit{"", 0}, "--1", "not a number"},
		{Unit{"", 0}, ".", "not a number"}, {Unit{"", 0}, "1.", "not a number"}, {Unit{"", 0}, ".5", "not a number"},
		{Unit{"", 0}, "1.5", "not a whole number"}, {Unit{"", 2}, "1.555", "more than 2 decimals"},
		{Unit{"", 0}, "9223372036854775808", "too large"}, {Unit{"", 0}, strings.Repeat("9", 1000), "too large"},
		{Unit{"s", 0}, "1:60", "not a time"}, {Unit{"s", 0}, "1:2", "not a time"}, {Unit{"s", 0}, "1:02:03:04", "not a time"},
		{Unit{"s", 0}, ":30", "not a time"}, {Unit{"s", 0}, "1:-5", "not a time"}, {Unit{"s", 0}, "1:02.5", "not a whole number"},
		{Unit{"", 0}, "١", "not a number"},
	} {
		if got, err := tt.unit.Parse(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v.Parse(%.20q) = %d, %v; want an error with %q", tt.unit, tt.text, got, err, tt.want)
		}
	}
	for text, want := range map[string]int64{"5.0": 5, "-0": 0, "007": 7, "2:08:37": 7717} {
		if got, err := (Unit{"s", 0}).Parse(text); err != nil || got != want {
			t.Errorf("Parse(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	if got, err := (Unit{"ms", 0}).Parse("1:23.456"); err != nil || got != 83456 {
		t.Errorf("Parse(1:23.456) with the unit ms = %d, %v; want 83456", got, err)
	}
}
