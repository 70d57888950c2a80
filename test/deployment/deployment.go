// Package deployment runs the distributed engine for tests: the real leaderboard
// program as any number of child processes, each an API, a consumer or both, on
// real Cassandra, Kafka and Redis.
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
// A deployment has topics, a consumer group and Redis keys of its own, so that
// tests share servers. It shares its keyspace, which takes a while to make, with
// the others of the test process that have as many replicas on the same nodes:
// a test keeps to boards of its own, made with [Node.Board]. One that
// hurts servers starts some with [cluster.Private] and names them in [Options].
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
)

// Options say what a deployment is made on. The zero value is usable.
type Options struct {
	// Servers, host:port each, are those to use; a list that is empty stands
	// for shared ones: see package cluster. Redis with several is a Redis Cluster.
	Cassandra, Kafka, Redis []string
	// CassandraNodes and KafkaBrokers are how many of the shared ones are
	// needed at least. Default 1.
	CassandraNodes, KafkaBrokers int
	// CassandraReplicas and KafkaReplicas are the replicas of the keyspace, in
	// each of its data centers, and of the topics. Default 1.
	CassandraReplicas, KafkaReplicas int
	// DataCenters are those of Cassandra that the keyspace is in, the deployment's
	// own first. Default: that of the node that answers first.
	DataCenters []string
	// Partitions of each topic. Default 4.
	Partitions int
	// Fresh gives the deployment a keyspace of its own, with nothing in it.
	Fresh bool
}

// Deployment is a service: its settings, and the processes that share them.
type Deployment struct {
	Cassandra, Kafka, Redis []string

	Keyspace    string
	DataCenter  string // of Cassandra
	Group       string // of consumers
	TopicPrefix string
	RedisPrefix string
	Partitions  int
	// Key is an API key of every scope.
	Key string
	// Config is the path of the settings that all processes share.
	Config string
}

// New makes a deployment. No process of it runs until [Deployment.Serve].
func New(t testing.TB, o Options) *Deployment {
	t.Helper()
	id := "t" + strings.ToLower(rand.Text()[:10])
	d := &Deployment{
		Cassandra: o.Cassandra, Kafka: o.Kafka, Redis: o.Redis,
		Group: id, TopicPrefix: id + "-", RedisPrefix: id + ":", Partitions: cmp.Or(o.Partitions, 4),
		Key: "key of a deployment under test " + rand.Text(),
	}
	if len(d.Cassandra) == 0 {
		d.Cassandra = cluster.Cassandra(t, max(o.CassandraNodes, o.CassandraReplicas, 1))
	}
	if len(d.Kafka) == 0 {
		d.Kafka = cluster.Kafka(t, max(o.KafkaBrokers, o.KafkaReplicas, 1))
	}
	if len(d.Redis) == 0 {
		d.Redis = []string{cluster.Redis(t)}
	}
	if len(o.DataCenters) == 0 {
		o.DataCenters = []string{dataCenter(t, d.Cassandra)}
	}
	d.DataCenter = o.DataCenters[0]
	d.Config = filepath.Join(t.TempDir(), "leaderboard.yaml")
	d.ensureKeyspace(t, o.DataCenters, max(o.CassandraReplicas, 1), o.Fresh)
	d.Run(t, "topics", "--config", d.Config, "--partitions", fmt.Sprint(d.Partitions), "--replication-factor", fmt.Sprint(max(o.KafkaReplicas, 1)))
	return d
}

