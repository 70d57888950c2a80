package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// ProgramConfig describes a program that runs as a [Server], such as the service under test.
type ProgramConfig struct {
	// Name is the server's name in messages.
	Name string
	// Ports is the number of loopback addresses of the program, at least 1. They stay reserved
	// until the test ends.
	Ports int
	// Command returns the command that runs the program in the foreground. The program may write to
	// the folder dir, and must listen on addrs. The server's Addr is addrs[0].
	Command func(dir string, addrs []string) *exec.Cmd
	// Ready checks, without waiting, that the program serves clients.
	Ready func(ctx context.Context, addrs []string) error
}

// Program runs a program for t alone, as a cluster of one server, and returns once the program is
// ready. When t ends, the program is killed.
func Program(t testing.TB, cfg ProgramConfig) *Server {
	t.Helper()
	c, err := startProgram(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, c)
	return c.Servers[0]
}

func startProgram(ctx context.Context, cfg ProgramConfig) (*Cluster, error) {
	const loopback = "127.0.0.1"
	if cfg.Ports < 1 || cfg.Ports > blockSize {
		return nil, fmt.Errorf("cluster: start %s: %d ports requested, want 1 to %d", cfg.Name, cfg.Ports, blockSize)
	}
	c, err := newCluster(cfg.Name, loopback)
	if err != nil {
		return nil, err
	}
	s, err := c.add(cfg.Name)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	for i := range cfg.Ports {
		s.listens = append(s.listens, c.ports.addr(loopback, i))
	}
	s.Addr = s.listens[0]
	s.command = func([]*Server) (*exec.Cmd, error) { return cfg.Command(s.dir, s.listens), nil }
	c.checkReady = func(ctx context.Context, live []*Server) error {
		if len(live) == 0 {
			return nil
		}
		return cfg.Ready(ctx, s.listens)
	}
	return c.begin(ctx)
}

// closeAfter closes c when t ends. If t failed, closeAfter first logs the last lines of the servers'
// logs.
func closeAfter(t testing.TB, c *Cluster) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last lines of the servers' logs:\n%s", c.logTails())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Log returns the output of all the server's processes so far.
func (s *Server) Log() (string, error) {
	b, err := os.ReadFile(s.logPath())
	return string(b), err
}

// ExitCode returns the exit code of the server's last process. It returns -1 if the process still
// runs, was ended by a signal, or never started.
func (s *Server) ExitCode() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || !s.last.isGone() {
		return -1
	}
	return s.last.cmd.ProcessState.ExitCode()
}
