// Long: competitions of up to 86,000 results are submitted, and all their ladders are read by each method.

package official

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/program"
)

var _ = needs.PackageWithoutRace("the tests check a child process")

// The environment variables with the address and the API key of the deployment to test. Without an
// address, the tests start an embedded server.
const (
	serverVariable = "LEADERBOARD_TEST_SERVER"
	keyVariable    = "LEADERBOARD_TEST_KEY"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := child.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func server(t *testing.T) string {
	t.Helper()
	if url := os.Getenv(serverVariable); url != "" {
		return url
	}
	url, err := child.start()
	if err != nil {
		t.Fatal(err)
	}
	return url
}

func deployment(t *testing.T, batch int) Deployment {
	url, key := server(t), os.Getenv(keyVariable)
	return Deployment{URL: url, Key: key, Feeder: REST(url, key, batch)}
}

var child process

type process struct {
	once    sync.Once
	url     string
	err     error
	dir     string
	cmd     *exec.Cmd
	exited  chan struct{}
	waitErr error
}

func (p *process) start() (string, error) {
	p.once.Do(func() { p.url, p.err = p.run() })
	return p.url, p.err
}

const startTimeout = 5 * time.Minute // includes a build without a cache

func (p *process) run() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var err error
	if p.dir, err = os.MkdirTemp("", "leaderboard-official-"); err != nil {
		return "", err
	}
	binary, err := program.Path(ctx, "", p.dir)
	if err != nil {
		return "", err
	}
	addr, err := freeAddress()
	if err != nil {
		return "", err
	}
	log, err := os.Create(p.log())
	if err != nil {
		return "", err
	}
	defer log.Close()
	p.cmd = exec.Command(binary, "serve", "--data", filepath.Join(p.dir, "data"), "--http", addr, "--grpc", "127.0.0.1:0",
		"--insecure", "--request-timeout", "2m") // the machine may be busy
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.exited = make(chan struct{})
	if err := startWithParent(p.cmd); err != nil {
		return "", err
	}
	go func() {
		p.waitErr = p.cmd.Wait()
		close(p.exited)
	}()
	url := "http://" + addr
	return url, p.waitReady(ctx, url)
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (p *process) log() string { return filepath.Join(p.dir, "server.log") }

func (p *process) waitReady(ctx context.Context, url string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := http.Get(url + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return p.errorWithLog(fmt.Sprintf("the server exited before it was ready: %v", p.cmd.ProcessState))
		case <-ctx.Done():
			return p.errorWithLog(fmt.Sprintf("the server is not ready after %v", startTimeout))
		}
	}
}

func (p *process) errorWithLog(problem string) error {
	b, err := os.ReadFile(p.log())
	return errors.Join(fmt.Errorf("%s; the end of its log:\n%s", problem, b[max(0, len(b)-4<<10):]), err)
}

func (p *process) stop() error {
	if p.dir == "" {
		return nil
	}
	defer os.RemoveAll(p.dir)
	if p.exited == nil {
		return nil
	}
	select {
	case <-p.exited:
		return p.errorWithLog(fmt.Sprintf("the server exited before the tests ended: %v", p.cmd.ProcessState))
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.exited:
	case <-time.After(time.Minute):
		err := p.cmd.Process.Kill()
		<-p.exited
		return errors.Join(p.errorWithLog("the server did not stop within a minute and was killed"), err)
	}
	if p.waitErr != nil {
		return p.errorWithLog(fmt.Sprintf("the server exited with an error: %v", p.waitErr))
	}
	return nil
}
