// Package cluster runs real Cassandra, Kafka and Redis servers on loopback for
// tests: it starts them as child processes, waits until they are ready, kills,
// pauses, restarts and stops them, each by its process id.
//
// A test that only needs servers asks for shared ones with [Cassandra],
// [Kafka], [Redis] or [RedisCluster]. They are the servers named by the
// environment, or, with REQUIRE_INTEGRATION=1, servers started on first use
// and kept until the test process ends. A test that hurts servers starts its
// own with [Private].
//
// Servers never outlive the process that started them, however it ends.
package cluster
