package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/gocql/gocql"
)

// CassandraConfig describes a Cassandra cluster.
type CassandraConfig struct {
	// DataCenters holds the data center of each node. Default: one node in dc1. Node i, counted
	// from 1, listens on 127.0.0.i. All nodes use one port.
	DataCenters []string
	// Racks holds the rack of each node. Default: rack1.
	Racks []string
	// If Secrets is not nil, the nodes require TLS and a password. The user in Secrets may create
	// keyspaces.
	Secrets *Secrets
	// Data holds the path of each node's data folder. Default: folders that [Cluster.Close]
	// removes.
	Data []string
	// Later is the number of nodes, the last of DataCenters, that StartCassandra does not start.
	// [Server.Start] starts one of them, which then copies its part of the data from the other nodes.
	Later int
	// Quick starts the nodes sooner. In return, a node serves fewer statements per second, and a
	// killed node may lose tables and acknowledged writes.
	Quick bool
	// Logf reports slow steps, such as a download. Default: no reports.
	Logf func(format string, args ...any)
}

// OneDC returns the data centers of n nodes in dc1.
func OneDC(n int) []string {
	return strings.Split(strings.Repeat("dc1,", n)+"dc1", ",")[:n]
}

const (
	portCQL = iota
	portStorage
	portJMX // of the first node; JMX listens on 127.0.0.1 only, so the other nodes use the next ports
)

// StartCassandra starts a Cassandra 5.0 cluster, and returns once every node sees the other nodes
// with the same schema. The caller must close the cluster.
func StartCassandra(ctx context.Context, cfg CassandraConfig) (*Cluster, error) {
	logf := orQuiet(cfg.Logf)
	j, err := newJVM(ctx, "cassandra", logf)
	if err != nil {
		return nil, err
	}
	err = j.prepare(ctx, logf, func(ctx context.Context, j *jvm) (*Cluster, error) {
		return startCassandra(ctx, CassandraConfig{DataCenters: OneDC(1)}, j)
	})
	if err != nil {
		return nil, err
	}
	if cfg.Quick {
		// The last flag omits the flush of system tables. The other flags save processor time.
		j.quick = []string{quickJava, "-XX:-UseG1GC", "-XX:+UseSerialGC", "-da", "-Dcassandra.unsafesystem=true"}
	}
	if len(cfg.DataCenters) == 0 {
		cfg.DataCenters = OneDC(1)
	}
	return startCassandra(ctx, cfg, j)
}

func startCassandra(ctx context.Context, cfg CassandraConfig, j *jvm) (*Cluster, error) {
	dcs, racks, secrets := cfg.DataCenters, cfg.Racks, cfg.Secrets
	if len(racks) == 0 {
		racks = slices.Repeat([]string{"rack1"}, len(dcs))
	}
	if len(racks) != len(dcs) {
		return nil, fmt.Errorf("cluster: %d racks are given for %d Cassandra nodes", len(racks), len(dcs))
	}
	if cfg.Data != nil && len(cfg.Data) != len(dcs) {
		return nil, fmt.Errorf("cluster: %d folders are given for the data of %d Cassandra nodes", len(cfg.Data), len(dcs))
	}
	if len(dcs) > blockSize-portJMX {
		return nil, fmt.Errorf("cluster: start %d Cassandra nodes: at most %d are possible", len(dcs), blockSize-portJMX)
	}
	hosts := make([]string, len(dcs))
	for i := range dcs {
		hosts[i] = fmt.Sprintf("127.0.0.%d", i+1)
	}
	c, err := newCluster("cassandra", hosts...)
	if err != nil {
		return nil, err
	}
	c.checkJoinable = func(_ context.Context, s *Server) error { return dialAll(s.listens[1:2]) }
	tokens := ringTokens(dcs)
	for i, host := range hosts {
		s, err := c.add(fmt.Sprintf("cassandra-%d", i+1))
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		s.Addr = c.ports.addr(host, portCQL)
		s.jmx = c.ports.addr("127.0.0.1", portJMX+i)
		s.listens = []string{s.Addr, c.ports.addr(host, portStorage), s.jmx}
		data := filepath.Join(s.dir, "data")
		if cfg.Data != nil {
			data = cfg.Data[i]
		}
		s.later = i >= len(hosts)-cfg.Later
		p := place{dcs[i], racks[i], host, tokens[i], data, s.later}
		s.command = func(peers []*Server) (*exec.Cmd, error) { return cassandraCommand(s, secrets, j, p, peers) }
	}
	if secrets != nil {
		if c, err = createUser(ctx, secrets, c); err != nil {
			return nil, err
		}
	}
	c.checkReady = func(ctx context.Context, live []*Server) error { return checkCassandraReady(ctx, secrets, addrs(live)) }
	return c.begin(ctx)
}

