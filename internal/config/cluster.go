package config

import (
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard/internal/secret"
)

// ClientTLS contains the TLS settings of the connections to Cassandra, Redis or Kafka.
type ClientTLS struct {
	Enabled    bool   `key:"enabled" unit:"boolean" help:"Connect with TLS, and verify the certificates of the servers."`
	CA         string `key:"ca" unit:"path" help:"Authorities of the servers' certificates. If empty, the system's authorities."`
	Cert       string `key:"cert" unit:"path" help:"Client certificate chain, if servers require one."`
	Key        string `key:"key" unit:"path" help:"Private key of cert."`
	ServerName string `key:"server_name" unit:"name" help:"Name in the certificates. If empty, the dialed name or IP address."`
}

// Cassandra contains the settings of the store of a distributed server.
type Cassandra struct {
	Hosts          []string      `key:"hosts" unit:"host or host:port, comma-separated" help:"Some nodes of the local data center, all with one port. If set, the server is distributed."`
	DataCenter     string        `key:"data_center" unit:"name" help:"The local data center. Most calls wait for a quorum of its replicas."`
	Keyspace       string        `key:"keyspace" unit:"name" help:"Keyspace of the tables."`
	Username       string        `key:"username" unit:"text" help:"User name."`
	Password       secret.Text   `key:"password" unit:"text" help:"Password."`
	TLS            ClientTLS     `key:"tls"`
	Rack           string        `key:"rack" unit:"name" help:"The local rack, whose replicas are asked first."`
	Connections    int           `key:"connections" unit:"connections" help:"Connections to each node, 1 to 1000."`
	ConnectTimeout time.Duration `key:"connect_timeout" unit:"duration" help:"Timeout of connecting."`
	Timeout        time.Duration `key:"timeout" unit:"duration" help:"Timeout of an answer, longer than the nodes' timeouts."`
	Buckets        int           `key:"buckets" unit:"count" help:"Partitions of each ranking of a season or division, 1 to 4096. Existing boards keep their number."`
	CacheUsers     int           `key:"cache_users" unit:"users" help:"Users of whom a consumer keeps a summary in memory, 1 to 10000000. Most take 1 to 3 KB, and none more than about 50 KB."`
}

// Redis contains the settings of the rank index of a distributed server.
type Redis struct {
	Addresses        []string      `key:"addresses" unit:"host:port, comma-separated" help:"Addresses of a single server, of nodes of a Redis Cluster, or of Sentinel."`
	MasterName       string        `key:"master_name" unit:"name" help:"Name of the master. If set, the addresses are Sentinel's."`
	Username         string        `key:"username" unit:"text" help:"User name."`
	Password         secret.Text   `key:"password" unit:"text" help:"Password."`
	SentinelUsername string        `key:"sentinel_username" unit:"text" help:"User name for Sentinel."`
	SentinelPassword secret.Text   `key:"sentinel_password" unit:"text" help:"Password for Sentinel."`
	TLS              ClientTLS     `key:"tls"`
	Connections      int           `key:"connections" unit:"connections" help:"Maximum connections to each server, up to 100000; 0 is 10 for each processor. Pipelines may use 10 more."`
	ConnectTimeout   time.Duration `key:"connect_timeout" unit:"duration" help:"Timeout of connecting."`
	Timeout          time.Duration `key:"timeout" unit:"duration" help:"Timeout of an answer."`
	Prefix           string        `key:"prefix" unit:"text" help:"Prefix of every key, for servers that several services share."`
	Shards           int           `key:"shards" unit:"count" help:"Shards of each season, up to 256. More shards use more masters of a Redis Cluster, but slow calls down. A season keeps its number until its board sets one."`
}

