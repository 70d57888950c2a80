// Package packages installs packages of npm and PyPI for tests, at their pinned versions, into the user's
// cache.
package packages

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

// Node installs the packages of package-lock.json in a folder, unless an earlier test has. It returns the
// folder node_modules.
func Node(t testing.TB, folder string) (modules string) {
	t.Helper()
	needs.Programs(t, "node", "npm")
	dir := install(t, filepath.Join(folder, "package-lock.json"), func(dir string) {
		for _, name := range []string{"package.json", "package-lock.json"} {
			data, err := os.ReadFile(filepath.Join(folder, name))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		run(t, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	})
	return filepath.Join(dir, "node_modules")
}

// Python installs the packages of requirements.txt in a folder, unless an earlier test has. It returns the
// folder of programs.
func Python(t testing.TB, folder string) (bin string) {
	t.Helper()
	needs.Programs(t, "python3")
	requirements, err := filepath.Abs(filepath.Join(folder, "requirements.txt"))
	if err != nil {
		t.Fatal(err)
	}
	dir := install(t, requirements, func(dir string) {
		run(t, dir, "python3", "-m", "venv", "venv")
		run(t, dir, "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements)
	})
	return filepath.Join(dir, "venv", "bin")
}

// install calls into with an empty folder, unless an earlier test has installed what the file pins.
func install(t testing.TB, pins string, into func(dir string)) (dir string) {
	t.Helper()
	data, err := os.ReadFile(pins)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(cache, "leaderboard-test-packages", fmt.Sprintf("%x", sha256.Sum256(data))[:16])
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return dir
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	into(dir)
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func run(t testing.TB, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "npm_config_update_notifier=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}
