package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Server is one server of a [Cluster]. It keeps its data and address after a restart. Methods are
// safe for concurrent use.
type Server struct {
	Name string // such as "cassandra-2"
	Addr string // the client address, host:port
	// If [KafkaConfig.Detours] names a proxy for this broker, Detour is the address that the proxy
	// connects to.
	Detour string

	cluster *Cluster
	dir     string
	listens []string // every address the server listens on
	jmx     string   // host:port of a Cassandra node's JMX
	later   bool     // only Server.Start starts the server for the first time

	// command writes the configuration and returns the command that runs the server in the
	// foreground. peers are the live servers that the server can join.
	command func(peers []*Server) (*exec.Cmd, error)

	mu   sync.Mutex
	proc *process // nil before the start and after Kill or Stop
	last *process // the newest process, running or not
}

type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed once the process has ended and was reaped
	paused bool
}

func (p *process) isGone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// PID returns the id of the server's process, or 0 if it is not running.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.isGone() {
		return 0
	}
	return s.proc.cmd.Process.Pid
}

// Kill ends the server with SIGKILL and returns once its process has ended.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end(context.Background(), syscall.SIGKILL)
}

// Stop ends the server with SIGTERM and returns once its process has ended. If ctx is done first,
// Stop kills the server and returns an error.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end(ctx, syscall.SIGTERM)
}

// The caller must hold s.mu.
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
		err = fmt.Errorf("cluster: %s did not stop after signal %q and was killed: %w", s.Name, sig, context.Cause(ctx))
		_ = p.cmd.Process.Kill() // Kill fails only if the process has ended.
		<-p.exited
	}
	s.proc = nil
	return err
}

// Pause suspends the server with SIGSTOP. Its connections stay open, but it does not answer. Pause
// returns once every thread has stopped.
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

// Resume continues a paused server with SIGCONT. To wait until the other servers see it again, call
// [Cluster.WaitReady].
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

// Start starts the server on its existing data and calls [Cluster.WaitReady]. Some servers, such as
// killed Kafka brokers, are ready only together: start them with [Cluster.Start].
func (s *Server) Start(ctx context.Context) error {
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	if err := s.spawn(ctx, s.cluster.liveServers()); err != nil {
		return err
	}
	s.later = false
	return s.cluster.WaitReady(ctx)
}

// Restart calls Stop, then Start.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	return s.Start(ctx)
}

// The caller must hold s.mu.
func (s *Server) running() (*process, error) {
	if s.proc == nil || s.proc.isGone() {
		return nil, fmt.Errorf("cluster: %s is not running", s.Name)
	}
	return s.proc, nil
}

func (s *Server) signal(p *process, sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cluster: send signal %q to %s: %w", sig, s.Name, err)
	}
	return nil
}

func (s *Server) isLive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil && !s.proc.paused && !s.proc.isGone()
}

func (s *Server) checkCrash() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.isGone() {
		return nil
	}
	return fmt.Errorf("cluster: %s exited by itself (%v): %w; the last lines of its log:\n%s",
		s.Name, s.proc.cmd.ProcessState, errFatal, s.logTail())
}

// spawn starts a process once the server's addresses are free.
func (s *Server) spawn(ctx context.Context, peers []*Server) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.running(); err == nil {
		return fmt.Errorf("cluster: start %s: it is already running", s.Name)
	}
	if err := s.waitFree(ctx); err != nil {
		return err
	}
	cmd, err := s.command(peers)
	if err != nil {
		return fmt.Errorf("cluster: configure %s: %w", s.Name, err)
	}
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("cluster: open the log of %s: %w", s.Name, err)
	}
	defer func() { _ = log.Close() }()
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	p := &process{cmd: cmd, exited: make(chan struct{})}
	if err := StartChild(cmd); err != nil {
		return fmt.Errorf("cluster: start %s: %w", s.Name, err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.exited)
	}()
	s.proc, s.last = p, p
	return nil
}

func (s *Server) waitFree(ctx context.Context) error {
	err := poll(ctx, func(context.Context) error {
		for _, addr := range s.listens {
			if err := checkListen(addr); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cluster: wait for the ports of %s: %w", s.Name, err)
	}
	return nil
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "server.log") }

func (s *Server) logTail() string {
	const lines, size = 40, 8 << 10
	b, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	all := bytes.SplitAfter(b[max(0, len(b)-size):], []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines-1):], nil))
}

// starter runs functions in one goroutine, which starts all child processes. The kernel kills a
// child when the thread that started the child ends. So this goroutine is locked to its thread and
// never ends.
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

// StartChild starts cmd as a child process, which the kernel kills when this process ends. A
// terminal's Ctrl-C does not reach the child.
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

// runTool runs a command that ends by itself, and returns its output. An error includes the end of
// the output.
func runTool(ctx context.Context, cmd *exec.Cmd) (string, error) {
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
	if err := StartChild(cmd); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		b := out.Bytes()
		return out.String(), fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), errors.Join(err, context.Cause(ctx)), b[max(0, len(b)-4<<10):])
	}
	return out.String(), nil
}