// ringTokens divides the ring evenly among the nodes of each data center.
func ringTokens(dcs []string) []string {
	size, seen := map[string]int64{}, map[string]int64{} // by data center: the number of nodes, and of nodes that have a token
	order := map[string]int64{}
	for _, dc := range dcs {
		if _, ok := order[dc]; !ok {
			order[dc] = int64(len(order))
		}
		size[dc]++
	}
	tokens := make([]string, len(dcs))
	for i, dc := range dcs {
		t := new(big.Int).Lsh(big.NewInt(seen[dc]), 64)
		t.Div(t, big.NewInt(size[dc]))
		t.Sub(t, new(big.Int).Lsh(big.NewInt(1), 63))
		t.Add(t, big.NewInt(100*order[dc]))
		tokens[i] = t.String()
		seen[dc]++
	}
	return tokens
}

var cassandraYAML = template.Must(template.ParseFS(files, "cassandra/cassandra.yaml.tmpl"))

type place struct {
	dc, rack, host, token, data string
	bootstrap                   bool // the node copies its part of the data when it first starts
}

func cassandraCommand(s *Server, secrets *Secrets, j *jvm, p place, peers []*Server) (*exec.Cmd, error) {
	// The seeds are the live nodes: a seed that is down delays the start by cassandra.ring_delay_ms.
	if len(peers) == 0 {
		peers = []*Server{s}
	}
	seeds := make([]string, len(peers))
	for i, peer := range peers {
		seeds[i] = peer.listens[1]
	}
	var yaml bytes.Buffer
	err := cassandraYAML.Execute(&yaml, struct {
		Token, Seeds, Host, StoragePort, NativePort string
		Secrets                                     *Secrets
		Quick, Bootstrap                            bool
	}{p.token, strings.Join(seeds, ","), p.host, port(s.listens[1]), port(s.Addr), secrets, len(j.quick) > 0, p.bootstrap})
	if err != nil {
		return nil, err
	}
	logback, err := files.ReadFile("cassandra/logback.xml")
	if err != nil {
		return nil, err
	}
	options, err := files.ReadFile("cassandra/jvm.options")
	if err != nil {
		return nil, err
	}
	tmp := filepath.Join(s.dir, "tmp") // Java unpacks native libraries here.
	err = errors.Join(
		os.MkdirAll(tmp, 0o755),
		os.WriteFile(filepath.Join(s.dir, "cassandra.yaml"), yaml.Bytes(), 0o644),
		os.WriteFile(filepath.Join(s.dir, "logback.xml"), logback, 0o644),
		os.WriteFile(filepath.Join(s.dir, "rackdc.properties"), []byte("dc="+p.dc+"\nrack="+p.rack+"\n"), 0o644),
	)
	if err != nil {
		return nil, err
	}
	flags := strings.Fields(string(options))
	if !j.training { // The training run writes a class archive, which Java cannot do with an agent.
		agent, err := filepath.Glob(filepath.Join(j.lib, "jamm-*.jar"))
		if err != nil {
			return nil, err
		}
		if len(agent) != 1 {
			return nil, fmt.Errorf("find the jamm jar in %s: got %v, want one file", j.lib, agent)
		}
		flags = append(flags, "-javaagent:"+agent[0])
	}
	if secrets != nil {
		flags = append(flags,
			"-Dcassandra.superuser_setup_delay_ms=0",        // the default, 10 s, is for nodes that start together
			"-Dcassandra.auth_bcrypt_gensalt_log2_rounds=4") // hashing a password costs less than with the default, 10
	}
	cmd := j.command(append(flags,
		"-Djava.io.tmpdir="+tmp,
		"-Dcassandra.config=file://"+filepath.Join(s.dir, "cassandra.yaml"),
		"-Dcassandra-rackdc.properties=file://"+filepath.Join(s.dir, "rackdc.properties"),
		"-Dlogback.configurationFile="+filepath.Join(s.dir, "logback.xml"),
		"-Dcassandra.logdir="+s.dir,
		"-Dcassandra.storagedir="+p.data,
		"-Dcassandra.jmx.local.port="+port(s.jmx),
	), "org.apache.cassandra.service.CassandraDaemon")
	cmd.Env = append(os.Environ(), "MALLOC_ARENA_MAX=4")
	return cmd, nil
}

