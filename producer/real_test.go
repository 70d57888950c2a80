package producer_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/producer"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// partitionOf returns the partition, of n, that the service's producers choose.
func partitionOf(t *testing.T, key string, n int32) int32 {
	t.Helper()
	p, err := producer.Config("test").Producer.Partitioner("topic").Partition(&sarama.ProducerMessage{Key: sarama.StringEncoder(key)}, n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The murmur2 hashes that the Java client is tested with itself (UtilsTest), from
// which it takes the partition without the sign.
func TestPartitionsAsJavaClients(t *testing.T) {
	for key, hash := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		for _, n := range []int32{1, 2, 4, 48, 1000} {
			if got, want := partitionOf(t, key, n), (hash&0x7fffffff)%n; got != want {
				t.Errorf("%q is on partition %d of %d, want %d", key, got, n, want)
			}
		}
	}
}

// librdkafka, told to hash as Java does, puts every user where the service's
// producers do.
func TestPartitionsAsLibrdkafka(t *testing.T) {
	brokers := cluster.Kafka(t, 1)
	const n = 7
	names := producer.Topics{Prefix: "producer-" + rand.Text() + "-"}
	made, err := producer.EnsureTopics(t.Context(), brokers, producer.Config("test"), producer.TopicOptions{
		Topics: names, Partitions: n, ReplicationFactor: 1, Retention: time.Hour,
	})
	if err != nil || len(made) != 3 {
		t.Fatalf("EnsureTopics made %v, %v", made, err)
	}
	random := mathrand.New(mathrand.NewPCG(1, 2))
	var in bytes.Buffer
	want := map[string]int32{}
	for len(want) < 1000 {
		key := make([]byte, 1+random.IntN(40))
		for i := range key {
			key[i] = byte(' ' + 1 + random.IntN(94))
		}
		key[0] = 'k'
		want[string(key)] = partitionOf(t, string(key), n)
		fmt.Fprintf(&in, "%s\tv\n", key)
	}
	produce := exec.CommandContext(t.Context(), "kcat", "-P", "-b", strings.Join(brokers, ","), "-t", names.Results(), "-K", "\t", "-X", "partitioner=murmur2")
	produce.Stdin = &in
	if out, err := produce.CombinedOutput(); err != nil {
		t.Fatalf("kcat -P: %v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "kcat", "-C", "-b", strings.Join(brokers, ","), "-t", names.Results(), "-o", "beginning", "-e", "-q", "-f", `%p %k\n`).Output()
	if err != nil {
		t.Fatalf("kcat -C: %v", err)
	}
	got := 0
	for line := range strings.Lines(string(out)) {
		var p int32
		place, key, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if _, err := fmt.Sscan(place, &p); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if w, ok := want[key]; !ok || p != w {
			t.Errorf("%q is on partition %d, want %d", key, p, w)
		}
		got++
	}
	if got < len(want) {
		t.Errorf("%d messages were read, want %d", got, len(want))
	}
}

// A topic that is there on fewer replicas than are asked for is refused: with one
// broker it would lose what was acknowledged.
func TestTopicsOnTooFewReplicas(t *testing.T) {
	brokers := cluster.Kafka(t, 1)
	o := producer.TopicOptions{Topics: producer.Topics{Prefix: "producer-" + rand.Text() + "-"}, Partitions: 1, ReplicationFactor: 1, Retention: time.Hour}
	ensure := func() ([]string, error) {
		return producer.EnsureTopics(t.Context(), brokers, producer.Config("test"), o)
	}
	if made, err := ensure(); err != nil || len(made) != 3 {
		t.Fatalf("EnsureTopics made %v, %v", made, err)
	}
	if made, err := ensure(); err != nil || len(made) != 0 {
		t.Errorf("EnsureTopics again made %v, %v", made, err)
	}
	o.ReplicationFactor = 3
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(5 * time.Minute); ; {
		_, err := ensure()
		if err != nil && strings.Contains(err.Error(), "has 1 replicas, 3 are asked for") {
			return
		}
		select { // a broker may not list yet what was made
		case <-tick.C:
		case <-deadline:
			t.Fatalf("EnsureTopics with three replicas = %v", err)
		}
	}
}

// Of a batch, those that were applied in time are told so, also behind one that
// was not.
func TestSubmitTellsOfAPartInTime(t *testing.T) {
	brokers := cluster.Kafka(t, 1)
	names := producer.Topics{Prefix: "producer-" + rand.Text() + "-"}
	if _, err := producer.EnsureTopics(t.Context(), brokers, producer.Config("test"), producer.TopicOptions{
		Topics: names, Partitions: 1, ReplicationFactor: 1, Retention: time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	p, err := producer.New(brokers, producer.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s := producer.NewSubmitter(p, names, time.Second)
	result := func(user leaderboard.UserID) leaderboard.MatchResult {
		return leaderboard.MatchResult{ResultKey: leaderboard.ResultKey{Scope: leaderboard.Scope{Board: "b", Season: leaderboard.SeasonAll}, User: user, Match: "m"}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := s.Deliver(&pb.LeaderboardUpdate{BoardId: "b", Season: string(leaderboard.SeasonAll), UserId: "bob", MatchId: "m", Status: pb.Outcome_APPLIED}); err != nil {
				told <- err
				return
			}
		}
		told <- nil
	}()
	b := leaderboard.Board{ID: "b"}
	got, err := s.Submit(t.Context(), &b, []leaderboard.MatchResult{result("ann"), result("bob"), result("eve")})
	cancel()
	if terr := <-told; err != nil || terr != nil {
		t.Fatal(err, terr)
	}
	for i, want := range []leaderboard.Status{leaderboard.Accepted, leaderboard.Applied, leaderboard.Accepted} {
		if got[i].Status != want {
			t.Errorf("outcome %d is %v, want %v", i, got[i].Status, want)
		}
	}
}
