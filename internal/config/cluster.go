package config

import (
	"slices"
	"strings"
	"time"
)

// Cassandra is where a distributed server keeps results and entries.
type Cassandra struct {
	Hosts      []string `key:"hosts" unit:"host or host:port, a list" help:"Some nodes of the local data center. If set, the server is distributed: results and entries are in Cassandra, ranks in Redis, and submits go through Kafka."`
	DataCenter string   `key:"data_center" unit:"name" help:"The data center whose nodes are asked and whose quorum decides."`
	Keyspace   string   `key:"keyspace" unit:"name" help:"The keyspace of the tables. leaderboard schema apply makes it."`
	Username   string   `key:"username" unit:"text" help:"For nodes that ask for it."`
	Password   Secret   `key:"password" unit:"text" help:"For nodes that ask for it."`
	Buckets    int      `key:"buckets" unit:"count" help:"Partitions that the users of each ladder are spread over. It is fixed for a board when that is made; 64 are enough for 25 million users."`
}

// Redis is where a distributed server keeps ranks.
type Redis struct {
	Addresses  []string `key:"addresses" unit:"host:port, a list" help:"One address for a server, several for a cluster, or those of Sentinel."`
	MasterName string   `key:"master_name" unit:"name" help:"The master that Sentinel knows; set it to use Sentinel."`
	Username   string   `key:"username" unit:"text" help:"For servers that ask for it."`
	Password   Secret   `key:"password" unit:"text" help:"For servers that ask for it."`
	Prefix     string   `key:"prefix" unit:"text" help:"Begins the name of every key, so that several services share a server. It has no braces."`
	Shards     int      `key:"shards" unit:"count" help:"Shards of each scope: 0 is 1 on a server and 8 in a cluster."`
}

// Kafka is the log of a distributed server.
type Kafka struct {
	Brokers        []string      `key:"brokers" unit:"host:port, a list" help:"Some brokers of the region's Kafka."`
	TopicPrefix    string        `key:"topic_prefix" unit:"letters, digits, - and _" help:"Begins the names of the topics, so that several services share a Kafka: match-results, match-results.dlq and leaderboard-updates."`
	Group          string        `key:"group" unit:"name" help:"The consumer group. In a region, a dash and its name follow, so that each reads all results, also where regions share a Kafka."`
	InstanceID     string        `key:"instance_id" unit:"name" help:"Makes the membership of the group static: a consumer that comes back under it within session_timeout gets its partitions back without a rebalance."`
	SessionTimeout time.Duration `key:"session_timeout" unit:"duration" help:"After how long without a sign of life a consumer's partitions go to others; one with an instance_id that is restarted within it gets them back. Brokers allow 6s to 30m unless they are told otherwise."`
	ApplyWait      time.Duration `key:"apply_wait" unit:"duration" help:"How long a submit waits to be applied; after that it answers that the result was accepted."`
	Batch          int           `key:"batch" unit:"results" help:"Results of a partition that are applied as one."`
}

// The roles that a distributed server may have.
const (
	RoleAPI      = "api"
	RoleConsumer = "consumer"
)

// ConsumerGroup is the group that the consumers of the region form.
func (c *Config) ConsumerGroup() string {
	if c.Region == "" {
		return c.Kafka.Group
	}
	return c.Kafka.Group + "-" + c.Region
}

// topicCharacters may be in a topic's name. A dot, which may too, sets off the
// region that a topic was mirrored from.
const topicCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// Distributed says whether the configuration names servers, rather than a folder.
func (c *Config) Distributed() bool { return len(c.Cassandra.Hosts) > 0 }

// Has says whether a server has a role. An embedded one needs none.
func (c *Config) Has(role string) bool { return slices.Contains(c.Roles, role) }

// ServesAPI says whether a server answers callers, and not probes alone.
func (c *Config) ServesAPI() bool { return !c.Distributed() || c.Has(RoleAPI) }

func (c *Config) validateCluster(v *validator) {
	named := map[string]int{
		"cassandra.hosts": len(c.Cassandra.Hosts), "redis.addresses": len(c.Redis.Addresses), "kafka.brokers": len(c.Kafka.Brokers),
	}
	total := 0
	for _, n := range named {
		total += n
	}
	if total == 0 {
		return
	}
	for key, n := range named {
		if n == 0 {
			v.fault(key, "is empty, but a distributed server needs cassandra.hosts, redis.addresses and kafka.brokers")
		}
	}
	if c.Cassandra.DataCenter == "" {
		v.fault("cassandra.data_center", "is empty; name the local data center")
	}
	if c.Cassandra.Buckets < 1 || c.Cassandra.Buckets > 4096 {
		v.fault("cassandra.buckets", "%d is not 1 to 4096", c.Cassandra.Buckets)
	}
	if c.Redis.Shards < 0 || c.Redis.Shards > 256 {
		v.fault("redis.shards", "%d is not 0 to 256", c.Redis.Shards)
	}
	if c.Redis.Prefix == "" || strings.ContainsAny(c.Redis.Prefix, "{}") {
		v.fault("redis.prefix", "%q is empty or has braces", c.Redis.Prefix)
	}
	if strings.Trim(c.Region, topicCharacters) != "" {
		v.fault("region", "%q has others than letters, digits, - and _", c.Region)
	}
	if strings.Trim(c.Kafka.TopicPrefix, topicCharacters) != "" {
		v.fault("kafka.topic_prefix", "%q has others than letters, digits, - and _", c.Kafka.TopicPrefix)
	}
	if c.Kafka.Batch < 1 || c.Kafka.Batch > 5000 {
		v.fault("kafka.batch", "%d is not 1 to 5000", c.Kafka.Batch)
	}
	if c.Kafka.SessionTimeout < time.Second {
		v.fault("kafka.session_timeout", "%v is less than 1s", c.Kafka.SessionTimeout)
	}
	v.positive("kafka.apply_wait", c.Kafka.ApplyWait)
	if len(c.Roles) == 0 {
		v.fault("roles", "is empty; name api, consumer or both")
	}
	for _, r := range c.Roles {
		v.oneOf("roles", r, RoleAPI, RoleConsumer)
	}
}
