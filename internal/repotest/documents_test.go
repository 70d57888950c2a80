package repotest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestDocumentsNameExistingTests(t *testing.T) {
	root := os.DirFS("../..")
	named := map[string][]string{} // for each test, the documents that name it
	declared := map[string]bool{}
	inDocument, inCode := regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*)`"), regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9]*)\(`)
	if err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		document, code := filepath.Ext(path) == ".md", strings.HasSuffix(path, "_test.go")
		if d.IsDir() || !document && !code {
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		if document {
			for _, m := range inDocument.FindAllSubmatch(text, -1) {
				named[string(m[1])] = append(named[string(m[1])], path)
			}
			return nil
		}
		for _, m := range inCode.FindAllSubmatch(text, -1) {
			declared[string(m[1])] = true
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(named) == 0 {
		t.Fatal("no document names a test, want some: the pattern may be wrong")
	}
	for test, documents := range named {
		if !declared[test] {
			t.Errorf("%s: the test %s does not exist: name the test that replaced it", strings.Join(documents, ", "), test)
		}
	}
}

// People read about 200 words a minute, so a page takes five minutes or less.
const wordsOfAPage = 1000

func TestPagesOfOperationsAreShortAndListed(t *testing.T) {
	contents, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/operations/*.md"))
	if err != nil || len(pages) < 10 {
		t.Fatalf("found %d pages of operations, error %v; want at least 10", len(pages), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(strings.Fields(string(text))); n > wordsOfAPage {
			t.Errorf("%s has %d words, want at most %d: split it", page, n, wordsOfAPage)
		}
		title, rest, _ := strings.Cut(string(text), "\n\n")
		if link := fmt.Sprintf("[%s](operations/%s)", strings.TrimPrefix(title, "# "), filepath.Base(page)); !strings.Contains(string(contents), link) {
			t.Errorf("docs/operations.md does not list %s", link)
		}
		if !strings.HasPrefix(rest, "For people ") {
			t.Errorf("%s does not name its readers first, as \"For people who …\"", page)
		}
	}
}

// A replaced decision stays, so the numbers of the files have no gaps.
func TestDecisionsHaveAStatusAndADate(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs/adr/0*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("docs/adr has the decisions %q, error %v; want some", files, err)
	}
	head := regexp.MustCompile(`^# (\d{3}) .+\n\n(Accepted|Superseded by \[\d{3}\]\((\d{3}-[a-z0-9-]+\.md)\)), \d{4}-\d\d-\d\d\.\n\n`)
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := head.FindStringSubmatch(string(text))
		if number := fmt.Sprintf("%03d", i+1); m == nil || m[1] != number || !strings.HasPrefix(filepath.Base(file), number+"-") {
			t.Errorf("%s: want the title \"# %s …\", and then the line \"Accepted, 2026-11-20.\" or \"Superseded by [NNN](NNN-….md), 2026-11-20.\"", file, number)
			continue
		}
		if m[3] != "" && !slices.Contains(files, filepath.Join(root, "docs/adr", m[3])) {
			t.Errorf("%s is superseded by %s, which does not exist", file, m[3])
		}
	}
}

// TestRollingUpgrade upgrades from oldCommit. The newest section Upgrading of CHANGELOG.md must
// name this commit.
func TestChangelogNamesTheOldestBuild(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	oldCommit := regexp.MustCompile(`const oldCommit = "([0-9a-f]{7})[0-9a-f]{33}"`).FindStringSubmatch(read("test/faults/upgrade_test.go"))
	if oldCommit == nil {
		t.Fatal("test/faults/upgrade_test.go has no oldCommit")
	}
	_, section, _ := strings.Cut(read("CHANGELOG.md"), "\n### Upgrading\n")
	section, _, _ = strings.Cut(section, "\n### ")
	if want := "commit " + oldCommit[1] + " "; !strings.Contains(section, want) {
		t.Errorf("the newest section Upgrading of CHANGELOG.md does not contain %q:\n%s", want, section)
	}
}
