package repotest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The files of the root package use each other's declarations in one direction, so a reader can
// begin with the file that uses no other.
func TestRootFilesUseEachOtherInOneDirection(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	declaredIn, mentions := map[string]string{}, map[string][]*ast.Ident{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for declared := range file.Scope.Objects {
			declaredIn[declared] = filepath.Base(name)
		}
		mentions[filepath.Base(name)] = file.Unresolved
	}
	uses := map[string]map[string]bool{}
	for file, identifiers := range mentions {
		uses[file] = map[string]bool{}
		for _, i := range identifiers {
			if other := declaredIn[i.Name]; other != "" {
				uses[file][other] = true
			}
		}
	}
	if len(uses) < 10 {
		t.Fatalf("the root has %d files, want at least 10", len(uses))
	}
	for len(uses) > 0 {
		before := len(uses)
		maps.DeleteFunc(uses, func(file string, others map[string]bool) bool {
			maps.DeleteFunc(others, func(other string, _ bool) bool { return uses[other] == nil })
			return len(others) == 0
		})
		if len(uses) == before {
			t.Fatalf("some of these files use each other in a circle: %v", slices.Sorted(maps.Keys(uses)))
		}
	}
}
