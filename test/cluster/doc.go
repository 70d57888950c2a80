// Package cluster runs real Cassandra, Kafka and Redis servers on loopback for tests, as child
// processes. It can kill, pause, restart and stop them.
//
// For shared servers, a test calls [Cassandra], [Kafka], [Redis] or [RedisCluster]. The environment
// may name the servers. Otherwise, with REQUIRE_INTEGRATION=1, the first call starts servers, which
// run until the test process ends. A test that kills or pauses servers must start its own with
// [Private].
//
// Servers never outlive the process that started them. The end of the run, or the next run, removes
// their data.
//
// A killed Kafka broker can return only after 6 s. If several brokers were killed, restart all with
// [Cluster.Start], because one of several brokers is never ready alone. By default, go-redis looks
// for a new master of a Redis Cluster once a minute: set a shorter ClusterStateReloadInterval.
package cluster
