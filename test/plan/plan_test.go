package plan

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("one call follows another")

// write writes files, by their names, into a new folder with a go.mod.
func write(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	files["go.mod"] = "module example\n"
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const header = "package p\n\nimport (\n\t\"testing\"\n\n\t\"" + needsImport + "\"\n)\n\n"

func TestStatementsDecideWhatRuns(t *testing.T) {
	all, err := Read(write(t, map[string]string{
		"a/a_test.go": "// Long: a server waits.\n" + header + `
func TestPlain(t *testing.T) {}
func TestNoRace(t *testing.T) { needs.NoRace(t, "why") }
func TestSlow(t *testing.T) { needs.Slow(t, "faults"); needs.NoRace(t, "why") }
func TestSubtests(t *testing.T) {
	t.Run("long", func(t *testing.T) { needs.Slow(t, "soak") })
}
func TestMore(t *testing.T) { for range needs.More(t, 3) {} }
func TestAlso(t *testing.T) { needs.Also(t, "clusters") }
func FuzzDecode(f *testing.F) {}
`,
		"b/b_test.go": header + `
var _ = needs.PackageWithoutRace("why")
func TestOne(t *testing.T) {}
func TestRace(t *testing.T) { needs.Race(t) }
`,
		"c/c_test.go":        header + `func TestFaults(t *testing.T) { needs.Slow(t, "faults") }`,
		"other/go.mod":       "module other\n",
		"other/d/d_test.go":  "package d\n\nimport \"testing\"\n\nfunc TestOther(t *testing.T) {}\n",
		"testdata/x_test.go": "no Go",
	}))
	if err != nil {
		t.Fatal(err)
	}
	type runs struct{ Race, Plain map[string]string }
	none := map[string]string{}
	for _, tt := range []struct {
		name   string
		module string
		read   func([]Package, string) (Run, Run)
		want   runs
	}{
		{"check", ".", Check, runs{map[string]string{"a": "", "b": "^(TestRace)$"}, map[string]string{"a": "^(TestNoRace)$", "b": ""}}},
		{"check of another module", "other", Check, runs{none, map[string]string{"other/d": ""}}},
		{"faults", ".", part("faults"), runs{map[string]string{"c": "^(TestFaults)$"}, map[string]string{"a": "^(TestSlow)$"}}},
		{"soak", ".", part("soak"), runs{map[string]string{"a": "^(TestSubtests)$"}, none}},
		{"histories", ".", part("histories"), runs{map[string]string{"a": "^(TestMore)$"}, none}},
		{"clusters", ".", part("clusters"), runs{map[string]string{"a": "^(TestAlso)$"}, none}},
		{"race", ".", part("race"), runs{map[string]string{"a": "^(TestNoRace)$", "b": "^(TestOne)$"}, none}},
		{"race of another module", "other", part("race"), runs{none, none}},
	} {
		race, plain := tt.read(all, tt.module)
		if diff := cmp.Diff(tt.want, runs{race.Packages, plain.Packages}); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
	}
	if all[0].LongBecause != "a server waits." {
		t.Errorf("the reason of the first package is %q, want %q", all[0].LongBecause, "a server waits.")
	}
}

func part(name string) func([]Package, string) (Run, Run) {
	return func(all []Package, module string) (Run, Run) { return Slow(all, module, name) }
}

func TestMisplacedStatementsAreErrors(t *testing.T) {
	for _, tt := range []struct{ file, code, want string }{
		{"p_test.go", `func helper(t *testing.T) { needs.Slow(t, "faults") }`, "line 9: needs.Slow is not in a test function"},
		{"p_test.go", `var run = func(t *testing.T) { needs.NoRace(t, "why") }`, "needs.NoRace is not in a test function"},
		{"p.go", `func TestLike(t *testing.T) { needs.Slow(t, "faults") }`, "needs.Slow is not in a test function"},
		{"p_test.go", `func TestA(t *testing.T) { needs.Slow(t, "fault") }`, `names the part "fault"`},
		{"p_test.go", `func TestA(t *testing.T) { part := "faults"; needs.Slow(t, part) }`, "has no constant, non-empty text"},
		{"p_test.go", `func TestA(t *testing.T) { needs.NoRace(t, "") }`, "has no constant, non-empty text"},
		{"p_test.go", `func TestA(t *testing.T) { needs.PackageWithoutRace("why") }`, "is not at package level"},
	} {
		_, err := Read(write(t, map[string]string{tt.file: header + tt.code}))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %s: error %v, want %q", tt.file, tt.code, err, tt.want)
		}
	}
}

// Every test of this repository runs in the check, in a part of make slow, or in both.
func TestEveryTestRuns(t *testing.T) {
	const root = "../.."
	all, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		race, plain := Check(all, p.Module)
		runs := map[string]bool{}
		add := func(r Run, skips func(Test) bool) {
			expression, ok := r.Packages[p.Folder]
			run := regexp.MustCompile(expression)
			for _, test := range p.Tests {
				runs[test.Name] = runs[test.Name] || ok && run.MatchString(test.Name) && !skips(test)
			}
		}
		add(plain, func(t Test) bool { return t.Race })
		add(race, func(t Test) bool { return t.NoRace })
		for _, part := range Parts {
			race, plain := Slow([]Package{p}, p.Module, part.Name)
			add(race, func(Test) bool { return false })
			add(plain, func(Test) bool { return false })
		}
		for _, test := range p.Tests {
			if !runs[test.Name] {
				t.Errorf("%s of %s runs neither in make check nor in a part of make slow", test.Name, p.Folder)
			}
		}
	}
	if empty := Empty(all); len(empty) > 0 {
		t.Errorf("no test is in the parts %q of make slow", empty)
	}
	nightly, err := os.ReadFile(filepath.Join(root, ".github/workflows/nightly.yml"))
	if err != nil {
		t.Fatal(err)
	}
	contributing, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, part := range Parts {
		names = append(names, part.Name)
		if line := "| `" + part.Name + "` | " + part.Runs + " | " + part.When + " |\n"; !strings.Contains(string(contributing), line) {
			t.Errorf("CONTRIBUTING.md lacks this line:\n%s", line)
		}
	}
	matrix := regexp.MustCompile(`(?m)^ *part: \[(.*)\]$`).FindSubmatch(nightly)
	if matrix == nil || !slices.Equal(strings.Split(string(matrix[1]), ", "), names) {
		t.Errorf("nightly.yml has the parts %q, want %q", matrix, names)
	}
}
