package main

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestScoresAreShownInTheBoardsUnit(t *testing.T) {
	tests := []struct {
		unit  unit
		score int64
		want  string
	}{
		{unit{"points", 0}, 12, "12 points"},
		{unit{"", 0}, -3, "-3"},
		{unit{"EUR", 2}, 1234, "12.34 EUR"},
		{unit{"EUR", 2}, -5, "-0.05 EUR"},
		{unit{"EUR", 2}, 0, "0.00 EUR"},
		{unit{"s", 0}, 7717, "2:08:37"},
		{unit{"s", 0}, 59, "59 s"},
		{unit{"s", 0}, 60, "1:00"},
		{unit{"s", 2}, 958, "9.58 s"},
		{unit{"s", 2}, 10123, "1:41.23"},
		{unit{"s", 0}, -61, "-1:01"},
		{unit{"ms", 0}, 83456, "1:23.456"},
		{unit{"ms", 0}, 7, "0.007 s"},
		{unit{"points", 9}, math.MinInt64, "-9223372036.854775808 points"},
	}
	for _, tt := range tests {
		if got := tt.unit.withUnit(tt.score); got != tt.want {
			t.Errorf("%+v.withUnit(%d) = %q, want %q", tt.unit, tt.score, got, tt.want)
		}
	}
}

func TestScoresAreReadAsTheyAreShown(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 10_000 {
		u := unit{[]string{"", "points", "s"}[r.IntN(3)], r.IntN(10)}
		score := r.Int64N(1<<54) - 1<<53
		if r.IntN(2) == 0 {
			score = r.Int64N(20_000) - 10_000
		}
		if got, err := u.parse(u.format(score)); err != nil || got != score {
			t.Fatalf("seed %d: %+v shows %d as %q and reads that as %d, %v", seed, u, score, u.format(score), got, err)
		}
	}
}

func TestScoresThatAreNone(t *testing.T) {
	for _, tt := range []struct {
		unit       unit
		text, want string
	}{
		{unit{"", 0}, "", "not a number"}, {unit{"", 0}, "NaN", "not a number"}, {unit{"", 0}, "Infinity", "not a number"},
		{unit{"", 0}, "1e3", "not a number"}, {unit{"", 0}, "0x10", "not a number"}, {unit{"", 0}, "1,000", "not a number"},
		{unit{"", 0}, " 1", "not a number"}, {unit{"", 0}, "+1", "not a number"}, {unit{"", 0}, "--1", "not a number"},
		{unit{"", 0}, ".", "not a number"}, {unit{"", 0}, "1.", "not a number"}, {unit{"", 0}, ".5", "not a number"},
		{unit{"", 0}, "1.5", "not a whole number"}, {unit{"", 2}, "1.555", "more than 2 decimals"},
		{unit{"", 0}, "9223372036854775808", "too large"}, {unit{"", 0}, strings.Repeat("9", 1000), "too large"},
		{unit{"s", 0}, "1:60", "not a time"}, {unit{"s", 0}, "1:2", "not a time"}, {unit{"s", 0}, "1:02:03:04", "not a time"},
		{unit{"s", 0}, ":30", "not a time"}, {unit{"s", 0}, "1:-5", "not a time"}, {unit{"s", 0}, "1:02.5", "not a whole number"},
		{unit{"", 0}, "١", "not a number"},
	} {
		if got, err := tt.unit.parse(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v.parse(%.20q) = %d, %v; want an error that it is %s", tt.unit, tt.text, got, err, tt.want)
		}
	}
	for text, want := range map[string]int64{"5.0": 5, "-0": 0, "007": 7, "2:08:37": 7717} {
		if got, err := (unit{"s", 0}).parse(text); err != nil || got != want {
			t.Errorf("parse(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	if got, err := (unit{"ms", 0}).parse("1:23.456"); err != nil || got != 83456 {
		t.Errorf("1:23.456 on a board of ms = %d, %v; want 83456", got, err)
	}
}
