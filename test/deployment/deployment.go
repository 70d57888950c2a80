// Package deployment runs the distributed engine for tests: the real program as any number of child
// processes on real Cassandra, Kafka and Redis. [Embedded] starts a process with the embedded
// engine instead.
//
//	func TestMain(m *testing.M) { os.Exit(deployment.Main(m)) }
//
//	d := deployment.New(t, deployment.Options{})
//	api := d.Serve(t, "--roles=api")
//	first, second := d.Serve(t, "--roles=consumer"), d.Serve(t, "--roles=consumer")
//	...
//	first.Kill()              // SIGKILL
//	second.Pause()            // SIGSTOP
//	second.Resume()           // SIGCONT
//	second.Stop(t.Context())  // SIGTERM, and wait
//	first.Start(t.Context())  // again, at the same address
//
// Each deployment has its own topics, consumer group and Redis keys. To save time, deployments of one
// test process share a keyspace if they have the same nodes and replicas. So a test must use only
// boards that it creates with [Client.Board].
//
// A test that stops or damages servers must start its own with [cluster.Private] and name them in
// [Options].
package deployment

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/program"
)

// Options configure a deployment. The zero value is usable.
type Options struct {
	// Cassandra, Kafka and Redis are the addresses of the servers, as host:port. Default: the
	// shared servers of package cluster. Several Redis addresses form a Redis Cluster.
	Cassandra, Kafka, Redis []string
	// CassandraReplicas is the number of replicas of the keyspace in each data center.
	// KafkaReplicas is the number of replicas of the topics. Both are 1 by default.
	CassandraReplicas, KafkaReplicas int
	// DataCenters are Cassandra's data centers that hold the keyspace. The deployment connects
	// to the first. Default: the data center of the node that answers first.
	DataCenters []string
	// Partitions is the number of partitions of each topic. Default 4.
	Partitions int
	// With Fresh, the deployment has an empty keyspace of its own.
	Fresh bool
	// Secrets are the secrets of all servers, or nil if the servers require neither TLS nor
	// passwords.
	Secrets *cluster.Secrets
	// Program is the path of the program. Default: [Program].
	Program string
}

// Deployment is the service under test: its settings, and the processes that share them.
type Deployment struct {
	Cassandra, Kafka, Redis []string

	Keyspace    string
	DataCenter  string // Cassandra's data center
	Group       string // the consumer group
	TopicPrefix string
	RedisPrefix string
	Partitions  int
	// Key is an API key with every scope.
	Key string
	// Config is the path of the settings file that all processes share.
	Config string
	// Program is the path of the program. A change applies to later commands and processes.
	Program string

	secrets *cluster.Secrets
}

// A keyspace has one configured admin key, and deployments share keyspaces. So all deployments of
// this process have this key.
var adminKey = "key of a deployment under test " + rand.Text()

// New returns a deployment without processes. [Deployment.Serve] starts them.
func New(t testing.TB, o Options) *Deployment {
	t.Helper()
	id := "t" + strings.ToLower(rand.Text()[:10])
	d := &Deployment{
		Cassandra: o.Cassandra, Kafka: o.Kafka, Redis: o.Redis,
		Group: id, TopicPrefix: id + "-", RedisPrefix: id + ":", Partitions: cmp.Or(o.Partitions, 4),
		Key: adminKey, secrets: o.Secrets, Program: o.Program,
	}
	if len(d.Cassandra) == 0 {
		d.Cassandra = cluster.Cassandra(t, max(o.CassandraReplicas, 1))
	}
	if len(d.Kafka) == 0 {
		d.Kafka = cluster.Kafka(t, max(o.KafkaReplicas, 1))
	}
	if len(d.Redis) == 0 {
		d.Redis = []string{cluster.Redis(t)}
	}
	if len(o.DataCenters) == 0 {
		o.DataCenters = []string{dataCenter(t, d.Cassandra, o.Secrets)}
	}
	// The calls above may skip the test, so the program is built last.
	if d.Program == "" {
		d.Program = Program(t)
	}
	d.DataCenter = o.DataCenters[0]
	d.Config = filepath.Join(t.TempDir(), "leaderboard.yaml")
	d.ensureKeyspace(t, o.DataCenters, max(o.CassandraReplicas, 1), o.Fresh)
	d.Run(t, "topics", "--config", d.Config, "--partitions", fmt.Sprint(d.Partitions), "--replication-factor", fmt.Sprint(max(o.KafkaReplicas, 1)), "--force")
	return d
}

