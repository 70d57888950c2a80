package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/plan"
)

var _ = needs.PackageWithoutRace("the tests read the output of child processes")

// The test runs go test in a new module, through a copy of this program.
func TestRunReportsTestsAndTimes(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module example\n\ngo 1.26\n",
		"a/a_test.go":  "package a\n\nimport \"testing\"\n\nfunc TestChosen(t *testing.T) {}\nfunc TestLeftOut(t *testing.T) { t.Fatal(\"must not run\") }\n",
		"b/b_test.go":  "package b\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) { t.Log(\"quiet\") }\nfunc TestBad(t *testing.T) { t.Run(\"x\", func(t *testing.T) { t.Fatal(\"broken\") }) }\n",
		"c/c_test.go":  "package c\n\nimport \"testing\"\n\nfunc TestBuild(t *testing.T) { undefined() }\n",
		"program/x.go": "package program\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(t.TempDir(), "run")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	t.Chdir(root)
	r := newReport(nil)
	r.self = program
	var printed bytes.Buffer
	r.out = &printed
	r.goTest(t.Context(), "some tests", ".", plan.Run{Packages: map[string]string{"a": "^(TestChosen)$", "b": "", "c": ""}}, nil)
	err := r.end()
	if err == nil || !strings.Contains(err.Error(), "some tests") {
		t.Errorf("end returns the error %v, want one of the step", err)
	}
	text := printed.String()
	for _, want := range []string{"== some tests: FAILED", "broken", "undefined: undefined", "ok  \texample/a", "FAIL\texample/b", "slowest packages"} {
		if !strings.Contains(text, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	for _, unwanted := range []string{"must not run", "quiet", "PASS"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("the output contains %q", unwanted)
		}
	}
	if t.Failed() {
		t.Logf("the output:\n%s", text)
	}
	if len(r.times) != 3 {
		t.Errorf("the report has the packages %+v, want three", r.times)
	}
}

// A package that takes long names the reason. Under the race detector, it needs none.
func TestLongPackagesNeedAReason(t *testing.T) {
	r := newReport([]plan.Package{{Folder: "long"}, {Folder: "explained", LongBecause: "a server waits"}, {Folder: "short"}})
	var printed bytes.Buffer
	r.out = &printed
	r.times = []packageTime{
		{result{elapsed: 2 * longPackage}, "long", false, 0},
		{result{elapsed: 2 * longPackage}, "long", true, 0},
		{result{elapsed: 2 * longPackage}, "explained", false, 0},
		{result{elapsed: time.Second}, "short", false, 0},
	}
	r.longWithoutReason()
	if got := printed.String(); strings.Count(got, "took") != 1 || !strings.Contains(got, "long took 120 s") {
		t.Errorf("longWithoutReason prints %q, want one line about the package long", got)
	}
}

func TestUnknownPartsAreRefused(t *testing.T) {
	t.Chdir("../..")
	err := slow(t.Context(), []string{"fault"})
	if err == nil || !strings.Contains(err.Error(), `no part "fault"`) || !strings.Contains(err.Error(), "faults") {
		t.Errorf("slow of an unknown part = %v, want an error with the parts", err)
	}
}
