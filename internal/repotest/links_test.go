package repotest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestLinksOfDocuments(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	links := 0
	for _, name := range trackedFiles(t, ".md") {
		for _, m := range link.FindAllStringSubmatch(prose(t, name), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			file, heading, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(name), file)
			if file == "" {
				target = name
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: the link %s names no file or folder", name, m[1])
				continue
			}
			if heading != "" && !anchors(t, target)[heading] {
				t.Errorf("%s: the link %s names no heading of %s", name, m[1], target)
			}
		}
	}
	if links < 50 {
		t.Errorf("found %d relative links in documents, want at least 50: the pattern may be wrong", links)
	}
}

// prose returns a document without blocks of code.
func prose(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(string(text), "")
}

// anchors returns GitHub's anchors of a document's headings. An anchor is a heading in lower
// case, without punctuation, with hyphens for spaces.
func anchors(t *testing.T, name string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(prose(t, name), -1) {
		text := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(text, " ", "-")] = true
	}
	return all
}
