package benchmark

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/producer"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

const benchUsersVariable = "LEADERBOARD_BENCH_USERS"

// benchUsersSetting is the value of benchUsersVariable.
var benchUsersSetting = os.Getenv(benchUsersVariable)

func TestMain(m *testing.M) {
	if addr := os.Getenv(floorVariable); addr != "" {
		fmt.Fprintln(os.Stderr, serveFloor(addr))
		os.Exit(1)
	}
	// The program under test refuses variables that are not settings of its own.
	if err := os.Unsetenv(benchUsersVariable); err != nil {
		panic(err)
	}
	os.Exit(deployment.Main(m))
}

// benchUsers returns the number of users in benchmarks: LEADERBOARD_BENCH_USERS, or 100,000.
func benchUsers(b *testing.B) int {
	b.Helper()
	n, err := strconv.Atoi(cmp.Or(benchUsersSetting, "100000"))
	if err != nil {
		b.Fatal(err)
	}
	return n
}

const (
	users   = 5000
	workers = 64     // goroutines of floor.write
	warmUp  = 20_000 // results before the measurement: most users get a result, and the JVMs compile hot code
)

// setup is a deployment with one process, one Cassandra node, one broker and one Redis.
type setup struct {
	*deployment.Deployment
	node     *deployment.Node
	producer *producer.Producer
	topics   kafka.Topics
}

