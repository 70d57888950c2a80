package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

// postgresServer is a PostgreSQL server of Debian's package.
type postgresServer struct {
	bin, dir, address string
	as                *syscall.Credential // nil unless this process is root, as whom PostgreSQL refuses to run
	databases         int
}

const postgresUser, postgresPassword = "archive", "pa ss/w@rd%"

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
