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
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// kcat is a Kafka client in C, which shares no code with the service.
const kcat = "kcat"

// afterKey separates a key from its value, and afterValue ends a message. Neither occurs in the
// messages of these tests.
const afterKey, afterValue = "\xff<key>\xff", "\xff<end>\xff"

type message struct {
	partition, offset int64
	headers           map[string]string
	key               string
	value             []byte
}

// The murmur2 hash of a key determines its partition.
func write(ctx context.Context, d *deployment.Deployment, topic string, messages []message, headers ...string) error {
	args := []string{"-P", "-b", strings.Join(d.Kafka, ","), "-t", topic, "-K", afterKey, "-D", afterValue,
		"-X", "partitioner=murmur2", "-X", "acks=all", "-X", "enable.idempotence=true", "-X", "linger.ms=1"}
	for _, h := range headers {
		args = append(args, "-H", h)
	}
	var input, output bytes.Buffer
	for _, m := range messages {
		input.WriteString(m.key)
		input.WriteString(afterKey)
		input.Write(m.value)
		input.WriteString(afterValue)
	}
	cmd := exec.CommandContext(ctx, kcat, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &input, &output, &output
	if err := cmd.Run(); err != nil || output.Len() > 0 {
		return fmt.Errorf("kcat -P: error %v, output %q, want no output", err, output.Bytes())
	}
	return nil
}

// read calls f for each message, from the beginning of the topic until the test ends.
func read(t *testing.T, d *deployment.Deployment, topic string, f func(message) error) {
	t.Helper()
	cmd := exec.Command(kcat, "-C", "-b", strings.Join(d.Kafka, ","), "-t", topic, "-o", "beginning", "-q", "-u",
		"-X", "fetch.wait.max.ms=100", "-f", `%p %o %K %S %h\n%k%s`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cluster.StartChild(cmd); err != nil {
		t.Fatalf("start kcat: %v; scripts/install-test-deps.sh installs it", err)
	}
	var ending atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := readMessages(out, f); !ending.Load() {
			t.Errorf("kcat -C %s ended before the test: %v", topic, err)
		}
	}()
	t.Cleanup(func() {
		ending.Store(true)
		_ = cmd.Process.Kill() // Kill fails only if kcat has ended, which is reported above
		<-done
		_ = cmd.Wait()
	})
}

// readMessages parses kcat's output in the format that the function read sets.
func readMessages(source io.Reader, handle func(message) error) error {
	r := bufio.NewReader(source)
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
		content := make([]byte, max(key, 0)+max(value, 0)) // kcat prints the length -1 for a missing key or value
		if _, err := io.ReadFull(r, content); err != nil {
			return err
		}
		m.key, m.value = string(content[:max(key, 0)]), content[max(key, 0):]
		if err := handle(m); err != nil {
			return err
		}
	}
}

func encodeRecord(board string, result any, inProtobuf bool) (message, error) {
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

// stream writes results with kcat. It records the messages of the topic leaderboard-updates.
type stream struct {
	d      *deployment.Deployment
	topics kafka.Topics
	calls  atomic.Int64

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every update
	updates map[match]updates
	total   int // number of updates with a match id; those of linked boards have none
}

type match struct{ board, user, id string }

type updates struct {
	n    int
	last *pb.LeaderboardUpdate
}

func newStream(t *testing.T, d *deployment.Deployment) *stream {
	t.Helper()
	s := &stream{
		d: d, topics: kafka.Topics{Prefix: d.TopicPrefix},
		changed: make(chan struct{}), updates: map[match]updates{},
	}
	read(t, d, s.topics.Updates(), func(m message) error {
		var u pb.LeaderboardUpdate
		if err := proto.Unmarshal(m.value, &u); err != nil {
			return err
		}
		if m.key != u.GetUserId() || m.headers["content-type"] != "application/x-protobuf" {
			return fmt.Errorf("update with key %q and headers %v, want the user as key and a protobuf content type: %v", m.key, m.headers, &u)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		key := match{u.GetBoardId(), u.GetUserId(), u.GetMatchId()}
		s.updates[key] = updates{s.updates[key].n + 1, &u}
		if u.GetMatchId() != "" {
			s.total++
		}
		close(s.changed)
		s.changed = make(chan struct{})
		return nil
	})
	return s
}

const sendTimeout = 15 * time.Minute

// send writes one message per result, and waits for an update of each message.
func (s *stream) send(ctx context.Context, board string, results []result) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	inProtobuf := s.calls.Add(1)%3 == 0
	want := map[match]int{}
	messages := make([]message, len(results))
	for i, r := range results {
		key := match{board, r.user, r.id}
		if want[key]++; want[key] == 1 {
			want[key] += s.updateCount(key)
		}
		var err error
		if messages[i], err = encodeRecord(board, r.value, inProtobuf); err != nil {
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

type result struct {
	user, id string
	value    any
}

func (s *stream) updateCount(m match) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.updates[m].n
}

func (s *stream) lastUpdate(m match) *pb.LeaderboardUpdate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.updates[m].last
}

// If the last update of a match is a rejection, wait returns an error.
func (s *stream) wait(ctx context.Context, want map[match]int) error {
	for m, n := range want {
		for {
			s.mu.Lock()
			got, changed := s.updates[m], s.changed
			s.mu.Unlock()
			if got.n >= n {
				if status := got.last.GetStatus(); status == pb.Outcome_REJECTED {
					return fmt.Errorf("%v was rejected: %v", m, got.last)
				}
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return fmt.Errorf("%v has %d updates, want %d: %w", m, got.n, n, ctx.Err())
			}
		}
	}
	return nil
}

func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

func (s *stream) waitForUpdates(t *testing.T, n int) {
	t.Helper()
	deployment.Eventually(t, func(context.Context) error {
		if got := s.count(); got < n {
			return fmt.Errorf("%d updates, want %d", got, n)
		}
		return nil
	})
}
