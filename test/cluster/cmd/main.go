// Command cluster runs real Cassandra, Kafka and Redis servers on loopback, for a shell or for the
// duration of another command.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/open-leaderboard/leaderboard/test/cluster"
)

const usage = `usage:
  cluster run [flags] -- command...   start servers, set the variables that name them,
                                      run the command, stop the servers, and exit with
                                      the command's status
  cluster up [-d] [flags]             start servers and print the variables that name them;
                                      Ctrl-C stops them; -d runs them in the background
  cluster down [-state file]          stop the servers of "up"

examples:
  cluster run -- go test ./...
  cluster up -d -cassandra 1 > env.sh && . ./env.sh
  cluster up -d -cassandra 1 -secure > env.sh && . ./env.sh && leaderboard schema apply --replicas dc1=1

flags of "run" and "up":
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := dispatch(ctx, os.Args[1:], os.Stdout, os.Stderr)
	var status exitStatus
	switch {
	case err == nil:
	case errors.As(err, &status):
		os.Exit(int(status))
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "cluster:", strings.TrimPrefix(err.Error(), "cluster: "))
		os.Exit(1)
	}
}

// exitStatus is the status of a command that failed under "run". The command has printed the reason,
// so main does not.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		args = []string{"help"}
	}
	var s servers
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage); flags.PrintDefaults() }
	flags.IntVar(&s.cassandra, "cassandra", 3, "number of Cassandra nodes; 0 starts none")
	flags.IntVar(&s.kafka, "kafka", 1, "number of Kafka brokers; 0 starts none")
	flags.BoolVar(&s.redis, "redis", true, "start one Redis server")
	flags.BoolVar(&s.redisCluster, "redis-cluster", true, "start a Redis Cluster of three masters and three replicas")
	flags.StringVar(&s.state, "state", ".cache/cluster.json", "file in which \"up\" records its servers for \"down\"")
	flags.BoolVar(&s.secure, "secure", false, "require TLS and passwords; name the servers in the variables of the service, not of the tests; start the Redis Cluster only with -redis=false")
	flags.BoolVar(&s.quick, "quick", false, "start servers sooner, but serve fewer requests per second; unsuitable for benchmarks and for tests that kill servers")
	detach := flags.Bool("d", false, "run in the background (\"up\" only)")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "run":
		return runWith(ctx, s, flags.Args(), stderr)
	case "up":
		if *detach {
			return upDetached(ctx, s, args[1:], stdout, stderr)
		}
		return up(ctx, s, stdout, stderr)
	case "down":
		return down(ctx, s.state, stderr)
	}
	flags.Usage()
	return flag.ErrHelp
}

type servers struct {
	cassandra, kafka    int
	redis, redisCluster bool
	secure, quick       bool
	state               string
}

// start starts the servers. env names them, as NAME=value. The function stop stops them.
func (s servers) start(ctx context.Context, stderr io.Writer) (env []string, stop func() error, err error) {
	logf := func(format string, args ...any) { fmt.Fprintf(stderr, "cluster: "+format+"\n", args...) }
	secrets, removeFiles, err := s.secrets(cluster.NewSecrets)
	if err != nil {
		return nil, nil, err
	}
	type part struct {
		env   string
		start func(context.Context) (*cluster.Cluster, error)
	}
	var parts []part
	if s.cassandra > 0 {
		parts = append(parts, part{cluster.EnvCassandra, func(ctx context.Context) (*cluster.Cluster, error) {
			return cluster.StartCassandra(ctx, cluster.CassandraConfig{DataCenters: cluster.OneDC(s.cassandra), Secrets: secrets, Quick: s.quick, Logf: logf})
		}})
	}
	if s.kafka > 0 {
		parts = append(parts, part{cluster.EnvKafka, func(ctx context.Context) (*cluster.Cluster, error) {
			return cluster.StartKafka(ctx, cluster.KafkaConfig{Brokers: s.kafka, Secrets: secrets, Quick: s.quick, Logf: logf})
		}})
	}
	if s.redis {
		parts = append(parts, part{cluster.EnvRedis, func(ctx context.Context) (*cluster.Cluster, error) {
			return cluster.StartRedis(ctx, cluster.RedisConfig{Secrets: secrets})
		}})
	}
	if s.redisCluster && !(s.secure && s.redis) { // The service's settings name either Redis or the Redis Cluster.
		parts = append(parts, part{cluster.EnvRedisCluster, func(ctx context.Context) (*cluster.Cluster, error) {
			return cluster.StartRedisCluster(ctx, cluster.RedisConfig{Secrets: secrets})
		}})
	}
	if len(parts) == 0 {
		return nil, nil, errors.Join(errors.New("no servers to start; the flags exclude all of them"), removeFiles())
	}
	logf("starting %d kinds of servers, which takes about half a minute", len(parts))
	began := time.Now()
	clusters := make([]*cluster.Cluster, len(parts))
	stop = func() error {
		var errs []error
		for _, c := range clusters {
			if c != nil {
				errs = append(errs, c.Close())
			}
		}
		return errors.Join(append(errs, removeFiles())...)
	}
	group, ctx := errgroup.WithContext(ctx)
	for i, p := range parts {
		group.Go(func() (err error) {
			clusters[i], err = p.start(ctx)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	for i, p := range parts {
		if s.secure {
			env = append(env, settings(p.env, clusters[i], secrets)...)
			continue
		}
		env = append(env, p.env+"="+clusters[i].List())
	}
	logf("ready after %.0f s", time.Since(began).Seconds())
	return env, stop, nil
}

// secrets calls create with a new folder, which removeFiles removes. If create fails, secrets removes
// the folder. Without -secure, it creates nothing.
func (s servers) secrets(create func(dir string) (*cluster.Secrets, error)) (_ *cluster.Secrets, removeFiles func() error, err error) {
	if !s.secure {
		return nil, func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp("", "leaderboard-secrets-")
	if err != nil {
		return nil, nil, err
	}
	removeFiles = func() error { return os.RemoveAll(dir) }
	secrets, err := create(dir)
	if err != nil {
		return nil, nil, errors.Join(err, removeFiles())
	}
	return secrets, removeFiles, nil
}

// settings returns the service's variables for c. env is the variable that names c in tests.
func settings(env string, c *cluster.Cluster, secrets *cluster.Secrets) []string {
	names := map[string][2]string{
		cluster.EnvCassandra: {"CASSANDRA", "HOSTS"}, cluster.EnvKafka: {"KAFKA", "BROKERS"}, cluster.EnvRedis: {"REDIS", "ADDRESSES"},
		cluster.EnvRedisCluster: {"REDIS", "ADDRESSES"},
	}[env]
	group := "LEADERBOARD_" + names[0] + "_"
	list := []string{
		group + names[1] + "=" + c.List(), group + "USERNAME=" + secrets.Username, group + "PASSWORD=" + secrets.Password,
		group + "TLS_ENABLED=true", group + "TLS_CA=" + secrets.CA, group + "TLS_CERT=" + secrets.Cert, group + "TLS_KEY=" + secrets.Key,
	}
	if env == cluster.EnvCassandra {
		list = append(list, group+"DATA_CENTER=dc1")
	}
	return list
}

// runWith starts the servers, runs command with their variables, and stops the servers.
func runWith(ctx context.Context, s servers, command []string, stderr io.Writer) error {
	if len(command) == 0 {
		return errors.New("run: no command given; put one after --")
	}
	env, stop, err := s.start(ctx, stderr)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		err = exitStatus(exit.ExitCode())
	}
	if stopErr := stop(); stopErr != nil {
		fmt.Fprintln(stderr, "cluster: stop:", stopErr) // main does not print an error that wraps an exitStatus.
		err = errors.Join(err, stopErr)
	}
	return err
}
