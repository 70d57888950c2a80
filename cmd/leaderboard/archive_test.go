package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rogpeppe/go-internal/lockedfile"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/archive"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/internal/secret"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// policyBoards are boards of every policy, with the flags that create them.
var policyBoards = map[string][]string{
	"p-best":    {"--policy", "best", "--order", "lower-first", "--statuses", "DNF,DSQ", "--min-results", "2", "--division", "gender"},
	"p-latest":  {"--policy", "latest", "--tie-breaker", "wins"},
	"p-first":   {"--policy", "first", "--ties", "shared"},
	"p-sum":     {"--policy", "sum", "--ties", "user-id", "--division", "gender", "--division", "age", "--division", "gender+age"},
	"p-count":   {"--policy", "count"},
	"p-average": {"--policy", "average", "--decimals", "2"},
	"p-decay":   {"--policy", "decay", "--half-life", "24h"},
	"p-best-k":  {"--policy", "best-k", "--k", "3"},
}

// hostileUsers have ids that SQL, JSON, CSV or file systems might misread.
var hostileUsers = []string{`o'brien"; DROP TABLE leaderboard.users; --`, `\N`, `\.`, `a\tb`, "é 名 🏆", `{"x":1}`, `../../etc`, "%2F", "=1+1", "NULL"}

// fillPolicies creates policyBoards, and fills seasons before now with random results.
func fillPolicies(t *testing.T, s *clockedServer, rng *rand.Rand, now time.Time) {
	t.Helper()
	for _, board := range slices.Sorted(maps.Keys(policyBoards)) {
		s.ok(t, append([]string{"board", "create", board, "--season", "monthly", "--grace", "1h"}, policyBoards[board]...)...)
		var rows strings.Builder
		for i := range 150 {
			user := fmt.Sprintf("u%d", i%13)
			if i%5 == 0 {
				user = hostileUsers[i/5%len(hostileUsers)]
			}
			row := map[string]any{
				"user_id": user, "match_id": fmt.Sprintf("m'%d", i/3), "achieved_at": now.Add(-time.Duration(i)*7*time.Hour - time.Duration(rng.IntN(1e6))*time.Microsecond),
				"metadata": map[string]any{"nul": "a\x00b", "n": rng.Float64(), "deep": []any{nil, true, "\u2028</script>"}},
			}
			field := "points"
			if slices.Contains([]string{"p-best", "p-latest", "p-first"}, board) {
				field = "score"
			}
			row[field] = rng.Int64N(20)
			if i == 7 && board != "p-best-k" && board != "p-sum" && board != "p-decay" {
				row[field] = int64(1 << 53)
			}
			switch {
			case board == "p-best" && i%11 == 0:
				row["status"] = []string{"DNF", "DSQ"}[i%2]
			case board == "p-latest":
				row["tie_breakers"] = []int64{-rng.Int64N(3)}
			case board == "p-sum" && i == 40:
				row["reset"] = true
			}
			if board == "p-best" || board == "p-sum" {
				row["attributes"] = map[string]string{"gender": []string{"F", "M"}[rng.IntN(2)]}
			}
			if board == "p-sum" {
				row["attributes"].(map[string]string)["age"] = []string{"30", "40"}[rng.IntN(2)]
			}
			text, err := json.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			rows.Write(append(text, '\n'))
		}
		s.ok(t, "import", writeFile(t, "rows.ndjson", rows.String()), "--board", board)
		s.ok(t, "retract", "u4", "m'1", "--board", board)
	}
	s.ok(t, "profile", "set", "u1", "--name", "Ada 'the' \"first\"", "--country", "GBR", "--attributes", `{"a":"\u0000","b":[1e300]}`)
	s.ok(t, "profile", "set", hostileUsers[4], "--name", "名")
}

func keys(boards map[string][]string) []string { return slices.Sorted(maps.Keys(boards)) }

