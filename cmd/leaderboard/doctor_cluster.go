package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/canonical"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/storage/cql"
)

const minReplicas = 3 // a quorum of fewer replicas does not survive the loss of a node

func (d *doctor) cassandra(ctx context.Context, c *config.Config) {
	const check = "cassandra"
	o, err := cqlOptions(&c.Cassandra)
	if err != nil {
		d.failed(check, err, "correct cassandra.tls")
		return
	}
	before := time.Now()
	i, err := cql.Inspect(ctx, o)
	if err != nil {
		d.failed(check, err, "start Cassandra, correct cassandra.hosts and the credentials, or create the tables with `leaderboard schema apply`")
		return
	}
	d.clock(check, before, i.Clock, time.Now(), time.Millisecond)
	missing := 0
	for _, m := range i.Migrations {
		if m.AppliedAt.IsZero() {
			missing++
		}
	}
	if missing > 0 {
		d.failed("schema", fmt.Errorf("%d of %d migrations are not applied", missing, len(i.Migrations)), "run `leaderboard schema apply`")
	} else {
		d.ok("schema", fmt.Sprintf("all %d migrations are applied", len(i.Migrations)))
	}
	delete(i.Replication, "class")
	for _, dc := range slices.Sorted(maps.Keys(i.Replication)) {
		n, _ := strconv.Atoi(i.Replication[dc])
		if n < minReplicas {
			d.warn("replicas", fmt.Sprintf("the data center %s has %s of the data: the loss of a node stops the service", dc, cli.Plural(int64(n), "replica", "replicas")), fmt.Sprintf("use %d nodes or more, and run `leaderboard schema apply --replicas %s=%d`, which shows the statement to run", minReplicas, dc, minReplicas))
			continue
		}
		d.ok("replicas", fmt.Sprintf("%s has %d", dc, n))
	}
	if _, ok := i.Replication[c.Cassandra.DataCenter]; !ok {
		d.failed("replicas", fmt.Errorf("the local data center %s has none", c.Cassandra.DataCenter), "run `leaderboard schema apply --replicas "+c.Cassandra.DataCenter+"=3`, which shows the statement to run")
	}
}

func (d *doctor) kafka(c *config.Config) {
	const check = "kafka"
	connection, err := kafkaOptions(&c.Kafka)
	if err != nil {
		d.failed(check, err, "correct kafka.tls")
		return
	}
	client := connection.Config(clientID)
	missing, err := kafka.MissingTopics(c.Kafka.Brokers, client, topicsOf(&c.Kafka))
	if err != nil {
		d.failed(check, err, "start Kafka, or correct kafka.brokers and the credentials")
		return
	}
	if len(missing) > 0 {
		d.failed("topics", fmt.Errorf("missing: %s", strings.Join(missing, ", ")), "run `leaderboard topics`")
	}
	risks, err := kafka.Risks(c.Kafka.Brokers, client, kafka.TopicOptions{Topics: topicsOf(&c.Kafka), Retention: c.Kafka.Retention})
	if err != nil {
		d.failed("topics", err, "let the user of kafka.username describe the topics")
		return
	}
	for _, risk := range risks {
		problem, cure, _ := strings.Cut(risk, ": ")
		d.warn("topics", problem, cure)
	}
	if len(missing)+len(risks) == 0 {
		d.ok("topics", "all exist, and keep results")
	}
}

// canonical asks the game's own store for a result that it does not have.
func (d *doctor) canonical(ctx context.Context, c *config.Canonical) {
	const check, unused = "canonical", "leaderboard-doctor"
	if c.URL == "" {
		return
	}
	if c.Secret == "" {
		d.warn(check, "requests to the game's store are not signed, so it cannot know who asks", "set canonical.secret, and let the store verify the signatures")
	}
	store, err := newCanonical(c)
	if err != nil {
		d.failed(check, err, "correct canonical.tls")
		return
	}
	defer func() { _ = store.Close() }()
	_, err = store.Fetch(ctx, canonical.Key{Board: leaderboard.DefaultBoard, User: unused, Match: unused})
	e, _ := errors.AsType[*canonical.Error](err)
	switch {
	case e == nil || e.Problem == canonical.NotFound:
		d.ok(check, "the game's store answers at "+c.URL)
	case e.Problem == canonical.Invalid:
		d.warn(check, err.Error(), "let the game's store answer 404 for a result that it does not have")
	default:
		d.failed(check, err, "start the game's store, or correct canonical.url and canonical.secret; meanwhile fetches are parked")
	}
}

func (d *doctor) redis(ctx context.Context, c *config.Config) {
	const check = "redis"
	o, err := redisOptions(&c.Redis)
	if err != nil {
		d.failed(check, err, "correct redis.tls")
		return
	}
	o.ContextTimeoutEnabled = true
	client := goredis.NewUniversalClient(o)
	defer func() { _ = client.Close() }()
	err = d.redisServer(ctx, client)
	if cluster, ok := client.(*goredis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, m *goredis.Client) error { return d.redisServer(ctx, m) })
	}
	if err != nil {
		d.failed(check, err, "start Redis, or correct redis.addresses and the credentials; meanwhile reads have no ranks")
	}
}

func (d *doctor) redisServer(ctx context.Context, c goredis.Cmdable) error {
	before := time.Now()
	at, err := c.Time(ctx).Result()
	if err != nil {
		return err
	}
	d.clock("redis", before, at, time.Now(), time.Millisecond)
	info, err := c.Info(ctx, "server", "replication", "memory", "persistence").Result()
	if err != nil {
		return err
	}
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	d.redisPolicy(fields)
	return nil
}

func (d *doctor) redisPolicy(fields map[string]string) {
	version := fields["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n < 7 {
		d.failed("redis", fmt.Errorf("its version is %s", version), "use Redis 7 or later")
	}
	switch policy := fields["maxmemory_policy"]; {
	case fields["maxmemory"] == "0":
		d.warn("redis policy", "maxmemory is not set, so Redis may use all memory of its machine", "set maxmemory to half of the memory, and maxmemory-policy to noeviction")
	case strings.HasPrefix(policy, "allkeys"):
		d.failed("redis policy", fmt.Errorf("maxmemory-policy %s evicts ranks", policy), "set maxmemory-policy to noeviction")
	default:
		d.ok("redis policy", "maxmemory-policy "+policy)
	}
	if fields["connected_slaves"] == "0" {
		d.warn("redis", "the master has no replica: if it is lost, ranks are missing until they are filled again", "add a replica, with Sentinel or a Redis Cluster")
	}
	if fields["aof_enabled"] == "0" {
		d.warn("redis", "appendonly is off: after a restart, ranks are missing until they are filled again", "set appendonly to yes")
	}
}
