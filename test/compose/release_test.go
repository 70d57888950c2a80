package compose

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

// checkout copies the project to a folder and commits the copy there. In its CHANGELOG, the section
// Unreleased is renamed 1.2.3.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run(t, root, "sh", "-c", `git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh | tar -cf - --null -T - | tar -xf - -C "$0"`, dir)
	changelog := filepath.Join(dir, "CHANGELOG.md")
	data, err := os.ReadFile(changelog)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(data), "\n## Unreleased\n", "\n## 1.2.3\n", 1) + "\n## 1.2.2\n\n- An older line.\n"
	if err := os.WriteFile(changelog, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "git", "init", "-q")
	run(t, dir, "git", "add", "-A")
	run(t, dir, "git", "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-q", "-m", "release")
	return dir
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func TestReleaseHasAStaticBinaryChecksumsAndNotes(t *testing.T) {
	needs.Slow(t, "release")
	dir := checkout(t)
	platform := "linux/" + runtime.GOARCH
	name := "leaderboard_v1.2.3_linux_" + runtime.GOARCH
	dist := filepath.Join(dir, "dist")
	run(t, dir, "scripts/release.sh", "v1.2.3", platform)

	archive, err := os.ReadFile(filepath.Join(dist, name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
	if want := fmt.Sprintf("%x  %s.tar.gz\n", sha256.Sum256(archive), name); err != nil || string(sums) != want {
		t.Errorf("SHA256SUMS: %q, %v; want %q", sums, err, want)
	}
	notes, err := os.ReadFile(filepath.Join(dist, "notes.md"))
	if err != nil || !strings.HasPrefix(string(notes), "## 1.2.3\n") || strings.Contains(string(notes), "1.2.2") {
		t.Errorf("the notes are\n%s\nerror %v; want the section 1.2.3 of the CHANGELOG", notes, err)
	}
	listing := run(t, dist, "tar", "-tzf", name+".tar.gz")
	if want := fmt.Sprintf("%[1]s/\n%[1]s/CHANGELOG.md\n%[1]s/LICENSE\n%[1]s/README.md\n%[1]s/leaderboard\n", name); listing != want {
		t.Errorf("the archive has\n%swant\n%s", listing, want)
	}
	run(t, dist, "tar", "-xzf", name+".tar.gz")
	binary := filepath.Join(dist, name, "leaderboard")
	if out := run(t, dir, binary, "--version"); !strings.HasPrefix(out, "leaderboard v1.2.3 ") {
		t.Errorf("leaderboard --version: %q, want v1.2.3", out)
	}
	commit := strings.TrimSpace(run(t, dir, "git", "rev-parse", "HEAD"))
	var version struct {
		Revision string
		Modified bool
	}
	if err := json.Unmarshal([]byte(run(t, dir, binary, "version", "--json")), &version); err != nil || version.Revision != commit || version.Modified {
		t.Errorf("leaderboard version: %+v, %v; want the unmodified commit %s", version, err, commit)
	}
	wantStatic(t, binary)

	// Two builds of a commit, at different times and into different folders, make equal archives.
	second := filepath.Join(t.TempDir(), "second")
	run(t, dir, "env", "DIST="+second, "scripts/release.sh", "v1.2.3", platform)
	if data, err := os.ReadFile(filepath.Join(second, name+".tar.gz")); err != nil || sha256.Sum256(data) != sha256.Sum256(archive) {
		t.Errorf("a second archive of the same commit differs, or cannot be read: %v; want the same bytes", err)
	}
}

func TestReleaseIsRefused(t *testing.T) {
	dir := checkout(t)
	existing := t.TempDir()
	for _, tt := range []struct{ name, command, want string }{
		{"no version", "scripts/release.sh", "the version is missing"},
		{"not a version", "scripts/release.sh 1.2.3", "the version is 1.2.3"},
		{"no section in the CHANGELOG", "DIST=" + filepath.Join(t.TempDir(), "a") + " scripts/release.sh v1.2.4", `no section "## 1.2.4"`},
		{"existing folder", "DIST=" + existing + " scripts/release.sh v1.2.3", existing + " exists"},
		{"no section Upgrading", `grep -v "^### Upgrading" CHANGELOG.md > c; mv c CHANGELOG.md; git -c user.name=test -c user.email=test@example.com commit -qam edit
			DIST=` + filepath.Join(t.TempDir(), "b") + ` scripts/release.sh v1.2.3`, `no section "## 1.2.3" with "### Upgrading"`},
		{"uncommitted changes", "echo >> README.md; scripts/release.sh v1.2.3", "the checkout has changes"},
	} {
		cmd := exec.Command("sh", "-c", tt.command)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: error %v, output %s; want an error and the output %q", tt.name, err, out, tt.want)
		}
	}
}

// The test takes minutes, so it runs in "make slow" only.
func TestReleaseOfAllPlatforms(t *testing.T) {
	needs.Slow(t, "release")
	dir := checkout(t)
	run(t, dir, "scripts/release.sh", "v1.2.3")
	files, err := filepath.Glob(filepath.Join(dir, "dist", "*.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, file := range files {
		platform := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "leaderboard_v1.2.3_"), ".tar.gz")
		got = append(got, platform)
		program := "leaderboard"
		if strings.HasPrefix(platform, "windows") {
			program += ".exe"
		}
		if listing := run(t, dir, "tar", "-tzf", file); !strings.Contains(listing, "/"+program+"\n") {
			t.Errorf("the archive of %s has %s, want %s among its files", platform, listing, program)
		}
	}
	if want := []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64", "windows_amd64"}; !slices.Equal(got, want) {
		t.Errorf("the archives are for %v, want %v", got, want)
	}
	run(t, filepath.Join(dir, "dist"), "sha256sum", "--check", "--quiet", "SHA256SUMS")
}

// The test's module proxy has only version 1.2.3 of this module. Other modules come from the
// module cache. The test runs in "make slow" only.
func TestGoInstall(t *testing.T) {
	needs.Slow(t, "release")
	const path = "github.com/open-leaderboard/leaderboard"
	dir, proxy, bin := checkout(t), t.TempDir(), t.TempDir()
	versions := filepath.Join(proxy, path, "@v")
	if err := os.MkdirAll(versions, 0o700); err != nil {
		t.Fatal(err)
	}
	archive, err := os.Create(filepath.Join(versions, "v1.2.3.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if err := zip.CreateFromVCS(archive, module.Version{Path: path, Version: "v1.2.3"}, dir, "HEAD", ""); err != nil {
		t.Fatal(err)
	}
	gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"list": "v1.2.3\n", "v1.2.3.mod": string(gomod), "v1.2.3.info": `{"Version":"v1.2.3"}`} {
		if err := os.WriteFile(filepath.Join(versions, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cache := strings.TrimSpace(run(t, root, "go", "env", "GOMODCACHE"))
	ownCache := filepath.Join(t.TempDir(), "cache") // The machine's cache must not get the test's v1.2.3.
	run(t, t.TempDir(), "env", "GOBIN="+bin, "GOMODCACHE="+ownCache, "GOFLAGS=-modcacherw -trimpath", "GOSUMDB=off", "GOTOOLCHAIN=local",
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(cache, "cache", "download"), "go", "install", path+"/cmd/leaderboard@v1.2.3")
	if out := run(t, dir, filepath.Join(bin, "leaderboard"), "version"); !strings.HasPrefix(out, "leaderboard v1.2.3 ") {
		t.Errorf("leaderboard version: %q, want v1.2.3", out)
	}
}
