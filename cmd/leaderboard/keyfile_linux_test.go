package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func newTerminal(t *testing.T) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return screen, tty
}

// onTerminal runs a command on a terminal of 80 columns, by default without colors, and returns its
// output. If done is nil, onTerminal waits until the command ends. Otherwise, it kills the command
// when done(output) is true.
func onTerminal(t *testing.T, environ []string, done func(shown string) bool, args ...string) string {
	t.Helper()
	screen, tty := newTerminal(t)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append([]string{childEnv + "=1", "TERM=dumb"}, environ...)
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = tty
	// If this process ends, the pipe closes, and the command exits: see TestMain.
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close() // only the command keeps tty open
	shown := &output{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(shown, screen) // ends with an error when no process has tty open
	}()
	if done != nil {
		eventually(t, "the terminal shows the wanted output", func() bool { return done(shown.String()) })
		_ = cmd.Process.Kill()
	}
	_ = cmd.Wait()
	<-ended
	return shown.String()
}

func TestFirstKeyIsShownOnATerminal(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	shown := onTerminal(t, nil, func(shown string) bool { return strings.Contains(shown, "export LEADERBOARD_KEY=lbk_") },
		"serve", "--data", data, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
	if _, err := os.Stat(filepath.Join(data, "admin-key")); err == nil {
		t.Errorf("the key is also in a file, want it only on the terminal, which shows %s", shown)
	}
}

func TestFirstKeyIsShownAfterAFailedStart(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	args := []string{"serve", "--data", data, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"}
	onTerminal(t, nil, nil, append(args, "--jwt-algorithm", "ES256", "--jwt-jwks", "https://127.0.0.1:1/keys", "--jwt-issuer", "i", "--jwt-audience", "a", "--start-timeout", "100ms")...)
	if _, err := os.Stat(data); err != nil {
		t.Fatalf("the failed start did not open its store: %v", err)
	}
	const export = "export LEADERBOARD_KEY="
	shown := onTerminal(t, nil, func(shown string) bool {
		return strings.Contains(shown, export+"lbk_") && strings.HasSuffix(shown, "\n")
	}, args...)
	_, rest, _ := strings.Cut(shown, export)
	s := startServer(t, data, nil)
	if r := s.runWithKey(t, strings.Fields(rest)[0], "key", "list"); r.code != exitOK {
		t.Errorf("key list with the key that the second start shows: %s, want success", r.stderr)
	}
}

func TestCSVOnATerminalIsEscaped(t *testing.T) {
	address := (&hostileServer{}).start(t)
	server := "LEADERBOARD_SERVER=" + address
	shown := onTerminal(t, []string{server}, nil, "export", "entries", "--format", "csv")
	if found, ok := findControl(strings.ReplaceAll(shown, "\r\n", "\n")); ok || !strings.Contains(shown, "forged") {
		t.Errorf("the terminal shows %q (control character: %s), want forged with all control characters escaped", shown, found)
	}
	if r := command(t, "", []string{server}, "export", "entries", "--format", "csv"); !strings.Contains(r.stdout, "\x1b") {
		t.Errorf("a pipe gets %q, want the unescaped text", r.stdout)
	}
}