// Kafka contains the settings of the log of a distributed server.
type Kafka struct {
	Brokers        []string      `key:"brokers" unit:"host:port, comma-separated" help:"Some brokers of the region."`
	Username       string        `key:"username" unit:"text" help:"User name."`
	Password       secret.Text   `key:"password" unit:"text" help:"Password."`
	Mechanism      string        `key:"mechanism" unit:"PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512" help:"SASL mechanism. PLAIN sends the password, so use it with TLS only."`
	TLS            ClientTLS     `key:"tls"`
	Rack           string        `key:"rack" unit:"name" help:"The local rack (client.rack). If the brokers' replica.selector.class allows it, consumers read from replicas there."`
	ConnectTimeout time.Duration `key:"connect_timeout" unit:"duration" help:"Timeout of connecting."`
	Timeout        time.Duration `key:"timeout" unit:"duration" help:"Timeout of an answer."`
	Retention      time.Duration `key:"retention" unit:"duration" help:"How long Kafka must keep results: longer than the longest outage. The server warns of a shorter retention."`
	TopicPrefix    string        `key:"topic_prefix" unit:"letters, digits, - and _" help:"Prefix of the topics, for brokers that several services share."`
	Group          string        `key:"group" unit:"letters, digits, ., - and _" help:"Consumer group. If region is set, a dash and the region follow."`
	InstanceID     string        `key:"instance_id" unit:"letters, digits, ., - and _" help:"Static id of this consumer. If it restarts within kafka.session_timeout, it keeps its partitions."`
	SessionTimeout time.Duration `key:"session_timeout" unit:"duration" help:"How long a consumer may be silent before other consumers get its partitions, at least 1s. By default brokers accept 6s to 30m."`
	ApplyWait      time.Duration `key:"apply_wait" unit:"duration" help:"How long a submit waits until its result is applied, before the answer is ACCEPTED."`
	Batch          int           `key:"batch" unit:"results" help:"Maximum results of a partition that a consumer applies together, 1 to 5000."`
}

// The roles of a distributed server.
const (
	RoleAPI      = "api"
	RoleConsumer = "consumer"
)

// ConsumerGroup returns the name of the consumer group of the region.
func (c *Config) ConsumerGroup() string {
	if c.Region == "" {
		return c.Kafka.Group
	}
	return c.Kafka.Group + "-" + c.Region
}

// A topic mirrored from another region is named REGION.TOPIC. The first dot ends the region,
// so a region must not contain a dot, nor may a topic prefix. Kafka limits names to 249
// characters.
var (
	regionForm   = regexp.MustCompile(`^[A-Za-z0-9_-]{0,50}$`)
	prefixForm   = regexp.MustCompile(`^[A-Za-z0-9_-]{0,150}$`)
	keyspaceForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)
	groupForm    = regexp.MustCompile(`^[!-~]{1,190}$`)
	memberForm   = regexp.MustCompile(`^[A-Za-z0-9._-]{0,249}$`)
)

// Distributed reports whether the server uses Cassandra, Redis and Kafka.
func (c *Config) Distributed() bool { return len(c.Cassandra.Hosts) > 0 }

// Has reports whether Roles contains role. Only a distributed server uses roles.
func (c *Config) Has(role string) bool { return slices.Contains(c.Roles, role) }

// ServesAPI reports whether the server answers API calls, not health probes only.
func (c *Config) ServesAPI() bool { return !c.Distributed() || c.Has(RoleAPI) }

func (c *Config) validateCluster(v *validator) {
	c.validateServers(v)
	c.validateConnections(v)
	v.checkRange("cassandra.buckets", c.Cassandra.Buckets, 1, 4096)
	v.checkRange("cassandra.cache_users", c.Cassandra.CacheUsers, 1, 10_000_000)
	v.checkRange("redis.shards", c.Redis.Shards, 1, 256)
	v.checkRange("kafka.batch", c.Kafka.Batch, 1, 5000)
	if c.Redis.Prefix == "" || strings.ContainsAny(c.Redis.Prefix, "{}") {
		v.errorf("redis.prefix", "%q is empty or contains braces", c.Redis.Prefix)
	}
	v.checkForm("region", c.Region, regionForm, "at most 50 letters, digits, - and _")
	v.checkForm("kafka.topic_prefix", c.Kafka.TopicPrefix, prefixForm, "at most 150 letters, digits, - and _")
	v.checkForm("cassandra.keyspace", c.Cassandra.Keyspace, keyspaceForm, "a lower-case letter followed by at most 47 lower-case letters, digits and _")
	v.checkForm("kafka.group", c.Kafka.Group, groupForm, "1 to 190 visible ASCII characters")
	v.checkForm("kafka.instance_id", c.Kafka.InstanceID, memberForm, "at most 249 letters, digits, ., - and _")
	if c.Kafka.SessionTimeout < time.Second {
		v.errorf("kafka.session_timeout", "%v is less than 1s", c.Kafka.SessionTimeout)
	}
	v.checkPositive("kafka.apply_wait", c.Kafka.ApplyWait)
	if len(c.Roles) == 0 {
		v.errorf("roles", "is empty; set it to api, consumer, or both")
	}
	for _, r := range c.Roles {
		v.checkOneOf("roles", r, RoleAPI, RoleConsumer)
	}
}

