package openapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/packages"
	"github.com/open-leaderboard/leaderboard/test/program"
)

const document = "../../api/openapi.json"

// run runs a program in a folder, and returns its output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NO_COLOR=1", "PYTHONPATH="+dir, "npm_config_update_notifier=false")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, tail(out))
	}
	return string(out)
}

func tail(out []byte) []byte { return out[max(0, len(out)-8000):] }

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// key is the admin key of the servers of these tests.
const key = "admin-key-of-the-test"

var buildProgram = sync.OnceValues(func() (string, error) {
	return program.Path(context.Background(), "../..", folder)
})

// folder is removed after the tests.
var folder string

func TestMain(m *testing.M) {
	os.Exit(func() (code int) {
		var err error
		if folder, err = os.MkdirTemp("", "leaderboard-openapi-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(folder)
		return m.Run()
	}())
}

// serve starts a server that requires keys, and returns its URL.
func serve(t *testing.T) string {
	t.Helper()
	path, err := buildProgram()
	if err != nil {
		t.Fatal(err)
	}
	return program.Serve(t, path, key)
}

func TestSpectralFindsNothing(t *testing.T) {
	needs.Slow(t, "openapi")
	out := run(t, ".", filepath.Join(packages.Node(t, "."), ".bin", "spectral"), "lint", "--ruleset", "testdata/spectral.yaml", "--fail-severity", "hint", document)
	if !strings.Contains(out, "No results") {
		t.Errorf("spectral found:\n%s", out)
	}
}

// The document of the last commit that changed it, or of the commit before if the tree has no change,
// and this document: no client of the former may break. A new value of an enum in answers, such as a reason, is no break:
// clients keep values that they do not know as texts.
func TestNoClientBreaks(t *testing.T) {
	needs.Slow(t, "openapi")
	now, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, commit := range strings.Fields(run(t, "../..", "git", "log", "-3", "--format=%H", "--", "api/openapi.json")) {
		before := run(t, "../..", "git", "show", commit+":api/openapi.json")
		if before == string(now) {
			continue
		}
		if !strings.Contains(before, `"openapi": "3.1.0"`) {
			break
		}
		old := filepath.Join(t.TempDir(), "before.json")
		if err := os.WriteFile(old, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, ".", "go", "tool", "oasdiff", "breaking", "--fail-on", "ERR", "--severity-levels", "testdata/oasdiff.txt", old, document)
		return
	}
	t.Skip("no earlier commit has another document of OpenAPI 3.1")
}

// A watch does not end, so the test leaves it out.
func TestSchemathesisFindsNothing(t *testing.T) {
	needs.Slow(t, "openapi")
	bin, dir := packages.Python(t, "."), t.TempDir() // schemathesis writes into the folder
	copyFile(t, "testdata/schemathesis.toml", filepath.Join(dir, "schemathesis.toml"))
	copyFile(t, document, filepath.Join(dir, "openapi.json"))
	run(t, dir, filepath.Join(bin, "schemathesis"), "run", "openapi.json", "--url", serve(t),
		"--header", "Authorization: Bearer "+key, "--phases", "examples,coverage,fuzzing", "--exclude-operation-id", "watchScores",
		"--max-examples", "10", "--seed", "1", "--continue-on-failure", "--request-timeout", "30", "--no-color")
}

func TestTypeScriptClient(t *testing.T) {
	needs.Slow(t, "openapi")
	modules, dir := packages.Node(t, "."), t.TempDir()
	copyFile(t, "package.json", filepath.Join(dir, "package.json"))
	for _, file := range []string{"client.ts", "tsconfig.json"} {
		copyFile(t, filepath.Join("testdata", file), filepath.Join(dir, file))
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	run(t, ".", filepath.Join(modules, ".bin", "openapi-typescript"), document, "--output", filepath.Join(dir, "api.d.ts"))
	run(t, dir, filepath.Join(modules, ".bin", "tsc"), "--project", ".")
	run(t, dir, "node", "out/client.js", serve(t), key)
}

func TestPythonClient(t *testing.T) {
	needs.Slow(t, "openapi")
	bin, dir := packages.Python(t, "."), t.TempDir()
	copyFile(t, "testdata/python.yaml", filepath.Join(dir, "python.yaml"))
	copyFile(t, "testdata/client.py", filepath.Join(dir, "client.py"))
	copyFile(t, document, filepath.Join(dir, "openapi.json"))
	out := run(t, dir, filepath.Join(bin, "openapi-python-client"), "generate", "--path", "openapi.json", "--meta", "none",
		"--output-path", "leaderboard_client", "--config", "python.yaml")
	// The generator knows no streams.
	for _, warning := range regexp.MustCompile(`(?m)^WARNING parsing .*\n\n.*`).FindAllString(out, -1) {
		if !strings.Contains(warning, "Unsupported content_type application/x-ndjson") && !strings.Contains(warning, "Unsupported content_type text/event-stream") {
			t.Errorf("openapi-python-client: %s", warning)
		}
	}
	run(t, dir, filepath.Join(bin, "python"), "client.py", serve(t), key)
}

// The embedded viewer is that of the package.
func TestViewerIsUnchanged(t *testing.T) {
	needs.Slow(t, "openapi")
	modules := packages.Node(t, ".")
	for _, name := range []string{"swagger-ui-bundle.js", "swagger-ui.css"} {
		want, err := os.ReadFile(filepath.Join(modules, "swagger-ui-dist", name))
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(filepath.Join("../../api/web/docs", name+".gz"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		z, err := gzip.NewReader(file)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, want) {
			t.Errorf("api/web/docs/%s.gz differs from the package, %v", name, err)
		}
	}
}
