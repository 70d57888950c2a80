package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Cluster is a set of servers that work together, started by this process.
type Cluster struct {
	Servers []*Server

	dir   string
	ports *portBlock

	// checkReady checks, without waiting, that every live server (running and not paused) serves
	// clients and sees the other live servers.
	checkReady func(ctx context.Context, live []*Server) error
	// checkJoinable checks, without waiting, that other servers can join s, the first server. It
	// may be nil.
	checkJoinable func(ctx context.Context, s *Server) error

	close func() error // does the work of Close at the first call
}

func newCluster(kind string, hosts ...string) (*Cluster, error) {
	if _, err := sysProcAttr(); err != nil {
		return nil, err
	}
	dir, err := newDir(kind)
	if err != nil {
		return nil, err
	}
	ports, err := reservePorts(hosts...)
	if err != nil {
		return nil, errors.Join(err, removeDir(dir))
	}
	c := &Cluster{dir: dir, ports: ports}
	c.close = sync.OnceValue(func() error {
		var errs []error
		for _, s := range c.Servers {
			if s.PID() != 0 {
				errs = append(errs, s.Kill())
			}
		}
		c.ports.release()
		return errors.Join(append(errs, removeDir(c.dir))...)
	})
	return c, nil
}

func (c *Cluster) add(name string) (*Server, error) {
	s := &Server{Name: name, cluster: c, dir: filepath.Join(c.dir, name)}
	c.Servers = append(c.Servers, s)
	return s, os.Mkdir(s.dir, 0o755)
}

func (c *Cluster) begin(ctx context.Context) (*Cluster, error) {
	if err := c.Start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Addrs returns the client addresses, host:port, in the order of Servers.
func (c *Cluster) Addrs() []string { return addrs(c.Servers) }

// List returns the addresses joined by commas, the format of [EnvCassandra].
func (c *Cluster) List() string { return strings.Join(c.Addrs(), ",") }

func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr
	}
	return list
}

func (c *Cluster) liveServers() []*Server {
	var list []*Server
	for _, s := range c.Servers {
		if s.isLive() {
			list = append(list, s)
		}
	}
	return list
}

// Start starts every server that is not running, on its existing data, and returns once the cluster
// is ready. It gives up at ctx's deadline, or after five minutes.
func (c *Cluster) Start(ctx context.Context) error {
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	for _, s := range c.Servers {
		if s.PID() != 0 || s.later {
			continue
		}
		peers := c.liveServers()
		if err := s.spawn(ctx, peers); err != nil {
			return err
		}
		if c.checkJoinable != nil && len(peers) == 0 {
			err := c.wait(ctx, func(ctx context.Context) error { return c.checkJoinable(ctx, s) })
			if err != nil {
				return err
			}
		}
	}
	return c.WaitReady(ctx)
}

// WaitReady waits until every live server (running and not paused) serves clients and sees the
// other live servers. It fails if a server exits by itself, at ctx's deadline, or after five
// minutes.
func (c *Cluster) WaitReady(ctx context.Context) error {
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	return c.wait(ctx, func(ctx context.Context) error { return c.checkReady(ctx, c.liveServers()) })
}

func (c *Cluster) wait(ctx context.Context, try func(context.Context) error) error {
	err := poll(ctx, func(ctx context.Context) error {
		for _, s := range c.Servers {
			if err := s.checkCrash(); err != nil {
				return err
			}
		}
		return try(ctx)
	})
	if err != nil && !errors.Is(err, errFatal) {
		return fmt.Errorf("cluster: not ready: %w; the last lines of the servers' logs:\n%s", err, c.logTails())
	}
	return err
}

func (c *Cluster) logTails() string {
	var all string
	for _, s := range c.Servers {
		all += "--- " + s.Name + "\n" + s.logTail()
	}
	return all
}

// Close kills every server and removes the data. Repeated calls change nothing.
func (c *Cluster) Close() error { return c.close() }
