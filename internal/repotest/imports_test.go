// Package repotest tests the rules of this repository.
package repotest

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("the tests read files")

const module = "github.com/open-leaderboard/leaderboard"

type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Standard     bool
}

func packages(t *testing.T) map[string]pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,Standard", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]pkg{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// The root package is ".".
func shortPath(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

func isInside(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func isUnder(p string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return p == d || strings.HasPrefix(p, d+"/") })
}

func TestImportsPointInward(t *testing.T) {
	// allowed has, for each part of the module, the packages that it may import. A package
	// belongs to the part with the longest matching path. The packages inside
	// cmd/leaderboard are clients of the API, so they import neither the server nor the service.
	allowed := map[string][]string{
		".":                   {},
		"internal/certs":      {},
		"internal/coalesce":   {"."},
		"internal/codec":      {},
		"internal/finals":     {".", "storage", "internal/codec"},
		"internal/observe":    {"."},
		"internal/ranking":    {".", "internal/coalesce", "internal/names"},
		"internal/names":      {},
		"internal/config":     {".", "internal/certs", "internal/secret"},
		"api/protoconv":       {".", "api/leaderboardpb"},
		"internal/kafka":      {".", "internal/observe"},
		"internal/repotest":   {},
		"internal/engine":     {".", "storage", "internal/finals", "internal/codec", "internal/names"},
		"storage":             {"."},
		"storage/storagetest": {".", "storage", "internal/engine", "test/seed"},
		"storage/pebble":      {".", "storage", "internal/codec", "internal/observe"},
		"storage/cql":         {".", "storage", "schema", "internal/coalesce", "internal/codec", "internal/observe"},
		"schema":              {"."},
		"cache/cachetest":     {".", "test/seed"},
		"cache/memory":        {"."},
		"cache/redis":         {".", "internal/coalesce", "internal/observe"},
		"producer":            {".", "api/leaderboardpb", "api/protoconv", "internal/kafka"},
		"consumer":            {".", "api/canonical", "api/leaderboardpb", "api/protoconv", "internal/kafka", "internal/observe"},
		"api/leaderboardpb":   {},
		"api":                 {},
		"api/server":          {".", "api", "api/auth", "api/leaderboardpb", "api/protoconv", "api/restjson", "api/web", "internal/certs", "internal/coalesce", "internal/observe", "internal/ranking"},
		"api/canonical":       {".", "api/leaderboardpb", "api/protoconv", "internal/certs"},
		"api/auth":            {".", "internal/coalesce", "internal/secret"},
		"api/restjson":        {".", "api/leaderboardpb", "api/protoconv"},
		"api/web":             {},
		"internal/secret":     {},
		"internal/backup":     {},
		"internal/cli":        {},
		"internal/capacity":   {},
		"internal/records":    {},

		"cmd/leaderboard/client":   {".", "api/leaderboardpb", "api/restjson", "internal/cli", "internal/config"},
		"cmd/leaderboard/importer": {".", "api/leaderboardpb", "api/restjson", "internal/cli", "internal/config", "internal/records", "cmd/leaderboard/client"},
		"cmd/leaderboard/archive":  {".", "api/leaderboardpb", "api/restjson", "internal/cli", "internal/config", "cmd/leaderboard/client", "cmd/leaderboard/importer"},
		"cmd/leaderboard/demo":     {".", "api/leaderboardpb", "internal/cli", "cmd/leaderboard/client"},
	}
	part := func(p string) (string, bool) {
		best, found := "", false
		for name := range allowed {
			if (p == name || name != "." && strings.HasPrefix(p, name+"/")) && len(name) > len(best) {
				best, found = name, true
			}
		}
		return best, found
	}
	for path, p := range packages(t) {
		from := shortPath(path)
		if from == "cmd/leaderboard" || isUnder(from, "test") {
			continue
		}
		name, ok := part(from)
		if !ok {
			t.Errorf("%s is a new part of the module: add its imports to the map allowed", from)
			continue
		}
		for _, imp := range p.Imports {
			to := shortPath(imp)
			switch {
			case !isInside(imp):
			case isUnder(to, "cmd") && !isUnder(from, "cmd"):
				t.Errorf("%s imports %s, but no package outside cmd may import cmd", from, to)
			case isUnder(to, "test") && !slices.Contains(allowed[name], to):
				t.Errorf("%s imports %s, but only tests may import packages of test", from, to)
			case !slices.Contains(allowed[name], to) && !isUnder(to, name) || name == "." && to != ".":
				t.Errorf("%s imports %s, but may import %v only", from, to, allowed[name])
			}
		}
	}
}

