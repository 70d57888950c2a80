package clients

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/packages"
)

// demo runs the example of a game engine. A connection breaks after the result is stored, and one after the first event.
func demo(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	server := serve(t)
	p := newProxy(t, server)
	for _, r := range []map[string]any{{"user_id": "bob", "points": 20}, {"user_id": "cyd", "points": 10}} {
		post(t, "POST", server+"/v1/scores", r)
	}
	p.expect([]fault{{Status: 503, Headers: map[string]string{"Retry-After": "1"}}, {Lose: true}, {}, {}, {}, {Events: 1}})
	start := func(key string) (string, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		var errors bytes.Buffer
		cmd.Dir, cmd.Stderr, cmd.Env = dir, &errors, append(os.Environ(), "LEADERBOARD_URL="+p.URL, "LEADERBOARD_KEY="+key)
		out, err := cmd.Output()
		if t.Failed() {
			t.Log(errors.String())
		}
		return string(out), err
	}
	const want = "DUPLICATE 15\ntop: 1 bob 20\ntop: 2 ann/1 15\nme: 1 bob 20\nme: 2 ann/1 15\nme: 3 cyd 10\nlive: 1 bob 20\n"
	out, err := start(key)
	if _, got, _ := strings.Cut(out, "DUP"); err != nil || !strings.HasPrefix("DUP"+got, want) || !strings.HasSuffix(got, "live: 1 ann/1 25\n") {
		t.Errorf("the example printed %q, %v, want %q and that ann/1 leads", out, err, want)
	}
	var submits, watches []record
	for _, r := range p.seen() {
		switch {
		case strings.HasSuffix(r.Path, "/watch"):
			watches = append(watches, r)
		case r.Method == http.MethodPost:
			submits = append(submits, r)
		}
	}
	if len(submits) < 4 || !bytes.Equal(submits[0].Body, submits[1].Body) || !bytes.Equal(submits[0].Body, submits[2].Body) {
		t.Errorf("the example submitted %.1000q, want the first result three times, and another", submits)
	}
	if len(watches) != 2 {
		t.Errorf("the example opened %d streams, want 2", len(watches))
	}
	if out, err := start("another key"); err == nil || !strings.HasSuffix(out, "failed: 401 UNAUTHENTICATED\n") {
		t.Errorf("with another key, the example printed %q, %v, want a failure", out, err)
	}
}

func TestGodot(t *testing.T) {
	needs.Slow(t, "clients")
	needs.Programs(t, "godot3-server")
	dir := t.TempDir() // Godot writes its logs there
	if err := os.CopyFS(dir, os.DirFS("../../examples/godot")); err != nil {
		t.Fatal(err)
	}
	demo(t, dir, "godot3-server", "-s", "demo.gd")
}

func TestGodot4Parses(t *testing.T) {
	needs.Slow(t, "clients")
	run(t, "../../examples/godot/godot4", filepath.Join(packages.Python(t, "testdata/godot4"), "gdparse"), "leaderboard.gd", "demo.gd")
}

func TestUnity(t *testing.T) {
	needs.Slow(t, "clients")
	needs.Programs(t, "mcs", "mono")
	path := filepath.Join(t.TempDir(), "demo.exe")
	run(t, ".", "mcs", "-warnaserror", "-r:System.Runtime.Serialization,System.Xml", "-out:"+path,
		"../../examples/unity/LeaderboardClient.cs", "../../examples/unity/LeaderboardDemo.cs", "testdata/unity/UnityEngine.cs")
	demo(t, ".", "mono", path)
}
