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

	// ready makes one attempt at finding every live server serving and in
	// touch with the other live ones.
	ready func(ctx context.Context, live []*Server) error
	// founded makes one attempt at finding s, the first of a cluster, able to
	// be joined by others. Nil if servers find each other in any order.
	founded func(ctx context.Context, s *Server) error

	close func() error
}

// newCluster reserves a folder, and ports on hosts.
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
		removeDir(dir)
		return nil, err
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

// begin starts a new cluster and returns it; one that fails is closed.
func (c *Cluster) begin(ctx context.Context) (*Cluster, error) {
	if err := c.Start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Addrs returns the client addresses, host:port, of all servers in order.
func (c *Cluster) Addrs() []string { return addrs(c.Servers) }

// List returns Addrs in the form of the variables, such as [EnvCassandra].
func (c *Cluster) List() string { return strings.Join(c.Addrs(), ",") }

func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr
	}
	return list
}

// live returns the servers that run and are not paused.
func (c *Cluster) live() []*Server {
	var list []*Server
	for _, s := range c.Servers {
		if _, live := s.up(); live {
			list = append(list, s)
		}
	}
	return list
}

// Start starts every server that is not running, on the data it had, and
// returns once the cluster is ready. Without a deadline in ctx it gives up after
// [StartTimeout].
func (c *Cluster) Start(ctx context.Context) error {
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	for _, s := range c.Servers {
		if s.PID() != 0 {
			continue
		}
		joins := c.live()
		if err := s.spawn(ctx, joins); err != nil {
			return err
		}
		if c.founded != nil && len(joins) == 0 {
			err := c.wait(ctx, func(ctx context.Context) error { return c.founded(ctx, s) })
			if err != nil {
				return err
			}
		}
	}
	return c.WaitReady(ctx)
}

// WaitReady returns once every server that runs and is not paused serves
// clients and sees the others that do. It fails at once when a server has
// exited by itself.
func (c *Cluster) WaitReady(ctx context.Context) error {
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	return c.wait(ctx, func(ctx context.Context) error { return c.ready(ctx, c.live()) })
}

func (c *Cluster) wait(ctx context.Context, try func(context.Context) error) error {
	err := poll(ctx, func(ctx context.Context) error {
		for _, s := range c.Servers {
			if err := s.crashed(); err != nil {
				return err
			}
		}
		return try(ctx)
	})
	if err != nil && !errors.Is(err, errFatal) {
		return fmt.Errorf("cluster: not ready: %w; the ends of the logs:\n%s", err, c.logTails())
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

// Close kills every server and removes their data. More calls change nothing.
func (c *Cluster) Close() error { return c.close() }
