package pebble

import (
	"bytes"
	"math"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

func rowBoard() *board {
	b := *testBoard()
	b.Divisions = []string{"gender", "country"}
	b.TieBreakers = []leaderboard.TieBreaker{{Name: "wins"}}
	return &board{Board: b, number: 7}
}

// A fuzzed decoder must not panic, and what it makes of bytes must survive
// being written and read again.
func FuzzUserRow(f *testing.F) {
	bd := rowBoard()
	r := testResult("u", "m", 3, -5)
	r.TieBreakers = []int64{1 << 53}
	row := userRow{version: math.MaxUint64, hidden: true, erasedAt: testEpoch}
	row.tally = bd.Add(row.tally, &r)
	for _, row := range []userRow{{}, row} {
		b, err := row.append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var row, again userRow
		if row.decode(b) != nil {
			return
		}
		b, err := row.append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.decode(b); err != nil || !reflect.DeepEqual(row, again) {
			t.Fatalf("%+v is read as %+v, %v", row, again, err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	r := testResult("u", "m", 3, -5)
	refusal := leaderboard.Refusal{Revision: 1, Reason: leaderboard.ReasonFloor, Content: r.ContentID(), ReceivedAt: testEpoch}
	for _, rec := range []leaderboard.Record{{}, {Result: &r}, {Refusals: []leaderboard.Refusal{refusal, refusal}}, {Result: &r, Refusals: []leaderboard.Refusal{refusal}}} {
		f.Add(appendRecord(nil, &rec))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rec, err := decodeRecord(r.ResultKey, b)
		if err != nil {
			return
		}
		again, err := decodeRecord(r.ResultKey, appendRecord(nil, &rec))
		if err != nil || !reflect.DeepEqual(rec, again) {
			t.Fatalf("%+v is read as %+v, %v", rec, again, err)
		}
	})
}

func FuzzErasure(f *testing.F) {
	f.Add(erasure{testEpoch, 5}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e, again erasure
		if e.decode(b) != nil {
			return
		}
		if err := again.decode(e.append(nil)); err != nil || e != again {
			t.Fatalf("%+v is read as %+v, %v", e, again, err)
		}
	})
}

func FuzzLadderRow(f *testing.F) {
	bd := rowBoard()
	tally := leaderboard.Tally{}
	r := testResult("u/\u00e9", "m", 3, -5)
	tally = bd.Add(tally, &r)
	e := bd.Entry(&tally, "all", r.User)
	e.Version = 9
	scope := makeScopeKey(bd.number, "all")
	for _, p := range bd.placements(scope, &e) {
		f.Add(p.key[len(scope)+1:], p.value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		slot, sortKey, ok := cutSlot(key)
		if !ok {
			return
		}
		e, err := bd.decodeEntry("all", slot, sortKey, value)
		if err != nil {
			return
		}
		e.Hidden = false
		p := bd.placements(scope, &e)[0]
		slot, sortKey, ok = cutSlot(p.key[len(scope)+1:])
		again, err := bd.decodeEntry("all", slot, sortKey, p.value)
		if d := cmp.Diff(e, again); d != "" || err != nil || !ok {
			t.Fatalf("%v: %s", err, d)
		}
	})
}

func FuzzStanding(f *testing.F) {
	bd := rowBoard()
	st := leaderboard.Standing{User: "u", Key: leaderboard.RankKey(bytes.Repeat([]byte{1}, bd.RankKeyBytes())), AchievedAt: testEpoch,
		Ranks: leaderboard.Ranks{Competition: 3, Dense: 2, Ordinal: 4}}
	f.Add(appendStanding(nil, &st))
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := bd.decodeStanding(4, b)
		if err != nil {
			return
		}
		again, err := bd.decodeStanding(4, appendStanding(nil, &st))
		if err != nil || st != again {
			t.Fatalf("%+v is read as %+v, %v", st, again, err)
		}
	})
}

func FuzzScope(f *testing.F) {
	f.Add(appendScope(nil, 7, "202611"))
	f.Fuzz(func(t *testing.T, b []byte) {
		number, season, rest, ok := parseScope(b)
		if !ok {
			return
		}
		number2, season2, rest2, ok := parseScope(append(appendScope(nil, number, season), rest...))
		if !ok || number != number2 || season != season2 || !bytes.Equal(rest, rest2) {
			t.Fatalf("%d %q %q is read as %d %q %q", number, season, rest, number2, season2, rest2)
		}
	})
}

// Keys of one prefix are those of one thing, and sort as they should.
func TestKeys(t *testing.T) {
	long := leaderboard.UserID(bytes.Repeat([]byte("z"), leaderboard.MaxIDBytes))
	ids := []leaderboard.UserID{"a", "aa", "a\u00ff", "\u007f", long, long[1:] + "y"}
	scope := makeScopeKey(1, "s1")
	for _, x := range ids {
		for _, y := range ids {
			if x != y && bytes.HasPrefix(scope.records(y), scope.records(x)) {
				t.Errorf("records of %q begin as those of %q", y, x)
			}
			if x != y && bytes.HasPrefix(scopesPrefix(y), scopesPrefix(x)) {
				t.Errorf("scopes of %q begin as those of %q", y, x)
			}
			sx, sy := divisionSlot(0, string(x)), divisionSlot(0, string(y))
			if x != y && bytes.HasPrefix(scope.ladder(sy), scope.ladder(sx)) {
				t.Errorf("ladder of %q begins as that of %q", y, x)
			}
		}
	}
	if bytes.HasPrefix(makeScopeKey(1, "s10"), makeScopeKey(1, "s1")) {
		t.Error("season s10 begins as s1")
	}
	for _, tt := range []struct{ prefix, want []byte }{
		{[]byte{1}, []byte{2}}, {[]byte{1, 0xff}, []byte{2}}, {[]byte{1, 2, 0xff, 0xff}, []byte{1, 3}},
	} {
		if got := after(tt.prefix); !bytes.Equal(got, tt.want) {
			t.Errorf("after(%x) = %x, want %x", tt.prefix, got, tt.want)
		}
	}
	if x, y := scope.finalPlace(1, []byte{slotOverall}, 255), scope.finalPlace(1, []byte{slotOverall}, 256); bytes.Compare(x, y) >= 0 {
		t.Errorf("position 255 at %x, 256 at %x", x, y)
	}
	if _, _, ok := cutSlot([]byte{slotDivision, 0, 5, 'a'}); ok {
		t.Error("cutSlot reads past the end")
	}
}
