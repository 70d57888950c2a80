// Package schema holds the Cassandra schema of storage/cql as numbered CQL files
// and brings a keyspace up to it, forward only.
package schema

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"
)

var (
	// ErrOlder: the keyspace lacks migrations that the program needs.
	ErrOlder = errors.New("the schema is older than this program; run: leaderboard schema apply")
	// ErrNewer: the keyspace has migrations that the program does not know.
	ErrNewer = errors.New("the schema is newer than this program; run a newer version of it")
	// ErrReplicas: the keyspace keeps other replicas than asked for.
	ErrReplicas = errors.New("the keyspace keeps other replicas")
	// ErrDataCenter: no node is in the data center that is named.
	ErrDataCenter = errors.New("no node is in the local data center; mend cassandra.data_center")
	// ErrChanged: a migration was applied with another content.
	ErrChanged = errors.New("the schema was made by other files; restore them, or use another keyspace")
)

//go:embed cql/*.cql
var files embed.FS

// Migration is one numbered file.
type Migration struct {
	Version   int // from 1
	Name      string
	Checksum  string    // SHA-256 of the file, in hexadecimal
	AppliedAt time.Time // zero if it is not applied

	statements []string
}

// embedded returns the migrations of this program, by version.
func embedded() ([]Migration, error) { return parse(files) }

func parse(files fs.FS) ([]Migration, error) {
	names, err := fs.Glob(files, "cql/*.cql")
	if err != nil {
		return nil, err
	}
	var all []Migration
	for i, name := range names { // sorted
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		number, slug, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(name, "cql/"), ".cql"), "_")
		version, err := strconv.Atoi(number)
		if !ok || err != nil || len(number) != 4 || version != i+1 {
			return nil, fmt.Errorf("schema: %s is not the file of version %d: NNNN_slug.cql, without gaps", name, i+1)
		}
		sum := sha256.Sum256(text)
		m := Migration{Version: version, Name: slug, Checksum: hex.EncodeToString(sum[:]), statements: split(string(text))}
		if len(m.statements) == 0 {
			return nil, fmt.Errorf("schema: %s holds no statement", name)
		}
		all = append(all, m)
	}
	return all, nil
}

// split returns the statements of a file. A line that begins with two dashes is
// a comment, and a statement ends with a semicolon at the end of a line.
func split(text string) []string {
	var statements []string
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(line, " \r\t")
		if line == "" || strings.HasPrefix(strings.TrimLeft(line, " \t"), "--") {
			continue
		}
		end := strings.HasSuffix(line, ";")
		lines = append(lines, strings.TrimSuffix(line, ";"))
		if end {
			statements = append(statements, strings.Join(lines, "\n"))
			lines = nil
		}
	}
	if len(lines) > 0 {
		statements = append(statements, strings.Join(lines, "\n"))
	}
	return statements
}

// Check returns nil if the session's keyspace has the migrations of this program.
// It may have later ones: migrations only add, so that a process which restarts
// while the others are being upgraded goes on. Errors: [ErrOlder], [ErrChanged].
func Check(ctx context.Context, session *gocql.Session) error {
	want, err := embedded()
	if err != nil {
		return err
	}
	return check(ctx, session, want)
}

func check(ctx context.Context, session *gocql.Session, want []Migration) error {
	have, err := applied(ctx, session)
	if err != nil {
		return err
	}
	if err := compare(want, have); err != nil && !errors.Is(err, ErrNewer) {
		return err
	}
	if len(have) < len(want) {
		return fmt.Errorf("schema: it is at version %d, this program needs %d: %w", len(have), len(want), ErrOlder)
	}
	return nil
}

// compare returns an error unless have is the beginning of want.
func compare(want, have []Migration) error {
	for i, h := range have {
		switch {
		case h.Version > len(want):
			return fmt.Errorf("schema: it is at version %d, this program knows %d: %w", have[len(have)-1].Version, len(want), ErrNewer)
		case h.Version != i+1:
			return fmt.Errorf("schema: version %d is applied and %d is not: %w", h.Version, i+1, ErrChanged)
		case h.Checksum != want[i].Checksum:
			return fmt.Errorf("schema: version %d has checksum %s, this program's has %s: %w", h.Version, h.Checksum, want[i].Checksum, ErrChanged)
		}
	}
	return nil
}

// Status returns the migrations of this program and those applied to the
// session's keyspace, by version.
func Status(ctx context.Context, session *gocql.Session) ([]Migration, error) {
	all, err := embedded()
	if err != nil {
		return nil, err
	}
	have, err := applied(ctx, session)
	if err != nil {
		return nil, err
	}
	for _, h := range have {
		if h.Version <= len(all) && all[h.Version-1].Checksum == h.Checksum {
			all[h.Version-1].AppliedAt = h.AppliedAt
		} else {
			all = append(all, h)
		}
	}
	return all, nil
}

// applied returns the migrations that were applied, by version.
func applied(ctx context.Context, session *gocql.Session) ([]Migration, error) {
	var have []Migration
	iter := session.Query(selectMigrations).WithContext(ctx).Consistency(gocql.Quorum).Iter()
	for m := (Migration{}); iter.Scan(&m.Version, &m.Name, &m.Checksum, &m.AppliedAt); m = (Migration{}) {
		have = append(have, m)
	}
	if err := iter.Close(); err != nil {
		var request gocql.RequestError
		if errors.As(err, &request) && request.Code() == gocql.ErrCodeInvalid {
			return nil, nil // no such table: nothing was ever applied
		}
		return nil, fmt.Errorf("schema: read %s: %w", "schema_migrations", err)
	}
	return have, nil
}
