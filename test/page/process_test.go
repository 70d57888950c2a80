package page

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/program"
)

var buildProgram = sync.OnceValues(func() (string, error) {
	return program.Path(context.Background(), "../..", folder)
})

// folder is removed after the tests.
var folder string

func TestMain(m *testing.M) {
	os.Exit(func() (code int) {
		var err error
		if folder, err = os.MkdirTemp("", "leaderboard-page-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(folder)
		return m.Run()
	}())
}

type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// startProgram runs leaderboard with args on free ports until the test ends. It waits until the
// output contains text, and returns the output.
func startProgram(t *testing.T, text string, args ...string) string {
	t.Helper()
	path, err := buildProgram()
	if err != nil {
		t.Fatal(err)
	}
	var out output
	cmd := exec.Command(path, append(args, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), "LEADERBOARD_KEY=")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("leaderboard %s wrote:\n%.4000s", strings.Join(args, " "), out.String())
		}
	})
	deadline := time.After(5 * time.Minute)
	for !strings.Contains(out.String(), text) {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("leaderboard %v ended: %v\n%s", args, err, out.String())
		case <-deadline:
			t.Fatalf("leaderboard %v has not written %q in time; its output:\n%s", args, text, out.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return out.String()
}

var listening = regexp.MustCompile(`"http":"([^"]+)"`)

// serve runs a server with an empty store, and returns its URL.
func serve(t *testing.T, args ...string) string {
	t.Helper()
	out := startProgram(t, `"msg":"listening"`, append([]string{"serve", "--log-format", "json", "--data", t.TempDir()}, args...)...)
	return "http://" + listening.FindStringSubmatch(out)[1]
}

func call(ctx context.Context, t *testing.T, method, url, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		t.Fatalf("%s %s %s: status %s, error %v, want a status below 300; answer: %s", method, url, body, res.Status, err, answer)
	}
	return string(answer)
}
