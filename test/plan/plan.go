// Package plan reads what tests state with package needs. It decides from these statements what
// make check and each part of make slow run.
package plan

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Part is a part of make slow.
type Part struct {
	Name string
	Runs string // for people
	When string // the changes that need a run, for people
	// OneServer starts one Cassandra node, one Kafka broker and one Redis for all packages.
	// Otherwise, tests start the servers that they need.
	OneServer bool
}

// Parts are the parts of make slow, in the order in which it runs them.
var Parts = []Part{
	{Name: "clusters", Runs: "suites and failures on three Cassandra nodes, two data centers and a Redis Cluster",
		When: "storage/cql, cache/redis, test/cluster"},
	{Name: "histories", Runs: "random tests with twenty times as many runs",
		When: "a store, an index or internal/ranking", OneServer: true},
	{Name: "race", Runs: "under the race detector, what make check runs without it",
		When: "goroutines or locks", OneServer: true},
	{Name: "official", Runs: "whole official results, embedded and through Kafka",
		When: "ranking rules, linked boards, divisions", OneServer: true},
	{Name: "pipeline", Runs: "long tests of several processes",
		When: "consumer, producer, cmd/leaderboard, exports", OneServer: true},
	{Name: "secured", Runs: "servers that require TLS and passwords",
		When: "connections, TLS, credentials"},
	{Name: "sizes", Runs: "disk space, memory and costs at size",
		When: "a layout in Cassandra or Redis", OneServer: true},
	{Name: "faults", Runs: "servers that are killed, hang, lose data, or are overloaded",
		When: "retries, timeouts, offsets, recovery"},
	{Name: "regions", Runs: "two regions that lose each other",
		When: "replication, mirrors, data centers"},
	{Name: "drills", Runs: "the drills of docs/operations on clusters, word for word",
		When: "docs/operations/cluster-drills.md, test/cluster"},
	{Name: "clocks", Runs: "processes and servers whose clocks differ",
		When: "use of time in a store, an index or a season"},
	{Name: "upgrade", Runs: "a rolling upgrade from an earlier commit",
		When: "a stored format, a message, the schema"},
	{Name: "soak", Runs: "the service under load for LEADERBOARD_TEST_SOAK (30m)",
		When: "caches, goroutines, memory"},
	{Name: "page", Runs: "the pages in a browser, at length, and their types (Node)",
		When: "web, api/web"},
	{Name: "openapi", Runs: "openapi.json with linters and generators of clients and requests (Node, Python)",
		When: "api/proto, tools/openapi3, docs/api.md"},
	{Name: "clients", Runs: "the clients in TypeScript and Python: suite, types, packages, examples, also for game engines, Connect and gRPC-Web (Node, Python, Chromium, Godot, Mono)",
		When: "sdk, client, examples, api/proto, api/server/rpc.go"},
	{Name: "archives", Runs: "archives in PostgreSQL, with the SQL of docs/operations/archives.md",
		When: "cmd/leaderboard/archive, exports, imports"},
	{Name: "release", Runs: "archives of all platforms, go install, the image's binary",
		When: "scripts/release.sh, Dockerfile, go.mod"},
	{Name: "shells", Runs: "completion in bash, zsh and fish",
		When: "cmd/leaderboard/client/complete.go, cobra"},
	{Name: "mutants", Runs: "builds with planted faults, each of which a test must catch",
		When: "a test that holds a promise"},
	{Name: Fuzz, Runs: "each fuzz test for FUZZTIME (60s)",
		When: "a decoder"},
}

// Fuzz is the part of fuzz tests, which state nothing.
const Fuzz = "fuzz"

// A Test is a top-level test, fuzz test or example.
type Test struct {
	Name   string
	Parts  []string // of make slow, which the test or its subtests state
	NoRace bool     // the test or a subtest states it
	Race   bool     // the same
	Slow   bool     // the test itself, not only a subtest, is in a part of make slow only
}

// A Package is a folder with tests.
type Package struct {
	Folder      string // relative to the root of the repository, with slashes
	Module      string // the folder of the module, "." for the root
	WithoutRace string // the reason stated with PackageWithoutRace
	LongBecause string // the reason for more than a minute, as its test files state it
	Tests       []Test
}

