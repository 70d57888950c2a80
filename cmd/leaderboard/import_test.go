package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func gzipText(t *testing.T, content string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

type importCounts struct {
	Rows, Filtered, Linked, Applied, Replaced, Duplicate, Superseded, Accepted, Conflict, Rejected, Trimmed int64
}

func importSummary(t *testing.T, r commandResult) importCounts {
	t.Helper()
	var c importCounts
	if err := json.Unmarshal([]byte(r.stdout), &c); err != nil {
		t.Fatalf("import --json printed %q: %v; %s", r.stdout, err, r.stderr)
	}
	return c
}

func TestImportMapsColumns(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "race", "--policy", "best", "--order", "lower-first", "--unit", "s", "--decimals", "1", "--tie-breaker", "shots", "--division", "gender", "--division", "club")
	file := writeFile(t, "race.csv", "\xef\xbb\xbfbib,net,sex,team,hits,day,kind\r\n"+
		"1,2:08:37.5,F,\"Red, Ltd\",4,02.01.2026 10:00,run\r\n"+
		"2,7717.5,M,,5,02.01.2026 10:00,run\r\n"+
		"3,99,M,,5,02.01.2026 10:00,wheel\r\n"+
		"4,,M,,5,02.01.2026 10:00,run\r\n")
	args := []string{"import", file, "--board", "race", "--user", "bib", "--score", "net", "--score-format", "decimal", "--attribute", "gender=sex", "--attribute", "club=team",
		"--tie-breaker", "shots=hits", "--achieved-at", "day", "--time-format", "02.01.2006 15:04", "--time-zone", "Europe/Berlin",
		"--filter", "kind=run", "--filter", "net!=", "--metadata", "day=day", "--const", "metadata.source=mat", "--match-prefix", "race-7", "--json"}
	if got, want := importSummary(t, s.do(t, args...)), (importCounts{Rows: 4, Filtered: 2, Applied: 2}); got != want {
		t.Errorf("import = %+v, want %+v", got, want)
	}
	got := s.ok(t, "export", "results", "--board", "race")
	want := `{"user_id":"1","match_id":"race-7:2","score":77175,"tie_breakers":[4],"revision":0,"achieved_at":"2026-01-02T09:00:00Z","attributes":{"club":"Red, Ltd","gender":"F"},"metadata":{"day":"02.01.2026 10:00","source":"mat"},"season":"all"}
{"user_id":"2","match_id":"race-7:3","score":77175,"tie_breakers":[5],"revision":0,"achieved_at":"2026-01-02T09:00:00Z","attributes":{"gender":"M"},"metadata":{"day":"02.01.2026 10:00","source":"mat"},"season":"all"}
`
	if diff := cmp.Diff(sortLines(want), sortLines(got)); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if got, want := importSummary(t, s.do(t, args...)), (importCounts{Rows: 4, Filtered: 2, Duplicate: 2}); got != want {
		t.Errorf("the second import = %+v, want %+v", got, want)
	}
	if files, err := filepath.Glob(filepath.Dir(file) + "/*"); err != nil || len(files) != 1 {
		t.Errorf("files after complete imports: %v, %v; want only the input file", files, err)
	}
}

func TestImportReadsStatuses(t *testing.T) {
	s := startInsecure(t)
	create := []string{"--policy", "sum", "--order", "lower-first", "--statuses", "cut,dnf,dsq", "--min-results", "2", "--ties", "shared"}
	s.ok(t, append([]string{"board", "create", "golf"}, create...)...)
	file := writeFile(t, "golf.csv", "user_id,match_id,points,state\n"+
		"ann,1,70,\nann,2,71,Finished\nbob,1,69,ok\nbob,2,,did not finish\ncyd,1,80,\ncyd,2,81,MC\ndan,1,68,RANKED\neve,1,DQ,\n")
	late := writeFile(t, "late.csv", "user_id,match_id,points,state\nzed,1,70,late\n")
	s.fails(t, exitFailure, []string{"1 row was not applied"}, "import", late, "--board", "golf", "--status", "state")
	if rejected, err := os.ReadFile(late + ".rejected.csv"); err != nil || !strings.Contains(string(rejected), "is not a status; the statuses are RANKED") {
		t.Errorf("the rejected rows are %q, error %v; want the reason", rejected, err)
	}
	if got, want := importSummary(t, s.do(t, "import", file, "--board", "golf", "--status", "state", "--json")), (importCounts{Rows: 8, Applied: 8}); got != want {
		t.Fatalf("import = %+v, want %+v", got, want)
	}
	entries := s.ok(t, "export", "entries", "--board", "golf", "--format", "csv")
	want := "rank,user_id,score,achieved_at,match_id,divisions,status\n1,ann,141,,2,,RANKED\n,dan,68,,1,,TOO_FEW_RESULTS\n,cyd,161,,2,,CUT\n,bob,69,,1,,DNF\n,eve,0,,1,,DSQ\n"
	if diff := cmp.Diff(want, entries); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	checkContains(t, s.ok(t, "top", "--board", "golf"), "TOO_FEW_RESULTS", "CUT")
	checkContains(t, s.ok(t, "board", "show", "golf"), "SHARED", "CUT DNF DSQ", "min results")
	s.ok(t, append([]string{"board", "create", "copy"}, create...)...)
	for _, format := range []string{"csv", "ndjson"} {
		results := s.ok(t, "export", "results", "--board", "golf", "--format", format)
		copied := importSummary(t, s.do(t, "import", writeFile(t, "results."+format, results), "--board", "copy", "--json"))
		if format == "csv" && copied.Applied != 8 || format == "ndjson" && copied.Duplicate != 8 {
			t.Errorf("import of the exported %s: %+v, want 8 applied, and then 8 duplicates", format, copied)
		}
	}
	if diff := cmp.Diff(entries, s.ok(t, "export", "entries", "--board", "copy", "--format", "csv")); diff != "" {
		t.Errorf("entries of the copy (-golf +copy):\n%s", diff)
	}
}

