package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// postgresServer is a PostgreSQL server of Debian's package.
type postgresServer struct {
	bin, dir, address string
	as                *syscall.Credential // nil unless this process is root, as whom PostgreSQL refuses to run
	databases         int
}

const postgresUser, postgresPassword = "tester", "pa ss/w@rd%"

// startPostgres starts a server that ends with t.
func startPostgres(t *testing.T) *postgresServer {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err == nil && len(found) == 0 {
		err = errors.New("PostgreSQL is not installed; ./scripts/install-test-deps.sh --all installs it")
	}
	if err != nil {
		needs.Missing(t, err)
	}
	slices.Sort(found)
	s := &postgresServer{bin: filepath.Dir(found[len(found)-1])}
	if s.dir, err = os.MkdirTemp("", "postgres"); err != nil { //nolint:usetesting // another user cannot enter t.TempDir
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(s.dir) })
	if os.Geteuid() == 0 {
		u, err := osuser.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := errors.Join(uidErr, gidErr, os.Chown(s.dir, int(uid), int(gid))); err != nil {
			t.Fatal(err)
		}
	}
	password := filepath.Join(s.dir, "password")
	if err := os.WriteFile(password, []byte(postgresPassword), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := s.command(t.Context(), "initdb", "-D", s.dir+"/data", "-U", postgresUser, "--pwfile", password, "-A", "scram-sha-256", "-E", "UTF8", "--locale", "C").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = l.Addr().String()
	_ = l.Close()
	s.start(t)
	return s
}

func (s *postgresServer) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, program), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	cmd.Dir = s.dir
	return cmd
}

// start starts the server, and waits until it answers.
func (s *postgresServer) start(t *testing.T, options ...string) {
	t.Helper()
	_, port, _ := net.SplitHostPort(s.address)
	cmd := s.command(context.Background(), "postgres", append([]string{"-D", s.dir + "/data", "-k", s.dir, "-p", port, "-h", "127.0.0.1"}, options...)...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT) // immediate shutdown
		<-exited
	})
	eventually(t, "PostgreSQL answers", func() bool {
		select {
		case <-exited:
			t.Fatalf("postgres ended: %s", log.String())
		default:
		}
		conn, err := pgx.Connect(t.Context(), s.url("postgres"))
		if err != nil {
			return false
		}
		return conn.Close(t.Context()) == nil
	})
}

func (s *postgresServer) url(database string) string {
	return "postgres://" + postgresUser + ":pa%20ss%2Fw%40rd%25@" + s.address + "/" + database + "?sslmode=disable"
}

// database creates a database, and returns its URL.
func (s *postgresServer) database(t *testing.T, options string) string {
	t.Helper()
	s.databases++
	name := "history" + strconv.Itoa(s.databases)
	s.exec(t, s.url("postgres"), fmt.Sprintf("CREATE DATABASE %s %s", name, options))
	return s.url(name)
}

