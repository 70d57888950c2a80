package compose

import (
	"debug/elf"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

type instructions struct {
	from  []string          // the base image of each stage
	runs  []string          // RUN of all stages
	final map[string]string // the other instructions of the last stage
}

// dockerfile reads the Dockerfile. Each instruction must be on one line.
func dockerfile(t *testing.T) instructions {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var all instructions
	for line := range strings.Lines(string(data)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "" || strings.HasPrefix(word, "#"):
		case strings.HasSuffix(rest, `\`):
			t.Fatalf("%q continues on the next line: this test reads only one line per instruction", line)
		case word == "FROM":
			image := strings.TrimPrefix(rest, "--platform=$BUILDPLATFORM ")
			all.from, all.final = append(all.from, strings.Fields(image)[0]), map[string]string{}
		case word == "RUN":
			all.runs = append(all.runs, rest)
		default:
			all.final[word] = rest
		}
	}
	return all
}

func TestImageRunsAsUnprivilegedUser(t *testing.T) {
	image := dockerfile(t)
	user, _, _ := strings.Cut(image.final["USER"], ":")
	if !regexp.MustCompile(`^[1-9][0-9]*$`).MatchString(user) {
		t.Errorf("the image runs as %q, want a numeric id other than root's: the image has no user names", image.final["USER"])
	}
	if from := image.from[len(image.from)-1]; from != "scratch" {
		t.Errorf("the image builds on %s, want scratch", from)
	}
	if !strings.Contains(image.final["HEALTHCHECK"], `CMD ["/leaderboard", "health"]`) {
		t.Errorf("the image's health check is %q, want /leaderboard health", image.final["HEALTHCHECK"])
	}
}

// The files that .dockerignore includes must suffice for the build. The binary must need no libc,
// and know every command that a container runs.
func TestImageBinaryBuildsAndKnowsItsCommands(t *testing.T) {
	needs.Slow(t, "release")
	context := t.TempDir()
	copyContext(t, context)
	runs := dockerfile(t).runs
	index := slices.IndexFunc(runs, func(r string) bool { return strings.Contains(r, "go build") })
	if index < 0 {
		t.Fatalf("no RUN of the Dockerfile runs go build: %q", runs)
	}
	binary := filepath.Join(t.TempDir(), "leaderboard")
	if !strings.Contains(runs[index], "-o /out/leaderboard ") || !strings.Contains(runs[index], "CGO_ENABLED=0 ") || !strings.Contains(runs[index], " -trimpath ") {
		t.Errorf("RUN %s: want CGO_ENABLED=0, -trimpath and -o /out/leaderboard", runs[index])
	}
	build := exec.Command("sh", "-c", strings.Replace(runs[index], "/out/leaderboard", binary, 1))
	build.Dir = context
	build.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "TARGETOS=linux", "VERSION=v1.2.3")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("RUN %s: %v\n%s", runs[index], err, out)
	}
	if out, err := exec.Command(binary, "version").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "leaderboard v1.2.3 ") {
		t.Errorf("leaderboard version: error %v, output %s; want v1.2.3", err, out)
	}
	wantStatic(t, binary)
	for name, s := range project(t).Services {
		if s.Build == nil {
			continue
		}
		// The program prints help only if it knows the arguments before --help.
		for _, args := range [][]string{s.Command, healthArgs(s.HealthCheck.Test)} {
			if out, err := exec.Command(binary, append(slices.Clone(args), "--help")...).CombinedOutput(); err != nil {
				t.Errorf("%s runs leaderboard %v, but with --help it fails: %v; output: %s", name, args, err, out)
			}
		}
	}
}

func wantStatic(t *testing.T, binary string) {
	t.Helper()
	file, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, program := range file.Progs {
		if program.Type == elf.PT_INTERP {
			t.Errorf("%s is linked dynamically, want a static binary", binary)
		}
	}
}

func healthArgs(test []string) []string {
	if len(test) < 3 {
		return nil
	}
	return test[2:]
}

// copyContext copies the files that .dockerignore includes. In it, * excludes everything, ! includes
// a file or folder of the root, and **/ excludes a name in all folders.
func copyContext(t *testing.T, target string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	patterns := strings.Fields(string(data))
	if patterns[0] != "*" {
		t.Fatalf(".dockerignore begins with %q, want *", patterns[0])
	}
	source := os.DirFS(root)
	ignored := func(path string) bool {
		top, _, _ := strings.Cut(path, "/")
		included, excluded := false, false
		for _, p := range patterns[1:] {
			if include, ok := strings.CutPrefix(p, "!"); ok {
				match, _ := filepath.Match(include, top)
				included = included || match
			} else if match, _ := filepath.Match(strings.TrimPrefix(p, "**/"), filepath.Base(path)); match {
				excluded = true
			}
		}
		return !included || excluded
	}
	err = fs.WalkDir(source, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || path == ".":
			return err
		case ignored(path) && d.IsDir():
			return fs.SkipDir
		case ignored(path):
			return nil
		case d.IsDir():
			return os.Mkdir(filepath.Join(target, path), 0o755)
		}
		data, err := fs.ReadFile(source, path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(target, path), data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}
