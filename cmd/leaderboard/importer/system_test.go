package importer

import (
	"bytes"
	"math"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/records"
)

func FuzzSystemRow(f *testing.F) {
	f.Add([]byte("leaderboard_id,owner_id,score,subscore,update_time,expiry_time\nw,a,5,7,2026-11-02 15:30:00+05:30,1970-01-01 00:00:00+00\n"), uint8(0))
	f.Add([]byte(`{"data":{"Rankings":[{"Entity":{"Id":"E"},"Scores":["7","-1",""],"LastUpdated":"x"},{"PlayFabId":"A","StatValue":3}]}}`), uint8(1))
	f.Add([]byte(`{"members":[{"publicID":"a","score":1e3,"rank":-1},{"publicID":[],"score":"\ud800"}]}`), uint8(2))
	f.Fuzz(func(t *testing.T, input []byte, n uint8) {
		s, err := systemOf(systemNames[int(n)%len(systemNames)], time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		r, err := records.Open(bytes.NewReader(input), records.Options{Format: s.format, Arrays: s.arrays})
		if err != nil {
			return
		}
		if r, err = s.read(r); err != nil {
			return
		}
		m := mapping{User: "user_id", Score: "score", Match: "match_id", Revision: "revision", AchievedAt: "achieved_at", TimeFormat: "rfc3339", location: time.UTC, needMatch: true}
		for {
			rec, err := r.Next()
			if err != nil {
				return
			}
			if rec.Err != nil {
				continue
			}
			it, err := m.item(rec, "")
			if err != nil {
				continue
			}
			if _, err := proto.Marshal(it.result); err != nil || it.result.GetUserId() == "" || it.result.GetMatchId() == "" || it.result.Score == nil && !it.retract {
				t.Fatalf("record %q: the result %v lacks an id or a score, or cannot be encoded: error %v", rec.Raw, it.result, err)
			}
		}
	})
}

func FuzzRedisScore(f *testing.F) {
	for _, text := range []string{"1", "-9007199254740992", "9007199254740994", "1e300", "inf", "-nan", "0.10000000000000001", "3.1000000000000001", "0x1p-2", "1_000", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		short, err := scoreText(text)
		if err != nil {
			return
		}
		want, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("scoreText(%q) = %q, want an error: %v", text, short, err)
		}
		if got, err := strconv.ParseFloat(short, 64); err != nil || got != want || math.Abs(got) > float64(leaderboard.MaxScore) {
			t.Fatalf("scoreText(%q) = %q, which is %v, error %v; want %v, within 2^53", text, short, got, err, want)
		}
	})
}
