package cql

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard/storage/storagetest"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

// storedSample has what commit c7bc028 did with the sample (see storagetest/sample.go): the
// statements of WriteSample, one batch per line, and then the answers of DescribeSample,
// ExtendSample, and a second DescribeSample.
const storedSample = "testdata/sample.jsonl.gz"

// Exactly one field is set.
type sampleLine struct {
	Write  []sampleStatement `json:"write"`
	Swap   []sampleStatement `json:"swap"`
	Answer string            `json:"answer"`
}

type sampleStatement struct {
	Text string           `json:"stmt"`
	Args []sampleArgument `json:"args"`
}

type sampleArgument struct {
	Type  string          `json:"t"`
	Value json.RawMessage `json:"v"`
}

func (a *sampleArgument) decode() (any, error) {
	switch a.Type {
	case "<nil>":
		return nil, nil
	case "string":
		return unmarshal[string](a.Value)
	case "int":
		return unmarshal[int](a.Value)
	case "int8":
		return unmarshal[int8](a.Value)
	case "int64":
		return unmarshal[int64](a.Value)
	case "[]uint8":
		text, err := unmarshal[string](a.Value)
		if err != nil {
			return nil, err
		}
		return base64.StdEncoding.DecodeString(text)
	case "[]string":
		return unmarshal[[]string](a.Value)
	case "[]int64":
		return unmarshal[[]int64](a.Value)
	}
	return nil, fmt.Errorf("the sample has an argument of the unknown type %s", a.Type)
}

func unmarshal[T any](b []byte) (v T, err error) {
	err = json.Unmarshal(b, &v)
	return v, err
}

func decodeStatements(list []sampleStatement) ([]op, error) {
	ops := make([]op, len(list))
	for i, s := range list {
		ops[i].stmt = s.Text
		for j := range s.Args {
			arg, err := s.Args[j].decode()
			if err != nil {
				return nil, err
			}
			ops[i].args = append(ops[i].args, arg)
		}
	}
	return ops, nil
}

func unzip(t *testing.T, name string) []byte {
	t.Helper()
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func sampleLines(t *testing.T) (lines []sampleLine) {
	t.Helper()
	for d := json.NewDecoder(bytes.NewReader(unzip(t, storedSample))); ; {
		var line sampleLine
		if err := d.Decode(&line); errors.Is(err, io.EOF) {
			return lines
		} else if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
}

func sampleAnswers(t *testing.T) (answers []string) {
	t.Helper()
	for _, line := range sampleLines(t) {
		if line.Answer != "" {
			answers = append(answers, line.Answer)
		}
	}
	return answers
}

func replaySample(t *testing.T, c conn) []string {
	t.Helper()
	for _, line := range sampleLines(t) {
		ops, err := decodeStatements(append(line.Write, line.Swap...))
		switch {
		case err != nil || line.Answer != "":
		case len(line.Swap) > 0:
			// The condition may not hold. CheckSample compares the effects.
			_, err = c.swap(t.Context(), ops[0], map[string]any{})
		default:
			err = c.write(t.Context(), ops...)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return sampleAnswers(t)
}

// storedKeyspace is a keyspace that commit c7bc028 wrote with WriteSample: a description, and then
// one CQL statement per line.
const storedKeyspace = "testdata/keyspace.cql.gz"

// Conditional statements wrote the stored keyspace before keyspaceStoredAt. If the clock is
// earlier, new conditional statements get smaller timestamps and have no effect.
var keyspaceStoredAt = time.Date(2026, 11, 22, 1, 24, 0, 0, time.UTC)

func loadStoredKeyspace(t *testing.T, o Options) {
	t.Helper()
	if now := time.Now(); now.Before(keyspaceStoredAt) {
		t.Fatalf("the clock shows %s, but the stored keyspace is from %s; correct the clock", now.Format(time.RFC3339), keyspaceStoredAt.Format(time.RFC3339))
	}
	tables, rows := storedStatements(t)
	changeSchema(t, o, "", "CREATE KEYSPACE IF NOT EXISTS "+o.Keyspace+" WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 1}")
	t.Cleanup(func() { (&keyspace{options: o, session: connect(t, o, "")}).drop() })
	changeSchema(t, o, o.Keyspace, tables...)
	gs := connect(t, o, o.Keyspace)
	defer gs.Close()
	c := retryingConn{session{gs}}
	for batch := range slices.Chunk(rows, 20) {
		if err := c.write(t.Context(), batch...); err != nil {
			t.Fatal(err)
		}
	}
}

func connect(t *testing.T, o Options, keyspace string) *gocql.Session {
	t.Helper()
	gs, err := o.connect(keyspace)
	if err != nil {
		t.Fatal(err)
	}
	return gs
}

func changeSchema(t *testing.T, o Options, keyspace string, statements ...string) {
	t.Helper()
	gs := connect(t, o, keyspace)
	defer gs.Close()
	for _, stmt := range statements {
		err := whileBusy(t.Context(), func() error {
			err := gs.Query(stmt).WithContext(t.Context()).RetryPolicy(nil).Exec()
			if err == nil {
				err = gs.AwaitSchemaAgreement(t.Context())
			}
			return wrapError(t.Context(), stmt, err)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func storedStatements(t *testing.T) (tables []string, rows []op) {
	t.Helper()
	for line := range strings.Lines(string(unzip(t, storedKeyspace))) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "--"):
		case strings.HasPrefix(line, "CREATE"):
			tables = append(tables, line)
		default:
			rows = append(rows, op{stmt: line})
		}
	}
	return tables, rows
}

func sampleOptions(o Options) Options {
	o.DataCenter, o.Buckets, o.CacheUsers = "dc1", 3, 100
	return o
}

func TestModelOfAStoredKeyspace(t *testing.T) {
	c := newModel(nil)
	want := replaySample(t, c)
	storagetest.CheckSample(t, open(c, sampleOptions(Options{})), want)
}

// After the current migrations, the store gives the answers of commit c7bc028.
func TestStoredKeyspaceIsServedUnchanged(t *testing.T) {
	t.Parallel()
	o := sampleOptions(realOptions(cluster.Cassandra(t, 1), fmt.Sprintf("stored_%x", time.Now().UnixNano()&0xffffffff)))
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	loadStoredKeyspace(t, o)
	if err := applySchema(o, 1); err != nil {
		t.Fatal(err)
	}
	store, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	store.conn = retryingConn{store.conn}
	storagetest.CheckSample(t, store, sampleAnswers(t))
}