func startSetup(b *testing.B) *setup {
	d := deployment.New(b, deployment.Options{})
	s := &setup{Deployment: d, node: d.Serve(b), topics: kafka.Topics{Prefix: d.TopicPrefix}}
	var err error
	if s.producer, err = producer.New(d.Kafka, kafka.Options{}.Config("benchmark")); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.producer.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// board creates a board. It returns the fields that submitting results needs.
func (s *setup) board(b *testing.B, policy leaderboard.Policy) leaderboard.Board {
	id := s.node.Board(b, "bench", map[string]any{"policy": policy.String(), "order": "HIGHER_FIRST"})
	return leaderboard.Board{ID: leaderboard.BoardID(id), Order: leaderboard.HigherFirst, Policy: policy}
}

// Each result is better than the user's earlier results, so it moves the user's ladder row.
func results(board *leaderboard.Board, first, n int) []leaderboard.MatchResult {
	rng := rand.New(rand.NewPCG(1, uint64(first)))
	now := time.Now()
	out := make([]leaderboard.MatchResult, n)
	for i := range out {
		out[i] = leaderboard.MatchResult{
			ResultKey: leaderboard.ResultKey{
				SeasonKey: leaderboard.SeasonKey{Board: board.ID, Season: "all"},
				User:      leaderboard.UserID(fmt.Sprintf("user-%06d", rng.IntN(users))),
				Match:     leaderboard.MatchID(fmt.Sprintf("match-%09d", first+i)),
			},
			Score: leaderboard.Score(first + i + 1), AchievedAt: now, ReceivedAt: now,
		}
	}
	return out
}

// visibleCount counts the results that the consumer has applied and added to the index.
func (s *setup) visibleCount(ctx context.Context) (int, error) {
	n, err := s.node.Metric(ctx, "leaderboard_consumer_results_total")
	return int(n), err
}

// feed sends results to Kafka, waits until all are visible, and returns the duration.
func (s *setup) feed(b *testing.B, board *leaderboard.Board, results []leaderboard.MatchResult) time.Duration {
	before, err := s.visibleCount(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	submitter := producer.NewSubmitter(s.producer, s.topics, time.Minute)
	began := time.Now()
	for batch := range slices.Chunk(results, 1000) {
		if _, err := submitter.Accept(b.Context(), board, batch); err != nil {
			b.Fatal(err)
		}
	}
	deployment.Eventually(b, func(ctx context.Context) error {
		now, err := s.visibleCount(ctx)
		if err == nil && now < before+len(results) {
			err = fmt.Errorf("%d of %d results are visible", now-before, len(results))
		}
		return err
	})
	return time.Since(began)
}

func (s *setup) countUsers(b *testing.B, board *leaderboard.Board) int {
	var answer struct{ Data struct{ Total int } }
	if status, err := s.node.Call(b.Context(), http.MethodGet, "/v1/boards/"+string(board.ID)+"/scores?limit=1", nil, &answer); err != nil || status != http.StatusOK {
		b.Fatalf("read the scores: status %d, error %v, want status 200", status, err)
	}
	return answer.Data.Total
}

// floor writes rows of results with as few requests to Cassandra as possible: the result, and one
// batch of the entry and the ladder rows. payload, entry and standing are copies from rows of the
// pipeline. Nothing reads the incarnation of floor's rows.
type floor struct {
	session     *gocql.Session
	board       string
	incarnation int
	payload     []byte
	entry       []byte
	standing    []byte
}

func (s *setup) floor(b *testing.B, board *leaderboard.Board) *floor {
	f := &floor{session: s.Session(b), board: string(board.ID), incarnation: 1 << 20}
	for stmt, dest := range map[string]*[]byte{
		"SELECT payload FROM match_results WHERE board = ? ALLOW FILTERING": &f.payload,
		"SELECT entry FROM user_entries WHERE board = ? ALLOW FILTERING":    &f.entry,
		"SELECT standing FROM leaderboard WHERE board = ? ALLOW FILTERING":  &f.standing,
	} {
		iter := s.Session(b).Query(stmt, f.board).PageSize(10).Iter()
		for len(*dest) == 0 && iter.Scan(dest) {
		}
		if err := iter.Close(); err != nil || len(*dest) == 0 {
			b.Fatalf("%s: error %v, %d bytes, want a value", stmt, err, len(*dest))
		}
	}
	return f
}

func (f *floor) write(b *testing.B, results []leaderboard.MatchResult) time.Duration {
	f.incarnation++
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(results) {
					return
				}
				if err := f.writeOne(&results[i], i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// i is the index of r among the results of one write.
func (f *floor) writeOne(r *leaderboard.MatchResult, i int) error {
	const season, buckets = "all", 4
	timestamp, user := int64(i+1), string(r.User)
	bucket := int(user[len(user)-1]) % buckets
	oldStanding, newStanding := slices.Clone(f.standing), slices.Clone(f.standing)
	copy(oldStanding, fmt.Sprintf("%08d", i))
	copy(newStanding, fmt.Sprintf("%08d", i+1))
	err := f.session.Query(`INSERT INTO match_results (board, season, incarnation, user_id, match_id, kind, item, payload, high, low) VALUES (?, ?, ?, ?, ?, 0, 0x, ?, ?, ?) USING TIMESTAMP ?`,
		f.board, season, f.incarnation, user, string(r.Match), f.payload, f.payload[:8], f.payload[:8], timestamp).Exec()
	if err != nil {
		return err
	}
	batch := f.session.NewBatch(gocql.UnloggedBatch)
	batch.Query(`DELETE FROM leaderboard USING TIMESTAMP ? WHERE board = ? AND season = ? AND incarnation = ? AND division = '' AND bucket = ? AND standing = ? AND user_id = ?`,
		timestamp, f.board, season, f.incarnation, bucket, oldStanding, user)
	batch.Query(`INSERT INTO leaderboard (board, season, incarnation, division, bucket, standing, user_id, version) VALUES (?, ?, ?, '', ?, ?, ?, ?) USING TIMESTAMP ?`,
		f.board, season, f.incarnation, bucket, newStanding, user, timestamp, timestamp)
	batch.Query(`INSERT INTO user_entries (board, season, incarnation, division, bucket, user_id, entry) VALUES (?, ?, ?, '', ?, ?, ?) USING TIMESTAMP ?`,
		f.board, season, f.incarnation, bucket, user, f.entry, timestamp)
	return f.session.ExecuteBatch(batch)
}

// BenchmarkThroughput compares the pipeline's time until the last rank is visible with floor's
// time.
func BenchmarkThroughput(b *testing.B) {
	const n = 20_000
	s := startSetup(b)
	for _, policy := range []leaderboard.Policy{leaderboard.Best, leaderboard.Sum} {
		b.Run(policy.String(), func(b *testing.B) {
			board := s.board(b, policy)
			s.feed(b, &board, results(&board, 0, n)) // gives most users results and warms up all servers
			f := s.floor(b, &board)
			f.write(b, results(&board, 0, n))
			first := n
			var pipeline, floor time.Duration
			for b.Loop() {
				batch := results(&board, first, n)
				first += n
				pipeline += s.feed(b, &board, batch)
				floor += f.write(b, batch)
			}
			if got := s.countUsers(b, &board); got > users || got < users*9/10 {
				b.Errorf("the board has %d users, want %d to %d", got, users*9/10, users)
			}
			b.ReportMetric(float64(b.N*n)/pipeline.Seconds(), "results/s")
			b.ReportMetric(float64(b.N*n)/floor.Seconds(), "floor/s")
			b.ReportMetric(floor.Seconds()/pipeline.Seconds(), "of_floor")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkDelay measures the time from Kafka's acknowledgement of a result to the arrival of its
// update. The rank is visible before the update arrives.
func BenchmarkDelay(b *testing.B) {
	s := startSetup(b)
	for _, rate := range []int{500, 1000, 2500} {
		b.Run(fmt.Sprintf("%d_a_second", rate), func(b *testing.B) {
			board := s.board(b, leaderboard.Best)
			s.feed(b, &board, results(&board, 0, warmUp))
			first := warmUp
			for b.Loop() {
				first += s.measureDelays(b, &board, first, rate)
			}
		})
	}
}

// measureDelays returns how many results it sent. first is the number of the first result.
func (s *setup) measureDelays(b *testing.B, board *leaderboard.Board, first, rate int) int {
	const seconds = 8
	batch := results(board, first, rate*seconds)
	var mu sync.Mutex
	visible := make(map[string]time.Time, len(batch))
	allVisible := make(chan struct{})
	follower, err := consumer.Follow(s.Kafka, kafka.Options{}.Config("benchmark"), s.topics, slog.New(slog.DiscardHandler), func(u *pb.LeaderboardUpdate) error {
		mu.Lock()
		defer mu.Unlock()
		if _, repeated := visible[u.GetMatchId()]; repeated || u.GetBoardId() != string(board.ID) {
			return nil
		}
		if visible[u.GetMatchId()] = time.Now(); len(visible) == len(batch) {
			close(allVisible)
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := follower.Close(); err != nil {
			b.Error(err)
		}
	}()
	submitter := producer.NewSubmitter(s.producer, s.topics, time.Minute)
	acked := make([]time.Time, len(batch))
	var wg sync.WaitGroup
	began := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for sent := 0; sent < len(batch); {
		<-tick.C
		due := min(int(time.Since(began).Seconds()*float64(rate)), len(batch))
		for ; sent < due; sent++ {
			i := sent
			wg.Go(func() {
				if _, err := submitter.Accept(b.Context(), board, batch[i:i+1]); err != nil {
					b.Error(err)
				}
				acked[i] = time.Now()
			})
		}
	}
	wg.Wait()
	took := time.Since(began)
	select {
	case <-allVisible:
	case <-time.After(time.Minute):
		b.Fatal("not all results became visible within a minute")
	}
	var delays []time.Duration
	for i := range batch {
		delays = append(delays, max(0, visible[string(batch[i].Match)].Sub(acked[i])))
	}
	slices.Sort(delays)
	for name, quantile := range map[string]float64{"p50-ms": 0.5, "p95-ms": 0.95, "p99-ms": 0.99} {
		d := delays[int(quantile*float64(len(delays)-1))]
		b.ReportMetric(float64(d)/float64(time.Millisecond), name)
	}
	b.ReportMetric(float64(len(batch))/took.Seconds(), "results/s")
	b.ReportMetric(0, "ns/op")
	return len(batch)
}