// Without addresses, validateServers rejects all settings of a distributed server. The server
// would otherwise start with an empty embedded store.
func (c *Config) validateServers(v *validator) {
	const required = "cassandra.hosts, redis.addresses and kafka.brokers"
	addresses := map[string][]string{"cassandra.hosts": c.Cassandra.Hosts, "redis.addresses": c.Redis.Addresses, "kafka.brokers": c.Kafka.Brokers}
	if slices.ContainsFunc(slices.Collect(maps.Values(addresses)), func(list []string) bool { return len(list) > 0 }) {
		for key, list := range addresses {
			if len(list) == 0 {
				v.errorf(key, "is empty; a distributed server requires %s", required)
			}
		}
		if c.Cassandra.DataCenter == "" {
			v.errorf("cassandra.data_center", "is empty; set it to the local data center")
		}
	} else {
		defaults := Default()
		defaultSettings := defaults.Settings()
		for i, s := range c.Settings() {
			group, _, _ := strings.Cut(s.Key, ".")
			if slices.Contains([]string{"roles", "region", "cassandra", "redis", "kafka", "canonical"}, group) && !s.Equal(defaultSettings[i]) {
				v.errorf(s.Key, "requires %s", required)
			}
		}
	}
	for _, key := range []string{"redis.addresses", "kafka.brokers"} {
		for _, address := range addresses[key] {
			if _, ok := splitAddress(address); !ok {
				v.errorf(key, "%q is not of the form host:port", address)
			}
		}
	}
	ports := map[string]bool{}
	for _, address := range c.Cassandra.Hosts {
		port, ok := splitAddress(address)
		if !ok {
			port, ok = splitAddress(net.JoinHostPort(address, "9042"))
		}
		if !ok {
			v.errorf("cassandra.hosts", "%q is not of the form host or host:port", address)
		}
		ports[port] = true
	}
	if len(ports) > 1 {
		v.errorf("cassandra.hosts", "has several ports; all nodes must have the same port, by default 9042")
	}
}

// splitAddress returns false unless address is host:port with a port from 1 to 65535.
func splitAddress(address string) (port string, ok bool) {
	host, port, err := net.SplitHostPort(address)
	n, portErr := strconv.ParseUint(port, 10, 16)
	invalid := host == "" || strings.ContainsAny(host, " \t/,@") || strings.Contains(host, ":") && net.ParseIP(host) == nil
	return port, err == nil && portErr == nil && n > 0 && !invalid
}

var mechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}

func (c *Config) validateConnections(v *validator) {
	c.Cassandra.TLS.validate(v, "cassandra.tls")
	c.Redis.TLS.validate(v, "redis.tls")
	c.Kafka.TLS.validate(v, "kafka.tls")
	for group, set := range map[string][2]bool{
		"cassandra": {c.Cassandra.Username != "", c.Cassandra.Password != ""},
		"kafka":     {c.Kafka.Username != "", c.Kafka.Password != ""},
	} {
		if set[0] != set[1] {
			v.errorf(group+".username", "must be set together with %s.password, but one of them is empty", group)
		}
	}
	if c.Redis.Username != "" && c.Redis.Password == "" {
		v.errorf("redis.username", "requires redis.password")
	}
	if c.Redis.SentinelUsername != "" && c.Redis.SentinelPassword == "" {
		v.errorf("redis.sentinel_username", "requires redis.sentinel_password")
	}
	if c.Redis.SentinelPassword != "" && c.Redis.MasterName == "" {
		v.errorf("redis.sentinel_password", "requires redis.master_name, because only Sentinel uses it")
	}
	v.checkOneOf("kafka.mechanism", c.Kafka.Mechanism, mechanisms...)
	v.checkRange("cassandra.connections", c.Cassandra.Connections, 1, 1000)
	v.checkRange("redis.connections", c.Redis.Connections, 0, 100_000)
	for key, d := range map[string]time.Duration{
		"cassandra.connect_timeout": c.Cassandra.ConnectTimeout, "cassandra.timeout": c.Cassandra.Timeout,
		"redis.connect_timeout": c.Redis.ConnectTimeout, "redis.timeout": c.Redis.Timeout,
		"kafka.connect_timeout": c.Kafka.ConnectTimeout, "kafka.timeout": c.Kafka.Timeout, "kafka.retention": c.Kafka.Retention,
	} {
		v.checkPositive(key, d)
	}
}

func (t *ClientTLS) validate(v *validator, prefix string) {
	if !t.Enabled && *t != (ClientTLS{}) {
		v.errorf(prefix+".enabled", "is false, but other settings of %s are set; set it to true, or remove them", prefix)
	}
	v.checkPair(prefix, t.Cert, t.Key)
	v.checkAuthorities(prefix+".ca", t.CA)
}
