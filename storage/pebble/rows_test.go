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
	return newBoard(b, 7)
}

// Each fuzz test checks that a decoder does not panic, and that a decoded value stays equal when it
// is encoded and decoded again.

func FuzzUserRow(f *testing.F) {
	bd := rowBoard()
	r := testResult("u", "m", 3, -5)
	r.TieBreakers = []int64{1 << 53}
	row := userRow{version: math.MaxUint64, hidden: true, erasedAt: testEpoch}
	row.tally = bd.Add(row.tally, &r)
	for _, row := range []userRow{{}, row, {matches: matchSet{known: true}}, {matches: matchSet{true, []uint16{7, 65535}}}} {
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
			t.Fatalf("the value %+v, encoded and decoded again, is %+v, error %v; want equal values", row, again, err)
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
			t.Fatalf("the value %+v, encoded and decoded again, is %+v, error %v; want equal values", rec, again, err)
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
	rowKey := makeSeasonRowKey(bd.number, "all")
	for _, p := range bd.placements(rowKey, &e) {
		f.Add(p.key[len(rowKey)+1:], p.value)
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
		p := bd.placements(rowKey, &e)[0]
		slot, sortKey, ok = cutSlot(p.key[len(rowKey)+1:])
		again, err := bd.decodeEntry("all", slot, sortKey, p.value)
		if d := cmp.Diff(e, again); d != "" || err != nil || !ok {
			t.Fatalf("an entry differs after it is encoded and decoded again, want equal entries; error %v (-first +again):\n%s", err, d)
		}
	})
}

func FuzzSeasonKey(f *testing.F) {
	f.Add(appendSeasonKey(nil, 7, "202611"))
	f.Fuzz(func(t *testing.T, b []byte) {
		number, season, rest, ok := parseSeasonKey(b)
		if !ok {
			return
		}
		number2, season2, rest2, ok := parseSeasonKey(append(appendSeasonKey(nil, number, season), rest...))
		if !ok || number != number2 || season != season2 || !bytes.Equal(rest, rest2) {
			t.Fatalf("number %d, season %q and rest %q, encoded and parsed again, are %d, %q and %q; want equal values", number, season, rest, number2, season2, rest2)
		}
	})
}

// No key of one user, ladder or season begins with the prefix of another. A slot is the part of a
// key that names a ladder.
func TestKeysOfOnePrefixAreOfOneObject(t *testing.T) {
	long := leaderboard.UserID(bytes.Repeat([]byte("z"), leaderboard.MaxIDBytes))
	ids := []leaderboard.UserID{"a", "aa", "a\u00ff", "\u007f", long, long[1:] + "y"}
	rowKey := makeSeasonRowKey(1, "s1")
	for _, x := range ids {
		for _, y := range ids {
			if x != y && bytes.HasPrefix(rowKey.records(y), rowKey.records(x)) {
				t.Errorf("the keys of the records of %q start with the prefix of the records of %q, want another prefix", y, x)
			}
			if x != y && bytes.HasPrefix(seasonsPrefix(y), seasonsPrefix(x)) {
				t.Errorf("the keys of the seasons of user %q start with the prefix of the seasons of user %q, want another prefix", y, x)
			}
			sx, sy := divisionSlot(0, string(x)), divisionSlot(0, string(y))
			if x != y && bytes.HasPrefix(rowKey.ladder(sy), rowKey.ladder(sx)) {
				t.Errorf("the keys of the ladder of %q start with the prefix of the ladder of %q, want another prefix", y, x)
			}
		}
	}
	if bytes.HasPrefix(makeSeasonRowKey(1, "s10"), makeSeasonRowKey(1, "s1")) {
		t.Error("the keys of season s10 start with the prefix of season s1, want another prefix")
	}
	for _, tt := range []struct{ prefix, want []byte }{
		{[]byte{1}, []byte{2}}, {[]byte{1, 0xff}, []byte{2}}, {[]byte{1, 2, 0xff, 0xff}, []byte{1, 3}},
	} {
		if got := keyAfter(tt.prefix); !bytes.Equal(got, tt.want) {
			t.Errorf("keyAfter(%x) = %x, want %x", tt.prefix, got, tt.want)
		}
	}
	if _, _, ok := cutSlot([]byte{slotDivision, 0, 5, 'a'}); ok {
		t.Error("cutSlot accepts a slot whose value has the length 5 but only 1 byte, want ok false")
	}
}
