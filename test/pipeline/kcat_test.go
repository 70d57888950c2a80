package pipeline

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/producer"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// kcat is a client of Kafka that shares no code with the service: it is written
// in C, on librdkafka.
const kcat = "kcat"

// Between a key and its value, and after it: no text or protobuf holds these.
const afterKey, afterValue = "\xff<key>\xff", "\xff<end>\xff"

// message is one to be sent, or one that was read.
type message struct {
	partition, offset int64
	headers           map[string]string
	key               string
	value             []byte
}

// write sends messages to a topic, each to the partition that the murmur2 hash of
// its key says, and returns once all are acknowledged.
func write(ctx context.Context, d *deployment.Deployment, topic string, messages []message, headers ...string) error {
	args := []string{"-P", "-b", strings.Join(d.Kafka, ","), "-t", topic, "-K", afterKey, "-D", afterValue,
		"-X", "partitioner=murmur2", "-X", "acks=all", "-X", "enable.idempotence=true", "-X", "linger.ms=1"}
	for _, h := range headers {
		args = append(args, "-H", h)
	}
	var in, out bytes.Buffer
	for _, m := range messages {
		in.WriteString(m.key)
		in.WriteString(afterKey)
		in.Write(m.value)
		in.WriteString(afterValue)
	}
	cmd := exec.CommandContext(ctx, kcat, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &out
	if err := cmd.Run(); err != nil || out.Len() > 0 {
		return fmt.Errorf("kcat -P: %v: %s", err, out.Bytes())
	}
	return nil
}

// read starts a kcat that gives each message of a topic to use, from the
// topic's beginning until t ends.
func read(t *testing.T, d *deployment.Deployment, topic string, use func(message) error) {
	t.Helper()
	cmd := exec.Command(kcat, "-C", "-b", strings.Join(d.Kafka, ","), "-t", topic, "-o", "beginning", "-q", "-u",
		"-X", "fetch.wait.max.ms=100", "-f", `%p %o %K %S %h\n%k%s`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cluster.StartChild(cmd); err != nil {
		t.Fatalf("%v; scripts/install-test-deps.sh installs it", err)
	}
	var ending atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := readMessages(out, use); !ending.Load() {
			t.Errorf("kcat -C %s ended: %v", topic, err)
		}
	}()
	t.Cleanup(func() {
		ending.Store(true)
		_ = cmd.Process.Kill() // an error says that it ended, which is told above
		<-done
		_ = cmd.Wait()
	})
}

func readMessages(from io.Reader, use func(message) error) error {
	r := bufio.NewReader(from)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		m := message{headers: map[string]string{}}
		var key, value int
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 5)
		if _, err := fmt.Sscan(strings.Join(fields[:4], " "), &m.partition, &m.offset, &key, &value); err != nil {
			return fmt.Errorf("%w in %q", err, line)
		}
		for _, h := range strings.Split(fields[4], ",") {
			if name, v, ok := strings.Cut(h, "="); ok {
				m.headers[name] = v
			}
		}
		both := make([]byte, max(key, 0)+max(value, 0)) // -1 for none
		if _, err := io.ReadFull(r, both); err != nil {
			return err
		}
		m.key, m.value = string(both[:max(key, 0)]), both[max(key, 0):]
		if err := use(m); err != nil {
			return err
		}
	}
}

// record returns the message for a result, given as the API takes it: in JSON as
// it is, or in protobuf.
func record(board string, result any, inProtobuf bool) (message, error) {
	text, err := json.Marshal(map[string]any{"board_id": board, "result": result})
	if err != nil {
		return message{}, err
	}
	var r pb.MatchResultRecord
	if err := protojson.Unmarshal(text, &r); err != nil {
		return message{}, err
	}
	m := message{key: r.GetResult().GetUserId(), value: text}
	if inProtobuf {
		m.value, err = proto.Marshal(&r)
	}
	return m, err
}

// stream is a deployment's log as kcat sees it: results go in, and it knows what
// came back.
type stream struct {
	d      *deployment.Deployment
	topics producer.Topics
	calls  atomic.Int64

	mu      sync.Mutex
	changed chan struct{} // closed and made anew with every update
	updates map[match]updates
	all     int // updates, of any match
}

// match is what updates are counted by.
type match struct{ board, user, id string }

// updates are those of one match.
type updates struct {
	n    int
	last *pb.LeaderboardUpdate
}

func newStream(t *testing.T, d *deployment.Deployment) *stream {
	t.Helper()
	s := &stream{
		d: d, topics: producer.Topics{Prefix: d.TopicPrefix},
		changed: make(chan struct{}), updates: map[match]updates{},
	}
	read(t, d, s.topics.Updates(), func(m message) error {
		var u pb.LeaderboardUpdate
		if err := proto.Unmarshal(m.value, &u); err != nil {
			return err
		}
		if m.key != u.GetUserId() || m.headers["content-type"] != "application/x-protobuf" {
			return fmt.Errorf("update with key %q and headers %v: %v", m.key, m.headers, &u)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		key := match{u.GetBoardId(), u.GetUserId(), u.GetMatchId()}
		s.updates[key] = updates{s.updates[key].n + 1, &u}
		s.all++
		close(s.changed)
		s.changed = make(chan struct{})
		return nil
	})
	return s
}

// sendTimeout bounds the time until all that was sent is applied.
const sendTimeout = 15 * time.Minute

// send sends results, in JSON or, every third time, in protobuf, and returns once
// there are as many more updates of each as were sent.
func (s *stream) send(ctx context.Context, board string, results []result) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	inProtobuf := s.calls.Add(1)%3 == 0
	want := map[match]int{}
	messages := make([]message, len(results))
	for i, r := range results {
		key := match{board, r.user, r.id}
		if want[key]++; want[key] == 1 {
			want[key] += s.seen(key)
		}
		var err error
		if messages[i], err = record(board, r.value, inProtobuf); err != nil {
			return err
		}
	}
	header := "content-type=application/json"
	if inProtobuf {
		header = "content-type=application/x-protobuf"
	}
	if err := write(ctx, s.d, s.topics.Results(), messages, header); err != nil {
		return err
	}
	return s.wait(ctx, want)
}

// result is one to be sent: value is as the API takes it.
type result struct {
	user, id string
	value    any
}

func (s *stream) seen(m match) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.updates[m].n
}

// last returns the latest update of a match, nil if there is none.
func (s *stream) last(m match) *pb.LeaderboardUpdate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.updates[m].last
}

// wait returns once there are so many updates of each match.
func (s *stream) wait(ctx context.Context, want map[match]int) error {
	for m, n := range want {
		for {
			s.mu.Lock()
			have, changed := s.updates[m], s.changed
			s.mu.Unlock()
			if have.n >= n {
				if status := have.last.GetStatus(); status == pb.Outcome_REJECTED {
					return fmt.Errorf("%v was rejected: %v", m, have.last)
				}
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return fmt.Errorf("%v has no %d updates: %w", m, n, ctx.Err())
			}
		}
	}
	return nil
}

// count returns how many updates there were, of all matches.
func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// reach waits until there are so many updates, of all matches.
func (s *stream) reach(t *testing.T, n int) {
	t.Helper()
	deployment.Eventually(t, func(context.Context) error {
		if have := s.count(); have < n {
			return fmt.Errorf("%d updates, want %d", have, n)
		}
		return nil
	})
}
