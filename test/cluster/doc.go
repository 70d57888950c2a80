// Package cluster runs real Cassandra, Kafka and Redis servers on loopback for
// tests. It starts them as child processes, waits until they are ready, and
// kills, pauses, restarts and stops them, each by its process id.
//
// A test that needs servers calls [Cassandra], [Kafka], [Redis] or
// [RedisCluster] for shared ones. The environment may name them. Otherwise, with
// REQUIRE_INTEGRATION=1, the first call starts servers, which run until the test
// process ends. A test that kills or pauses servers must start its own with
// [Private].
//
// Servers never outlive the process that started them, however it ends.
package cluster