// checkCassandraReady checks that each node lists all other nodes with the same schema version, and
// can coordinate a read from up to three replicas.
func checkCassandraReady(ctx context.Context, secrets *Secrets, addrs []string) error {
	schema := ""
	return eachCassandra(secrets, addrs, func(addr string, session *gocql.Session) error {
		return checkCassandraNode(ctx, session, addr, addrs, &schema)
	})
}

// checkCassandraAnswers compares numbers of nodes, not addresses: nodes in containers list
// addresses that are not in addrs.
func checkCassandraAnswers(ctx context.Context, addrs []string) error {
	return eachCassandra(nil, addrs, func(_ string, session *gocql.Session) error {
		var peers int
		if err := session.Query("SELECT count(*) FROM system.peers").WithContext(ctx).Scan(&peers); err != nil {
			return err
		}
		if peers+1 < len(addrs) {
			return fmt.Errorf("node lists %d nodes, want %d", peers+1, len(addrs))
		}
		return nil
	})
}

// CheckReplicated returns an error while a node has hints (writes that another node has missed).
func CheckReplicated(ctx context.Context, addrs []string) error {
	return eachCassandra(nil, addrs, func(_ string, session *gocql.Session) error {
		var n int
		if err := session.Query("SELECT count(*) FROM system_views.pending_hints").WithContext(ctx).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("node has hints for %d nodes", n)
		}
		return nil
	})
}

func eachCassandra(secrets *Secrets, addrs []string, check func(addr string, session *gocql.Session) error) error {
	if err := dialAll(addrs); err != nil {
		return err
	}
	for _, addr := range addrs {
		session, err := nodeSession(secrets, addr)
		if err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
		err = check(addr, session)
		session.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
	}
	return nil
}

func checkCassandraNode(ctx context.Context, session *gocql.Session, addr string, addrs []string, schema *string) error {
	var version gocql.UUID
	if err := session.Query("SELECT schema_version FROM system.local").WithContext(ctx).Scan(&version); err != nil {
		return err
	}
	if *schema == "" {
		*schema = version.String()
	}
	versions := map[string]string{host(addr): version.String()}
	rows := session.Query("SELECT peer, schema_version FROM system.peers").WithContext(ctx).Iter()
	for peer := ""; rows.Scan(&peer, &version); {
		versions[peer] = version.String()
	}
	if err := rows.Close(); err != nil {
		return err
	}
	for _, a := range addrs {
		if v := versions[host(a)]; v != *schema {
			return fmt.Errorf("schema version of %s is %q, want %q", a, v, *schema)
		}
	}
	// The keyspace system_distributed has three replicas. While the coordinator sees too few live
	// replicas, it refuses the read.
	level := []gocql.Consistency{gocql.One, gocql.Two, gocql.Three}[min(len(addrs), 3)-1]
	return session.Query("SELECT status FROM system_distributed.view_build_status WHERE keyspace_name = '' AND view_name = ''").
		Consistency(level).WithContext(ctx).Iter().Close()
}

