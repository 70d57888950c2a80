// Package schema contains the Cassandra schema of storage/cql as numbered CQL files, the
// migrations. It applies them in order, and never undoes one.
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
	// ErrOlder means that the keyspace lacks migrations of this program.
	ErrOlder = errors.New("the schema is older than this program; run `leaderboard schema apply`")
	// ErrNewer means that the keyspace has migrations that this program lacks.
	ErrNewer = errors.New("the schema is newer than this program; run a newer version of the program")
	// ErrUnreleased means that a build from before version 0.1.0 created the keyspace.
	ErrUnreleased = errors.New("a build from before version 0.1.0 created the keyspace; export its results with that build, and import them with this one into another keyspace")
	// ErrReplicas means that the keyspace has other replicas than the caller expects.
	ErrReplicas = errors.New("the replication of the keyspace differs")
	// ErrDataCenter means that no node is in the configured data center.
	ErrDataCenter = errors.New("no node is in the local data center; correct cassandra.data_center")
	// ErrChanged means that an applied migration differs from this program's migration of
	// the same version.
	ErrChanged = errors.New("the schema was created from different migration files; restore the original files, or use another keyspace")
)

// unreleased is the checksum of the first migration of all builds from before version 0.1.0.
const unreleased = "9dd890dc5140a091faff930effb97c03ec1849c8062970578eb201eb18806380"

//go:embed cql/*.cql
var files embed.FS

// Migration is one numbered file. A released file must not change, not even its comments, because
// the checksum covers the whole file. So comments in these files may be outdated. The package comment
// of storage/cql explains the columns.
type Migration struct {
	Version   int // the first is 1
	Name      string
	Checksum  string    // SHA-256 of the file, in hexadecimal
	AppliedAt time.Time // zero if the migration is not applied

	statements []string
}

func ownMigrations() ([]Migration, error) { return parse(files) }

func parse(files fs.FS) ([]Migration, error) {
	names, err := fs.Glob(files, "cql/*.cql")
	if err != nil {
		return nil, err
	}
	var all []Migration
	for i, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		number, slug, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(name, "cql/"), ".cql"), "_")
		version, err := strconv.Atoi(number)
		if !ok || err != nil || len(number) != 4 || version != i+1 {
			return nil, fmt.Errorf("schema: %s must be the file of version %d: name the files NNNN_slug.cql, without gaps", name, i+1)
		}
		sum := sha256.Sum256(text)
		m := Migration{Version: version, Name: slug, Checksum: hex.EncodeToString(sum[:]), statements: split(string(text))}
		if len(m.statements) == 0 {
			return nil, fmt.Errorf("schema: %s has no statement", name)
		}
		all = append(all, m)
	}
	return all, nil
}

// split returns the statements of a file. A line that begins with -- is a comment. A semicolon
// before a line end ends a statement.
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

// Check checks that the session's keyspace has all migrations of this program. It accepts newer
// migrations, because an upgrade applies them first. Errors: [ErrOlder], [ErrUnreleased], [ErrChanged].
func Check(ctx context.Context, session *gocql.Session) error {
	want, err := ownMigrations()
	if err != nil {
		return err
	}
	return check(ctx, session, want)
}

func check(ctx context.Context, session *gocql.Session, want []Migration) error {
	applied, err := appliedMigrations(ctx, session)
	if err != nil {
		return err
	}
	if err := checkApplied(want, applied); err != nil && !errors.Is(err, ErrNewer) {
		return err
	}
	if len(applied) < len(want) {
		return fmt.Errorf("schema: the keyspace is at version %d, this program needs %d: %w", len(applied), len(want), ErrOlder)
	}
	return nil
}

func checkApplied(want, applied []Migration) error {
	for i, h := range applied {
		switch {
		case h.Version == 1 && h.Checksum == unreleased:
			return fmt.Errorf("schema: the first migration of the keyspace is %q of %s: %w", h.Name, h.AppliedAt.Format(time.DateOnly), ErrUnreleased)
		case h.Version > len(want):
			return fmt.Errorf("schema: the keyspace is at version %d, this program has version %d: %w", applied[len(applied)-1].Version, len(want), ErrNewer)
		case h.Version != i+1:
			return fmt.Errorf("schema: version %d is applied, but version %d is not: %w", h.Version, i+1, ErrChanged)
		case h.Checksum != want[i].Checksum:
			return fmt.Errorf("schema: version %d was applied with checksum %s, this program has checksum %s: %w", h.Version, h.Checksum, want[i].Checksum, ErrChanged)
		}
	}
	return nil
}

// Status returns the migrations of this program, and after them the keyspace's newer and changed
// migrations.
func Status(ctx context.Context, session *gocql.Session) ([]Migration, error) {
	all, err := ownMigrations()
	if err != nil {
		return nil, err
	}
	applied, err := appliedMigrations(ctx, session)
	if err != nil {
		return nil, err
	}
	for _, h := range applied {
		if h.Version <= len(all) && all[h.Version-1].Checksum == h.Checksum {
			all[h.Version-1].AppliedAt = h.AppliedAt
		} else {
			all = append(all, h)
		}
	}
	return all, nil
}

func appliedMigrations(ctx context.Context, session *gocql.Session) ([]Migration, error) {
	var applied []Migration
	iter := session.Query(selectMigrations).WithContext(ctx).Consistency(gocql.Quorum).Iter()
	for m := (Migration{}); iter.Scan(&m.Version, &m.Name, &m.Checksum, &m.AppliedAt); m = (Migration{}) {
		applied = append(applied, m)
	}
	if err := iter.Close(); err != nil {
		var request gocql.RequestError
		if errors.As(err, &request) && request.Code() == gocql.ErrCodeInvalid {
			return nil, nil // the table does not exist: no migration was ever applied
		}
		return nil, fmt.Errorf("schema: read schema_migrations: %w", err)
	}
	return applied, nil
}
