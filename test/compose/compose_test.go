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

// project is docker-compose.yml as Docker reads it, with every service.
func project(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")}, cli.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	p, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// named are the services whose names begin with a prefix.
func named(p *types.Project, prefix string) []string {
	names := slices.DeleteFunc(p.ServiceNames(), func(n string) bool { return !strings.HasPrefix(n, prefix) })
	slices.Sort(names)
	return names
}

// isJob says whether a service ends by itself.
func isJob(s *types.ServiceConfig) bool {
	return s.Restart == types.RestartPolicyOnFailure || s.Name == "tests"
}

// pinned is an image with all of its version.
var pinned = regexp.MustCompile(`^[a-z0-9./-]+:\d+\.\d+\.\d+(-[a-z0-9.]+)?$`)

func TestEveryImageIsPinned(t *testing.T) {
	for name, s := range project(t).Services {
		if s.Build == nil && !pinned.MatchString(s.Image) {
			t.Errorf("%s runs %q, want a tag with all of the version", name, s.Image)
		}
	}
	for _, from := range dockerfile(t).from {
		if from != "scratch" && !pinned.MatchString(from) {
			t.Errorf("the Dockerfile builds on %q, want a tag with all of the version", from)
		}
	}
}

// The servers are those that the tests run on without Docker.
func TestServersAreOfTheTestedVersions(t *testing.T) {
	p := project(t)
	for prefix, of := range map[string]struct{ image, pom, artifact string }{
		"cassandra-": {"cassandra", "cassandra/pom.xml", "cassandra-all"},
		"kafka-":     {"apache/kafka", "kafka/pom.xml", "kafka_2.13"},
	} {
		var pom struct {
			Dependencies []struct {
				Artifact string `xml:"artifactId"`
				Version  string `xml:"version"`
			} `xml:"dependencies>dependency"`
		}
		data, err := os.ReadFile(filepath.Join(root, "test/cluster", of.pom))
		if err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(data, &pom); err != nil {
			t.Fatal(err)
		}
		want := ""
		for _, d := range pom.Dependencies {
			if d.Artifact == of.artifact {
				want = of.image + ":" + d.Version
			}
		}
		names := named(p, prefix)
		if len(names) != 3 || want == "" {
			t.Errorf("services %s…: %v, want three; tested is %q", prefix, names, want)
		}
		for _, name := range names {
			if got := p.Services[name].Image; got != want {
				t.Errorf("%s runs %s, the tests %s", name, got, want)
			}
		}
	}
}

// What stays up is watched, comes back, and is waited for; what keeps data has
// a volume of its own; and nothing is open to the network.
func TestServicesAreWatchedAndKept(t *testing.T) {
	p := project(t)
	volumes := map[string]string{}
	for name, s := range p.Services {
		job := isJob(&s)
		if hc := s.HealthCheck; !job && (hc == nil || hc.Disable || len(hc.Test) < 2 || hc.Interval == nil || hc.Timeout == nil || hc.Retries == nil) {
			t.Errorf("%s has no whole health check: %+v", name, hc)
		}
		if !job && s.Restart != types.RestartPolicyUnlessStopped {
			t.Errorf("%s has the restart policy %q", name, s.Restart)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" || port.Published == "" {
				t.Errorf("%s publishes %d on %q, want 127.0.0.1", name, port.Target, port.HostIP)
			}
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeVolume {
				continue
			}
			if other, taken := volumes[v.Source]; taken {
				t.Errorf("%s and %s share the volume %s", name, other, v.Source)
			}
			volumes[v.Source] = name
		}
		for on, d := range s.DependsOn {
			dependency := p.Services[on]
			want := types.ServiceConditionHealthy
			if isJob(&dependency) {
				want = types.ServiceConditionCompletedSuccessfully
			}
			if d.Condition != want {
				t.Errorf("%s waits for %s to be %s, want %s", name, on, d.Condition, want)
			}
		}
	}
	for _, name := range append(named(p, "cassandra-"), named(p, "kafka-")...) {
		if !slices.Contains(slices.Collect(maps.Values(volumes)), name) {
			t.Errorf("%s has no volume", name)
		}
	}
	for _, name := range []string{"api", "consumer"} {
		s := p.Services[name]
		for _, on := range []string{"schema", "topics", "redis"} {
			if _, ok := s.DependsOn[on]; !ok {
				t.Errorf("%s does not wait for %s", name, on)
			}
		}
	}
}

// environ is a service's environment.
func environ(s *types.ServiceConfig) []string {
	var list []string
	for name, value := range s.Environment {
		if value != nil {
			list = append(list, name+"="+*value)
		}
	}
	return list
}

