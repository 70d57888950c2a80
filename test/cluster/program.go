package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// ProgramConfig describes a program that is run as a [Server], such as the
// service under test.
type ProgramConfig struct {
	Name string
	// Ports is how many addresses on loopback the program gets, at least 1. They
	// are its own until it is closed, also while it is down.
	Ports int
	// Command returns the command that runs the program in the foreground; dir
	// is a folder of its own. The first address becomes the server's Addr.
	Command func(dir string, addrs []string) *exec.Cmd
	// Ready makes one attempt at finding the program serving.
	Ready func(ctx context.Context, addrs []string) error
}

// Program runs a program for t alone, as a cluster of one server, and returns
// once it is ready. When t ends it is killed, unless it is gone by then, and if
// t failed the end of its log is in t's output.
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
		return nil, fmt.Errorf("cluster: %d ports for %s, want 1 to %d", cfg.Ports, cfg.Name, blockSize)
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
	c.ready = func(ctx context.Context, live []*Server) error {
		if len(live) == 0 {
			return nil
		}
		return cfg.Ready(ctx, s.listens)
	}
	return c.begin(ctx)
}

// closeAfter closes c when t ends, after showing the ends of its logs if t failed.
func closeAfter(t testing.TB, c *Cluster) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the ends of the servers' logs:\n%s", c.logTails())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Log returns what the server has written to its standard output and error,
// through all the processes that followed one another on it.
func (s *Server) Log() (string, error) {
	b, err := os.ReadFile(s.logPath())
	return string(b), err
}

// ExitCode returns the exit code of the server's last process: -1 if a signal
// ended it, or if it runs.
func (s *Server) ExitCode() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || !s.last.gone() {
		return -1
	}
	return s.last.cmd.ProcessState.ExitCode()
}