// Module is the path of the module in the root.
const Module = "github.com/open-leaderboard/leaderboard"

const needsImport = Module + "/test/needs"

var testName = regexp.MustCompile(`^(Test|Fuzz|Example)([^a-z].*)?$`)

// A test file above whose package clause a line starts with this text states why the tests of the
// package take more than a minute.
var longLine = regexp.MustCompile(`(?m)^// Long: (.+)$`)

// Read returns the packages with tests below root, in order of their folders. A statement that Read
// cannot assign to a test is an error.
func Read(root string) ([]Package, error) {
	modules, found := map[string]bool{}, map[string]*Package{}
	var errs []error
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if base == "go.mod" {
			modules[path.Dir(name)] = true
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		f, err := readFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			return nil
		}
		if !strings.HasSuffix(base, "_test.go") {
			return nil
		}
		folder := path.Dir(name)
		p := found[folder]
		if p == nil {
			p = &Package{Folder: folder}
			found[folder] = p
		}
		p.Tests = append(p.Tests, f.Tests...)
		p.WithoutRace, p.LongBecause = p.WithoutRace+f.WithoutRace, p.LongBecause+f.LongBecause
		return nil
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	var all []Package
	for _, p := range found {
		for p.Module = p.Folder; !modules[p.Module]; p.Module = path.Dir(p.Module) {
		}
		if p.Module != "." {
			p.WithoutRace = "the tests check files and child processes"
		}
		slices.SortFunc(p.Tests, func(a, b Test) int { return strings.Compare(a.Name, b.Name) })
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b Package) int { return strings.Compare(a.Folder, b.Folder) })
	return all, nil
}

// readFile returns what one file states.
func readFile(name string) (p Package, err error) {
	source, err := os.ReadFile(name)
	if err != nil {
		return p, err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, parser.ParseComments)
	if err != nil {
		return p, err
	}
	if m := longLine.FindSubmatch(source[:set.Position(file.Package).Offset]); m != nil {
		p.LongBecause = string(m[1])
	}
	inTest := strings.HasSuffix(name, "_test.go")
	alias := importName(file)
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		test := ok && inTest && function.Recv == nil && testName.MatchString(function.Name.Name) && function.Name.Name != "TestMain"
		s := statements{alias: alias, set: set}
		if test {
			s.test = &Test{Name: function.Name.Name}
			s.body = function.Body
		}
		s.packageLevel = !ok && inTest
		ast.Inspect(declaration, s.visit)
		if err := errors.Join(s.errs...); err != nil {
			return p, err
		}
		p.WithoutRace += s.withoutRace
		if test {
			p.Tests = append(p.Tests, *s.test)
		}
	}
	return p, nil
}

func importName(file *ast.File) string {
	for _, i := range file.Imports {
		if p, _ := strconv.Unquote(i.Path.Value); p == needsImport {
			if i.Name != nil {
				return i.Name.Name
			}
			return "needs"
		}
	}
	return ""
}

// statements collects the statements of one declaration.
type statements struct {
	alias        string
	set          *token.FileSet
	test         *Test // nil outside of a test
	body         *ast.BlockStmt
	packageLevel bool
	withoutRace  string
	errs         []error
}

