package schema

import (
	"errors"
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/gocql/gocql"
	"github.com/google/go-cmp/cmp"
)

// If a released migration file changes, the program rejects every keyspace in which the old file was
// applied.
func TestReleasedMigrationsAreUnchanged(t *testing.T) {
	released := []string{
		"01d3e9a0bff3cd472c426e05de3c6f1d4640b5629bd6c6b39799bb1d56006486",
	}
	all, err := ownMigrations()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(released) {
		t.Fatalf("the program has %d migrations and the test lists %d: add the checksum of each new file", len(all), len(released))
	}
	for i, want := range released {
		if all[i].Checksum != want {
			t.Errorf("the file of version %d has checksum %s, and was released with %s; restore the file and add a migration", i+1, all[i].Checksum, want)
		}
	}
}

func TestSplit(t *testing.T) {
	const text = "-- a comment;\nCREATE TABLE a (\n    -- of a column;\n    b int PRIMARY KEY\n);\n\nALTER TABLE a ADD c text;  \nDROP TABLE d\n"
	want := []string{"CREATE TABLE a (\n    b int PRIMARY KEY\n)", "ALTER TABLE a ADD c text", "DROP TABLE d"}
	if d := cmp.Diff(want, split(text)); d != "" {
		t.Errorf("statements (-want +got):\n%s", d)
	}
}

func TestParseRefusesFilesOutOfOrder(t *testing.T) {
	file := &fstest.MapFile{Data: []byte("SELECT 1;")}
	for _, tt := range []struct {
		name  string
		files []string
		ok    bool
	}{
		{"versions in order", []string{"0001_a", "0002_b"}, true},
		{"a gap between versions", []string{"0001_a", "0003_b"}, false},
		{"the first version is 2", []string{"0002_a"}, false},
		{"a version twice", []string{"0001_a", "0001_b"}, false},
		{"a number of one digit", []string{"1_a"}, false},
		{"no slug", []string{"0001"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for _, name := range tt.files {
				fsys["cql/"+name+".cql"] = file
			}
			if _, err := parse(fsys); (err == nil) != tt.ok {
				t.Errorf("parse: error %v, want an error: %v", err, !tt.ok)
			}
		})
	}
	if _, err := parse(fstest.MapFS{"cql/0001_a.cql": {Data: []byte("-- nothing\n")}}); err == nil {
		t.Error("parse of a file without statements returned no error, want one")
	}
}

func TestCheckApplied(t *testing.T) {
	m := func(version int, sum string) Migration { return Migration{Version: version, Checksum: sum} }
	want := []Migration{m(1, "a"), m(2, "b")}
	for _, tt := range []struct {
		name    string
		applied []Migration
		err     error
	}{
		{"no migration is applied", nil, nil},
		{"the first of two is applied", want[:1], nil},
		{"all are applied", want, nil},
		{"an unknown version is applied", []Migration{m(1, "a"), m(2, "b"), m(3, "c")}, ErrNewer},
		{"a different file is applied", []Migration{m(1, "a"), m(2, "x")}, ErrChanged},
		{"a version is missing", []Migration{m(2, "b")}, ErrChanged},
		{"a build from before 0.1.0 has applied more versions", []Migration{m(1, unreleased), m(2, "y"), m(3, "z")}, ErrUnreleased},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := checkApplied(want, tt.applied); !errors.Is(err, tt.err) {
				t.Errorf("checkApplied: error %v, want %v", err, tt.err)
			}
		})
	}
}

func TestCreateKeyspace(t *testing.T) {
	stmt, err := createKeyspace("lb", map[string]int{"eu": 3, "asia": 2})
	if err != nil {
		t.Fatal(err)
	}
	const want = "CREATE KEYSPACE IF NOT EXISTS lb WITH replication = {'class': 'NetworkTopologyStrategy', 'asia': 2, 'eu': 3}"
	if stmt != want {
		t.Errorf("createKeyspace returned %s, want %s", stmt, want)
	}
	for _, tt := range []struct {
		name     string
		keyspace string
		replicas map[string]int
	}{
		{"an upper-case letter", "Lb", map[string]int{"dc1": 1}},
		{"a quote in the name", "l'b", map[string]int{"dc1": 1}},
		{"an empty name", "", map[string]int{"dc1": 1}},
		{"no data center", "lb", nil},
		{"a quote in a data center", "lb", map[string]int{"d'c": 1}},
		{"no replica", "lb", map[string]int{"dc1": 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if stmt, err := createKeyspace(tt.keyspace, tt.replicas); err == nil {
				t.Errorf("createKeyspace returned %s, want an error", stmt)
			}
		})
	}
}

type refusal int

func (r refusal) Code() int       { return int(r) }
func (r refusal) Message() string { return "refused" }
func (r refusal) Error() string   { return fmt.Sprintf("refused with %#x", int(r)) }

func TestFromLateNode(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{refusal(gocql.ErrCodeInvalid), true},
		{refusal(gocql.ErrCodeReadFailure), true}, // the error of a node without the table
		{refusal(gocql.ErrCodeWriteFailure), true},
		{refusal(gocql.ErrCodeWriteTimeout), true},
		{fmt.Errorf("cql: %w", refusal(gocql.ErrCodeReadTimeout)), true},
		{refusal(gocql.ErrCodeUnauthorized), false},
		{refusal(gocql.ErrCodeSyntax), false},
		{gocql.ErrNoConnections, false},
	} {
		if got := fromLateNode(tt.err); got != tt.want {
			t.Errorf("fromLateNode(%v) = %v, want %v", tt.err, got, !got)
		}
	}
}