func dataCenter(t testing.TB, nodes []string) string {
	t.Helper()
	session, err := connect(nodes, "", "")
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

// keyspaces are those that deployments of this process made.
var keyspaces struct {
	sync.Mutex
	made []keyspace
}

type keyspace struct {
	name, nodes, replicas string
	shared                bool
}

// ensureKeyspace finds a keyspace for d, or makes one, and writes d's settings.
func (d *Deployment) ensureKeyspace(t testing.TB, dataCenters []string, replicas int, fresh bool) {
	t.Helper()
	keyspaces.Lock()
	defer keyspaces.Unlock()
	var each []string
	for _, dc := range slices.Sorted(slices.Values(dataCenters)) {
		each = append(each, fmt.Sprintf("%s=%d", dc, replicas))
	}
	want := keyspace{"t" + strings.ToLower(rand.Text()[:10]), strings.Join(d.Cassandra, ","), strings.Join(each, ","), !fresh}
	for _, k := range keyspaces.made {
		if !fresh && k.shared && k.nodes == want.nodes && k.replicas == want.replicas {
			d.Keyspace = k.name
			d.write(t)
			return
		}
	}
	d.Keyspace = want.name
	d.write(t)
	d.Run(t, "schema", "apply", "--config", d.Config, "--replicas", want.replicas)
	keyspaces.made = append(keyspaces.made, want)
}

// dropKeyspaces drops those that are on nodes that still run.
func dropKeyspaces() {
	for _, k := range keyspaces.made {
		if session, err := connect(strings.Split(k.nodes, ","), "", ""); err == nil {
			if err := session.Query("DROP KEYSPACE " + k.name).Exec(); err != nil {
				fmt.Fprintf(os.Stderr, "keyspace %s stays: %v\n", k.name, err)
			}
			session.Close()
		}
	}
}

// write writes the configuration.
func (d *Deployment) write(t testing.TB) {
	settings := map[string]any{
		"cassandra": map[string]any{"hosts": d.Cassandra, "data_center": d.DataCenter, "keyspace": d.Keyspace, "buckets": 4},
		"redis":     map[string]any{"addresses": d.Redis, "prefix": d.RedisPrefix},
		"kafka":     map[string]any{"brokers": d.Kafka, "group": d.Group, "topic_prefix": d.TopicPrefix},
		"admin_key": d.Key,
	}
	text, err := json.MarshalIndent(settings, "", "\t") // which is YAML
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Config, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Session returns a session in the deployment's keyspace, at LOCAL_QUORUM,
// closed when t ends.
func (d *Deployment) Session(t testing.TB) *gocql.Session {
	t.Helper()
	session, err := connect(d.Cassandra, d.DataCenter, d.Keyspace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	return session
}

// connect opens a session in a keyspace, or in none, with the nodes of a data
// center, or with all.
func connect(nodes []string, dataCenter, keyspace string) (*gocql.Session, error) {
	c := gocql.NewCluster(nodes...)
	if dataCenter != "" {
		c.PoolConfig.HostSelectionPolicy = gocql.DCAwareRoundRobinPolicy(dataCenter)
	}
	c.Keyspace, c.Consistency, c.Timeout = keyspace, gocql.LocalQuorum, time.Minute
	c.Logger = log.New(io.Discard, "", 0)
	return c.CreateSession()
}

// Command returns a command of the program, yet to be run. Client commands are
// told their server and key by the environment: see [Node.Command].
func (d *Deployment) Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), program(t), args...)
}

// Run runs a command of the program to its end and returns its output.
func (d *Deployment) Run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := d.Command(t, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("leaderboard %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// binary is the program, built once a process.
var binary struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// program returns the path of the program. It is built without the race
// detector, of which the tests of each package have the use: here the program
// is measured and made to hurry, and takes turns with servers that do the same.
func program(t testing.TB) string {
	t.Helper()
	binary.once.Do(func() {
		if binary.dir, binary.err = os.MkdirTemp("", "leaderboard-deployment-"); binary.err != nil {
			return
		}
		binary.path = filepath.Join(binary.dir, "leaderboard")
		out, err := exec.Command("go", "build", "-o", binary.path, "github.com/open-leaderboard/leaderboard/cmd/leaderboard").CombinedOutput()
		if err != nil {
			binary.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return binary.path
}

// Main runs a package's tests, and then removes what they shared: it is
// [cluster.Main] and more.
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

// patience is for machines that have much else to do.
const patience = 10 * time.Minute

// Eventually waits until try returns nil, for so long at most.
func Eventually(t testing.TB, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %v still: %v", patience, err)
		}
	}
}