// The rules also forbid indirect imports, and imports in tests.
func TestForbiddenImports(t *testing.T) {
	rules := []struct {
		rule     string
		from, to []string
	}{
		{"internal/ imports nothing of api/", []string{"internal"}, []string{"api"}},
		{"producer and consumer import the messages, not the server", []string{"producer", "consumer"},
			[]string{"api/server", "api/auth", "api/restjson", "api/web"}},
		{"stores and indexes do not import internal/ranking", []string{"storage", "cache"}, []string{"internal/ranking"}},
		{"stores and indexes do not import Kafka clients or the API", []string{"storage", "cache"}, []string{"consumer", "producer", "internal/kafka", "api"}},
		{"a store does not import an index", []string{"storage"}, []string{"cache"}},
		{"an index does not import a store", []string{"cache"}, []string{"storage"}},
		{"the embedded store does not import the Cassandra store", []string{"storage/pebble"}, []string{"storage/cql"}},
		{"the Cassandra store does not import the embedded store", []string{"storage/cql"}, []string{"storage/pebble"}},
		{"the Redis index does not import the index in memory", []string{"cache/redis"}, []string{"cache/memory"}},
		{"the index in memory does not import the Redis index", []string{"cache/memory"}, []string{"cache/redis"}},
		{"clients do not import the server or the service", []string{"cmd/leaderboard/client", "cmd/leaderboard/importer", "cmd/leaderboard/archive", "cmd/leaderboard/demo"},
			[]string{"api/server", "internal/ranking"}},
		{"no other package imports cmd", []string{".", "api", "cache", "consumer", "internal", "producer", "schema", "storage", "test"}, []string{"cmd"}},
	}
	for from, deps := range dependencies(t) {
		for to := range deps {
			for _, r := range rules {
				if isUnder(from, r.from...) && isUnder(to, r.to...) {
					t.Errorf("%s: but %s, or its test, depends on %s; run \"go list -deps -test ./%s\"", r.rule, from, to, from)
				}
			}
		}
	}
}

// dependencies returns, for each package of this module, the packages of this module that it or its
// tests import, directly or indirectly. All names are short paths.
func dependencies(t *testing.T) map[string]map[string]bool {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-test", "-f", `{{.ImportPath}}{{"\t"}}{{join .Deps ","}}`, module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]map[string]bool{}
	for line := range strings.Lines(string(out)) {
		path, deps, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if path = testedPackage(path); !isInside(path) {
			continue
		}
		from := shortPath(path)
		if all[from] == nil {
			all[from] = map[string]bool{}
		}
		for dep := range strings.SplitSeq(deps, ",") {
			if dep = testedPackage(dep); isInside(dep) && shortPath(dep) != from {
				all[from][shortPath(dep)] = true
			}
		}
	}
	return all
}

// testedPackage returns x for each path that go list -test prints for the tests of package x:
// "x [x.test]", "x_test [x.test]" and "x.test".
func testedPackage(path string) string {
	path, _, _ = strings.Cut(path, " ")
	return strings.TrimSuffix(strings.TrimSuffix(path, ".test"), "_test")
}

// The rules of leaderboards are in the root. The other files of the backends still need it.
func TestListsHaveNoRules(t *testing.T) {
	for _, file := range []string{"../../storage/pebble/lists.go", "../../storage/cql/lists.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range parsed.Imports {
			if imp.Path.Value == strconv.Quote(module) {
				t.Errorf("%s imports the root, but registers and rows must know no rules", file)
			}
		}
	}
}

// code lists the folders in which any file may import the driver. tests lists the folders in
// which only tests may import it.
func TestDriversHaveOnePlace(t *testing.T) {
	places := map[string]struct{ code, tests []string }{
		// compare sorts users in a temporary store
		"github.com/cockroachdb/pebble": {code: []string{"storage/pebble", "test", "cmd/leaderboard/importer"}},
		"github.com/gocql/gocql":        {code: []string{"storage/cql", "schema", "test"}},
		"github.com/redis/go-redis":     {code: []string{"cache/redis", "test", "cmd"}},
		"github.com/IBM/sarama":         {code: []string{"consumer", "producer", "internal/kafka", "test"}},
		"github.com/jackc/pgx":          {code: []string{"cmd/leaderboard/archive"}, tests: []string{"cmd/leaderboard"}},
		"github.com/parquet-go":         {code: []string{"cmd/leaderboard/archive"}},
		"google.golang.org/grpc":        {code: []string{"api", "cmd", "test"}},
		"github.com/grpc-ecosystem":     {code: []string{"api"}},
		"connectrpc.com":                {code: []string{"api"}},
		// fake brokers; tests of cmd run "leaderboard topics" with them
		"github.com/twmb/franz-go": {tests: []string{"consumer", "producer", "internal/kafka", "test", "cmd/leaderboard"}},
		// faults of the network, and linearizability checks of recorded operations
		"github.com/Shopify/toxiproxy":      {tests: []string{"test"}},
		"github.com/anishathalye/porcupine": {tests: []string{"test"}},
	}
	for path, p := range packages(t) {
		from := shortPath(path)
		check := func(imports []string, inTests bool) {
			for _, imp := range imports {
				for driver, place := range places {
					dirs := place.code
					if inTests {
						dirs = slices.Concat(place.code, place.tests)
					}
					if (imp == driver || strings.HasPrefix(imp, driver+"/")) && !isUnder(from, dirs...) {
						t.Errorf("%s imports %s (in tests: %v), which only %v may import", from, imp, inTests, dirs)
					}
				}
			}
		}
		check(p.Imports, false)
		check(p.TestImports, true)
		check(p.XTestImports, true)
		for _, imp := range p.Imports {
			if from == "." && !isStandard(imp) {
				t.Errorf("the root imports %s, which is not in the standard library", imp)
			}
		}
	}
}
