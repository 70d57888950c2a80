package repotest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestArchitectureListsEveryPackage(t *testing.T) {
	const document = "../../docs/architecture.md"
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## The packages\n")
	if !found {
		t.Fatalf("%s has no section \"The packages\"", document)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var listed []string
	for _, line := range regexp.MustCompile(`(?m)^(\S+) {2,}\S`).FindAllStringSubmatch(section, -1) {
		listed = append(listed, line[1])
	}
	var all []string
	for path := range packages(t) {
		all = append(all, shortPath(path))
	}
	for _, mod := range trackedFiles(t, ".mod") {
		if folder := path.Dir(mod); folder != "." {
			all = append(all, folder)
		}
	}
	for _, folder := range all {
		if !slices.Contains(listed, folder) {
			t.Errorf("%s does not list %s: add a line that describes the folder", filepath.Clean(document), folder)
		}
	}
	for i, folder := range listed {
		if !slices.Contains(all, folder) {
			t.Errorf("%s lists %s, which is not a package folder or a module: remove the line", filepath.Clean(document), folder)
		}
		if slices.Contains(listed[:i], folder) {
			t.Errorf("%s lists %s twice", filepath.Clean(document), folder)
		}
	}
}