func TestResetsOnTheCommandLine(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "coins", "--policy", "sum", "--tie-breaker", "laps:max", "--tie-breaker", "falls:lower-first:last")
	s.ok(t, "submit", "ada", "--board", "coins", "--points", "70", "--match", "1", "--tie-breakers", "9,1", "--achieved-at", "2026-11-20T08:00:00Z")
	checkContains(t, s.ok(t, "submit", "ada", "--board", "coins", "--points", "0", "--reset", "--match", "2", "--tie-breakers", "3,2", "--achieved-at", "2026-11-20T09:00:00Z"), "0")
	checkContains(t, s.ok(t, "submit", "ada", "--board", "coins", "--points", "5", "--match", "3", "--tie-breakers", "2,4", "--achieved-at", "2026-11-20T10:00:00Z"), "5")
	if got := s.ok(t, "export", "entries", "--board", "coins", "--format", "csv"); !strings.Contains(got, "1,ada,5,3,4,") {
		t.Errorf("entries %q, want 5 coins, the greatest laps 3 and the last falls 4", got)
	}
	results := s.ok(t, "export", "results", "--board", "coins", "--format", "csv")
	checkContains(t, results, ",reset\n", "false,true\n")
	s.ok(t, "board", "create", "copy", "--policy", "sum", "--tie-breaker", "laps:max", "--tie-breaker", "falls:lower-first:last")
	if got := importSummary(t, s.do(t, "import", writeFile(t, "coins.csv", results), "--board", "copy", "--json")); got.Applied != 3 {
		t.Errorf("import of the export: %+v, want 3 applied", got)
	}
	if got := s.ok(t, "export", "entries", "--board", "copy", "--format", "csv"); !strings.Contains(got, "1,ada,5,3,4,") {
		t.Errorf("entries of the copy %q, want those of the original", got)
	}
	checkContains(t, s.ok(t, "correct", "ada", "2", "--board", "coins", "--reset=false"), "75")
	s.fails(t, exitUsage, []string{"is not one of higher-first, lower-first, sum, max, min, last"}, "board", "create", "bad", "--tie-breaker", "laps:most")
	s.fails(t, exitUsage, []string{`"late" is not one of ranked, dnf, dns, dsq, cut, hors-concours`}, "submit", "ada", "--board", "coins", "--status", "late")
	s.fails(t, exitFailure, []string{"the board has no statuses"}, "submit", "ada", "--board", "coins", "--status", "dnf")
	s.ok(t, "board", "create", "best")
	s.fails(t, exitFailure, []string{"reset: is allowed on SUM boards only"}, "submit", "ada", "--board", "best", "--score", "1", "--reset")
}

