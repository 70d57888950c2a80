package importer

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/records"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("one call follows another")

func FuzzImportRow(f *testing.F) {
	f.Add([]byte("user_id,points,match_id,revision,achieved_at,attributes,tie_breakers,metadata,retracted,season\nada,3,m,1,2026-01-02,\"{\"\"a\"\":\"\"b\"\"}\",[1],{},true,all\n"), false, "2006-01-02")
	f.Add([]byte(`{"user_id":"ada","points":"1:02:03.5","tie_breakers":[1,-2],"attributes":{"a":"b"},"metadata":{"x":[null]}}`), true, "rfc3339")
	f.Add([]byte(`{"user_id":{},"points":1e99,"achieved_at":"\ud800"}`), true, "unix_ms")
	f.Fuzz(func(t *testing.T, input []byte, asJSON bool, timeFormat string) {
		format := "csv"
		if asJSON {
			format = "ndjson"
		}
		rows, err := records.Open(bytes.NewReader(input), records.Options{Format: format})
		if err != nil {
			return
		}
		m := mapping{
			User: "user_id", Score: "points", Match: "match_id", Revision: "revision", AchievedAt: "achieved_at", TimeFormat: timeFormat,
			Metadata: map[string]string{"note": "note"}, Attributes: map[string]string{"a": "a.b"}, TieBreakers: map[string]string{"wins": "wins"},
			constants: map[string]string{"metadata.source": "mat"}, unit: cli.Unit{Name: "s", Decimals: 1}, tieBreakers: []string{"losses", "wins"}, location: time.UTC, usesPoints: true,
			conditions: []condition{{column: "kind", value: "x", negated: true}},
		}
		for {
			r, err := rows.Next()
			if err != nil {
				return
			}
			if r.Err != nil || !m.matches(r) {
				continue
			}
			it, err := m.item(r, "prefix")
			if err != nil {
				continue
			}
			if _, err := proto.Marshal(it.result); err != nil || it.result.GetUserId() == "" || it.result.GetMatchId() == "" {
				t.Fatalf("row %q: the result %v lacks an id, or cannot be encoded: error %v", r.Raw, it.result, err)
			}
		}
	})
}
