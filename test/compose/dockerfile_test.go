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
)

// instructions are those of a Dockerfile that the tests ask about.
type instructions struct {
	from  []string // the images that the stages build on
	runs  []string // of all stages
	final map[string]string
}

// dockerfile reads the Dockerfile, which breaks no line of an instruction.
func dockerfile(t *testing.T) instructions {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var in instructions
	for line := range strings.Lines(string(data)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "" || strings.HasPrefix(word, "#"):
		case strings.HasSuffix(rest, `\`):
			t.Fatalf("%q goes on in the next line, which this test does not read", line)
		case word == "FROM":
			in.from, in.final = append(in.from, strings.Fields(rest)[0]), map[string]string{}
		case word == "RUN":
			in.runs = append(in.runs, rest)
		default:
			in.final[word] = rest
		}
	}
	return in
}

func TestImageRunsAsNobodyInParticular(t *testing.T) {
	in := dockerfile(t)
	user, _, _ := strings.Cut(in.final["USER"], ":")
	if !regexp.MustCompile(`^[1-9][0-9]*$`).MatchString(user) {
		t.Errorf("the image runs as %q, want a number that is not root's: there is no user list in it", in.final["USER"])
	}
	if from := in.from[len(in.from)-1]; from != "scratch" {
		t.Errorf("the image builds on %s, want scratch", from)
	}
	if !strings.Contains(in.final["HEALTHCHECK"], `CMD ["/leaderboard", "health"]`) {
		t.Errorf("the image's health check is %q", in.final["HEALTHCHECK"])
	}
}

func TestGoVersionIsTheModules(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`(?m)^go (\d+\.\d+)\.(\d+)$`).FindSubmatch(mod)
	have := regexp.MustCompile(`^golang:(\d+\.\d+)\.(\d+)-`).FindStringSubmatch(dockerfile(t).from[0])
	if want == nil || have == nil || have[1] != string(want[1]) {
		t.Errorf("the binary is built on %s, go.mod says %s", dockerfile(t).from[0], want)
	}
}

// What the Dockerfile does in its first stage, done here: the files that
// .dockerignore lets through are enough, the binary needs no libc, and it knows
// every command that a container runs.
func TestBinaryOfTheImage(t *testing.T) {
	context := t.TempDir()
	copyContext(t, context)
	runs := dockerfile(t).runs
	at := slices.IndexFunc(runs, func(r string) bool { return strings.Contains(r, "go build") })
	if at < 0 {
		t.Fatalf("no RUN of the Dockerfile builds: %q", runs)
	}
	binary := filepath.Join(t.TempDir(), "leaderboard")
	if !strings.Contains(runs[at], "-o /out/leaderboard ") || !strings.Contains(runs[at], "CGO_ENABLED=0 ") || !strings.Contains(runs[at], " -trimpath ") {
		t.Errorf("RUN %s: want CGO_ENABLED=0, -trimpath and -o /out/leaderboard", runs[at])
	}
	build := exec.Command("sh", "-c", strings.Replace(runs[at], "/out/leaderboard", binary, 1))
	build.Dir = context
	build.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("RUN %s: %v\n%s", runs[at], err, out)
	}
	file, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, program := range file.Progs {
		if program.Type == elf.PT_INTERP {
			t.Error("the binary is linked dynamically, but there is nothing to link it with in the image")
		}
	}
	for name, s := range project(t).Services {
		if s.Build == nil {
			continue
		}
		// Help is shown once the arguments before it are understood.
		for _, args := range [][]string{s.Command, healthArgs(s.HealthCheck.Test)} {
			if out, err := exec.Command(binary, append(slices.Clone(args), "--help")...).CombinedOutput(); err != nil {
				t.Errorf("%s runs leaderboard %v: %v: %s", name, args, err, out)
			}
		}
	}
}

// healthArgs are the arguments of a health check that runs the binary.
func healthArgs(test []string) []string {
	if len(test) < 3 {
		return nil
	}
	return test[2:]
}

// copyContext copies what .dockerignore lets through. Its first pattern takes
// everything, those with ! bring back, those with **/ take again.
func copyContext(t *testing.T, to string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	patterns := strings.Fields(string(data))
	if patterns[0] != "*" {
		t.Fatalf(".dockerignore begins with %q, which this test does not read", patterns[0])
	}
	source := os.DirFS(root)
	ignored := func(path string) bool {
		top, _, _ := strings.Cut(path, "/")
		back, again := false, false
		for _, p := range patterns[1:] {
			if brings, ok := strings.CutPrefix(p, "!"); ok {
				match, _ := filepath.Match(brings, top)
				back = back || match
			} else if match, _ := filepath.Match(strings.TrimPrefix(p, "**/"), filepath.Base(path)); match {
				again = true
			}
		}
		return !back || again
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
			return os.Mkdir(filepath.Join(to, path), 0o755)
		}
		data, err := fs.ReadFile(source, path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, path), data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}