func sortLines(s string) string {
	lines := strings.SplitAfter(s, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func TestImportFormats(t *testing.T) {
	const (
		commas = "user_id,points,match_id\nada,3,m1\nbob,2,m1\n"
		lines  = `{"user_id":"ada","points":3,"match_id":"m1"}` + "\n" + `{"user_id":"bob","points":"2","match_id":"m1"}` + "\n"
	)
	tests := []struct {
		name, content string
		args          []string
	}{
		{"x.csv", commas, nil}, {"x.csv.gz", gzipText(t, commas), nil}, {"x", commas, nil}, {"x.dat", gzipText(t, lines), nil},
		{"x.ndjson", lines, nil}, {"x.jsonl.gz", gzipText(t, lines), nil}, {"x.txt", "\n \n" + lines, nil},
		{"x.tsv", strings.ReplaceAll(commas, ",", "\t"), nil}, {"semi.csv", strings.ReplaceAll(commas, ",", ";"), []string{"--delimiter", ";"}},
		{"tab.csv", strings.ReplaceAll(commas, ",", "\t"), []string{"--delimiter", `\t`}},
		{"json.csv", lines, []string{"--format", "ndjson"}},
		{"nested.ndjson", `{"p":{"id":"ada"},"e":{"v":3},"m":1}` + "\n" + `{"p":{"id":"bob"},"e":{"v":2},"m":1}`, []string{"--user", "p.id", "--score", "e.v", "--match", "m"}},
		{"const.csv", "who\nada\nada\nada\nbob\nbob\n", []string{"--user", "who", "--const", "points=1", "--yes"}},
	}
	s := startInsecure(t)
	for i, tt := range tests {
		board := fmt.Sprintf("b%d", i)
		s.ok(t, "board", "create", board, "--policy", "sum")
		s.ok(t, append([]string{"import", writeFile(t, tt.name, tt.content), "--board", board}, tt.args...)...)
		if top := s.ok(t, "top", "--board", board); !hasRow(top, "1", "ada", "3") || !hasRow(top, "2", "bob", "2") {
			t.Errorf("after the import of %s, top prints:\n%s\nwant ada with 3 points and bob with 2", tt.name, top)
		}
	}
	in := func(stdin string, args ...string) commandResult {
		return command(t, stdin, []string{"LEADERBOARD_SERVER=" + s.grpc}, append([]string{"import", "-", "--rejects", filepath.Join(t.TempDir(), "r.csv")}, args...)...)
	}
	for _, stdin := range []string{commas, lines, gzipText(t, lines)} {
		if r := in(stdin); r.code != exitOK {
			t.Errorf("import of standard input: %s, want success", r.stderr)
		}
	}
	if top := s.ok(t, "top"); !hasRow(top, "1", "ada", "3") || !hasRow(top, "2", "bob", "2") {
		t.Errorf("after three imports of the same results, top prints:\n%s\nwant ada with 3 points and bob with 2", top)
	}
	in("user_id,points\nada,3\n").mustFail(t, exitUsage, []string{"--match-prefix"}, []string{"import", "-"})
	in(`{"user_id":"ada","points":3}`).mustFail(t, exitFailure, []string{"1 row was not applied"}, []string{"import", "-"})
	if r := in("user_id,points\neve,9\n", "--match-prefix", "day-7"); r.code != exitOK {
		t.Errorf("import with --match-prefix: %s, want success", r.stderr)
	}
	checkContains(t, s.ok(t, "result", "eve", "day-7:2"), "applied")
}

func TestImportReportsRejectedRows(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "b", "--policy", "sum", "--min", "0", "--max", "100", "--tie-breaker", "wins")
	s.ok(t, "submit", "ada", "--board", "b", "--points", "3", "--match", "known")
	file := writeFile(t, "bad.csv", strings.Join([]string{
		"user_id,points,match_id,revision,achieved_at,attributes,tie_breakers,metadata,retracted",
		"ada,3,ok,,,,,,",
		",3,m,,,,,,",
		"ada,NaN,m,,,,,,",
		"ada,1.5,m,,,,,,",
		"ada,,m,,,,,,",
		"ada,101,m,,,,,,",
		"ada,3,m,-1,,,,,",
		"ada,3,m,x,,,,,",
		"ada,3,m,,yesterday,,,,",
		`ada,3,m,,,"{""gender"":7}",,,`,
		`ada,3,m,,,,"[1,2]",,`,
		`ada,3,m,,,,[1.5],,`,
		`ada,3,m,,,,,"[1]",`,
		"ada,3,m,,,,,,maybe",
		"\xff,3,m,,,,,,",
		"ada,3",
		strings.Repeat("x", 200) + ",3,m,,,,,,",
		`ada"da,3,m,,,,,,`,
		strings.Repeat("x", 1<<20) + ",3,m,,,,,,",
		"ada,1,known,,,,,,",
		"ada,,gone,3,,,,,true",
		"",
	}, "\n"))
	r := s.do(t, "import", file, "--board", "b", "--json")
	r.mustFail(t, exitFailure, []string{"19 rows were not applied as given", file + ".rejected.csv"}, []string{"import"})
	if got, want := importSummary(t, r), (importCounts{Rows: 21, Applied: 2, Rejected: 18, Conflict: 1}); got != want {
		t.Errorf("import = %+v, want %+v", got, want)
	}
	report, err := os.ReadFile(file + ".rejected.csv")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(report)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"3": "user_id: is empty", "4": `"NaN" is not a number`, "5": `"1.5" is not a whole number`, "6": "points: is empty", "7": "101 is not in the range 0 to 100",
		"8": "revision", "9": `revision: "x" is not a number`, "10": `"yesterday" is not a time`, "11": "attributes: is not valid JSON", "12": "2 given, but the board has 1",
		"13": "tie_breakers", "14": "metadata: is not a JSON object", "15": `retracted: "maybe"`, "16": "not valid UTF-8", "17": "has 2 instead of 9 columns",
		"18": "200 bytes long", "19": "bare", "20": "is longer than", "21": "CONFLICT",
	}
	if len(rows) != 1+len(want) || !slices.Equal(rows[0], []string{"line", "reason", "row"}) {
		t.Errorf("the file of rejected rows has %d rows and the header %q, want %d rows with line, reason, row", len(rows), rows[0], 1+len(want))
	}
	for _, row := range rows[1:] {
		if w, ok := want[row[0]]; !ok || !strings.Contains(row[1], w) {
			t.Errorf("line %s is rejected with the reason %q, want a reason that contains %q", row[0], row[1], w)
		}
	}
	checkContains(t, s.ok(t, "result", "ada", "gone", "--board", "b"), "retracted")

	far := writeFile(t, "far.csv", "user_id,points,achieved_at\nada,1,99999999999999\nada,1,-99999999999999999\nada,1,1.5\nada,1,0\n")
	r = s.do(t, "import", far, "--board", "b", "--time-format", "unix", "--yes", "--json")
	if got, want := importSummary(t, r), (importCounts{Rows: 4, Applied: 1, Rejected: 3}); got != want {
		t.Errorf("import of one valid and three invalid times = %+v, want %+v", got, want)
	}

	// If a flag names a wrong column, the import stops before the first row, or after 1000 rejected
	// rows.
	s.fails(t, exitUsage, []string{`no column "score"; its columns are user_id, points`}, "import", file, "--board", "b", "--score", "score")
	s.fails(t, exitUsage, []string{`--tie-breaker goals`}, "import", file, "--board", "b", "--tie-breaker", "goals=points")
	allRejected := writeFile(t, "all_rejected.ndjson", strings.Repeat(`{"user":"ada","points":1}`+"\n", 200_000))
	s.fails(t, exitFailure, []string{"all of the first", "user_id: is empty", "check the flags"}, "import", allRejected, "--board", "b")

	s.fails(t, exitFailure, []string{"no such file"}, "import", filepath.Join(t.TempDir(), "none.csv"))
	s.fails(t, exitFailure, []string{"not a regular file"}, "import", t.TempDir())
	s.fails(t, exitFailure, []string{"is empty"}, "import", writeFile(t, "e.csv", ""))
	s.fails(t, exitFailure, []string{"UTF-16"}, "import", writeFile(t, "e.csv", "\xff\xfeu\x00"))
	s.fails(t, exitFailure, []string{"board not found"}, "import", file, "--board", "nope")
	s.fails(t, exitFailure, []string{"ends too early", "download it again"}, "import", writeFile(t, "cut.csv.gz", gzipText(t, "user_id,points\nada,1\n")[:35]))
	for _, args := range [][]string{
		{"--batch", "0"}, {"--in-flight", "65"}, {"--format", "xml"}, {"--delimiter", "ab"}, {"--score-format", "x"}, {"--time-zone", "Mars"}, {"--filter", "x"},
		{"--const", "speed=1"}, {"--const", "tie_breakers.goals=1"},
	} {
		s.fails(t, exitUsage, []string{args[0]}, append([]string{"import", file, "--board", "b"}, args...)...)
	}
	s.fails(t, exitUsage, []string{"--state"}, "import", "-", "--state", "x")
}

