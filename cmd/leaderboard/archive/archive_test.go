package archive

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// randomResult returns a result as an export has it.
func randomResult(rng *rand.Rand) *pb.ExportResultsResponse {
	r := &pb.Result{UserId: fmt.Sprintf("u'%d é", rng.IntN(9)), MatchId: fmt.Sprintf("m%d\\", rng.Int64()), Revision: rng.Int64N(1 << 42)}
	res := &pb.ExportResultsResponse{Season: "202610", Result: r}
	if res.Retracted = rng.IntN(4) == 0; res.Retracted {
		return res
	}
	r.Points = new([]int64{0, 1, -1, 1 << 53, -1 << 53, 1<<63 - 1, -1 << 63}[rng.IntN(7)])
	for range rng.IntN(4) {
		r.TieBreakers = append(r.TieBreakers, rng.Int64()-rng.Int64())
	}
	r.AchievedAt = timestamppb.New(time.UnixMicro(rng.Int64N(2e15) - 1e15))
	if rng.IntN(2) == 0 {
		r.Attributes = map[string]string{"gender": "F", "a\"b": "{\\u0000}"}
		r.Metadata, _ = structpb.NewStruct(map[string]any{"nul": "\x00", "n": rng.NormFloat64() * 1e300, "list": []any{nil, true, map[string]any{"": "\u2028"}}})
	}
	if rng.IntN(3) == 0 {
		r.Reset_, r.Status = new(true), new(pb.Result_DSQ)
	}
	return res
}

func TestResultsStayAsTheyAre(t *testing.T) {
	n := seed.New(t)
	rng := rand.New(rand.NewPCG(n, 0))
	var rows []resultRow
	var want []string
	for range 3000 {
		res := randomResult(rng)
		row, err := newResultRow("b", proto.CloneOf(res))
		if err != nil {
			t.Fatal(err)
		}
		line, err := client.ExportLine(res, "")
		if err != nil {
			t.Fatal(err)
		}
		rows, want = append(rows, row), append(want, string(line))
	}
	path := filepath.Join(t.TempDir(), "results.parquet")
	table, err := createTable[resultRow](filepath.Dir(path), filepath.Base(path))
	if err == nil {
		err = table.add(rows)
	}
	if err != nil {
		t.Fatal(err)
	}
	if info, err := table.complete(); err != nil || info.Rows != 3000 {
		t.Fatalf("complete: %+v, %v; want 3000 rows", info, err)
	}
	i := 0
	for row, err := range rowsOf[resultRow](path) {
		if err != nil {
			t.Fatal(err)
		}
		res, err := row.message(true)
		if err != nil {
			t.Fatal(err)
		}
		line, err := client.ExportLine(res, "")
		if err != nil || string(line) != want[i] {
			t.Fatalf("row %d: %v\ngot  %s\nwant %s", i, err, line, want[i])
		}
		i++
	}
	if i != len(want) {
		t.Errorf("read %d rows, want %d", i, len(want))
	}
}

func checkNumeric(t *testing.T, text string) {
	t.Helper()
	want, ok := new(big.Rat).SetString(text)
	n := numeric(text)
	if !n.Valid {
		t.Errorf("numeric(%q) is invalid", text)
		return
	}
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(n.Exp, -n.Exp))), nil)
	got := new(big.Rat).SetInt(n.Int)
	if n.Exp >= 0 {
		got.Mul(got, new(big.Rat).SetInt(scale))
	} else {
		got.Quo(got, new(big.Rat).SetInt(scale))
	}
	if !ok || got.Cmp(want) != 0 {
		t.Errorf("numeric(%q) = %v, want %v", text, got, want)
	}
}

func TestNumeric(t *testing.T) {
	for _, text := range []string{"0", "-0", "99.5", "-99.5", "3.2e-41", "-1e+10", "1e0", "0.00000000000000000001", "9223372036854775807.123456789012345678901234567890", ".5", "5."} {
		checkNumeric(t, text)
	}
	for _, text := range []string{"", "x", "1.x", "1e", "1ee1", "NaN", "1e99999999999999999999", "--1"} {
		if n := numeric(text); n.Valid {
			t.Errorf("numeric(%q) = %v, want it invalid", text, n)
		}
	}
}

func FuzzNumeric(f *testing.F) {
	for _, text := range []string{"0", "-12.5", "3.2e-41", "e", "1e5000", "0x1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n := numeric(text); n.Valid && max(n.Exp, -n.Exp) < 1000 {
			checkNumeric(t, text)
		}
	})
}

// FuzzEscapeID checks that different ids have different folders, also on file systems that ignore case, and none outside.
func FuzzEscapeID(f *testing.F) {
	f.Add("arena", "Arena")
	f.Add("..", ".")
	f.Add("a/b", "a%2Fb")
	f.Add(strings.Repeat("é", 64), strings.Repeat("é", 63)+"e")
	f.Fuzz(func(t *testing.T, x, y string) {
		nx, ny := escapeID(x), escapeID(y)
		if (x == y) != strings.EqualFold(nx, ny) {
			t.Errorf("escapeID(%q) = %s, escapeID(%q) = %s; want equal names only for equal ids", x, nx, y, ny)
		}
		if len(nx) > 255 || strings.ContainsAny(nx, "./\\:\x00 ") {
			t.Errorf("escapeID(%q) = %q, want at most 255 characters, none of them special", x, nx)
		}
	})
}

func TestColumnsOfSchemaAndRowsAgree(t *testing.T) {
	for table, got := range map[string][]string{
		"boards": names[boardRow](), "seasons": names[seasonRow](), "users": names[userRow](), "results": names[resultRow](),
		"standings": names[standingRow](), "voids": names[voidRow](), "bans": names[banRow](), "erasures": names[erasureRow](),
	} {
		_, definition, _ := strings.Cut(schemaSQL, "CREATE TABLE leaderboard."+table+" (\n")
		definition, _, _ = strings.Cut(definition, "\n);")
		var want []string
		for line := range strings.Lines(definition) {
			if name := strings.Fields(line)[0]; name == strings.ToLower(name) { // not a constraint
				want = append(want, name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the columns of %s differ (-schema +rows):\n%s", table, diff)
		}
		if !strings.Contains(schemaSQL, "COMMENT ON TABLE leaderboard."+table+" IS") {
			t.Errorf("the table %s has no comment", table)
		}
	}
}
