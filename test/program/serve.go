package program

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// Serve starts the program at path as a server with an admin key on free ports, until the end of the test. It
// returns the server's URL.
func Serve(t testing.TB, path, adminKey string) (url string) {
	t.Helper()
	cmd := exec.Command(path, "serve", "--log-format", "json", "--data", t.TempDir(), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "LEADERBOARD_ADMIN_KEY="+adminKey)
	log, err := cmd.StderrPipe()
	if err == nil {
		cmd.Stdout = cmd.Stderr
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		stop := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		stop.Stop()
	})
	var written bytes.Buffer
	listening := regexp.MustCompile(`"msg":"listening","http":"([^"]+)"`)
	for buffer := make([]byte, 4096); ; {
		n, err := log.Read(buffer)
		written.Write(buffer[:n])
		if m := listening.FindSubmatch(written.Bytes()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, log) }()
			return "http://" + string(m[1])
		}
		if err != nil {
			t.Fatalf("the server does not listen: %v\n%s", err, written.Bytes())
		}
	}
}