type archiveReport struct{ Archived, Unchanged, Results, Standings, Erased, Changing int64 }

// archiveTo archives the seasons of a server. further are arguments.
func archiveTo(t *testing.T, s *clockedServer, to string, further ...string) archiveReport {
	t.Helper()
	var r archiveReport
	if err := json.Unmarshal([]byte(s.ok(t, append([]string{"archive", "--to", to, "--json"}, further...)...)), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// testArchive archives random boards of every policy, and restores them into a new server.
func testArchive(t *testing.T, to string) {
	n := seed.New(t)
	now := time.Date(2026, 11, 5, 10, 0, 0, 0, time.UTC)
	source := startClocked(t, now)
	rng := rand.New(rand.NewPCG(n, 0))
	fillServer(t, source, rng, now)
	fillPolicies(t, source, rng, now)
	source.pass(t, 72*time.Hour) // the new boards accept history for their grace
	first := archiveTo(t, source, to)
	if first.Archived < 20 || first.Results == 0 || first.Standings == 0 || first.Changing > 0 {
		t.Errorf("first run: %+v, want at least 20 seasons with results and standings", first)
	}
	if again := archiveTo(t, source, to); again != (archiveReport{Unchanged: first.Archived}) {
		t.Errorf("second run: %+v, want %d unchanged seasons and nothing else", again, first.Archived)
	}
	if open := archiveTo(t, source, to, "--open"); open.Archived == 0 || open.Standings > 0 || open.Unchanged != first.Archived {
		t.Errorf("run with --open: %+v, want open seasons without standings, and %d unchanged ones", open, first.Archived)
	}
	target := startClocked(t, *source.clock.Load())
	for range 2 { // a repetition changes nothing
		r := target.do(t, "archive", "restore", "--from", to, "--rejects", filepath.Join(t.TempDir(), "rejects.csv"))
		if r.code != exitOK {
			t.Fatalf("restore: exit code %d: %s %s", r.code, r.stdout, r.stderr)
		}
	}
	compareServers(t, source, target, append([]string{"laps", "best", "ever", "week"}, keys(policyBoards)...))
	for _, user := range []string{"u1", hostileUsers[4]} {
		withoutTime := func(s *clockedServer) map[string]any {
			p := parseObject(t, s.ok(t, "profile", "get", user, "--json"))
			delete(p, "updated_at") // when the server received the profile
			return p
		}
		if diff := cmp.Diff(withoutTime(source), withoutTime(target)); diff != "" {
			t.Errorf("the profile of %s differs (-source +target):\n%s", user, diff)
		}
	}
}

func TestArchiveInFilesGivesAnEqualServer(t *testing.T) {
	testArchive(t, "parquet:"+filepath.Join(t.TempDir(), "archive"))
}

// sealedServer has a board "cup" with a sealed season 202610, and one of the board "laps".
func sealedServer(t *testing.T) *clockedServer {
	t.Helper()
	now := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
	s := startClocked(t, now)
	for _, board := range []string{"cup", "laps"} {
		s.ok(t, "board", "create", board, "--policy", "best", "--season", "monthly", "--grace", "1h", "--division", "gender")
		var rows strings.Builder
		for i := range 30 {
			fmt.Fprintf(&rows, `{"user_id":"u%d","match_id":"m%d","score":%d,"achieved_at":%q,"attributes":{"gender":%q},"metadata":{"bib":%d}}`+"\n",
				i%10, i, i%7, now.Add(-time.Duration(i+12)*time.Hour).Format(time.RFC3339), []string{"F", "M"}[i%2], i)
		}
		s.ok(t, "import", writeFile(t, "rows.ndjson", rows.String()), "--board", board)
	}
	s.ok(t, "retract", "u9", "m9", "--board", "cup")
	s.ok(t, "retract", "u9", "m19", "--board", "cup")
	s.ok(t, "retract", "u9", "m29", "--board", "cup") // u9 has no entry, only retractions
	s.pass(t, 2*time.Hour)
	return s
}

// content returns the sorted lines that an archive has of a board.
func content(t *testing.T, to, board string) string {
	t.Helper()
	r := command(t, "", nil, "archive", "export", "--from", to, "--board", board)
	if r.code != exitOK {
		t.Fatalf("archive export: exit code %d: %s", r.code, r.stderr)
	}
	return strings.ReplaceAll(sortLines(r.stdout), "\u2400", `\u0000`) // PostgreSQL has no zero byte
}

// countingConn calls a function before each answer.
type countingConn struct {
	grpc.ClientConnInterface
	count func()
}

func (c countingConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	c.count()
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

func (c countingConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	return countingStream{s, c.count}, err
}

type countingStream struct {
	grpc.ClientStream
	count func()
}

func (s countingStream) RecvMsg(m any) error {
	s.count()
	return s.ClientStream.RecvMsg(m)
}

func (s *testServer) conn(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// testChanges archives a season again after each kind of change.
func testChanges(t *testing.T, to string) {
	s := sealedServer(t)
	if r := archiveTo(t, s, to); r.Archived != 2 {
		t.Fatalf("first run: %+v, want 2 seasons", r)
	}
	b, err := s.Board(t.Context(), "cup")
	if err != nil {
		t.Fatal(err)
	}
	score := leaderboard.Score(99)
	key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "cup", Season: "202610"}, User: "u1", Match: "m1"}
	metadata := `{"bib":1000}`
	for _, change := range []struct {
		name          string
		do            func() error
		want, without string
		archived      int64
	}{
		{"nothing", func() error { return nil }, `"bib":1`, `"bib":1000`, 0},
		{"a correction of metadata, which moves no rank", func() error {
			_, _, err := s.Correct(t.Context(), &b, key, ranking.Correction{Metadata: &metadata, Amends: true})
			return err
		}, `"bib":1000`, `"bib":1}`, 1},
		{"a correction that amends the standings", func() error {
			_, _, err := s.Correct(t.Context(), &b, key, ranking.Correction{Score: &score, Amends: true})
			return err
		}, `"score":99`, "", 1},
		{"a retraction", func() error { _, err := s.Retract(t.Context(), &b, key, nil); return err }, `"retracted":true`, `"score":99`, 1},
		{"a ban on one board", func() error { s.ok(t, "ban", "u2", "--board", "cup", "--reason", "a\x00b"); return nil }, `"ban":`, "", 1},
		{"an erasure", func() error { s.ok(t, "erase", "u3", "--yes"); return nil }, "u4", "u3", 2},
		{"the erasure of a user without an entry", func() error { s.ok(t, "erase", "u9", "--yes"); return nil }, "u4", "u9", 2},
	} {
		s.pass(t, time.Minute)
		if err := change.do(); err != nil {
			t.Fatalf("%s: %v", change.name, err)
		}
		s.pass(t, time.Minute)
		r := archiveTo(t, s, to)
		if r.Archived != change.archived || r.Unchanged != 2-change.archived || r.Erased != map[bool]int64{true: 1}[strings.Contains(change.name, "erasure")] {
			t.Errorf("%s: %+v, want %d archived seasons", change.name, r, change.archived)
		}
		got := content(t, to, "cup")
		if !strings.Contains(got, change.want) || change.without != "" && strings.Contains(got, change.without) {
			t.Errorf("%s: the archive has %s; want %q in it, and not %q", change.name, got, change.want, change.without)
		}
		if diff := cmp.Diff(exportOf(t, s, "cup"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("%s: the archive differs from the export (-export +archive):\n%s", change.name, diff)
		}
		if again := archiveTo(t, s, to); again != (archiveReport{Unchanged: 2}) {
			t.Errorf("a run after %s and its archive: %+v, want 2 unchanged seasons", change.name, again)
		}
	}
	testReturn(t, s, to)
}

// testReturn erases a user whose season the server has deleted, and lets an erased user come back.
func testReturn(t *testing.T, s *clockedServer, to string) {
	t.Helper()
	late := s.clock.Load().Format(time.RFC3339)
	s.ok(t, "submit", "u3", "--board", "cup", "--score", "5", "--match", "back", "--achieved-at", late)
	s.pass(t, 31*24*time.Hour)
	if r := archiveTo(t, s, to); r.Archived != 1 || r.Erased != 0 {
		t.Errorf("run after the next season: %+v, want 1 season", r)
	}
	if got := content(t, to, "cup"); !strings.Contains(got, `"back"`) || strings.Count(got, `"u3"`) != 1 {
		t.Errorf("the archive has %s, want the one result of u3 after the erasure", got)
	}
	s.ok(t, "board", "delete", "laps", "--yes")
	if r := archiveTo(t, s, to); r != (archiveReport{Unchanged: 2}) {
		t.Errorf("run after the deletion of a board: %+v, want 2 unchanged seasons", r)
	}
	if got := content(t, to, "laps"); !strings.Contains(got, `"u5"`) {
		t.Errorf("the archive of the deleted board has %s, want its results", got)
	}
	s.ok(t, "erase", "u5", "--yes")
	if r := archiveTo(t, s, to); r.Erased != 1 || r.Archived != 1 {
		t.Errorf("run after an erasure: %+v, want 1 erased user and 1 archived season", r)
	}
	for _, board := range []string{"cup", "laps"} {
		if got := content(t, to, board); strings.Contains(got, `"u5"`) || !strings.Contains(got, `"u4"`) {
			t.Errorf("the archive of %s has %s, want u4 and not the erased u5", board, got)
		}
	}
}

func TestArchiveInFilesFollowsChanges(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "archive")
	testChanges(t, "parquet:"+dir)
	for path, hash := range hashes(t, dir) {
		if strings.Contains(path, ".part") {
			t.Errorf("%s remains, %x", path, hash)
		}
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*", "*", "*.parquet")); err != nil || len(files) != 3*4 {
		t.Errorf("files of 3 seasons: %v, %v; want 4 each", files, err)
	}
}

// hashes returns a hash of each file below a folder.
func hashes(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	list := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		list[path] = sha256.Sum256(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestArchiveInFilesWritesNothingTwice(t *testing.T) {
	s := sealedServer(t)
	s.ok(t, "ban", "u1", "--reason", "r", "--yes")
	s.ok(t, "profile", "set", "u2", "--name", "Two")
	s.ok(t, "erase", "u8", "--yes")
	dir := filepath.Join(t.TempDir(), "archive")
	archiveTo(t, s, "parquet:"+dir)
	before := hashes(t, dir)
	archiveTo(t, s, "parquet:"+dir)
	if diff := cmp.Diff(before, hashes(t, dir)); diff != "" {
		t.Errorf("the second run changed files (-before +after):\n%s", diff)
	}
	if len(before) < 10 {
		t.Errorf("the archive has only %d files", len(before))
	}
}

// testInterruptions interrupts a run at many points, and repeats it.
func testInterruptions(t *testing.T, to func() string) {
	s := sealedServer(t)
	complete := to()
	archiveTo(t, s, complete)
	want := content(t, complete, "cup") + content(t, complete, "laps")
	interrupted, last := to(), false
	for point := int64(0); !last; point += 7 {
		ctx, cancel := context.WithCancel(t.Context())
		rows := int64(0)
		source := archive.NewSource(countingConn{s.conn(t), func() {
			if rows++; rows > point {
				cancel()
			}
		}})
		_, err := archive.Run(ctx, source, interrupted, "", archive.Options{Now: time.Now})
		last = err == nil
		cancel()
		if !last && ctx.Err() == nil {
			t.Fatalf("a run failed before the interruption after %d answers: %v", point, err)
		}
	}
	if got := content(t, interrupted, "cup") + content(t, interrupted, "laps"); got != want {
		t.Errorf("the archive after interruptions differs (-complete +interrupted):\n%s", cmp.Diff(want, got))
	}
	if r := archiveTo(t, s, interrupted); r != (archiveReport{Unchanged: 2}) {
		t.Errorf("run after the interruptions: %+v, want 2 unchanged seasons", r)
	}
}

func TestInterruptedArchiveInFilesIsComplete(t *testing.T) {
	testInterruptions(t, func() string { return "parquet:" + filepath.Join(t.TempDir(), "archive") })
}

func TestArchiveInFilesRefusesOtherFolders(t *testing.T) {
	s := sealedServer(t)
	parent := t.TempDir()
	folder := func(name, file, content string) string {
		dir := filepath.Join(parent, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return "parquet:" + dir
	}
	for _, tt := range []struct {
		to   string
		code int
		want string
	}{
		{"", exitUsage, "--to is missing"},
		{"parquet:", exitUsage, "names no folder"},
		{"mysql://host/db", exitUsage, "is neither a URL that begins with postgres:// nor parquet:DIR"},
		{"postgres://user:s3cret@host", exitUsage, "names no database"},
		{"postgres://user:s3cret%zz@host/db", exitUsage, "is not a URL"},
		{folder("other", "data.txt", "x"), exitFailure, "has other files, such as data.txt"},
		{folder("newer", "archive.json", `{"format": 2}`), exitFailure, "has the format 2, but this program writes the format 1"},
		{folder("foreign", "archive.json", `{"a": 1}`), exitFailure, "is not that of an archive"},
		{folder("file", "x", "") + "/x", exitFailure, "not a directory"},
	} {
		r := s.do(t, "archive", "--to", tt.to)
		r.mustFail(t, tt.code, []string{tt.want}, []string{"archive", "--to", tt.to})
		if strings.Contains(r.stderr, "s3cret") {
			t.Errorf("the error for %s has the password: %s", tt.to, r.stderr)
		}
	}
	to := "parquet:" + filepath.Join(parent, "archive")
	s.fails(t, exitUsage, []string{"--season requires --board"}, "archive", "--to", to, "--season", "202610")
	s.fails(t, exitFailure, []string{"board not found"}, "archive", "--to", to, "--board", "nope")
	s.fails(t, exitFailure, []string{"not sealed", "--open"}, "archive", "--to", to, "--board", "cup", "--season", "202611")
	s.fails(t, exitFailure, []string{"there is no archive"}, "archive", "restore", "--from", "parquet:"+filepath.Join(parent, "none"))
	s.fails(t, exitUsage, []string{"--board is missing"}, "archive", "export", "--from", to)
	archiveTo(t, s, to)
	lock, err := lockedfile.MutexAt(filepath.Join(parent, "archive", "archive.lock")).Lock()
	if err != nil {
		t.Fatal(err)
	}
	s.fails(t, exitFailure, []string{"another process writes this archive now"}, "archive", "--to", to)
	s.fails(t, exitFailure, []string{`has no board "nope"`}, "archive", "export", "--from", to, "--board", "nope") // readers need no lock
	lock()
	archiveTo(t, s, to)
	checkDamage(t, s, to)
}

// checkDamage changes a byte of each file of an archive.
func checkDamage(t *testing.T, s *clockedServer, to string) {
	t.Helper()
	n := 0
	for path := range hashes(t, strings.TrimPrefix(to, "parquet:")) {
		if !strings.Contains(path, "/cup/") || strings.Contains(path, "standings") { // an export does not read these
			continue
		}
		n++
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		damaged := slices.Clone(whole)
		damaged[len(damaged)/2] ^= 0x80
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := command(t, "", nil, "archive", "export", "--from", to, "--board", "cup"); r.code == exitOK || !strings.Contains(r.stderr, "damaged") {
			t.Errorf("export with a changed byte in %s: exit code %d, %s; want an error", path, r.code, r.stderr)
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n != 4 {
		t.Errorf("damaged %d files, want 4", n)
	}
	dir := filepath.Join(strings.TrimPrefix(to, "parquet:"), "cup")
	if err := os.RemoveAll(dir); err != nil { // the cure
		t.Fatal(err)
	}
	if r := archiveTo(t, s, to); r.Archived != 1 || r.Unchanged != 1 {
		t.Errorf("run after the removal of a folder: %+v, want 1 season archived again", r)
	}
}

// A server archives at once, and after a seal without waiting for the interval.
func TestServersArchiveAfterSeals(t *testing.T) {
	s := sealedServer(t)
	dir := filepath.Join(t.TempDir(), "archive")
	c := config.Archive{To: secret.Text("parquet:" + dir), Every: time.Hour}
	a := newArchives(&c, prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(t.Context())
	var log output
	done := make(chan struct{})
	go func() {
		a.run(ctx, archive.NewSource(s.conn(t)), slog.New(slog.NewJSONHandler(&log, nil)))
		close(done)
	}()
	eventually(t, "the first run archives", func() bool { _, ok := findLogEntry(log.String(), "seasons archived"); return ok })
	s.ok(t, "submit", "u1", "--board", "cup", "--score", "5", "--match", "n", "--achieved-at", s.clock.Load().Format(time.RFC3339))
	s.onSeal.Store(new(a.noteSeal))
	s.pass(t, 31*24*time.Hour)
	eventually(t, "the run after the seal archives", func() bool {
		_, err := os.Stat(filepath.Join(dir, "cup", "202611", "season.json"))
		return err == nil
	})
	cancel()
	<-done
	if got, err := testutil.GatherAndCount(registryOf(a)); err != nil || got != 3 {
		t.Errorf("metrics: %d, %v; want 3", got, err)
	}
	if failures, seasons := testutil.ToFloat64(a.failures), testutil.ToFloat64(a.seasons); failures != 0 || seasons < 2 {
		t.Errorf("%v failures and %v seasons, want 0 and at least 2", failures, seasons)
	}
}

func registryOf(a *archives) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(a.lastSuccess, a.failures, a.seasons)
	return r
}

func TestServeArchives(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "archive")
	s := startServer(t, filepath.Join(t.TempDir(), "data"), []string{"LEADERBOARD_ARCHIVE_TO=parquet:" + dir}, "--insecure")
	eventually(t, "the server has archived the boards", func() bool {
		_, metrics := get(t, http.DefaultClient, "http://"+s.http+"/metrics")
		_, err := os.Stat(filepath.Join(dir, "boards.parquet"))
		return err == nil && strings.Contains(metrics, "leaderboard_archive_last_success_timestamp_seconds 1")
	})
	checkContains(t, command(t, "", []string{"LEADERBOARD_ARCHIVE_TO=postgres://u:s3cret@h/d"}, "config").stdout, "archive.to", "[hidden]")
	if code := s.stop(); code != exitOK {
		t.Errorf("serve exited with %d, want 0: %s", code, s.stderr)
	}
	failing := startServer(t, filepath.Join(t.TempDir(), "data"), []string{"LEADERBOARD_ARCHIVE_TO=postgres://u:s3cret@127.0.0.1:1/d", "LEADERBOARD_ARCHIVE_PASSWORD=s3cret"}, "--insecure", "--log-level", "debug")
	eventually(t, "the log has the failure", func() bool {
		_, ok := findLogEntry(failing.stderr.String(), "archive failed; the next run continues")
		return ok
	})
	failing.ok(t, "submit", "ada", "--points", "3") // the server serves
	if code := failing.stop(); code != exitOK || strings.Contains(failing.stderr.String(), "s3cret") {
		t.Errorf("serve exited with %d; want 0, and no password in its log: %s", code, failing.stderr)
	}
}
