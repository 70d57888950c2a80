package repotest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// go.mod defines the Go version. Container images must have the same version. Workflows
// must read the version from go.mod.
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
	images := regexp.MustCompile(`golang:([0-9.]+)`)
	for _, name := range []string{"Dockerfile", "docker-compose.tests.yml"} {
		found := images.FindAllStringSubmatch(read(name), -1)
		if len(found) == 0 {
			t.Errorf("%s uses no golang image", name)
		}
		for _, m := range found {
			if m[1] != toolchain[1] {
				t.Errorf("%s has Go %s, want %s as in go.mod", name, m[1], toolchain[1])
			}
		}
	}
	fixed := regexp.MustCompile(`go-version:`)
	for _, name := range trackedFiles(t, ".yml") {
		if isUnder(name, ".github") && fixed.MatchString(read(name)) {
			t.Errorf("%s sets go-version: use go-version-file: go.mod", name)
		}
	}
}
