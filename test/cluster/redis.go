package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisConfig describes Redis servers.
type RedisConfig struct {
	// AppendOnly syncs each write to a file before the answer. Without AppendOnly, a restarted server
	// is empty.
	AppendOnly bool
	// Cluster makes the server of [StartRedis] an empty master, which a Redis Cluster can take in.
	Cluster bool
	// If Secrets is not nil, the servers require TLS and a password, also from each other.
	Secrets *Secrets
}

// StartRedis starts one Redis server and returns once it answers. The caller must close the
// cluster.
func StartRedis(ctx context.Context, cfg RedisConfig) (*Cluster, error) {
	var extra []string
	if cfg.Cluster {
		extra = []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000"}
	}
	c, err := newRedis("redis", 1, cfg, extra...)
	if err != nil {
		return nil, err
	}
	c.checkReady = func(ctx context.Context, live []*Server) error { return checkRedisReady(ctx, cfg.Secrets, addrs(live)) }
	return c.begin(ctx)
}

// StartRedisCluster starts a Redis Cluster of three masters with one replica each, and returns once
// all replicas are in sync. The caller must close the cluster.
func StartRedisCluster(ctx context.Context, cfg RedisConfig) (*Cluster, error) {
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	cli, err := find("redis-cli")
	if err != nil {
		return nil, err
	}
	const masters, replicas = 3, 1
	c, err := newRedis("redis-cluster", masters*(1+replicas), cfg, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
	if err != nil {
		return nil, err
	}
	// Before redis-cli creates the cluster, a server is ready once it answers.
	c.checkReady = func(ctx context.Context, live []*Server) error { return checkRedisReady(ctx, cfg.Secrets, addrs(live)) }
	if c, err = c.begin(ctx); err != nil {
		return nil, err
	}
	create := append([]string{"--cluster", "create"}, c.Addrs()...)
	create = append(create, "--cluster-replicas", fmt.Sprint(replicas), "--cluster-yes")
	if cfg.Secrets != nil {
		create = append(create, cfg.Secrets.redisCLIArgs()...)
	}
	if _, err := runTool(ctx, exec.Command(cli, create...)); err != nil {
		return nil, errors.Join(fmt.Errorf("cluster: join Redis servers: %w", err), c.Close())
	}
	c.checkReady = func(ctx context.Context, live []*Server) error {
		return checkRedisClusterReady(ctx, cfg.Secrets, addrs(live))
	}
	return c.begin(ctx)
}

func newRedis(kind string, n int, cfg RedisConfig, extra ...string) (*Cluster, error) {
	program, err := find("redis-server")
	if err != nil {
		return nil, err
	}
	const loopback = "127.0.0.1"
	c, err := newCluster(kind, loopback)
	if err != nil {
		return nil, err
	}
	for i := range n {
		s, err := c.add(fmt.Sprintf("%s-%d", kind, i+1))
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		s.Addr = c.ports.addr(loopback, i)
		s.listens = []string{s.Addr}
		args := []string{
			"--port", port(s.Addr), "--bind", loopback, "--dir", s.dir, "--save", "", "--appendonly", "no",
			"--repl-diskless-sync-delay", "0", // By default, a master waits for more replicas before it sends its data.
		}
		if cfg.AppendOnly {
			args = append(args, "--appendonly", "yes", "--appendfsync", "always")
		}
		if n > 1 || cfg.Cluster {
			bus := c.ports.addr(loopback, n+i)
			s.listens = append(s.listens, bus)
			args = append(args, "--cluster-port", port(bus))
		}
		if cfg.Secrets != nil {
			args = append(args, cfg.Secrets.redisArgs(port(s.Addr))...)
		}
		args = append(args, extra...)
		s.command = func([]*Server) (*exec.Cmd, error) { return exec.Command(program, args...), nil }
	}
	return c, nil
}

// redisArgs returns arguments that override earlier ones: the server listens with TLS only, and has
// one user.
func (s *Secrets) redisArgs(port string) []string {
	return []string{
		"--port", "0", "--tls-port", port, "--tls-ca-cert-file", s.CA, "--tls-cert-file", s.server.Cert, "--tls-key-file", s.server.Key,
		"--user", "default", "off", "--user", s.Username, "on", ">" + s.Password, "~*", "&*", "+@all",
		"--tls-cluster", "yes", "--tls-replication", "yes", "--masteruser", s.Username, "--masterauth", s.Password,
	}
}

func (s *Secrets) redisCLIArgs() []string {
	return []string{"--tls", "--cacert", s.CA, "--cert", s.Cert, "--key", s.Key, "--user", s.Username, "--pass", s.Password, "--no-auth-warning"}
}

// secrets may be nil.
func checkRedisReady(ctx context.Context, secrets *Secrets, addrs []string) error {
	return eachRedis(secrets, addrs, func(client *redis.Client) error { return client.Ping(ctx).Err() })
}

// checkRedisClusterReady checks that all slots are served and each replica is in sync. secrets may
// be nil.
func checkRedisClusterReady(ctx context.Context, secrets *Secrets, addrs []string) error {
	return eachRedis(secrets, addrs, func(client *redis.Client) error {
		state, err := client.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		if !strings.Contains(state, "cluster_state:ok") {
			return errors.New("cluster_state is not ok")
		}
		repl, err := client.Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		if strings.Contains(repl, "role:slave") && !strings.Contains(repl, "master_link_status:up") {
			return errors.New("replica is not in sync")
		}
		return nil
	})
}

func eachRedis(secrets *Secrets, addrs []string, check func(*redis.Client) error) error {
	for _, addr := range addrs {
		o := &redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: 5 * time.Second}
		if secrets != nil {
			var err error
			if o.TLSConfig, err = secrets.TLS(); err != nil {
				return err
			}
			o.Username, o.Password = secrets.Username, secrets.Password
		}
		client := redis.NewClient(o)
		err := check(client)
		_ = client.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
	}
	return nil
}
