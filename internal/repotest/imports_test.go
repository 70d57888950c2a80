// Package repotest keeps the rules of the repository as tests.
package repotest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/open-leaderboard/leaderboard"

type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Standard     bool
}

// packages returns the packages of the module by import path.
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

// short cuts the module off an import path: "." is the root package.
func short(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

// inside says whether path is a package of this module.
func inside(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

// standard says whether path is of the standard library: its first element has
// no dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// under says whether p is one of dirs or below one.
func under(p string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return p == d || strings.HasPrefix(p, d+"/") })
}

// Imports point inward: to the root, which knows the standard library only.
func TestImportsPointInward(t *testing.T) {
	// What each part of the module may import of it. A part is the longest
	// prefix that is named; cmd and test may import everything.
	allowed := map[string][]string{
		".":                   {},
		"internal/combine":    {"."},
		"internal/ranking":    {".", "internal/combine"},
		"internal/config":     {"."},
		"internal/wire":       {".", "api/leaderboardpb"},
		"internal/repotest":   {},
		"internal/faults":     {"."},
		"storage/storagetest": {"."},
		"storage/pebble":      {"."},
		"storage/cql":         {".", "schema", "internal/combine"},
		"schema":              {"."},
		"cache/cachetest":     {"."},
		"cache/memory":        {"."},
		"cache/redis":         {"."},
		"producer":            {".", "api/leaderboardpb", "internal/wire"},
		"consumer":            {".", "api/leaderboardpb", "internal/wire", "producer"},
		"api/leaderboardpb":   {},
		"api":                 {".", "api/leaderboardpb", "internal/ranking", "internal/wire", "api/web"},
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
		from := short(path)
		if under(from, "cmd", "test") {
			continue
		}
		name, ok := part(from)
		if !ok {
			t.Errorf("%s is a new part of the module: say here what it may import", from)
			continue
		}
		for _, imp := range p.Imports {
			to := short(imp)
			switch {
			case !inside(imp):
			case under(to, "cmd"), under(to, "test"):
				t.Errorf("%s imports %s", from, to)
			case !slices.Contains(allowed[name], to) && !under(to, name) || name == "." && to != ".":
				t.Errorf("%s imports %s, but may import %v only", from, to, allowed[name])
			}
		}
	}
}

// Each driver is known in one place.
func TestDriversHaveOnePlace(t *testing.T) {
	places := map[string][]string{
		"github.com/cockroachdb/pebble": {"storage/pebble"},
		"github.com/gocql/gocql":        {"storage/cql", "schema", "test", "cmd"},
		"github.com/redis/go-redis":     {"cache/redis", "test", "cmd"},
		"github.com/IBM/sarama":         {"consumer", "producer", "test"},
		"google.golang.org/grpc":        {"api", "cmd", "test"},
		"github.com/grpc-ecosystem":     {"api"},
	}
	for path, p := range packages(t) {
		from := short(path)
		for _, imp := range p.Imports {
			if from == "." && !standard(imp) {
				t.Errorf("the root imports %s, which is not of the standard library", imp)
			}
			for driver, dirs := range places {
				if (imp == driver || strings.HasPrefix(imp, driver+"/")) && !under(from, dirs...) {
					t.Errorf("%s imports %s, which is for %v", from, imp, dirs)
				}
			}
		}
	}
}