func (s *statements) visit(n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok || s.alias == "" {
		return true
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return true
	}
	if x, ok := selector.X.(*ast.Ident); !ok || x.Name != s.alias {
		return true
	}
	fail := func(format string, args ...any) {
		at := s.set.Position(call.Pos())
		s.errs = append(s.errs, fmt.Errorf("line %d: needs.%s "+format, append([]any{at.Line, selector.Sel.Name}, args...)...))
	}
	name := selector.Sel.Name
	switch name {
	case "Slow", "Also", "NoRace", "Race", "More":
		if s.test == nil {
			fail("is not in a test function, so no pass of the check knows of it: call it in each test")
			return true
		}
	case "PackageWithoutRace":
		if !s.packageLevel {
			fail("is not at package level of a test file")
			return true
		}
	default:
		return true
	}
	var text string
	if name != "More" && name != "Race" {
		literal, ok := call.Args[len(call.Args)-1].(*ast.BasicLit)
		if ok && literal.Kind == token.STRING {
			text, _ = strconv.Unquote(literal.Value)
		}
		if text == "" {
			fail("has no constant, non-empty text")
			return true
		}
	}
	switch name {
	case "Slow", "Also":
		if !slices.ContainsFunc(Parts, func(p Part) bool { return p.Name == text }) {
			fail("names the part %q, which package plan does not list", text)
		}
		s.test.Parts = append(s.test.Parts, text)
		s.test.Slow = s.test.Slow || name == "Slow" && slices.ContainsFunc(s.body.List, func(st ast.Stmt) bool {
			e, ok := st.(*ast.ExprStmt)
			return ok && e.X == call
		})
	case "NoRace":
		s.test.NoRace = true
	case "Race":
		s.test.Race = true
	case "More":
		s.test.Parts = append(s.test.Parts, "histories")
	case "PackageWithoutRace":
		s.withoutRace = text
	}
	return true
}

// A Run is a set of packages that go test runs together.
type Run struct {
	Race bool
	// Packages maps folders to the regular expression of their tests for -run; empty means all tests.
	Packages map[string]string
}

// Folders returns the folders of the run as go test takes them, in order.
func (r Run) Folders() []string {
	var all []string
	for folder := range r.Packages {
		all = append(all, "./"+folder)
	}
	slices.Sort(all)
	return all
}

func (r Run) add(folder string, tests []Test) {
	if len(tests) == 0 {
		return
	}
	var names []string
	for _, t := range tests {
		names = append(names, t.Name)
	}
	r.Packages[folder] = "^(" + strings.Join(names, "|") + ")$"
}

func newRun(race bool) Run { return Run{race, map[string]string{}} }

// Check returns what make check runs of a module with the race detector and without. Tests with
// NoRace skip themselves in the first run, and tests with Race in the second.
func Check(all []Package, module string) (race, plain Run) {
	race, plain = newRun(true), newRun(false)
	for _, p := range all {
		switch {
		case p.Module != module, !slices.ContainsFunc(p.Tests, func(t Test) bool { return !t.Slow }):
		case p.WithoutRace != "":
			plain.Packages[p.Folder] = ""
			race.add(p.Folder, filter(p.Tests, func(t Test) bool { return t.Race && !t.Slow }))
		default:
			if slices.ContainsFunc(p.Tests, func(t Test) bool { return !t.Slow && !t.NoRace }) {
				race.Packages[p.Folder] = ""
			}
			plain.add(p.Folder, filter(p.Tests, func(t Test) bool { return t.NoRace && !t.Slow }))
		}
	}
	return race, plain
}

// Slow returns what a part of make slow runs of a module with the race detector and without.
func Slow(all []Package, module, part string) (race, plain Run) {
	race, plain = newRun(true), newRun(false)
	for _, p := range all {
		if p.Module != module {
			continue
		}
		if part == "race" {
			if module != "." {
				continue
			}
			race.add(p.Folder, filter(p.Tests, func(t Test) bool { return !t.Slow && (p.WithoutRace != "" && !t.Race || t.NoRace) }))
			continue
		}
		in := func(t Test) bool { return slices.Contains(t.Parts, part) }
		withRace := func(t Test) bool { return !t.NoRace && (t.Race || p.WithoutRace == "") }
		race.add(p.Folder, filter(p.Tests, func(t Test) bool { return in(t) && withRace(t) }))
		plain.add(p.Folder, filter(p.Tests, func(t Test) bool { return in(t) && !withRace(t) }))
	}
	return race, plain
}

func filter(all []Test, keep func(Test) bool) []Test {
	return slices.DeleteFunc(slices.Clone(all), func(t Test) bool { return !keep(t) })
}

// Empty returns the parts that run nothing.
func Empty(all []Package) (names []string) {
	for _, part := range Parts {
		if part.Name == Fuzz {
			continue
		}
		used := false
		for _, p := range all {
			race, plain := Slow(all, p.Module, part.Name)
			used = used || len(race.Packages)+len(plain.Packages) > 0
		}
		if !used {
			names = append(names, part.Name)
		}
	}
	return names
}
