package cql

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
)

var codecSeasonKey = leaderboard.SeasonKey{Board: "b", Season: "s"}

func FuzzDecodeAccount(f *testing.F) {
	for _, a := range []account{{}, {Serial: 3, Hidden: true}, {Serial: 1, Epoch: 2, Base: 1 << 54, ErasedAt: time.UnixMicro(-1).UTC()}} {
		f.Add(a.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAccount(b)
		checkDecoded(t, b, err, func() []byte { return a.append(nil) })
	})
}

func FuzzDecodeEntry(f *testing.F) {
	for _, e := range []leaderboard.Entry{
		{}, {Version: 7, Hidden: true},
		{Key: "12345678", AchievedAt: stepsEpoch, Match: "m", Metadata: "{}", Results: 3, Version: 1 << 60, Divisions: []leaderboard.Division{{Attribute: "team", Value: "red"}}},
	} {
		f.Add(appendEntry(nil, &e))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeEntry(codecSeasonKey, "u", b)
		checkDecoded(t, b, err, func() []byte { return appendEntry(nil, &e) })
	})
}

func checkDecoded(t *testing.T, b []byte, err error, encode func() []byte) {
	t.Helper()
	if err != nil {
		if !errors.Is(err, leaderboard.ErrFormat) {
			t.Errorf("error %v, want %v", err, leaderboard.ErrFormat)
		}
		return
	}
	if got := encode(); !bytes.Equal(got, b) {
		t.Errorf("the blob %x is decoded to a value whose encoding is %x, want the same bytes", b, got)
	}
}

func FuzzDecodeRefusal(f *testing.F) {
	r := leaderboard.Refusal{Revision: 5, Reason: leaderboard.ReasonInvalid, ReceivedAt: stepsEpoch}
	f.Add(refusalItem(&r), appendRefusal(nil, &r))
	r.ReceivedAt = time.UnixMicro(-5).UTC()
	f.Add(refusalItem(&r), appendRefusal(nil, &r))
	f.Fuzz(func(t *testing.T, item, b []byte) {
		r, err := decodeRefusal(item, b)
		checkDecoded(t, append(bytes.Clone(item), b...), err, func() []byte { return append(refusalItem(&r), appendRefusal(nil, &r)...) })
	})
}

type oneRow struct {
	conn
	values []any
}

func (r oneRow) read(_ context.Context, _ op, dest []any, row func() bool) error {
	for i, v := range r.values {
		assign(dest[i], v)
	}
	row()
	return nil
}

func FuzzMatchRow(f *testing.F) {
	payload := (&leaderboard.MatchResult{Score: 5}).AppendPayload(nil)
	high, low := fingerprint(payload)
	f.Add(int8(kindResult), []byte{}, payload, high, low, resultTime(1, 3))
	f.Add(int8(kindContender), contenderItem(3, payload), payload, []byte{}, []byte{}, int64(1))
	f.Add(int8(kindRepair), []byte{1}, []byte{5}, []byte{}, []byte{}, int64(1))
	f.Add(int8(9), []byte{}, []byte{}, []byte{}, []byte{}, int64(0))
	f.Fuzz(func(t *testing.T, kind int8, item, payload, high, low []byte, written int64) {
		s := openTest(oneRow{values: []any{"m", kind, item, payload, high, low, written}}, Options{CacheUsers: -1})
		key := &userKey{codecSeasonKey, 0, "u"}
		_, err := s.eachMatch(t.Context(), key, op{selectUser, key.args()}, func(m *match, _ leaderboard.MatchID, _ uint64) bool {
			if m != nil {
				m.needsContender()
				m.version()
			}
			return true
		})
		if err != nil && !errors.Is(err, leaderboard.ErrFormat) {
			t.Errorf("error %v, want %v", err, leaderboard.ErrFormat)
		}
	})
}

func FuzzStatics(f *testing.F) {
	a := account{Serial: 1}
	f.Add(a.append(nil), make([]byte, 16))
	f.Add([]byte{}, []byte{1})
	f.Fuzz(func(t *testing.T, acc, owner []byte) {
		s := openTest(oneRow{values: []any{acc, map[string]any{"dc1": owner}, map[string]any{}}}, Options{DataCenter: "dc1", CacheUsers: -1})
		if _, err := s.readStatics(t.Context(), &userKey{codecSeasonKey, 0, "u"}); err != nil && !errors.Is(err, leaderboard.ErrFormat) {
			t.Errorf("error %v, want %v", err, leaderboard.ErrFormat)
		}
	})
}

func TestTimestamps(t *testing.T) {
	for _, version := range []uint64{0, 1, 2, 1 << 40, maxVersion} {
		if insertTime(version) <= deleteTime(version) {
			t.Errorf("version %d: the deletion at timestamp %[3]d removes the insertion at timestamp %[2]d, want it kept", version, insertTime(version), deleteTime(version))
		}
		if deleteTime(version+1) <= insertTime(version) {
			t.Errorf("version %d: the deletion of the next version does not remove the insertion, want it removed", version)
		}
		for _, timestamp := range []int64{insertTime(version), deleteTime(version)} {
			if c := versionCovering(timestamp); deleteTime(c) < timestamp || c > 0 && deleteTime(c-1) >= timestamp {
				t.Errorf("versionCovering(%d) = %[3]d, want %[2]d", timestamp, (timestamp+1)/2, c)
			}
		}
	}
	if insertTime(maxVersion) > sweepTime {
		t.Error("a deletion at sweepTime does not remove the insertion of the highest version, want it removed")
	}
	for _, x := range [][2]int64{{0, 0}, {0, 5}, {3, 1<<epochShift - 2}} {
		if got := revisionOf(resultTime(x[0], x[1])); got != x[1] {
			t.Errorf("revision %d of epoch %d is read from its timestamp as %d, want the same revision", x[1], x[0], got)
		}
	}
	if resultTime(1, 0) <= resultTime(0, 1<<epochShift-2) {
		t.Error("the highest revision of epoch 0 has a timestamp at or above that of revision 0 of epoch 1, want a smaller timestamp")
	}
}

func TestOpenTime(t *testing.T) {
	now := stepsEpoch.UnixMicro()
	order := []int64{openTime(0, -5), openTime(0, now), openTime(0, now+1000), openTime(1, 0), openTime(1, now), openTime(2, 1<<62), openTime(3, 0)}
	for i := 1; i < len(order); i++ {
		if order[i] <= order[i-1] {
			t.Errorf("timestamp %d follows timestamp %d, want increasing timestamps", order[i], order[i-1])
		}
	}
}

func TestEarlierRefusalPrevails(t *testing.T) {
	early := leaderboard.Refusal{ReceivedAt: time.UnixMicro(-1).UTC(), Reason: "a"}
	late := leaderboard.Refusal{ReceivedAt: time.UnixMicro(1).UTC(), Reason: "b"}
	if bytes.Compare(appendRefusal(nil, &early), appendRefusal(nil, &late)) <= 0 {
		t.Error("the later refusal has the greater bytes, want the earlier refusal to have them")
	}
}

func TestEntryRoundTrip(t *testing.T) {
	want := leaderboard.Entry{SeasonKey: codecSeasonKey, User: "u", Key: "12345678", AchievedAt: stepsEpoch, Match: "m", Metadata: "x", Results: 2, Version: 9,
		Hidden: true, Divisions: []leaderboard.Division{{Attribute: "team", Value: "red"}}}
	got, err := decodeEntry(codecSeasonKey, "u", appendEntry(nil, &want))
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, d)
	}
}
