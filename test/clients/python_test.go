package clients

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/packages"
)

const python = "../../sdk/python"

func TestPython(t *testing.T) {
	needs.Slow(t, "clients")
	interpreter := filepath.Join(packages.Python(t, python), "python")
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) { suite(t, start(t, python, interpreter, "tests/driver.py", mode), false) })
	}
}

func TestPythonPackage(t *testing.T) {
	needs.Slow(t, "clients")
	bin, dir := packages.Python(t, python), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(python)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", filepath.Join(dir, "src"))
	run(t, dir, filepath.Join(bin, "mypy"))
	run(t, dir, filepath.Join(bin, "python"), "tests/test_client.py")
	run(t, dir, filepath.Join(bin, "hatchling"), "build")
	wheels, _ := filepath.Glob(filepath.Join(dir, "dist", "*.whl"))
	if len(wheels) != 1 {
		t.Fatalf("hatchling has built %q", wheels)
	}
	sources, _ := filepath.Glob(filepath.Join(dir, "dist", "*.tar.gz"))
	if len(sources) != 1 {
		t.Fatalf("hatchling has built the sources %q", sources)
	}
	run(t, dir, filepath.Join(bin, "twine"), "check", "--strict", wheels[0], sources[0])
	// The example of the README, in a program that has the wheel.
	program := t.TempDir()
	write(t, program, "example.py", example(t, python+"/README.md", "python", serve(t)))
	t.Setenv("PYTHONPATH", wheels[0])
	if out := run(t, program, filepath.Join(bin, "python"), "example.py"); out != exampleOutput {
		t.Errorf("the example printed %q, want %q", out, exampleOutput)
	}
}
