package repotest

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// The command go install PATH@VERSION rejects a go.mod with the directive replace or exclude, and a
// package whose name is not main.
func TestProgramInstallsFromItsPath(t *testing.T) {
	output := func(args ...string) []byte {
		cmd := exec.Command("go", args...)
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %q: %v", args, err)
		}
		return out
	}
	var mod struct {
		Module           struct{ Path string }
		Replace, Exclude []any
	}
	if err := json.Unmarshal(output("mod", "edit", "-json"), &mod); err != nil {
		t.Fatal(err)
	}
	if mod.Module.Path != module || len(mod.Replace) > 0 || len(mod.Exclude) > 0 {
		t.Errorf("go.mod has the module %s, replace %v and exclude %v, want %s and no replace or exclude", mod.Module.Path, mod.Replace, mod.Exclude, module)
	}
	program := output("list", "-f", "{{.Name}} {{.Module.Path}}", module+"/cmd/leaderboard")
	if got, want := strings.TrimSpace(string(program)), "main "+module; got != want {
		t.Errorf("go list reports %q for cmd/leaderboard, want %q: a program in this module", got, want)
	}
}
