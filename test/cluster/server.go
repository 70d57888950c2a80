package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Server is one server process of a [Cluster], and its data through the
// processes that follow one another on it. Methods are safe for concurrent use.
type Server struct {
	Name string // such as "cassandra-2"
	Addr string // where clients connect, host:port; the same after a restart

	cluster *Cluster
	dir     string   // config and data
	listens []string // every address the server listens on
	jmx     string   // host:port of a Cassandra node's JMX

	// command writes the configuration and returns the command that runs the
	// server in the foreground; joins are the servers running already.
	command func(joins []*Server) (*exec.Cmd, error)

	mu   sync.Mutex
	proc *process // nil before the start and after Kill or Stop
	last *process // the latest that was started
}

type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed once the process is gone and reaped
	paused bool
}

func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// PID returns the id of the server's process, 0 if it is not running.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.gone() {
		return 0
	}
	return s.proc.cmd.Process.Pid
}

// Kill ends the server with SIGKILL and returns once its process is gone.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end(context.Background(), syscall.SIGKILL)
}

// Stop ends the server with SIGTERM, which lets it finish its work, and returns
// once its process is gone. When ctx ends first the server is killed, and that
// is an error.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end(ctx, syscall.SIGTERM)
}

func (s *Server) end(ctx context.Context, sig syscall.Signal) error {
	p, err := s.running()
	if err != nil {
		return err
	}
	if err := s.signal(p, sig); err != nil {
		return err
	}
	if p.paused && sig != syscall.SIGKILL {
		if err := s.signal(p, syscall.SIGCONT); err != nil {
			return err
		}
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
		err = fmt.Errorf("cluster: %s did not stop on %v and was killed: %w", s.Name, sig, context.Cause(ctx))
		p.cmd.Process.Kill() // It fails only if the process is gone.
		<-p.exited
	}
	s.proc = nil
	return err
}

// Pause freezes the server with SIGSTOP: its connections stay open and nothing
// answers. It returns once every thread of it stands still.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.running()
	if err != nil {
		return err
	}
	if err := s.signal(p, syscall.SIGSTOP); err != nil {
		return err
	}
	p.paused = true
	return waitStopped(p.cmd.Process.Pid)
}

// Resume lets a paused server go on. It does not wait for its peers to notice;
// [Cluster.WaitReady] does.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.running()
	if err != nil {
		return err
	}
	p.paused = false
	return s.signal(p, syscall.SIGCONT)
}

// Start starts the server on the data it had, and returns once the cluster is
// ready, as [Cluster.WaitReady] says. A server whose cluster needs others to be
// ready, such as the first of three killed Kafka brokers, is started with
// [Cluster.Start].
func (s *Server) Start(ctx context.Context) error {
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	if err := s.spawn(ctx, s.cluster.live()); err != nil {
		return err
	}
	return s.cluster.WaitReady(ctx)
}

// Restart is Stop and Start.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	return s.Start(ctx)
}

// running returns the server's process, an error if there is none.
func (s *Server) running() (*process, error) {
	if s.proc == nil || s.proc.gone() {
		return nil, fmt.Errorf("cluster: %s is not running", s.Name)
	}
	return s.proc, nil
}

func (s *Server) signal(p *process, sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cluster: %v to %s: %w", sig, s.Name, err)
	}
	return nil
}

// up reports whether the server was started and not ended by us, and whether
// it takes part: not paused, and not exited by itself.
func (s *Server) up() (started, live bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return false, false
	}
	return true, !s.proc.paused && !s.proc.gone()
}

// crashed returns an error if the server ended by itself.
func (s *Server) crashed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.gone() {
		return nil
	}
	return fmt.Errorf("cluster: %s exited by itself (%v): %w; the end of its log:\n%s",
		s.Name, s.proc.cmd.ProcessState, errFatal, s.logTail())
}

// spawn starts the process, once its addresses are free.
func (s *Server) spawn(ctx context.Context, joins []*Server) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.running(); err == nil {
		return fmt.Errorf("cluster: %s is running already", s.Name)
	}
	if err := s.waitFree(ctx); err != nil {
		return err
	}
	cmd, err := s.command(joins)
	if err != nil {
		return fmt.Errorf("cluster: configure %s: %w", s.Name, err)
	}
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("cluster: log of %s: %w", s.Name, err)
	}
	defer log.Close()
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	p := &process{cmd: cmd, exited: make(chan struct{})}
	if err := StartChild(cmd); err != nil {
		return fmt.Errorf("cluster: start %s: %w", s.Name, err)
	}
	go func() {
		cmd.Wait() // ProcessState tells how it ended.
		close(p.exited)
	}()
	s.proc, s.last = p, p
	return nil
}

func (s *Server) waitFree(ctx context.Context) error {
	err := poll(ctx, func(context.Context) error {
		for _, addr := range s.listens {
			if err := listenable(addr); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cluster: ports of %s: %w", s.Name, err)
	}
	return nil
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "server.log") }

// logTail returns the last lines of the server's log, at most 40 and 8 KiB.
func (s *Server) logTail() string {
	const lines, size = 40, 8 << 10
	f, err := os.Open(s.logPath())
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > size {
		f.Seek(-size, io.SeekEnd)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	all := bytes.SplitAfter(b, []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines-1):], nil))
}

// starter is the goroutine that starts all children. The parent-death signal is
// sent when the starting *thread* ends, and the runtime ends threads at will;
// this one is locked to its goroutine, which lasts as long as the process.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// StartChild starts cmd so that it dies with this process, however that ends. It
// keeps a terminal's Ctrl-C from it.
func StartChild(cmd *exec.Cmd) error {
	attr, err := sysProcAttr()
	if err != nil {
		return err
	}
	cmd.SysProcAttr = attr
	result := make(chan error)
	starter() <- func() { result <- cmd.Start() }
	return <-result
}

// runTool runs a short command to its end and returns its output; an error
// carries the end of it.
func runTool(ctx context.Context, cmd *exec.Cmd) (string, error) {
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
	if err := StartChild(cmd); err != nil {
		return "", err
	}
	kill := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	defer kill()
	if err := cmd.Wait(); err != nil {
		b := out.Bytes()
		return out.String(), fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), errors.Join(err, context.Cause(ctx)), b[max(0, len(b)-4<<10):])
	}
	return out.String(), nil
}