func TestImportDryRunSendsNothing(t *testing.T) {
	s := startInsecure(t)
	file := writeFile(t, "x.csv", "user_id,points\nada,3\nbob,x\n")
	r := s.do(t, "import", file, "--dry-run")
	r.mustFail(t, exitFailure, []string{"1 row was not applied"}, []string{"import"})
	checkContains(t, r.stdout, "2 rows read: 1 would be sent, 0 filtered out, 1 rejected; nothing was sent")
	checkContains(t, s.ok(t, "top"), "no entries yet")
}

// proxy forwards calls to another server. A batch fails if onRequest or onResponse fails.
type proxy struct {
	pb.UnimplementedLeaderboardServiceServer
	scores     pb.LeaderboardServiceClient
	onRequest  func(*pb.BatchSubmitScoresRequest) error  // called before the proxy forwards a batch
	onResponse func(*pb.BatchSubmitScoresResponse) error // called with the answer to a batch; may be nil
}

func (f *proxy) GetBoard(ctx context.Context, r *pb.GetBoardRequest) (*pb.GetBoardResponse, error) {
	return f.scores.GetBoard(ctx, r)
}

func (f *proxy) BatchSubmitScores(ctx context.Context, r *pb.BatchSubmitScoresRequest) (*pb.BatchSubmitScoresResponse, error) {
	if err := f.onRequest(r); err != nil {
		return nil, err
	}
	res, err := f.scores.BatchSubmitScores(ctx, r)
	if err == nil && f.onResponse != nil {
		err = f.onResponse(res)
	}
	return res, err
}

func startProxy(t *testing.T, s *testServer, onRequest func(*pb.BatchSubmitScoresRequest) error, onResponse func(*pb.BatchSubmitScoresResponse) error) *testServer {
	t.Helper()
	return serve(t, &proxy{scores: dial(t, s), onRequest: onRequest, onResponse: onResponse})
}

