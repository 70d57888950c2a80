package kafka_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

func partitionOf(t *testing.T, key string, n int32) int32 {
	t.Helper()
	p, err := kafka.Options{}.Config("test").Producer.Partitioner("topic").Partition(&sarama.ProducerMessage{Key: sarama.StringEncoder(key)}, n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The hashes are from UtilsTest of the Java client. To choose a partition, the client clears the
// sign bit of the hash.
func TestPartitionsMatchJavaClients(t *testing.T) {
	for key, hash := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		for _, n := range []int32{1, 2, 4, 48, 1000} {
			if got, want := partitionOf(t, key, n), (hash&0x7fffffff)%n; got != want {
				t.Errorf("%q is on partition %d of %d, want %d", key, got, n, want)
			}
			if got, err := kafka.PartitionOf([]byte(key), n); err != nil || got != partitionOf(t, key, n) {
				t.Errorf("PartitionOf(%q, %d) = %d, %v; want %d", key, n, got, err, partitionOf(t, key, n))
			}
		}
	}
}

func TestPartitionsMatchLibrdkafka(t *testing.T) {
	brokers := cluster.Kafka(t, 1)
	const n = 7
	names := kafka.Topics{Prefix: "producer-" + rand.Text() + "-"}
	created, err := kafka.EnsureTopics(t.Context(), brokers, kafka.Options{}.Config("test"), kafka.TopicOptions{
		Topics: names, Partitions: n, ReplicationFactor: 1, Retention: time.Hour,
	})
	if err != nil || len(created) != 5 {
		t.Fatalf("EnsureTopics = %v, %v, want 5 created topics", created, err)
	}
	random := mathrand.New(mathrand.NewPCG(1, 2))
	var input bytes.Buffer
	want := map[string]int32{}
	for len(want) < 1000 {
		key := make([]byte, 1+random.IntN(40))
		for i := range key {
			key[i] = byte(' ' + 1 + random.IntN(94))
		}
		key[0] = 'k'
		want[string(key)] = partitionOf(t, string(key), n)
		fmt.Fprintf(&input, "%s\tv\n", key)
	}
	produce := exec.CommandContext(t.Context(), "kcat", "-P", "-b", strings.Join(brokers, ","), "-t", names.Results(), "-K", "\t", "-X", "partitioner=murmur2")
	produce.Stdin = &input
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
			t.Fatalf("kcat printed the line %q, want a partition and a key: %v", line, err)
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

func TestRetryUntilSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, failures := 0, 0
		err := kafka.Retry(t.Context(), func() error {
			if calls++; calls < 20 {
				return errors.New("not yet")
			}
			return nil
		}, func(_ error, wait time.Duration) {
			if failures++; wait > 15*time.Second {
				t.Errorf("the interval after failure %d is %v, want at most 15s (10s, and half of that at random)", failures, wait)
			}
		})
		if err != nil || calls != 20 || failures != 19 {
			t.Errorf("Retry = %v after %d calls and %d failures, want nil, 20 and 19", err, calls, failures)
		}
	})
}

func TestRetryStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		err := kafka.Retry(ctx, func() error {
			calls++
			cancel()
			return errors.New("not yet")
		}, nil)
		if !errors.Is(err, context.Canceled) || calls != 1 {
			t.Errorf("Retry = %v after %d calls, want context.Canceled after 1", err, calls)
		}
		if err := kafka.Retry(ctx, func() error { t.Error("Retry with a canceled context called f, want no call"); return nil }, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Retry after the end of its context = %v, want context.Canceled", err)
		}
	})
}

func TestFetchesNameTheRack(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "results"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	racks := make(chan string, 1)
	fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		select {
		case racks <- r.(*kmsg.FetchRequest).Rack:
		default:
		}
		return nil, nil, false
	})
	for _, rack := range []string{"rack2", ""} {
		c, err := sarama.NewConsumer(fake.ListenAddrs(), kafka.Options{Rack: rack}.Config("test"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.ConsumePartition("results", 0, sarama.OffsetOldest)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-racks:
			if got != rack {
				t.Errorf("the first fetch request names the rack %q, want %q", got, rack)
			}
		case <-time.After(time.Minute):
			t.Fatal("the consumer sent no fetch request within a minute")
		}
		if err := errors.Join(p.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		select {
		case <-racks:
		default:
		}
	}
}
