package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// After each fault, each ladder equals the recount, and the history of each user is linearizable.
//
// One API node and one consumer reach all servers through proxies. The other two processes reach the
// servers directly, so results are acknowledged during the fault too.
func TestNetworkFaults(t *testing.T) {
	needs.Slow(t, "faults")
	n := newNetwork(t)
	for _, f := range networkFaults {
		for _, link := range n.links {
			t.Run(link.name+"/"+f.name, func(t *testing.T) { n.testFault(t, link, f) })
		}
	}
}

type network struct {
	*service
	links []link
}

type link struct {
	name  string
	proxy *proxy
	// cut is the minimum duration of a fault with oneWay set: see networkFault.
	cut time.Duration
}

// faultTime is the minimum duration of the other faults. It is longer than the timeouts of
// Cassandra's and Redis's clients.
const faultTime = 20 * time.Second

func newNetwork(t *testing.T) *network {
	t.Helper()
	const host = "127.0.0.1"
	kafkaProxy := newProxy(t, host)
	cassandra := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{Quick: true, Logf: t.Logf})
	kafka := cluster.Private(t, cluster.StartKafka, cluster.KafkaConfig{Detours: []string{kafkaProxy.Listen}, Quick: true, Logf: t.Logf})
	redis := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	s := &service{seed: seed.New(t), Deployment: deployment.New(t, deployment.Options{
		Cassandra: cassandra.Addrs(), Kafka: kafka.Addrs(), Redis: redis.Addrs(),
	})}
	n := &network{service: s}
	connect := func(name string, p *proxy, upstream string, cut time.Duration) string {
		n.links = append(n.links, link{name, p, cut})
		return p.connect(upstream)
	}
	const minute = time.Minute
	kafkaFlag := "--kafka-brokers=" + connect("Kafka", kafkaProxy, kafka.Servers[0].Detour, minute)
	apiFlags := []string{
		"--roles=api", kafkaFlag,
		"--cassandra-hosts=" + connect("API and Cassandra", newProxy(t, host), cassandra.Servers[0].Addr, faultTime),
		"--redis-addresses=" + connect("API and Redis", newProxy(t, host), redis.Servers[0].Addr, faultTime),
	}
	consumerFlags := []string{
		"--roles=consumer", "--kafka-instance-id=static", kafkaFlag,
		"--cassandra-hosts=" + connect("consumer and Cassandra", newProxy(t, host), cassandra.Servers[0].Addr, minute),
		"--redis-addresses=" + connect("consumer and Redis", newProxy(t, host), redis.Servers[0].Addr, minute),
	}
	s.apis = []*deployment.Node{s.Serve(t, "--roles=api"), s.Serve(t, apiFlags...)}
	s.static, s.dynamic = s.Serve(t, consumerFlags...), s.Serve(t, "--roles=consumer")
	return n
}

func (n *network) testFault(t *testing.T, link link, f networkFault) {
	ledger := n.ledger(t, "network")
	load := n.load(t, ledger)
	h := recordHistories(t, n.seed, n.apis[0], n.apis[0].Client, n.apis[1].Client)
	load.waitForMore(t, 50)
	goroutines := n.goroutines(t)
	applied, err := n.static.Metric(t.Context(), "leaderboard_consumer_results_total")
	must(t, err)
	before, begun := load.figures(), time.Now()
	link.proxy.add(t, f)
	load.waitForMore(t, 100)
	least := faultTime
	if f.oneWay {
		least = link.cut
	}
	deployment.Eventually(t, func(context.Context) error {
		if d := time.Since(begun); d < least {
			return fmt.Errorf("the fault has lasted for %v, want %v", d, least)
		}
		return nil
	})
	during, lasted := load.figures(), time.Since(begun)
	appliedThen, err := n.static.Metric(t.Context(), "leaderboard_consumer_results_total")
	must(t, err)
	link.proxy.clear(t)
	delay := load.waitForRecovery(t, time.Now())
	load.waitForMore(t, 50)
	load.stop()
	t.Logf("the fault lasted %v: %d calls, %d errors, %d results acknowledged, %v applied by the consumer behind the proxy; %d consecutive calls succeeded afterwards, the first started after %v",
		lasted.Round(time.Second), during.calls-before.calls, during.errors-before.errors, during.acknowledged-before.acknowledged, appliedThen-applied, steadyCalls, delay.Round(time.Millisecond))
	h.check(t)
	check(t, ledger, n.apis...)
	n.checkGoroutines(t, goroutines)
}

func (n *network) goroutines(t *testing.T) []float64 {
	t.Helper()
	var list []float64
	for _, node := range n.nodes() {
		v, err := node.Metric(t.Context(), "go_goroutines")
		must(t, err)
		list = append(list, v)
	}
	return list
}

func (n *network) checkGoroutines(t *testing.T, before []float64) {
	t.Helper()
	const more = 100 // the numbers of connections and running calls vary
	for i, node := range n.nodes() {
		deployment.Eventually(t, func(ctx context.Context) error {
			now, err := node.Metric(ctx, "go_goroutines")
			if err == nil && now > before[i]+more {
				err = fmt.Errorf("%s has %v goroutines, want at most %v: %v more than before the fault", node.Addr, now, before[i]+more, more)
			}
			return err
		})
	}
}

func (s *service) nodes() []*deployment.Node {
	return append(append([]*deployment.Node{}, s.apis...), s.static, s.dynamic)
}