func dial(t *testing.T, s *testServer) pb.LeaderboardServiceClient {
	t.Helper()
	c, closeConn, err := client.Dial(t.Context(), testApp(), client.Connection{Server: s.grpc, Timeout: waitLimit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeConn)
	return c.Scores
}

func serve(t *testing.T, p pb.LeaderboardServiceServer) *testServer {
	t.Helper()
	g := grpc.NewServer(grpc.MaxRecvMsgSize(16 << 20))
	pb.RegisterLeaderboardServiceServer(g, p)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return &testServer{grpc: l.Addr().String()}
}

func manyRows(users, rows int) string {
	var b strings.Builder
	b.WriteString("user_id,points,match_id\n")
	for i := range rows {
		fmt.Fprintf(&b, "user-%d,%d,m%d\n", i%users, i%7, i)
	}
	return b.String()
}

func TestImportContinuesAfterInterruptions(t *testing.T) {
	const rows = 3000
	s := startInsecure(t)
	s.ok(t, "board", "create", "whole", "--policy", "sum")
	s.ok(t, "board", "create", "parts", "--policy", "sum")
	file := writeFile(t, "x.csv", manyRows(100, rows)+"user-1,bad,m\n")
	s.fails(t, exitFailure, []string{"1 row was not applied"}, "import", file, "--board", "whole")

	var sent, allowed atomic.Int64 // atomic, because calls of a stopped import may still run
	p := startProxy(t, s, func(r *pb.BatchSubmitScoresRequest) error {
		if sent.Add(1) > allowed.Load() {
			return status.Error(codes.PermissionDenied, "the submit scope is required")
		}
		return nil
	}, nil)
	var got importCounts
	interruptions := 0
	for {
		sent.Store(0)
		allowed.Store(7)
		r := p.do(t, "import", file, "--board", "parts", "--batch", "100", "--in-flight", "3", "--json")
		if r.stdout != "" {
			got = importSummary(t, r)
			break
		}
		r.mustFail(t, exitFailure, []string{"stopped after", "submit scope is required", "run the same command again to continue"}, []string{"import"})
		if interruptions++; interruptions > 2*rows/100 {
			t.Fatalf("the import is not complete after %d interruptions", interruptions)
		}
		if interruptions > 1 {
			checkContains(t, r.stderr, "continuing after")
		}
	}
	if interruptions < 3 {
		t.Errorf("the import was interrupted %d times, want at least 3", interruptions)
	}
	if got.Rows != rows+1 || got.Rejected != 1 || got.Applied+got.Duplicate != rows {
		t.Errorf("summary of the import in %d parts: %+v, want %d rows, 1 of them rejected", interruptions+1, got, rows+1)
	}
	if diff := cmp.Diff(scoresOf(t, s, "whole"), scoresOf(t, s, "parts")); diff != "" {
		t.Errorf("the board of the import in parts (-want +got):\n%s", diff)
	}
	allowed.Store(1)
	sent.Store(0)
	p.fails(t, exitFailure, []string{"stopped after"}, "import", file, "--board", "parts", "--batch", "100", "--in-flight", "1")
	allowed.Store(rows)
	r := p.do(t, "import", file, "--board", "parts", "--batch", "100", "--filter", "points!=6", "--json")
	checkContains(t, r.stderr, "belongs to another import; starting at the first row")
	if c := importSummary(t, r); c.Rows != rows+1 {
		t.Errorf("summary of the import with another filter: %+v, want %d rows", c, rows+1)
	}
}

func scoresOf(t *testing.T, s *testServer, board string) map[string]float64 {
	t.Helper()
	scores := map[string]float64{}
	for _, line := range standings(t, s, "--board", board) {
		e := parseObject(t, line)
		scores[e["user_id"].(string)] = e["score"].(float64)
	}
	return scores
}

func TestImportRetries(t *testing.T) {
	s := startInsecure(t)
	var mu sync.Mutex
	calls, answers := 0, 0
	p := startProxy(t, s,
		func(*pb.BatchSubmitScoresRequest) error {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls%3 == 1 && calls < 8 {
				return status.Error(codes.Unavailable, "not now")
			}
			return nil
		},
		func(res *pb.BatchSubmitScoresResponse) error {
			mu.Lock()
			defer mu.Unlock()
			switch answers++; answers {
			case 1, 3:
				o := res.Outcomes[len(res.Outcomes)/2]
				o.Reset()
				o.Status = pb.Outcome_FAILED
			case 2:
				return status.Error(codes.DeadlineExceeded, "too late")
			}
			return nil
		})
	got := importSummary(t, p.do(t, "import", writeFile(t, "x.csv", manyRows(10, 200)), "--batch", "50", "--json"))
	if want := int64(200); got.Rows != want || got.Applied+got.Duplicate != want {
		t.Errorf("summary of the import: %+v, want 200 rows, all applied or duplicate", got)
	}
	if calls < 8 || answers < 3 {
		t.Errorf("the import made %d calls with %d answers, want at least 8 calls and 3 answers", calls, answers)
	}
	checkContains(t, s.ok(t, "verify"), "with 200 results: 0 differences")
}

func TestImportKeepsTheOrderOfAUser(t *testing.T) {
	s := startInsecure(t)
	var mu sync.Mutex
	last := map[string]int{}
	disordered, running, maxRunning := 0, 0, 0
	p := startProxy(t, s, func(r *pb.BatchSubmitScoresRequest) error {
		mu.Lock()
		defer mu.Unlock()
		running++
		maxRunning = max(maxRunning, running)
		for _, res := range r.GetResults() {
			var n int
			if _, err := fmt.Sscanf(res.GetMatchId(), "m%d", &n); err != nil || n < last[res.GetUserId()] {
				disordered++
			}
			last[res.GetUserId()] = n
		}
		return nil
	}, func(*pb.BatchSubmitScoresResponse) error {
		mu.Lock()
		defer mu.Unlock()
		running--
		return nil
	})
	p.ok(t, "import", writeFile(t, "x.csv", manyRows(50, 5000)), "--batch", "50", "--in-flight", "8")
	if disordered > 0 {
		t.Errorf("%d results arrived after a later result of the same user, want 0", disordered)
	}
	if maxRunning < 2 || maxRunning > 8 {
		t.Errorf("the import made at most %d concurrent calls, want 2 to 8", maxRunning)
	}
}

// The boards have corrections, retractions and bans.
func TestExportAndImportAreInverse(t *testing.T) {
	runSeed := seed.New(t)
	r := rand.New(rand.NewPCG(runSeed, 0))
	boards := map[string][]string{
		"best":   {"--policy", "best", "--order", "lower-first", "--tie-breaker", "wins", "--division", "gender", "--season", "yearly", "--grace", "87600h"},
		"sum":    {"--policy", "sum", "--tie-breaker", "wins", "--tie-breaker", "losses:lower-first", "--season", "monthly", "--grace", "87600h"},
		"latest": {"--policy", "latest", "--season", "weekly", "--grace", "87600h"},
		"decay":  {"--policy", "decay", "--half-life", "720h"},
	}
	source := startInsecure(t)
	c, closeConn, err := client.Dial(t.Context(), testApp(), client.Connection{Server: source.grpc, Timeout: waitLimit})
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn()
	names := []string{"ann", `b"o,b`, "ève", "日本", " x", "[clan] 1", "{}", "true"}
	for board, rules := range boards {
		source.ok(t, append([]string{"board", "create", board, "--attribute", "note", "--attribute", "gender"}, rules...)...)
		var results []*pb.Result
		for i := range 200 {
			v := r.Int64N(50)
			res := &pb.Result{UserId: names[r.IntN(len(names))], MatchId: fmt.Sprintf("m,%d", i%60), Revision: int64(i / 60)}
			if board == "sum" || board == "decay" {
				res.Points = &v
			} else {
				res.Score = &v
			}
			if board == "best" || board == "sum" {
				res.TieBreakers = []int64{r.Int64N(3), r.Int64N(2)}[:map[string]int{"best": 1, "sum": 2}[board]]
			}
			// All revisions of a match have the same day, and so the same season.
			res.AchievedAt = timestamppb.New(time.Date(2026, 10, 5+7*(i%4), 0, i, 0, 0, time.UTC))
			if r.IntN(2) == 0 {
				res.Attributes = map[string]string{"gender": []string{"F", "M"}[r.IntN(2)], "note": "a\"b,c"}
			}
			results = append(results, res)
		}
		if _, err := c.Scores.BatchSubmitScores(t.Context(), &pb.BatchSubmitScoresRequest{Board: board, Results: results}); err != nil {
			t.Fatal(err)
		}
		for i, res := range results {
			if i%10 == 0 {
				season := map[string]string{"best": "2026", "decay": "all", "sum": "202610", "latest": fmt.Sprintf("2026W%d", 41+i%4)}[board]
				_, err := c.Scores.RetractResult(t.Context(), &pb.RetractResultRequest{Board: board, UserId: res.GetUserId(), MatchId: res.GetMatchId(), Season: season})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, name := range []string{"results.csv", "results.ndjson.gz"} {
		if name != "results.csv" { // a CSV file cannot contain bans
			source.ok(t, "ban", "ann", "--board", "best", "--reason", "aimbot")
			source.ok(t, "ban", "日本", "--until", "72h", "--yes")
		}
		target := startInsecure(t)
		for board := range boards {
			target.ok(t, "board", "create", "-f", writeFile(t, "board.json", source.ok(t, "board", "show", board, "--json")))
			file := filepath.Join(t.TempDir(), name)
			source.ok(t, "export", "results", "--board", board, "-o", file)
			target.ok(t, "import", file, "--board", board)
			if diff := cmp.Diff(sortLines(source.ok(t, "export", "results", "--board", board)), sortLines(target.ok(t, "export", "results", "--board", board))); diff != "" {
				t.Errorf("seed %d: the results of board %[3]s differ after the import of %[2]s, want equal results (-source +target):\n%[4]s", runSeed, name, board, diff)
			}
			for _, season := range seasonsOf(t, source, board) {
				if board == "decay" { // the scores change with the time of the request
					continue
				}
				if diff := cmp.Diff(standings(t, source, "--board", board, "--season", season), standings(t, target, "--board", board, "--season", season)); diff != "" {
					t.Errorf("seed %d: after the import of %s, the ranks of board %s, season %s differ, want equal ranks (-source +target):\n%s", runSeed, name, board, season, diff)
				}
			}
		}
		checkContains(t, target.ok(t, "verify"), " 0 differences")
	}
}

// A rolling board counts only its source's results. It refuses other results, and an import skips
// results from the source.
func TestImportOfASourceFillsItsRollingBoard(t *testing.T) {
	first, second := startInsecure(t), startInsecure(t)
	for _, s := range []*testServer{first, second} {
		s.ok(t, "board", "create", "laps", "--policy", "sum")
		s.ok(t, "board", "create", "week", "--policy", "sum", "--source", "laps", "--season", "rolling", "--days", "3", "--retention", "240h")
	}
	var rows strings.Builder
	rows.WriteString("user_id,match_id,points,achieved_at\n")
	for i := range 60 {
		fmt.Fprintf(&rows, "u%d,m%d,%d,%s\n", i%7, i, i*i%50, time.Now().Add(-time.Duration(i)*2*time.Hour).UTC().Format(time.RFC3339))
	}
	first.ok(t, "import", writeFile(t, "laps.csv", rows.String()), "--board", "laps")
	file := filepath.Join(t.TempDir(), "laps.ndjson")
	first.ok(t, "export", "results", "--board", "laps", "-o", file)
	second.ok(t, "import", file, "--board", "laps")
	seasons := seasonsOf(t, first, "week")
	if len(seasons) < 6 {
		t.Errorf("the rolling board has the seasons %q, want at least 6: the last five days and tomorrow", seasons)
	}
	for _, season := range seasons {
		if diff := cmp.Diff(standings(t, first, "--board", "week", "--season", season), standings(t, second, "--board", "week", "--season", season)); diff != "" {
			t.Errorf("window %s after the import of the source (-first +second):\n%s", season, diff)
		}
	}
	second.fails(t, exitFailure, []string{"submit to its source"}, "import", file, "--board", "week")
	first.ok(t, "export", "results", "--board", "week", "-o", file)
	checkContains(t, second.ok(t, "import", file, "--board", "week"), "skipped because they come from the source board laps")
}

func seasonsOf(t *testing.T, s *testServer, board string) []string {
	t.Helper()
	var ids []string
	for _, season := range parseObject(t, s.ok(t, "season", "list", "--board", board, "--json"))["data"].(map[string]any)["seasons"].([]any) {
		ids = append(ids, season.(map[string]any)["id"].(string))
	}
	return ids
}

// With two decimals, 12.00 can mean 12 EUR or 12 cents.
func TestImportAsksWhatADecimalPointMeans(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "lap", "--policy", "best", "--order", "lower-first", "--unit", "ms")
	s.ok(t, "board", "create", "shop", "--policy", "sum", "--unit", "EUR", "--decimals", "2")
	s.ok(t, "board", "create", "goals", "--policy", "sum")
	laps := writeFile(t, "laps.csv", "user_id,match_id,score\nann,m1,62.000\nbob,m1,61.5\n")
	sales := writeFile(t, "sales.csv", "user_id,match_id,points\nann,m1,12.00\n")
	s.fails(t, exitFailure, []string{`does the score "62.000" mean 0.062 s or 1:02.000`, "--score-format seconds", "line 2"}, "import", laps, "--board", "lap")
	s.fails(t, exitFailure, []string{`mean 0.12 EUR or 12.00 EUR`, "--score-format decimal"}, "import", sales, "--board", "shop")
	for _, board := range []string{"lap", "shop"} {
		if got := s.ok(t, "export", "results", "--board", board); got != "" {
			t.Errorf("after the failed import, board %s has the results %s, want none", board, got)
		}
	}
	s.fails(t, exitUsage, []string{"for boards whose unit is ms"}, "import", sales, "--board", "shop", "--score-format", "seconds")
	s.ok(t, "import", laps, "--board", "lap", "--score-format", "seconds")
	s.ok(t, "import", sales, "--board", "shop", "--score-format", "decimal")
	s.ok(t, "import", sales, "--board", "goals") // 12.00 has one meaning on a board without decimals
	checkContains(t, s.ok(t, "export", "results", "--board", "lap"), `"score":62000`, `"score":61500`)
	checkContains(t, s.ok(t, "export", "results", "--board", "shop"), `"points":1200`)
	checkContains(t, s.ok(t, "export", "results", "--board", "goals"), `"points":12,`)
}

// A file is imported, corrected and imported again. The board's scores are the oracle: a row
// that the summary counts as replaced has its new score, and a row in conflict has the old one.
func TestImportOfACorrectedFile(t *testing.T) {
	const rows = 40
	s := startInsecure(t)
	s.ok(t, "board", "create", "b", "--policy", "latest")
	content := func(score func(i int) int, more string) string {
		var b strings.Builder
		b.WriteString("user_id,match_id,score,achieved_at,updated_at\n")
		for i := range rows {
			fmt.Fprintf(&b, "u%d,m,%d,2026-11-01T00:00:00Z,%s\n", i, score(i), more)
		}
		return b.String()
	}
	old := func(i int) int { return 1000 + i }
	corrected := func(i int) int { return 1000 + i + (i%3-1)*500 } // lower, equal or higher
	s.ok(t, "import", writeFile(t, "x.csv", content(old, "2026-11-01T00:00:00Z")), "--board", "b")

	file := writeFile(t, "x.csv", content(corrected, "2026-11-02T00:00:00Z"))
	r := s.do(t, "import", file, "--board", "b", "--json")
	r.mustFail(t, exitFailure, []string{"not applied as given", file + ".rejected.csv"}, []string{"import"})
	got := importSummary(t, r)
	if got.Replaced == 0 || got.Conflict == 0 || got.Replaced+got.Conflict+got.Duplicate != rows || got.Duplicate != (rows+1)/3 {
		t.Errorf("the import of the corrected file: %+v; want %d duplicates, and the other rows replaced or in conflict", got, (rows+1)/3)
	}
	report, err := os.ReadFile(file + ".rejected.csv")
	if err != nil {
		t.Fatal(err)
	}
	listed, scores := strings.Count(string(report), "CONFLICT: a different result with revision 0"), scoresOf(t, s, "b")
	applied := 0
	for i := range rows {
		if corrected(i) != old(i) && scores[fmt.Sprintf("u%d", i)] == float64(corrected(i)) {
			applied++
		}
	}
	if int64(listed) != got.Conflict || int64(applied) != got.Replaced || !strings.Contains(string(report), "--const revision=1") || !strings.Contains(string(report), "--revision-from") {
		t.Errorf("the board has %d corrected scores, and the file lists %d conflicts; want %d and %d, with the way to force them:\n%s", applied, listed, got.Replaced, got.Conflict, report)
	}

	// The exit codes of the three commands agree.
	i := 0 // a user whose corrected row does not count
	for corrected(i) == old(i) || scores[fmt.Sprintf("u%d", i)] == float64(corrected(i)) {
		i++
	}
	user := fmt.Sprintf("u%d", i)
	line := func(score int, revision string) string {
		return fmt.Sprintf(`{"board_id":"b","user_id":%q,"match_id":"m","score":%d,"achieved_at":"2026-11-01T00:00:00Z"%s}`, user, score, revision)
	}
	submit := func(score int, revision string) []commandResult {
		args := []string{"submit", user, "--board", "b", "--match", "m", "--score", fmt.Sprint(score), "--achieved-at", "2026-11-01T00:00:00Z"}
		if revision != "" {
			args = append(args, "--revision", revision)
			revision = `,"revision":` + revision
		}
		return []commandResult{
			s.do(t, args...), s.do(t, "submit-batch", writeFile(t, "b.ndjson", line(score, revision))),
			s.do(t, "import", writeFile(t, "b.ndjson", line(score, revision)), "--board", "b"),
		}
	}
	for _, tt := range []struct {
		name     string
		score    int
		revision string
		code     int
	}{
		{"a result that is stored", old(i), "", exitOK}, {"a result that does not stand", corrected(i), "", exitFailure},
		{"a higher revision", corrected(i), "7", exitOK}, {"a superseded result", old(i), "", exitFailure},
	} {
		for n, r := range submit(tt.score, tt.revision) {
			if r.code != tt.code {
				t.Errorf("%s: %s exits with %d, want %d: %s%s", tt.name, []string{"submit", "submit-batch", "import"}[n], r.code, tt.code, r.stdout, r.stderr)
			}
		}
	}

	// The time of the last change is the revision: a corrected row counts, whatever its content.
	if got := importSummary(t, s.do(t, "import", file, "--board", "b", "--revision-from", "updated_at", "--json")); got.Applied != rows {
		t.Errorf("import with --revision-from: %+v, want %d applied", got, rows)
	}
	again := writeFile(t, "x.csv", content(old, "2026-11-03T00:00:00Z"))
	if r := s.do(t, "import", again, "--board", "b", "--revision-from", "updated_at"); r.code != exitOK {
		t.Errorf("import of later changes with --revision-from: %s, want success", r.stderr)
	}
	for u, score := range scoresOf(t, s, "b") {
		var i int
		if _, err := fmt.Sscanf(u, "u%d", &i); err != nil || score != float64(old(i)) {
			t.Errorf("%s has the score %v, want %d, which the latest file has", u, score, old(i))
		}
	}
	s.fails(t, exitFailure, []string{"1 row was not applied"}, "import", writeFile(t, "x.csv", "user_id,match_id,score,at\nada,m,1,1969-01-01T00:00:00Z\n"), "--board", "b", "--revision-from", "at")
	s.fails(t, exitUsage, []string{"cannot be combined"}, "import", file, "--board", "b", "--revision-from", "updated_at", "--const", "revision=1")
	s.fails(t, exitUsage, []string{"cannot be combined"}, "import", file, "--board", "b", "--revision-from", "updated_at", "--revision", "updated_at")
	s.fails(t, exitUsage, []string{"no column"}, "import", file, "--board", "b", "--revision-from", "changed_at")
}

func TestImportAsksBeforeRowsCouldCountTwice(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "decay", "--policy", "decay", "--half-life", "720h")
	s.ok(t, "board", "create", "best", "--policy", "best")
	for name, content := range map[string]string{"x.csv": "user_id,points\nada,3\n", "x.ndjson": `{"user_id":"ada","points":3}`, "some.csv": "user_id,match_id,points\nbob,m,1\nada,,3\n"} {
		for _, board := range []string{"default", "decay"} {
			file := writeFile(t, name, content)
			s.fails(t, exitUsage, []string{"without match ids", "count twice", "--match-prefix", "--yes"}, "import", file, "--board", board)
			if got := s.ok(t, "export", "results", "--board", board); got != "" {
				t.Errorf("before the confirmation, the import of %s has sent %s, want nothing", name, got)
			}
			if r := s.do(t, "import", file, "--board", board, "--dry-run"); r.code != exitOK || !strings.Contains(r.stderr, "count twice") {
				t.Errorf("a dry run of %s exits with %d and writes %q to stderr, want 0 and the warning", name, r.code, r.stderr)
			}
		}
	}
	file := writeFile(t, "x.csv", "user_id,points,score\nada,3,3\n")
	s.ok(t, "import", file, "--board", "best")
	s.ok(t, "import", file, "--yes")
	checkContains(t, s.ok(t, "import", file, "--yes"), "1 duplicate")
	s.ok(t, "import", file, "--board", "decay", "--match-prefix", "day-1")
	changed := writeFile(t, "x.csv", "user_id,points,score\nada,3,3\nbob,1,1\n")
	if got := importSummary(t, s.do(t, "import", changed, "--board", "decay", "--match-prefix", "day-1", "--json")); got.Duplicate != 1 || got.Applied != 1 {
		t.Errorf("the import of the longer file with the same prefix: %+v, want 1 duplicate and 1 applied", got)
	}
}

func TestImportTrimsCells(t *testing.T) {
	s := startInsecure(t)
	const content = "user_id, points ,match_id\n ada ,3\u00a0,m1\n\u00a0bob\u3000,\t2,m1\neve, ,m1\n"
	r := s.do(t, "import", writeFile(t, "x.csv", content), "--const", "points=1", "--json")
	if got, want := importSummary(t, r), (importCounts{Rows: 3, Applied: 3, Trimmed: 2}); r.code != exitOK || got != want {
		t.Errorf("import of cells with spaces: %+v, %s; want %+v", got, r.stderr, want)
	}
	s.ok(t, "board", "create", "b", "--policy", "sum")
	r = s.do(t, "import", writeFile(t, "x.csv", content), "--board", "b")
	r.mustFail(t, exitFailure, []string{"1 row was not applied"}, []string{"import"}) // the cell of spaces is empty
	checkContains(t, r.stdout, "2 applied", "spaces around 4 values were removed")
	if top := s.ok(t, "top", "--board", "b"); !hasRow(top, "1", "ada", "3") || !hasRow(top, "2", "bob", "2") {
		t.Errorf("top prints:\n%s\nwant ada with 3 points and bob with 2", top)
	}
	r = s.do(t, "import", writeFile(t, "x.csv", "user_id,points,match_id\n ada,3,m2\n\u00a0bob,2,m2\n"), "--board", "b", "--trim=false")
	r.mustFail(t, exitFailure, []string{"1 row was not applied"}, []string{"import"}) // an id must not have a no-break space
	checkContains(t, s.ok(t, "export", "results", "--board", "b"), `"user_id":" ada"`)
	if got := importSummary(t, s.do(t, "import", writeFile(t, "x.ndjson", `{"user_id":" eve ","points":3,"match_id":"m"}`), "--trim", "--board", "b", "--json")); got.Trimmed != 1 {
		t.Errorf("import of NDJSON with --trim: %+v, want 1 trimmed value", got)
	}
	checkContains(t, s.ok(t, "export", "results", "--board", "b"), `"user_id":"eve"`)
}

func TestImportOfOtherSeparators(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "eur", "--policy", "best", "--unit", "EUR", "--decimals", "2")
	file := writeFile(t, "x.csv", "user_id;score;match_id\nada;1,25;m\nbob;-3;m\n")
	s.fails(t, exitUsage, []string{`use --delimiter ";"`}, "import", file, "--board", "eur")
	s.fails(t, exitUsage, []string{`use --delimiter "\t"`}, "import", writeFile(t, "x.csv", "user_id\tscore\nada\t1\n"), "--board", "eur")
	r := s.do(t, "import", file, "--board", "eur", "--delimiter", ";", "--score-format", "decimal")
	r.mustFail(t, exitFailure, []string{"1 row was not applied"}, []string{"import"})
	report, err := os.ReadFile(file + ".rejected.csv")
	if err != nil {
		t.Fatal(err)
	}
	checkContains(t, string(report), "--decimal-comma")
	s.ok(t, "import", file, "--board", "eur", "--delimiter", ";", "--score-format", "decimal", "--decimal-comma")
	checkContains(t, s.ok(t, "export", "results", "--board", "eur"), `"score":125`, `"score":-300`)
	s.fails(t, exitFailure, []string{`mean 1.25 EUR or`}, "import", writeFile(t, "y.csv", "user_id;score;match_id\nada;125,00;m\n"), "--board", "eur", "--delimiter", ";", "--decimal-comma")
	s.fails(t, exitFailure, []string{"1 row was not applied"}, "import", writeFile(t, "z.csv", "user_id;score;match_id\nada;1.250,00;m\n"), "--board", "eur", "--delimiter", ";", "--decimal-comma")
}