// createUser starts all nodes of c, and then creates the user. A node that joined later would take
// over partitions without their data. If createUser fails, it closes c.
func createUser(ctx context.Context, secrets *Secrets, c *Cluster) (*Cluster, error) {
	initial := *secrets
	initial.Username, initial.Password = "cassandra", "cassandra"
	c.checkReady = func(ctx context.Context, live []*Server) error {
		return checkCassandraReady(ctx, &initial, addrs(live))
	}
	c, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	session, err := nodeSession(&initial, c.Servers[0].Addr)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	defer session.Close()
	for _, statement := range []string{
		fmt.Sprintf("CREATE ROLE IF NOT EXISTS %s WITH PASSWORD = '%s' AND LOGIN = true", secrets.Username, secrets.Password),
		"GRANT CREATE ON ALL KEYSPACES TO " + secrets.Username,
		"GRANT SELECT ON KEYSPACE system_distributed TO " + secrets.Username, // checkCassandraNode reads it
	} {
		if err := session.Query(statement).WithContext(ctx).Exec(); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// nodeSession sends requests to one node only. secrets may be nil.
func nodeSession(secrets *Secrets, addr string) (*gocql.Session, error) {
	cfg := gocql.NewCluster(host(addr))
	cfg.Port, _ = strconv.Atoi(port(addr))
	cfg.ProtoVersion = 4
	cfg.NumConns = 1
	cfg.ConnectTimeout, cfg.Timeout = 5*time.Second, 5*time.Second
	cfg.DisableInitialHostLookup = true
	cfg.HostFilter = gocql.WhiteListHostFilter(host(addr))
	cfg.Events.DisableNodeStatusEvents, cfg.Events.DisableTopologyEvents, cfg.Events.DisableSchemaEvents = true, true, true
	cfg.Logger = quiet{}
	if secrets != nil {
		c, err := secrets.TLS()
		if err != nil {
			return nil, err
		}
		cfg.SslOpts = &gocql.SslOptions{Config: c, EnableHostVerification: true}
		cfg.Authenticator = gocql.PasswordAuthenticator{Username: secrets.Username, Password: secrets.Password}
	}
	return cfg.CreateSession()
}

type quiet struct{}

func (quiet) Print(...any)          {}
func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

// Nodetool runs Cassandra's nodetool against a running node and returns its output.
func Nodetool(ctx context.Context, s *Server, args ...string) (string, error) {
	cmd, err := NodetoolCommand(ctx, s, args...)
	if err != nil {
		return "", err
	}
	return runTool(ctx, cmd)
}

// NodetoolCommand returns the command of [Nodetool], without starting it.
func NodetoolCommand(ctx context.Context, s *Server, args ...string) (*exec.Cmd, error) {
	if s.jmx == "" {
		return nil, fmt.Errorf("cluster: nodetool: %s is not a Cassandra node", s.Name)
	}
	j, err := newJVM(ctx, "cassandra", orQuiet(nil))
	if err != nil {
		return nil, err
	}
	options, err := files.ReadFile("cassandra/jvm.options")
	if err != nil {
		return nil, err
	}
	var flags []string
	for _, f := range strings.Fields(string(options)) {
		if !strings.HasPrefix(f, "-X") {
			flags = append(flags, f)
		}
	}
	flags = append(flags, "-Xmx128m", quickJava,
		"-Dcassandra.logdir="+s.dir, "-Dcassandra.storagedir="+filepath.Join(s.dir, "nodetool"),
		"-Dlogback.configurationFile="+filepath.Join(s.dir, "logback.xml"))
	main := append([]string{"org.apache.cassandra.tools.NodeTool", "-h", host(s.jmx), "-p", port(s.jmx)}, args...)
	return j.command(flags, main...), nil
}

func host(addr string) string { h, _, _ := net.SplitHostPort(addr); return h }

func port(addr string) string { _, p, _ := net.SplitHostPort(addr); return p }

func dialAll(addrs []string) error {
	for _, addr := range addrs {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		conn.Close()
	}
	return nil
}
