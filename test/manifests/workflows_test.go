package manifests

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/rhysd/actionlint"
)

// The workflows have the syntax of GitHub Actions, and their expressions are valid.
func TestWorkflowsAreValid(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatalf("the workflows are %v, error %v, want at least 2", files, err)
	}
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	problems, err := linter.LintFiles(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
}
