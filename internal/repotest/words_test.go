package repotest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const root = "../.."

// Without endings, trackedFiles returns all files.
func trackedFiles(t *testing.T, endings ...string) []string {
	t.Helper()
	out, err := exec.Command("git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var files []string
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			continue // deleted, and not committed yet
		}
		if (len(endings) == 0 || slices.Contains(endings, filepath.Ext(name))) && !isUnder(name, "api/leaderboardpb", "api/third_party") {
			files = append(files, name)
		}
	}
	if len(files) == 0 {
		t.Fatalf("the repository has no files ending in %v", endings)
	}
	return files
}

// allow lists the folders and files that may use the words, in the sense of the line's comment.
var retired = []struct {
	words       string
	replacement string
	allow       []string
}{
	{"scope", "SeasonKey", []string{"api", "client", "cmd", "test"}},                   // a permission of an API key
	{"scopes", "SeasonKey", []string{"api", "cmd", "storage/storagetest", "store.go"}}, // the permissions of an API key
	{"edition editions", "incarnation", nil},
	{"combiner combiners", "coalesce.Group", nil},
	{"patience patient", "timeout, circuit breaker or cooldown", nil},
	{"told tell tells", "notifies or reports", nil},
	{"recall recalls recalled remember remembers remembered", "cached", nil},
	{"stretch stretches", "excerpt", nil},
	{"stray strays ghost ghosts", "OrphanRow", nil},
	{"unlisted", "UnregisteredUsers", nil},
	{"settle settles settled settling unsettled", "Synced, or the action", nil},
	{"spot spots", "row key", nil},
	{"understand understands understood", "resolve", nil},
	{"loose", "pending", nil},
	{"world worlds", "app", nil},
	{"explain explains explained", "body errors, or the action", nil},
	{"wire", "protoconv", nil},
	{"pause pauses paused pausing", "cooldown", []string{"test/cluster", "test/faults"}}, // a test suspends a process
	{"letter letters", "deadLetter", []string{"cache/redis/read.go"}},                    // the counts of a reply
}

// compounds removes permitted phrases that contain a retired word.
var compounds = strings.NewReplacer("dead letters", "", "dead letter", "")

func retiredWords(name, file string) map[string]string {
	found := map[string]string{}
	for w := range strings.FieldsSeq(compounds.Replace(strings.Join(words(name), " "))) {
		for _, r := range retired {
			if slices.Contains(strings.Fields(r.words), w) && !isUnder(file, r.allow...) {
				found[w] = r.replacement
			}
		}
	}
	return found
}

// A longer name may contain one of these retired names.
var retiredWhole = map[string]string{
	"Ask": "Do", "Most": "MaxBatch", "Number": "AssignRanks", "Succeed": "RankAfter",
	"Fine": "Up", "Refuses": "Refuse", "Hangs": "Hang", "atOnce": "batch limit",
}

// words returns http and server for HTTPServer, row and key for row_key.
func words(name string) []string {
	var all []string
	runes := []rune(name)
	start := 0
	for i := range runes {
		upper := unicode.IsUpper(runes[i])
		switch {
		case runes[i] == '_':
		case i > start && upper && !unicode.IsUpper(runes[i-1]):
		case i > start && upper && i+1 < len(runes) && unicode.IsLower(runes[i+1]):
		default:
			continue
		}
		all = append(all, strings.ToLower(strings.Trim(string(runes[start:i]), "_")))
		start = i
	}
	return append(all, strings.ToLower(strings.Trim(string(runes[start:]), "_")))
}

// The test does not check strings, because formats on disk and on the wire keep their old names.
func TestRetiredNames(t *testing.T) {
	for _, name := range trackedFiles(t) {
		stem, _, _ := strings.Cut(filepath.Base(name), ".")
		for w, replacement := range retiredWords(strings.ReplaceAll(stem, "-", "_"), name) {
			t.Errorf("%s has the retired word %q in its name; use %s", name, w, replacement)
		}
	}
	for _, name := range trackedFiles(t, ".go") {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, filepath.Join(root, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		check := func(id *ast.Ident) {
			if replacement, ok := retiredWhole[id.Name]; ok {
				t.Errorf("%s:%d: %s is a retired name; use %s", name, fset.Position(id.Pos()).Line, id.Name, replacement)
			}
			for w, replacement := range retiredWords(id.Name, name) {
				t.Errorf("%s:%d: %s has the retired word %q; use %s", name, fset.Position(id.Pos()).Line, id.Name, w, replacement)
			}
		}
		check(file.Name)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				if n.Name != nil {
					check(n.Name)
				}
			case *ast.FuncDecl:
				check(n.Name)
			case *ast.TypeSpec:
				check(n.Name)
			case *ast.ValueSpec:
				for _, id := range n.Names {
					check(id)
				}
			case *ast.Field:
				for _, id := range n.Names {
					check(id)
				}
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					for _, e := range n.Lhs {
						if id, ok := e.(*ast.Ident); ok {
							check(id)
						}
					}
				}
			case *ast.RangeStmt:
				if n.Tok == token.DEFINE {
					for _, e := range []ast.Expr{n.Key, n.Value} {
						if id, ok := e.(*ast.Ident); ok {
							check(id)
						}
					}
				}
			}
			return true
		})
	}
}

var phrases = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?i)\bsays\s+whether\b`):                 "reports whether",
	regexp.MustCompile(`(?i)\b(is|are|was|were|been) told\b`):    "is notified, or names who reports what",
	regexp.MustCompile(`(?i)\b(made|begun) (again|anew)\b`):      "rebuilt or restarted",
	regexp.MustCompile(`(?i)\b(goes|go|does|do|done) without\b`): "what is omitted, or who falls back to what",
}

func TestRetiredPhrases(t *testing.T) {
	lineStart := regexp.MustCompile(`(?m)^\s*(//|--|#)\s?|\n`)
	for _, name := range trackedFiles(t, ".go", ".proto", ".md", ".cql", ".lua", ".sh", ".yml", ".yaml", ".html", ".json", ".tmpl") {
		if name == "CHANGELOG.md" || name == "internal/repotest/words_test.go" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		text := lineStart.ReplaceAllString(string(data), " ") // a phrase may span lines
		for re, instead := range phrases {
			for _, found := range re.FindAllStringIndex(text, -1) {
				excerpt := strings.Join(strings.Fields(text[max(0, found[0]-50):min(len(text), found[1]+30)]), " ")
				t.Errorf("%s: a phrase in %q is retired; write %s", name, excerpt, instead)
			}
		}
	}
}