// settings are those that a service of ours runs with: its variables are all
// known and right, and name servers that there are.
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
		what, port string
		have, want []string
	}{
		{"cassandra.hosts", "", c.Cassandra.Hosts, named(p, "cassandra-")},
		{"kafka.brokers", ":9092", c.Kafka.Brokers, named(p, "kafka-")},
		{"redis.addresses", ":6379", c.Redis.Addresses, []string{"redis"}},
	} {
		var want []string
		for _, host := range list.want {
			want = append(want, host+list.port)
		}
		if !slices.Equal(list.have, want) {
			t.Errorf("%s: %s is %v, want %v", name, list.what, list.have, want)
		}
	}
	return &c.Config
}

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
		want, stays := roles[name]
		if !stays {
			continue
		}
		if !slices.Equal(c.Roles, want) {
			t.Errorf("%s has the roles %v, want %v", name, c.Roles, want)
		}
		if c.Insecure {
			t.Errorf("%s asks for no key", name)
		}
		// A batch under way may take consumer.Options.ApplyTimeout, which is 30s, and then it commits and leaves.
		if longest := types.Duration(max(c.ShutdownGrace, 30*time.Second)); *s.StopGracePeriod <= longest {
			t.Errorf("%s is killed after %v, but may take more than %v to stop", name, *s.StopGracePeriod, longest)
		}
		if got := s.HealthCheck.Test; !slices.Equal(got[:3], []string{"CMD", "/leaderboard", "health"}) {
			t.Errorf("%s is watched by %v, but there is no other program in the image", name, got)
		}
		for _, node := range named(p, "cassandra-") {
			if dc := p.Services[node].Environment["CASSANDRA_DC"]; dc == nil || *dc != c.Cassandra.DataCenter {
				t.Errorf("%s asks data center %s, %s is in %v", name, c.Cassandra.DataCenter, node, dc)
			}
		}
	}
	if ours != 4 {
		t.Errorf("%d services run our image, want schema, topics, api and consumer", ours)
	}
}

// Every copy that is asked for has a node of its own, and a quorum outlives one node.
func TestReplicasHaveNodes(t *testing.T) {
	p := project(t)
	nodes, brokers := len(named(p, "cassandra-")), len(named(p, "kafka-"))
	dc := settings(t, p, "schema").Cassandra.DataCenter
	if got, want := strings.Join(p.Services["schema"].Command, " "), fmt.Sprintf("--replicas %s=%d", dc, nodes); !strings.Contains(got, want) {
		t.Errorf("schema runs %q, want %s", got, want)
	}
	if got, want := strings.Join(p.Services["topics"].Command, " "), fmt.Sprintf("--replication-factor %d", brokers); !strings.Contains(got, want) {
		t.Errorf("topics runs %q, want %s", got, want)
	}
	racks, ids := map[string]bool{}, map[string]bool{}
	for _, name := range named(p, "cassandra-") {
		racks[*p.Services[name].Environment["CASSANDRA_RACK"]] = true
	}
	var voters []string
	for _, name := range named(p, "kafka-") {
		env := p.Services[name].Environment
		id := *env["KAFKA_NODE_ID"]
		ids[id] = true
		voters = append(voters, fmt.Sprintf("%s@%s:9093", id, name))
		for variable, value := range env {
			if n, err := strconv.Atoi(*value); strings.HasSuffix(variable, "REPLICATION_FACTOR") && (err != nil || n != brokers) {
				t.Errorf("%s: %s is %s, there are %d brokers", name, variable, *value, brokers)
			} else if (strings.HasSuffix(variable, "MIN_ISR") || strings.HasSuffix(variable, "INSYNC_REPLICAS")) && (err != nil || n != brokers-1) {
				t.Errorf("%s: %s is %s of %d brokers: one must be missable, and no more", name, variable, *value, brokers)
			}
		}
		host := "127.0.0.1:" + p.Services[name].Ports[0].Published
		if got, want := *env["KAFKA_ADVERTISED_LISTENERS"], fmt.Sprintf("PLAIN://%s:9092,HOST://%s", name, host); got != want {
			t.Errorf("%s is advertised as %s, want %s", name, got, want)
		}
	}
	if got := *p.Services["kafka-1"].Environment["KAFKA_CONTROLLER_QUORUM_VOTERS"]; got != strings.Join(voters, ",") {
		t.Errorf("the voters are %s, want %v", got, voters)
	}
	if len(racks) != nodes || len(ids) != brokers {
		t.Errorf("%d racks of %d nodes, %d ids of %d brokers", len(racks), nodes, len(ids), brokers)
	}
}

// The tests run against the servers that the service does.
func TestTestsKnowTheServers(t *testing.T) {
	p := project(t)
	s, c := p.Services["tests"], settings(t, p, "api")
	var cassandra []string
	for _, host := range c.Cassandra.Hosts {
		cassandra = append(cassandra, host+":9042")
	}
	var redisCluster []string // servers_test.go starts it
	for port := 7001; port <= 7006; port++ {
		redisCluster = append(redisCluster, fmt.Sprint("redis-cluster:", port))
	}
	for variable, want := range map[string][]string{
		"LEADERBOARD_TEST_CASSANDRA": cassandra, "LEADERBOARD_TEST_KAFKA": c.Kafka.Brokers,
		"LEADERBOARD_TEST_REDIS": c.Redis.Addresses, "LEADERBOARD_TEST_REDIS_CLUSTER": redisCluster,
	} {
		if got := s.Environment[variable]; got == nil || *got != strings.Join(want, ",") {
			t.Errorf("%s of the tests is %v, want %v", variable, got, want)
		}
		known, err := os.ReadFile(filepath.Join(root, "test/cluster/shared.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(known), strconv.Quote(variable)) {
			t.Errorf("test/cluster knows no %s", variable)
		}
	}
	// Some tests build the program, from a folder that git takes for another user's.
	if flags := s.Environment["GOFLAGS"]; flags == nil || *flags != "-buildvcs=false" {
		t.Errorf("GOFLAGS of the tests are %v", flags)
	}
	if from := dockerfile(t).from[0]; s.Image != from {
		t.Errorf("the tests run on %s, the binary is built on %s", s.Image, from)
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
		t.Errorf("the tests are those of %d packages: %q", dirs, s.Command)
	}
}
