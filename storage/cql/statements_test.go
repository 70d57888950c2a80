package cql

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

func statements(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "statements.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Error(err)
			}
			all[spec.Names[0].Name] = text
		}
		return true
	})
	if len(all) < 50 {
		t.Fatalf("the package has %d statements, want at least 50", len(all))
	}
	return all
}

// A read without conditions on the whole partition key would make Cassandra ask every node.
func TestStatementsNamePartitions(t *testing.T) {
	for name, stmt := range statements(t) {
		p := parse(stmt)
		if p.distinct { // verify, rebuild and RemoveOrphanRows read the partitions of a table, page by page
			if where := p.where[0][0]; where != "" && !strings.HasPrefix(where, "token(") {
				t.Errorf("%s must have no condition, or one on the token: %s", name, stmt)
			}
			continue
		}
		if p.verb == "INSERT" {
			continue
		}
		for _, column := range partitionColumns[p.table] {
			if !slices.ContainsFunc(p.where, func(w [2]string) bool { return w[0] == column || w[0] == column+" IN" }) {
				t.Errorf("%s must have a condition on the column %s: %s", name, column, stmt)
			}
		}
	}
}

// Cassandra takes the timestamp of a statement with a condition from a clock. The store computes
// all other timestamps. If both kinds wrote one row, some writes would be lost.
func TestTablesAreWrittenInOneWay(t *testing.T) {
	conditional := map[string]bool{}
	for name, stmt := range statements(t) {
		p := parse(stmt)
		if p.verb == "SELECT" {
			continue
		}
		swapped := len(p.condition) > 0
		if swapped == (p.timestamp != "" && !p.ttl) {
			t.Errorf("%s must have either a condition or a timestamp: %s", name, stmt)
		}
		if previous, ok := conditional[p.table]; ok && previous != swapped {
			t.Errorf("table %s is written both with and without conditions, want only one kind of statements: %s", p.table, stmt)
		}
		conditional[p.table] = swapped
	}
}

// A repeated write would change a counter twice.
func TestSchemaHasNoCounters(t *testing.T) {
	text, err := os.ReadFile("../../schema/schema.cql")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "CREATE TABLE leaderboard") || regexp.MustCompile(`(?i)\bcounter\b`).Match(text) {
		t.Error("the schema has a counter, or lacks the table leaderboard")
	}
}

type sizeRecorder struct {
	conn
	mu                sync.Mutex
	bytes, statements int // maxima of all writes
}

func (l *sizeRecorder) write(ctx context.Context, ops ...op) error {
	size := 0
	for i := range ops {
		size += ops[i].approxBytes()
	}
	l.mu.Lock()
	l.bytes, l.statements = max(l.bytes, size), max(l.statements, len(ops))
	l.mu.Unlock()
	return l.conn.write(ctx, ops...)
}

// Nodes reject writes of many megabytes.
func TestLargeWritesAreSplit(t *testing.T) {
	l := &sizeRecorder{conn: newModel(nil)}
	s := openTest(l, Options{DataCenter: "dc1", Buckets: 1, CacheUsers: 10})
	b := stepsBoard(leaderboard.Sum)
	if err := s.CreateBoard(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	const results = 1000
	var batch []leaderboard.MatchResult
	for i := range results {
		r := leaderboard.MatchResult{Score: 1, AchievedAt: stepsEpoch, ReceivedAt: stepsEpoch, Metadata: `{"x":"` + strings.Repeat("x", 4000) + `"}`}
		r.Board, r.Season, r.User, r.Match = b.ID, leaderboard.SeasonAll, "u", leaderboard.MatchID(fmt.Sprint(i))
		batch = append(batch, r)
	}
	if _, err := s.Apply(t.Context(), &b, batch); err != nil {
		t.Fatal(err)
	}
	if l.bytes > maxBatchBytes || l.bytes < maxBatchBytes/2 || l.statements < 2 {
		t.Errorf("the writes have up to %d statements and %d bytes, want at least 2 statements and between %d and %d bytes", l.statements, l.bytes, maxBatchBytes/2, maxBatchBytes)
	}
	e, err := s.Entry(t.Context(), leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}, "u")
	if err != nil || e.Results != results || b.ScoreOf(e.Key, stepsEpoch) != results {
		t.Errorf("the entry has %d results and score %d, error %v; want %d results and score %d", e.Results, b.ScoreOf(e.Key, stepsEpoch), err, results, results)
	}
}