func dataCenter(t testing.TB, nodes []string, secrets *cluster.Secrets) string {
	t.Helper()
	session, err := connect(nodes, secrets, "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	var name string
	if err := session.Query("SELECT data_center FROM system.local").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

// keyspaces has the keyspaces that Main drops.
var keyspaces struct {
	sync.Mutex
	created []keyspace
}

type keyspace struct {
	name, nodes, replicas string
	shared                bool
	secrets               *cluster.Secrets
}

// ensureKeyspace finds or creates a keyspace for d, and writes d's settings file.
func (d *Deployment) ensureKeyspace(t testing.TB, dataCenters []string, replicas int, fresh bool) {
	t.Helper()
	keyspaces.Lock()
	defer keyspaces.Unlock()
	var perCenter []string
	for _, dc := range slices.Sorted(slices.Values(dataCenters)) {
		perCenter = append(perCenter, fmt.Sprintf("%s=%d", dc, replicas))
	}
	want := keyspace{"t" + strings.ToLower(rand.Text()[:10]), strings.Join(d.Cassandra, ","), strings.Join(perCenter, ","), !fresh, d.secrets}
	for _, k := range keyspaces.created {
		if !fresh && k.shared && k.nodes == want.nodes && k.replicas == want.replicas {
			d.Keyspace = k.name
			d.write(t)
			return
		}
	}
	d.Keyspace = want.name
	d.write(t)
	d.Run(t, "schema", "apply", "--config", d.Config, "--replicas", want.replicas)
	keyspaces.created = append(keyspaces.created, want)
}

func dropKeyspaces() {
	for _, k := range keyspaces.created {
		if session, err := connect(strings.Split(k.nodes, ","), k.secrets, "", ""); err == nil {
			if err := session.Query("DROP KEYSPACE " + k.name).Exec(); err != nil {
				fmt.Fprintf(os.Stderr, "keyspace %s was not dropped: %v\n", k.name, err)
			}
			session.Close()
		}
	}
}

func (d *Deployment) write(t testing.TB) {
	cassandra := map[string]any{"hosts": d.Cassandra, "data_center": d.DataCenter, "keyspace": d.Keyspace, "buckets": 4}
	redis := map[string]any{"addresses": d.Redis, "prefix": d.RedisPrefix}
	kafka := map[string]any{"brokers": d.Kafka, "group": d.Group, "topic_prefix": d.TopicPrefix}
	if s := d.secrets; s != nil {
		for _, group := range []map[string]any{cassandra, redis, kafka} {
			group["username"], group["password"] = s.Username, s.Password
			group["tls"] = map[string]any{"enabled": true, "ca": s.CA, "cert": s.Cert, "key": s.Key}
		}
	}
	settings := map[string]any{"cassandra": cassandra, "redis": redis, "kafka": kafka, "admin_key": d.Key}
	text, err := json.MarshalIndent(settings, "", "\t") // JSON is YAML too
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Config, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Session returns a session in the deployment's keyspace, at LOCAL_QUORUM. The session is closed
// when t ends.
func (d *Deployment) Session(t testing.TB) *gocql.Session {
	t.Helper()
	session, err := connect(d.Cassandra, d.secrets, d.DataCenter, d.Keyspace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	return session
}

// connect opens a session with the nodes of dataCenter, in keyspace. secrets may be nil. dataCenter
// and keyspace may be empty.
func connect(nodes []string, secrets *cluster.Secrets, dataCenter, keyspace string) (*gocql.Session, error) {
	c := gocql.NewCluster(nodes...)
	if secrets != nil {
		tls, err := secrets.TLS()
		if err != nil {
			return nil, err
		}
		c.SslOpts = &gocql.SslOptions{Config: tls, EnableHostVerification: true}
		c.Authenticator = gocql.PasswordAuthenticator{Username: secrets.Username, Password: secrets.Password}
	}
	if dataCenter != "" {
		c.PoolConfig.HostSelectionPolicy = gocql.DCAwareRoundRobinPolicy(dataCenter)
	}
	c.Keyspace, c.Consistency, c.Timeout = keyspace, gocql.LocalQuorum, time.Minute
	c.Logger = log.New(io.Discard, "", 0)
	return c.CreateSession()
}

// Command returns a command of the program, without starting it. For client commands use
// [Node.Command].
func (d *Deployment) Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), d.Program, args...)
}

// Run runs a command of the program and returns its output.
func (d *Deployment) Run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := d.Command(t, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("leaderboard %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

var binary struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// Program returns the path of the program, which it builds at most once per process, without the race detector.
func Program(t testing.TB) string {
	t.Helper()
	binary.once.Do(func() {
		//nolint:usetesting // the program outlives the test that builds it
		if binary.dir, binary.err = os.MkdirTemp("", "leaderboard-deployment-"); binary.err != nil {
			return
		}
		binary.path, binary.err = program.Path(context.Background(), "", binary.dir)
	})
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return binary.path
}

// Main runs a package's tests like [cluster.Main]. It also drops the keyspaces and removes the
// program that the tests shared.
func Main(m *testing.M) int {
	code := cluster.MainThen(m, dropKeyspaces)
	if binary.dir != "" {
		if err := os.RemoveAll(binary.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// timeout bounds [Eventually]. Machines may be busy.
const timeout = 10 * time.Minute

// Eventually calls try until try returns nil. It fails t after ten minutes.
func Eventually(t testing.TB, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error // the last error before the timeout, or the timeout's error if there was none
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the condition is still not true after %v; the last error: %v", timeout, last)
		}
	}
}
