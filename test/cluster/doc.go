// Package cluster runs real Cassandra, Kafka and Redis servers on loopback for
// tests. It starts them as child processes, waits until they are ready, and
// kills, pauses, restarts and stops them, each by its process id.
//
// A test that needs servers calls [Cassandra], [Kafka], [Redis] or
// [RedisCluster] for shared servers. The environment may name them. Otherwise, with
// REQUIRE_INTEGRATION=1, the first call starts servers, which run until the test
// process ends. A test that kills or pauses servers must start its own with
// [Private].
//
// Servers never outlive the process that started them, however it ends. The end of the run,
// or the next run, removes their data. A started cluster is ready for writes to all
// replicas. An acknowledged Cassandra write survives kill -9 of all nodes, unless
// [CassandraConfig] sets Quick. Redis is empty after a kill unless [RedisConfig] sets AppendOnly.
//
// On 2 busy cores, one Cassandra node is ready after 9 s, and three after 32 s, with 2.8 GB
// of memory. One Kafka broker is ready after 3 s, and three after 13 s, with 0.56 GB of
// memory. The first run also downloads the servers' jars (110 MB), which takes 50 s.
//
// A killed Kafka broker can return only after 6 s. If several brokers were killed, restart
// them with [Cluster.Start], because the first broker is never ready alone. By default,
// go-redis looks for a new master of a Redis Cluster once a minute: set a shorter
// ClusterStateReloadInterval.
package cluster