func (s *postgresServer) exec(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// lines returns the rows of a query as text.
func (s *postgresServer) lines(t *testing.T, url, sql string, args ...any) (list []string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(t.Context(), sql, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	defer rows.Close()
	for rows.Next() {
		line := ""
		for i, v := range rows.RawValues() {
			if i > 0 {
				line += "\t"
			}
			line += string(v)
		}
		list = append(list, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return list
}

func TestArchiveInPostgres(t *testing.T) {
	needs.Slow(t, "archives")
	s := startPostgres(t)
	t.Run("gives an equal server", func(t *testing.T) { testArchive(t, s.database(t, "")) })
	t.Run("follows changes", func(t *testing.T) { testChanges(t, s.database(t, "")) })
	t.Run("continues after interruptions", func(t *testing.T) { testInterruptions(t, func() string { return s.database(t, "") }) })
}

// rowVersions returns the transactions that last wrote each row.
const rowVersions = `SELECT 'boards', board_id || ' ' || xmin::text FROM leaderboard.boards UNION ALL SELECT 'seasons', board_id || season || ' ' || xmin::text FROM leaderboard.seasons
	UNION ALL SELECT 'users', user_id || ' ' || xmin::text FROM leaderboard.users UNION ALL SELECT 'results', match_id || ' ' || xmin::text FROM leaderboard.results
	UNION ALL SELECT 'standings', user_id || ' ' || xmin::text FROM leaderboard.standings UNION ALL SELECT 'bans', user_id || ' ' || xmin::text FROM leaderboard.bans
	UNION ALL SELECT 'erasures', act_id || ' ' || xmin::text FROM leaderboard.erasures ORDER BY 1, 2`

func TestArchiveInPostgresWritesNothingTwice(t *testing.T) {
	needs.Slow(t, "archives")
	p, s := startPostgres(t), sealedServer(t)
	s.ok(t, "ban", "u1", "--reason", "r", "--yes")
	s.ok(t, "profile", "set", "u2", "--name", "Two")
	s.ok(t, "erase", "u8", "--yes")
	to := p.database(t, "")
	archiveTo(t, s, to)
	before := p.lines(t, to, rowVersions)
	archiveTo(t, s, to)
	if after := p.lines(t, to, rowVersions); !slices.Equal(before, after) || len(before) < 50 {
		t.Errorf("the second run changed rows: before %v, after %v", before, after)
	}
	uncommented := p.lines(t, to, `SELECT relname FROM pg_class c WHERE relnamespace = 'leaderboard'::regnamespace AND relkind = 'r' AND obj_description(c.oid) IS NULL`)
	if len(uncommented) > 0 {
		t.Errorf("tables without a comment: %v", uncommented)
	}
}

// tableOf returns what the API answers about a season, a line for each entry with the fields that get returns.
func tableOf(t *testing.T, s *clockedServer, method, division string, get func(*pb.Entry) string) (lines []string) {
	t.Helper()
	req := &pb.ListScoresRequest{Board: "cup", Season: "202610", Division: division, Method: method, Limit: new(int32(1000)), IncludeProfile: true}
	list, err := pb.NewLeaderboardServiceClient(s.conn(t)).ListScores(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.GetData().GetLeaderboard() {
		lines = append(lines, get(e))
	}
	if !list.GetData().GetSealed() || len(lines) < 3 {
		t.Fatalf("the API has %d entries, sealed %v; want a sealed table", len(lines), list.GetData().GetSealed())
	}
	return lines
}

// The test runs the SQL of the documentation, word for word, and compares the answers with those of the API.
func TestSQLOfTheDocumentationGivesTheSealedTable(t *testing.T) {
	needs.Slow(t, "archives")
	p, s := startPostgres(t), sealedServer(t)
	s.ok(t, "profile", "set", "u2", "--name", "Zoë \\ 'Two'")
	s.ok(t, "ban", "u6", "--board", "cup")
	s.ok(t, "erase", "u0", "--yes")
	s.pass(t, time.Minute)
	sql := blocks(t, operationsPage("archives.md"), "sql")
	if len(sql) != 7 {
		t.Fatalf("the page has %d blocks of SQL, want 7: adapt this test", len(sql))
	}
	for statement := range strings.SplitSeq(sql[0], ";\n") { // CREATE DATABASE must be alone
		p.exec(t, p.url("postgres"), statement)
	}
	to := strings.Replace(p.url("history"), "tester:pa%20ss%2Fw%40rd%25", "archive:choose-one", 1)
	r := command(t, "", []string{"LEADERBOARD_SERVER=" + s.grpc, "LEADERBOARD_ARCHIVE_PASSWORD=choose-one", "LEADERBOARD_ARCHIVE_TO=" + strings.Replace(to, ":choose-one", "", 1)}, "archive")
	if r.code != exitOK {
		t.Fatalf("archive with the password in the environment: exit code %d: %s", r.code, r.stderr)
	}
	p.exec(t, p.url("history"), sql[1])
	analyst := strings.Replace(to, "archive:choose-one", "analyst:choose-another", 1)

	entrants := len(tableOf(t, s, "competition", "", (*pb.Entry).GetUserId))
	achieved := func(e *pb.Entry) string { return e.GetAchievedAt().AsTime().Format("2006-01-02 15:04:05") + "+00" }
	for i, want := range [][]string{
		tableOf(t, s, "competition", "", func(e *pb.Entry) string {
			return fmt.Sprint(e.GetRank(), "\t", e.GetUserId(), "\t", e.GetProfile().GetDisplayName(), "\t", e.GetScore(), "\t", achieved(e))
		}),
		tableOf(t, s, "dense", "gender:F", func(e *pb.Entry) string { return fmt.Sprint(e.GetRank(), "\t", e.GetUserId(), "\t", e.GetScore()) }),
		slices.DeleteFunc(tableOf(t, s, "competition", "", func(e *pb.Entry) string {
			return fmt.Sprint("202610\t", e.GetRank(), "\t", e.GetScore(), "\t", entrants, map[bool]string{true: "", false: "\tnot u1"}[e.GetUserId() == "u1"])
		}), func(line string) bool { return strings.HasSuffix(line, "not u1") }),
		tableOfResults(tableOf(t, s, "competition", "", func(e *pb.Entry) string { return fmt.Sprint(e.GetScore(), "\t", e.GetUserId()) })),
		{parseObject(t, s.ok(t, "season", "show", "202610", "--board", "cup", "--checksum", "--json"))["data"].(map[string]any)["checksum"].(string)},
	} {
		got := p.lines(t, analyst+"&timezone=UTC", strings.TrimSuffix(strings.TrimSpace(sql[2+i]), ";"))
		if !slices.Equal(got, want) {
			t.Errorf("the API and the database differ: %s\nAPI:\n%s\ndatabase:\n%s", sql[2+i], strings.Join(want, "\n"), strings.Join(got, "\n"))
		}
	}
	if got, want := content(t, analyst, "cup"), content(t, to, "cup"); got != want || len(got) < 1000 {
		t.Errorf("a user that may only read reads %s, want %s", got, want)
	}
	if r := s.do(t, "archive", "--to", analyst); r.code != exitFailure || !strings.Contains(r.stderr, "lacks a privilege") && !strings.Contains(r.stderr, "permission denied") {
		t.Errorf("archive as a user that may only read: exit code %d, %s; want an error about privileges", r.code, r.stderr)
	}
}

// tableOfResults numbers lines of score and user by competition ranks. An erased user has left a gap in the sealed ranks, and
// none in ranks that follow from the results.
func tableOfResults(lines []string) []string {
	slices.SortFunc(lines, func(x, y string) int {
		scoreX, userX, _ := strings.Cut(x, "\t")
		scoreY, userY, _ := strings.Cut(y, "\t")
		return cmp.Or(cmp.Compare(scoreY, scoreX), cmp.Compare(userX, userY)) // scores have one digit
	})
	rank, last := 0, ""
	table := make([]string, len(lines))
	for i, line := range lines {
		score, user, _ := strings.Cut(line, "\t")
		if score != last {
			rank, last = i+1, score
		}
		table[i] = fmt.Sprint(rank, "\t", user, "\t", score)
	}
	return table
}

func TestArchiveInPostgresRefusesOtherDatabases(t *testing.T) {
	needs.Slow(t, "archives")
	p, s := startPostgres(t), sealedServer(t)
	prepared := func(sql ...string) string {
		to := p.database(t, "")
		for _, statement := range sql {
			p.exec(t, to, statement)
		}
		return to
	}
	archived := func(sql string) string {
		to := p.database(t, "")
		archiveTo(t, s, to)
		p.exec(t, to, sql)
		return to
	}
	p.exec(t, p.url("postgres"), "CREATE ROLE weak LOGIN PASSWORD 'w'")
	weak := func(to string) string { return strings.Replace(to, "tester:pa%20ss%2Fw%40rd%25", "weak:w", 1) }
	latin := p.database(t, "ENCODING 'LATIN1' TEMPLATE template0")
	_, port, _ := net.SplitHostPort(p.address)
	for _, tt := range []struct{ name, to, want string }{
		{"a schema of another program", prepared("CREATE SCHEMA leaderboard", "CREATE TABLE leaderboard.users (id int)"), "schema leaderboard of another program"},
		{"a table archive of another program", prepared("CREATE SCHEMA leaderboard", "CREATE TABLE leaderboard.archive (id int)"), "is not that of an archive"},
		{"a newer format", archived("UPDATE leaderboard.archive SET format = 2"), "has the format 2, but this program writes the format 1"},
		{"another encoding", latin, "the encoding of the database is LATIN1"},
		{"a read-only database", archived("DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET default_transaction_read_only = on'; END $$"), "the database is read-only"},
		{"a user without privileges", weak(prepared()), "lacks a privilege"},
		{"a wrong password", strings.Replace(p.url("history1"), "pa%20ss%2Fw%40rd%25", "s3cret-s3cret", 1), "refuses the connection"},
		{"a database that does not exist", p.url("nowhere"), "refuses the connection"},
		{"no server", "postgres://archive:s3cret-s3cret@127.0.0.1:1/history", "no connection to the database at 127.0.0.1:1"},
		{"a port that is no number", "postgres://archive:s3cret-s3cret@127.0.0.1:" + port + "x/history", "is not a URL"},
		{"an unknown parameter", "postgres://archive:s3cret-s3cret@127.0.0.1/history?sslmode=maybe", "the URL of the database is invalid"},
	} {
		r := s.do(t, "archive", "--to", tt.to)
		if r.code == exitOK || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%s: exit code %d, %s; want an error with %q", tt.name, r.code, r.stderr, tt.want)
		}
		for _, secret := range []string{"s3cret", "pa%20ss", postgresPassword} {
			if strings.Contains(r.stdout+r.stderr, secret) {
				t.Errorf("%s: the output has the password: %s", tt.name, r.stderr)
			}
		}
	}
	busy := p.database(t, "")
	archiveTo(t, s, busy)
	conn, err := pgx.Connect(t.Context(), busy)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), fmt.Sprint("SELECT pg_advisory_lock(", int64(0x6c65616465726273), ")")); err != nil {
		t.Fatal(err)
	}
	s.fails(t, exitFailure, []string{"another process writes this archive now"}, "archive", "--to", busy)
	s.ok(t, "archive", "export", "--from", busy, "--board", "cup") // readers need no lock
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.ok(t, "archive", "--to", busy)
	s.fails(t, exitFailure, []string{"there is no archive"}, "archive", "restore", "--from", p.database(t, ""))
	s.fails(t, exitFailure, []string{"has no board", "nope"}, "archive", "restore", "--from", busy, "--board", "nope")
}

// A process is killed again and again while it archives. The runs together make a complete archive.
func TestKilledArchiveIsComplete(t *testing.T) {
	needs.Slow(t, "archives")
	p, s := startPostgres(t), sealedServer(t)
	for _, to := range []string{p.database(t, ""), "parquet:" + filepath.Join(t.TempDir(), "archive")} {
		for delay := 20 * time.Millisecond; ; delay += 5 * time.Millisecond {
			cmd := exec.Command(os.Args[0], "archive", "--to", to)
			cmd.Env = []string{childEnv + "=1", "LEADERBOARD_SERVER=" + s.grpc}
			stdin, err := cmd.StdinPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(delay, func() { _ = cmd.Process.Kill() })
			err = cmd.Wait()
			_ = stdin.Close()
			if timer.Stop() && err == nil {
				break
			}
		}
		if r := archiveTo(t, s, to); r != (archiveReport{Unchanged: 2}) {
			t.Errorf("run after the killed ones: %+v, want 2 unchanged seasons", r)
		}
		complete := "parquet:" + filepath.Join(t.TempDir(), "complete")
		archiveTo(t, s, complete)
		for _, board := range []string{"cup", "laps"} {
			if diff := gocmp.Diff(content(t, complete, board), content(t, to, board)); diff != "" {
				t.Errorf("the archive of %s after killed runs differs (-complete +killed):\n%s", board, diff)
			}
		}
	}
}

// The process may not write files of more than some bytes, as if the disk were full. The archive stays as it was before the
// season that does not fit.
func TestFullDiskLeavesTheArchiveAsItWas(t *testing.T) {
	needs.Slow(t, "archives")
	needs.Programs(t, "prlimit")
	s := sealedServer(t)
	dir := filepath.Join(t.TempDir(), "archive")
	archiveTo(t, s, "parquet:"+dir)
	before := hashes(t, dir)
	var rows strings.Builder
	for i := range 20_000 { // of the season of the next month
		fmt.Fprintf(&rows, `{"user_id":"new %d","match_id":"%x","score":%d,"achieved_at":%q}`+"\n", i, sha256.Sum256(fmt.Append(nil, i)), i, s.clock.Load().Format(time.RFC3339))
	}
	s.ok(t, "import", writeFile(t, "rows.ndjson", rows.String()), "--board", "cup")
	s.pass(t, 31*24*time.Hour)
	cmd := exec.Command("prlimit", "--fsize=100000", os.Args[0], "archive", "--to", "parquet:"+dir)
	cmd.Env = []string{childEnv + "=1", "LEADERBOARD_SERVER=" + s.grpc}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	_ = stdin.Close()
	if err == nil || !strings.Contains(string(out), "file too large") {
		t.Errorf("archive without space: %v, %s; want the error of the system", err, out)
	}
	if diff := gocmp.Diff(before, hashes(t, dir)); diff != "" {
		t.Errorf("files after the failure (-before +after):\n%s", diff)
	}
	if r := archiveTo(t, s, "parquet:"+dir); r.Archived != 1 || r.Results < 20_000 {
		t.Errorf("run with space: %+v, want 1 season", r)
	}
}
