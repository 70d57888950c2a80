package compose

import (
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/spf13/pflag"

	"github.com/open-leaderboard/leaderboard/internal/config"
)

const root = "../.."

const (
	cassandraPassword = "0123cassandra"
	kafkaPassword     = "2345kafka"
	redisPassword     = "4567redis"
)

// dotEnv replaces the file .env.
var dotEnv = []string{"CASSANDRA_PASSWORD=" + cassandraPassword, "KAFKA_PASSWORD=" + kafkaPassword, "REDIS_PASSWORD=" + redisPassword}

// project returns docker-compose.yml as Docker reads it.
func project(t *testing.T) *types.Project {
	t.Helper()
	return load(t, "docker-compose.yml")
}

// testProject returns the project in which containers run tests.
func testProject(t *testing.T) *types.Project {
	t.Helper()
	return load(t, "docker-compose.yml", "docker-compose.tests.yml")
}

func load(t *testing.T, files ...string) *types.Project {
	t.Helper()
	p, err := read(t, dotEnv, files...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func read(t *testing.T, env []string, files ...string) (*types.Project, error) {
	t.Helper()
	var paths []string
	for _, f := range files {
		paths = append(paths, filepath.Join(root, f))
	}
	options, err := cli.NewProjectOptions(paths, cli.WithEnv(env), cli.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	return options.LoadProject(t.Context())
}

func servicesNamed(p *types.Project, prefix string) []string {
	names := slices.DeleteFunc(p.ServiceNames(), func(n string) bool { return !strings.HasPrefix(n, prefix) })
	slices.Sort(names)
	return names
}

// isJob reports whether a service exits when its work is done.
func isJob(s *types.ServiceConfig) bool {
	return s.Restart == types.RestartPolicyOnFailure || s.Name == "tests"
}

var pinnedImage = regexp.MustCompile(`^[a-z0-9./-]+:v?\d+\.\d+\.\d+(-[a-z0-9.]+)?@sha256:[0-9a-f]{64}$`)

func TestEveryImageIsPinned(t *testing.T) {
	for name, s := range testProject(t).Services {
		if s.Build == nil && !pinnedImage.MatchString(s.Image) {
			t.Errorf("%s runs %q, want a tag with a complete version, and a digest", name, s.Image)
		}
	}
	for _, from := range dockerfile(t).from {
		if from != "scratch" && !pinnedImage.MatchString(from) {
			t.Errorf("the Dockerfile builds on %q, want a tag with a complete version, and a digest", from)
		}
	}
}

func TestServersHaveTheTestedVersions(t *testing.T) {
	p := project(t)
	for prefix, server := range map[string]struct{ image, pom, artifact string }{
		"cassandra-": {"cassandra", "cassandra/pom.xml", "cassandra-all"},
		"kafka-":     {"apache/kafka", "kafka/pom.xml", "kafka_2.13"},
	} {
		var pom struct {
			Dependencies []struct {
				Artifact string `xml:"artifactId"`
				Version  string `xml:"version"`
			} `xml:"dependencies>dependency"`
		}
		data, err := os.ReadFile(filepath.Join(root, "test/cluster", server.pom))
		if err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(data, &pom); err != nil {
			t.Fatal(err)
		}
		want := ""
		for _, d := range pom.Dependencies {
			if d.Artifact == server.artifact {
				want = server.image + ":" + d.Version
			}
		}
		names := servicesNamed(p, prefix)
		if len(names) != 3 || want == "" {
			t.Errorf("services %s*: %v, want three; image of the tested version: %q", prefix, names, want)
		}
		for _, name := range names {
			if got, _, _ := strings.Cut(p.Services[name].Image, "@"); got != want {
				t.Errorf("%s runs %s, want the tested version %s", name, got, want)
			}
		}
	}
}

// Every service except a job has a health check, and is restarted unless it was stopped. A service
// starts once the servers that it needs are healthy and the jobs that it needs have succeeded.
func TestServicesHaveHealthChecksVolumesAndLoopbackPorts(t *testing.T) {
	for _, p := range []*types.Project{project(t), testProject(t)} {
		t.Run(p.Name, func(t *testing.T) { checkServices(t, p) })
	}
}

func checkServices(t *testing.T, p *types.Project) {
	volumes := map[string]string{}
	for name, s := range p.Services {
		job := isJob(&s)
		if hc := s.HealthCheck; !job && (hc == nil || hc.Disable || len(hc.Test) < 2 || hc.Interval == nil || hc.Timeout == nil || hc.Retries == nil) {
			t.Errorf("%s has the health check %+v, want a command, an interval, a timeout and a number of retries", name, hc)
		}
		if !job && s.Restart != types.RestartPolicyUnlessStopped {
			t.Errorf("%s has the restart policy %q, want %q", name, s.Restart, types.RestartPolicyUnlessStopped)
		}
		if s.MemLimit == 0 && name != "tests" { // compilers need what they need
			t.Errorf("%s has no mem_limit, want one", name)
		}
		if s.Image == "leaderboard:local" { // the image declares the volume /data
			named := slices.ContainsFunc(s.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Type == types.VolumeTypeVolume && v.Target == "/data" })
			if named != (name == "api") || named == slices.Contains(s.Tmpfs, "/data") {
				t.Errorf("%s has a named volume at /data: %v, and the temporary folders %v; want a named volume for the API node's first key, otherwise a temporary folder", name, named, s.Tmpfs)
			}
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" || port.Published == "" {
				t.Errorf("%s publishes %d at %s:%s, want a fixed port at 127.0.0.1", name, port.Target, port.HostIP, port.Published)
			}
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeVolume {
				continue
			}
			if owner, taken := volumes[v.Source]; taken {
				t.Errorf("%s and %s share the volume %s, want a volume for each", name, owner, v.Source)
			}
			volumes[v.Source] = name
		}
		for other, d := range s.DependsOn {
			dependency := p.Services[other]
			want := types.ServiceConditionHealthy
			if isJob(&dependency) {
				want = types.ServiceConditionCompletedSuccessfully
			}
			if d.Condition != want {
				t.Errorf("%s waits for %s to be %s, want %s", name, other, d.Condition, want)
			}
		}
	}
	for _, name := range append(servicesNamed(p, "cassandra-"), append(servicesNamed(p, "kafka-"), "redis-sentinel", "prometheus")...) {
		if !slices.Contains(slices.Collect(maps.Values(volumes)), name) {
			t.Errorf("%s has no volume, want one", name)
		}
	}
	for _, name := range []string{"api", "consumer"} {
		s := p.Services[name]
		for _, dependency := range []string{"schema", "topics", "redis-sentinel"} {
			if _, ok := s.DependsOn[dependency]; !ok {
				t.Errorf("%s does not depend on %s, want a dependency", name, dependency)
			}
		}
	}
}

func environ(s *types.ServiceConfig) []string {
	var list []string
	for name, value := range s.Environment {
		if value != nil {
			list = append(list, name+"="+*value)
		}
	}
	return list
}

// settings returns the configuration of a service. It checks that the service's variables are valid
// and name all servers.
func settings(t *testing.T, p *types.Project, name string) *config.Config {
	t.Helper()
	s := p.Services[name]
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	config.AddFlags(fs)
	c, err := config.Load(fs, environ(&s))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, list := range []struct {
		name, port string
		got, want  []string
	}{
		{"cassandra.hosts", "", c.Cassandra.Hosts, servicesNamed(p, "cassandra-")},
		{"kafka.brokers", ":9092", c.Kafka.Brokers, servicesNamed(p, "kafka-")},
		{"redis.addresses", ":26379", c.Redis.Addresses, []string{"redis-sentinel"}},
	} {
		var want []string
		for _, host := range list.want {
			want = append(want, host+list.port)
		}
		if !slices.Equal(list.got, want) {
			t.Errorf("%s: %s is %v, want %v", name, list.name, list.got, want)
		}
	}
	return &c.Config
}

func show(value *string) string {
	if value == nil {
		return "not set"
	}
	return *value
}

// The services api and consumer have their roles, require API keys, and have enough time to stop.
func TestSettingsOfOurServices(t *testing.T) {
	p := project(t)
	roles := map[string][]string{"api": {config.RoleAPI}, "consumer": {config.RoleConsumer}}
	ours := 0
	for name, s := range p.Services {
		if s.Build == nil {
			continue
		}
		ours++
		c := settings(t, p, name)
		want, isServer := roles[name]
		if !isServer {
			continue
		}
		if !slices.Equal(c.Roles, want) {
			t.Errorf("%s has the roles %v, want %v", name, c.Roles, want)
		}
		if c.Insecure {
			t.Errorf("%s is insecure, want it to require API keys", name)
		}
		// Before a consumer leaves its group, it finishes its batch, which takes up to
		// consumer.Options.ApplyTimeout (30s).
		if longest := types.Duration(max(c.ShutdownGrace, 30*time.Second)); *s.StopGracePeriod <= longest {
			t.Errorf("%s is killed after %v, want more than the %v that a stop may take", name, *s.StopGracePeriod, longest)
		}
		if got := s.HealthCheck.Test; !slices.Equal(got[:3], []string{"CMD", "/leaderboard", "health"}) {
			t.Errorf("%s has the health check %v, want /leaderboard health: the image has no other program", name, got)
		}
		for _, node := range servicesNamed(p, "cassandra-") {
			if dc := p.Services[node].Environment["CASSANDRA_DC"]; dc == nil || *dc != c.Cassandra.DataCenter {
				t.Errorf("%s uses data center %s, but %s is in %s; want the same", name, c.Cassandra.DataCenter, node, show(dc))
			}
		}
	}
	if ours != 4 {
		t.Errorf("%d services run the leaderboard image, want 4: schema, topics, api and consumer", ours)
	}
}

// Each node has one replica, so the loss of one node leaves a quorum.
func TestEachReplicaHasItsOwnNode(t *testing.T) {
	p := project(t)
	nodes, brokers := len(servicesNamed(p, "cassandra-")), len(servicesNamed(p, "kafka-"))
	dc := settings(t, p, "schema").Cassandra.DataCenter
	if got, want := strings.Join(p.Services["schema"].Command, " "), fmt.Sprintf("--replicas %s=%d", dc, nodes); !strings.Contains(got, want) {
		t.Errorf("schema runs %q, want %s", got, want)
	}
	if got, want := strings.Join(p.Services["topics"].Command, " "), fmt.Sprintf("--replication-factor %d", brokers); !strings.Contains(got, want) {
		t.Errorf("topics runs %q, want %s", got, want)
	}
	racks, ids := map[string]bool{}, map[string]bool{}
	for _, name := range servicesNamed(p, "cassandra-") {
		racks[*p.Services[name].Environment["CASSANDRA_RACK"]] = true
	}
	var voters []string
	for _, name := range servicesNamed(p, "kafka-") {
		env := p.Services[name].Environment
		id := *env["KAFKA_NODE_ID"]
		ids[id] = true
		voters = append(voters, fmt.Sprintf("%s@%s:9093", id, name))
		for variable, value := range env {
			if n, err := strconv.Atoi(*value); strings.HasSuffix(variable, "REPLICATION_FACTOR") && (err != nil || n != brokers) {
				t.Errorf("%s: %s is %s, want the number of brokers, %d", name, variable, *value, brokers)
			} else if (strings.HasSuffix(variable, "MIN_ISR") || strings.HasSuffix(variable, "INSYNC_REPLICAS")) && (err != nil || n != brokers-1) {
				t.Errorf("%s: %s is %s, want one less than the number of brokers, %d", name, variable, *value, brokers)
			}
		}
		host := "127.0.0.1:" + p.Services[name].Ports[0].Published
		if got, want := *env["KAFKA_ADVERTISED_LISTENERS"], fmt.Sprintf("NETWORK://%s:9092,HOST://%s", name, host); got != want {
			t.Errorf("%s has the advertised listeners %s, want %s", name, got, want)
		}
	}
	if got := *p.Services["kafka-1"].Environment["KAFKA_CONTROLLER_QUORUM_VOTERS"]; got != strings.Join(voters, ",") {
		t.Errorf("the voters of kafka-1 are %s, want %v", got, voters)
	}
	if len(racks) != nodes || len(ids) != brokers {
		t.Errorf("%d racks for %d nodes and %d ids for %d brokers, want a rack for each node and an id for each broker", len(racks), nodes, len(ids), brokers)
	}
}

func TestTestsUseTheServersOfTheService(t *testing.T) {
	p := testProject(t)
	s, c := p.Services["tests"], settings(t, p, "api")
	for _, name := range append(servicesNamed(p, "cassandra-"), append(servicesNamed(p, "kafka-"), "redis")...) {
		if ports := p.Services[name].Ports; len(ports) > 0 {
			t.Errorf("%s publishes %v, which may be in use; want no ports", name, ports)
		}
	}
	var cassandra []string
	for _, host := range c.Cassandra.Hosts {
		cassandra = append(cassandra, host+":9042")
	}
	var redisCluster []string // servers_test.go checks that the command of the service redis-cluster starts these nodes
	for port := 7001; port <= 7006; port++ {
		redisCluster = append(redisCluster, fmt.Sprint("redis-cluster:", port))
	}
	for variable, want := range map[string][]string{
		"LEADERBOARD_TEST_CASSANDRA": cassandra, "LEADERBOARD_TEST_KAFKA": c.Kafka.Brokers,
		"LEADERBOARD_TEST_REDIS": {"redis:6379"}, "LEADERBOARD_TEST_REDIS_CLUSTER": redisCluster,
	} {
		if got := s.Environment[variable]; got == nil || *got != strings.Join(want, ",") {
			t.Errorf("%s of the tests is %s, want %v", variable, show(got), want)
		}
		known, err := os.ReadFile(filepath.Join(root, "test/cluster/shared.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(known), strconv.Quote(variable)) {
			t.Errorf("test/cluster does not read the variable %s, want it to read each variable of the tests", variable)
		}
	}
	// Git refuses the mounted folder, because the folder belongs to another user. So a test's
	// build of the program must not read the version from Git.
	if flags := s.Environment["GOFLAGS"]; flags == nil || *flags != "-buildvcs=false" {
		t.Errorf("GOFLAGS of the tests is %s, want -buildvcs=false", show(flags))
	}
	if from := dockerfile(t).from[0]; s.Image != from {
		t.Errorf("the tests run on %s, want the image that builds the binary, %s", s.Image, from)
	}
	dirs := 0
	for word := range strings.FieldsSeq(strings.Join(s.Command, " ")) {
		if !strings.HasPrefix(word, "./") {
			continue
		}
		dirs++
		if _, err := os.Stat(filepath.Join(root, strings.TrimSuffix(word, "/..."))); err != nil {
			t.Error(err)
		}
	}
	if dirs < 6 {
		t.Errorf("the tests run %d package patterns, want at least 6: %q", dirs, s.Command)
	}
}
