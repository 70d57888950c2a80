package repotest

import (
	"go/version"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The root's go.mod determines the Go version of images and workflows, and limits that of modules.
func TestGoVersionHasOnePlace(t *testing.T) {
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	toolchain := regexp.MustCompile(`(?m)^toolchain go(\S+)$`).FindStringSubmatch(read("go.mod"))
	if toolchain == nil {
		t.Fatal("go.mod has no toolchain line")
	}
	goLine := regexp.MustCompile(`(?m)^go (\S+)$`)
	for _, name := range trackedFiles(t, ".mod") {
		text := read(name)
		need := goLine.FindStringSubmatch(text)
		if need == nil || version.Compare("go"+need[1], "go"+toolchain[1]) > 0 {
			t.Errorf("%s needs Go %q, want at most %s, the toolchain of go.mod", name, need, toolchain[1])
		}
		if name != "go.mod" && strings.Contains(text, "\ntoolchain ") {
			t.Errorf("%s has a toolchain line, but only the root's go.mod may have such a line", name)
		}
	}
	images := regexp.MustCompile(`golang:([0-9.]+)`)
	for _, name := range []string{"Dockerfile", "docker-compose.tests.yml"} {
		found := images.FindAllStringSubmatch(read(name), -1)
		if len(found) == 0 {
			t.Errorf("%s uses no golang image", name)
		}
		for _, m := range found {
			if m[1] != toolchain[1] {
				t.Errorf("%s has an image of Go %s, want %s, the toolchain of go.mod", name, m[1], toolchain[1])
			}
		}
	}
	fixedVersion := regexp.MustCompile(`go-version:`)
	for _, name := range trackedFiles(t, ".yml") {
		if isUnder(name, ".github") && fixedVersion.MatchString(read(name)) {
			t.Errorf("%s sets go-version: use go-version-file: go.mod", name)
		}
	}
}
