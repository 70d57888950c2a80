package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/canonical"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// harness is a fetcher with a log and a game's store in memory. It has no servers, so it runs in the time of
// package synctest.
type harness struct {
	t      *testing.T
	f      *fetcher
	ctx    context.Context
	boards anyBoard
	// answer is the game's store.
	answer func(ctx context.Context, k canonical.Key) (*pb.GetCanonicalResultResponse, error)
	// refuse returns the error of Kafka for a message, or nil.
	refuse func(topic string) error

	mu      sync.Mutex
	calls   map[leaderboard.BoardID][]time.Duration // of the store, since the start
	sent    map[string][]string                     // matches by topic
	causes  map[string]string                       // of dead letters, by match
	details map[string]string
	open    int           // messages whose offsets are not committed
	longest time.Duration // until an offset was committed
	start   time.Time
}

// anyBoard has each board, or returns an error.
type anyBoard struct {
	service
	err atomic.Pointer[error]
}

func (o *anyBoard) Board(_ context.Context, id leaderboard.BoardID) (leaderboard.Board, error) {
	if err := o.err.Load(); err != nil {
		return leaderboard.Board{}, *err
	}
	return leaderboard.Board{ID: id, Policy: leaderboard.Sum}, nil
}

func (o *anyBoard) BoardSince(ctx context.Context, id leaderboard.BoardID, _ time.Time) (leaderboard.Board, error) {
	return o.Board(ctx, id)
}

const retryInterval = time.Minute

// withHarness runs test in a bubble of synctest.
func withHarness(t *testing.T, test func(*testing.T, *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &harness{t: t, calls: map[leaderboard.BoardID][]time.Duration{}, sent: map[string][]string{}, causes: map[string]string{}, details: map[string]string{}, start: time.Now()}
		w.refuse = func(string) error { return nil }
		w.answer = func(_ context.Context, k canonical.Key) (*pb.GetCanonicalResultResponse, error) { return found(k), nil }
		c, err := New(Options{Canonical: &Canonical{Store: w, RetryInterval: retryInterval}}, &w.boards, w)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w.f, w.ctx = c.fetcher, ctx
		w.f.running.Go(func() { w.f.parkOldFetches(ctx) })
		test(t, w)
		cancel()
		w.f.running.Wait()
		time.Sleep(retryInterval) // timers of the fetches that are left
		synctest.Wait()
		if w.f.pending != 0 {
			t.Errorf("after the session, %d fetches are in memory, want none", w.f.pending)
		}
	})
}

func found(k canonical.Key) *pb.GetCanonicalResultResponse {
	return &pb.GetCanonicalResultResponse{BoardId: string(k.Board), Result: &pb.Result{
		UserId: string(k.User), MatchId: string(k.Match), Points: new(int64(1)), AchievedAt: timestamppb.New(time.Unix(0, 0)),
	}}
}

func failed(p canonical.Problem) error { return &canonical.Error{Problem: p, Detail: "a failure"} }

func (w *harness) Fetch(ctx context.Context, k canonical.Key) (*pb.GetCanonicalResultResponse, error) {
	w.mu.Lock()
	w.calls[k.Board] = append(w.calls[k.Board], time.Since(w.start))
	w.mu.Unlock()
	return w.answer(ctx, k)
}

// Send appends messages to the log. Parked messages come back as from Kafka.
func (w *harness) Send(_ context.Context, messages []*sarama.ProducerMessage) error {
	for _, m := range messages {
		if err := w.refuse(m.Topic); err != nil {
			return err
		}
		value, err := m.Value.Encode()
		if err != nil {
			return err
		}
		var record pb.MatchResultRecord
		if err := proto.Unmarshal(value, &record); err != nil {
			w.t.Error(err)
		}
		match := record.GetResult().GetMatchId()
		w.mu.Lock()
		w.sent[m.Topic] = append(w.sent[m.Topic], match)
		for _, h := range m.Headers {
			switch string(h.Key) {
			case "cause":
				w.causes[match] = string(h.Value)
			case "detail":
				w.details[match] = string(h.Value)
			}
		}
		w.mu.Unlock()
		if m.Topic == w.f.o.Topics.ParkedFetches() {
			back := &sarama.ConsumerMessage{Topic: m.Topic, Key: []byte("u"), Value: value, Timestamp: time.Now()}
			for _, h := range m.Headers {
				back.Headers = append(back.Headers, &h)
			}
			time.AfterFunc(retryInterval, func() { w.take(back) })
		}
	}
	return nil
}

func (w *harness) take(m *sarama.ConsumerMessage) {
	if w.ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	w.open++
	w.mu.Unlock()
	taken := time.Now()
	w.f.add(w.f.newFetch(w.ctx, m, sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open--
		w.longest = max(w.longest, time.Since(taken))
	})))
}

// fetch begins to fetch matches from to to-1 of a board, each with the id of the board and a number.
func (w *harness) fetch(board string, from, to int) {
	for i := from; i < to; i++ {
		value, err := proto.Marshal(&pb.MatchResultRecord{BoardId: board, Fetch: true, Result: &pb.Result{UserId: "u", MatchId: fmt.Sprint(board, i)}})
		if err != nil {
			w.t.Fatal(err)
		}
		w.take(&sarama.ConsumerMessage{Topic: w.f.o.Topics.Fetches(), Key: []byte("u"), Value: value, Timestamp: time.Now()})
	}
}

// after waits, and returns the matches whose results were sent, and the number of parked messages and of
// open offsets.
func (w *harness) after(d time.Duration) (results []string, parked, open int) {
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	results = slices.Sorted(slices.Values(w.sent[w.f.o.Topics.Results()]))
	return results, len(w.sent[w.f.o.Topics.ParkedFetches()]), w.open
}

// deadLetters returns the causes and details of dead letters, by match.
func (w *harness) deadLetters() (causes, details map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.causes), maps.Clone(w.details)
}

func (w *harness) callsOf(board string) []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls[leaderboard.BoardID(board)])
}

func matches(board string, from, to int) (list []string) {
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprint(board, i))
	}
	slices.Sort(list)
	return list
}

func checkMatches(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// The store hangs for the board "bad". Its fetches are parked, and those of "good" do not wait. When the
// store answers again, nothing is lost.
func TestABoardThatHangsDelaysNoOther(t *testing.T) {
	withHarness(t, func(t *testing.T, w *harness) {
		var down atomic.Bool
		down.Store(true)
		w.answer = func(ctx context.Context, k canonical.Key) (*pb.GetCanonicalResultResponse, error) {
			if k.Board != "bad" || !down.Load() {
				return found(k), nil
			}
			select {
			case <-time.After(5 * time.Second):
			case <-ctx.Done():
			}
			return nil, failed(canonical.Unavailable)
		}
		w.fetch("bad", 0, 1000)
		w.fetch("good", 0, 1000)
		results, _, open := w.after(0)
		checkMatches(t, "results at once", matches("good", 0, 1000), results)
		if open != 1000 {
			t.Errorf("%d offsets are open while the store hangs, want 1000", open)
		}
		if n := len(w.callsOf("bad")); n != 16 {
			t.Errorf("%d calls for the board that hangs, want the 16 of Concurrency", n)
		}
		_, parked, open := w.after(15 * time.Second)
		if parked != 1000 || open != 0 {
			t.Errorf("after the timeouts, %d fetches are parked and %d offsets are open; want 1000 and 0", parked, open)
		}
		if n := len(w.callsOf("bad")); n > 32 {
			t.Errorf("%d calls before the circuit breaker opened, want at most 32", n)
		}
		w.fetch("good", 1000, 1100)
		if results, _, _ := w.after(0); len(results) != 1100 {
			t.Errorf("%d results while the breaker is open, want 1100", len(results))
		}
		before := len(w.callsOf("bad"))
		w.after(10 * time.Minute)
		if n := len(w.callsOf("bad")) - before; n < 5 || n > 20 {
			t.Errorf("%d calls within 10 minutes of a breaker that is open, want one each retry interval", n)
		}
		down.Store(false)
		if results, _, open = w.after(2 * retryInterval); len(results) != 2100 || open != 0 {
			t.Errorf("after the store has answered again, %d results and %d open offsets; want 2100 and 0", len(results), open)
		}
		if causes, _ := w.deadLetters(); len(causes) > 0 {
			t.Errorf("the dead letters are %v, want none", causes)
		}
	})
}

// A fetch is attempted four times within seconds, and then once each retry interval.
func TestRetriesOfAFetch(t *testing.T) {
	withHarness(t, func(t *testing.T, w *harness) {
		appears := w.start.Add(10 * time.Minute)
		w.answer = func(_ context.Context, k canonical.Key) (*pb.GetCanonicalResultResponse, error) {
			if time.Now().Before(appears) {
				return nil, failed(canonical.NotFound)
			}
			return found(k), nil
		}
		w.fetch("b", 0, 1)
		if results, _, open := w.after(9 * time.Minute); len(results) != 0 || open != 0 {
			t.Errorf("results %v and %d open offsets, want none", results, open)
		}
		if results, _, _ := w.after(3 * time.Minute); len(results) != 1 {
			t.Errorf("results %v after the store has it, want one", results)
		}
		calls := w.callsOf("b")
		if len(calls) < 12 || len(calls) > 15 {
			t.Fatalf("%d calls within 10 minutes, want 4 and about one a minute: %v", len(calls), calls)
		}
		for i := 1; i < len(calls); i++ {
			shortest, longest := 200*time.Millisecond, 4*time.Second
			if i >= firstAttempts {
				shortest, longest = retryInterval, retryInterval+time.Second
			}
			if d := calls[i] - calls[i-1]; d < shortest || d > longest {
				t.Errorf("%v between the attempts %d and %d, want %v to %v", d, i, i+1, shortest, longest)
			}
		}
	})
}

func TestFetchesThatFailForTooLong(t *testing.T) {
	for _, tt := range []struct {
		problem    canonical.Problem
		after      time.Duration
		limit      time.Duration
		wantDetail string
	}{
		{canonical.NotFound, 0, time.Hour, "no result after 1h0m"},
		{canonical.Unavailable, 0, 72 * time.Hour, "no result after 72h"},
		{canonical.Invalid, 0, 0, "a failure"},
	} {
		t.Run(string(tt.problem), func(t *testing.T) {
			withHarness(t, func(t *testing.T, w *harness) {
				w.answer = func(context.Context, canonical.Key) (*pb.GetCanonicalResultResponse, error) {
					return nil, failed(tt.problem)
				}
				w.fetch("b", 0, 1)
				if tt.limit > 0 {
					w.after(tt.limit - time.Second)
					if causes, _ := w.deadLetters(); len(causes) > 0 {
						t.Errorf("the dead letters are %v before %v, want none", causes, tt.limit)
					}
				}
				_, _, open := w.after(2 * retryInterval)
				causes, details := w.deadLetters()
				if causes["b0"] != "fetch" || !strings.Contains(details["b0"], tt.wantDetail) || open != 0 {
					t.Errorf("cause %q, detail %q, %d open offsets; want fetch, %q and 0", causes["b0"], details["b0"], open, tt.wantDetail)
				}
			})
		})
	}
}

// The store asks to wait for ten minutes. Until then, no call is made for the board.
func TestAStoreThatAsksToWait(t *testing.T) {
	withHarness(t, func(t *testing.T, w *harness) {
		w.answer = func(_ context.Context, k canonical.Key) (*pb.GetCanonicalResultResponse, error) {
			if time.Since(w.start) < 10*time.Minute {
				return nil, &canonical.Error{Problem: canonical.Unavailable, RetryAfter: 10 * time.Minute}
			}
			return found(k), nil
		}
		w.fetch("b", 0, 100)
		w.after(9 * time.Minute)
		w.fetch("b", 100, 200)
		if results, _, open := w.after(0); len(results) != 0 || open != 0 {
			t.Errorf("%d results and %d open offsets, want none", len(results), open)
		}
		if n := len(w.callsOf("b")); n > 16 {
			t.Errorf("%d calls, want at most those that had begun before the first answer, 16", n)
		}
		if results, _, _ := w.after(3 * time.Minute); len(results) != 200 {
			t.Errorf("%d results after the pause, want 200", len(results))
		}
	})
}

// Boards with more fetches than fit into memory delay their own fetches only.
func TestManyFetches(t *testing.T) {
	withHarness(t, func(t *testing.T, w *harness) {
		w.answer = func(ctx context.Context, k canonical.Key) (*pb.GetCanonicalResultResponse, error) {
			if strings.HasPrefix(string(k.Board), "slow") {
				select {
				case <-time.After(500 * time.Millisecond):
				case <-ctx.Done():
					return nil, failed(canonical.Unavailable)
				}
			}
			return found(k), nil
		}
		const of = 1010
		w.f.bounds = fetchBounds{board: 1000, all: 3000, few: 50}
		for i := range 4 {
			w.fetch(fmt.Sprintf("slow%d-", i), 0, of)
		}
		w.fetch("small", 0, 10)
		results, parked, open := w.after(0)
		checkMatches(t, "results at once", matches("small", 0, 10), results)
		if want := 4 * of; parked != 30+of-50 || parked+open != want {
			t.Errorf("%d fetches are parked and %d in memory, want %d together", parked, open, want)
		}
		// The store allows each board 32 results a second.
		if results, _, _ := w.after(10 * time.Minute); len(results) != 4*of+10 {
			t.Errorf("%d results within 10 minutes, want all", len(results))
		}
	})
}

// A store that is slow for a board, but does not fail, does not keep offsets uncommitted for long. Offsets of
// other boards follow them.
func TestABoardThatIsSlow(t *testing.T) {
	withHarness(t, func(t *testing.T, w *harness) {
		w.answer = func(ctx context.Context, k canonical.Key) (*pb.GetCanonicalResultResponse, error) {
			select {
			case <-time.After(2 * time.Second):
				return found(k), nil
			case <-ctx.Done():
				return nil, failed(canonical.Unavailable)
			}
		}
		const fetches = 3000 // the store allows 8 a second
		w.fetch("slow", 0, fetches)
		if results, _, open := w.after(15 * time.Minute); len(results) != fetches || open != 0 {
			t.Errorf("%d results and %d open offsets, want %d and 0", len(results), open, fetches)
		}
		if limit := retryInterval + retryInterval/4 + 2*time.Second; w.longest > limit {
			t.Errorf("an offset was not committed for %v, want at most %v", w.longest, limit)
		}
	})
}

// Messages that are not valid fetches become dead letters.
func TestInvalidFetches(t *testing.T) {
	withHarness(t, func(t *testing.T, w *harness) {
		w.answer = func(_ context.Context, k canonical.Key) (*pb.GetCanonicalResultResponse, error) {
			a := found(k)
			switch k.Match {
			case "past-2^53":
				a.Result.Points = new(int64(1<<53 + 1))
			case "score-for-sum":
				a.Result.Points, a.Result.Score = nil, new(int64(1))
			case "bad-revision":
				a.Result.Revision = -1
			case "years-ahead":
				a.Result.AchievedAt = timestamppb.New(time.Now().AddDate(2, 0, 0))
			case "late-retraction":
				a.Retracted, a.Result.Revision = true, 1<<60
			}
			return a, nil
		}
		for cause, r := range map[string]*pb.MatchResultRecord{
			"invalid no-fetch":      {BoardId: "b", Result: &pb.Result{UserId: "u", MatchId: "no-fetch", Points: new(int64)}},
			"invalid retracted":     {BoardId: "b", Fetch: true, Retracted: true, Result: &pb.Result{UserId: "u", MatchId: "retracted"}},
			"invalid notification":  {BoardId: "b", Fetch: true, Notification: true, Result: &pb.Result{UserId: "u", MatchId: "notification"}},
			"invalid bad-user":      {BoardId: "b", Fetch: true, Result: &pb.Result{UserId: "\x01", MatchId: "bad-user"}},
			"invalid bad-board":     {BoardId: "b\x01", Fetch: true, Result: &pb.Result{UserId: "u", MatchId: "bad-board"}},
			"fetch past-2^53":       {BoardId: "b", Fetch: true, Result: &pb.Result{UserId: "u", MatchId: "past-2^53"}},
			"fetch score-for-sum":   {BoardId: "b", Fetch: true, Result: &pb.Result{UserId: "u", MatchId: "score-for-sum"}},
			"fetch bad-revision":    {BoardId: "b", Fetch: true, Result: &pb.Result{UserId: "u", MatchId: "bad-revision"}},
			"fetch years-ahead":     {BoardId: "b", Fetch: true, Result: &pb.Result{UserId: "u", MatchId: "years-ahead"}},
			"fetch late-retraction": {BoardId: "b", Fetch: true, Result: &pb.Result{UserId: "u", MatchId: "late-retraction"}},
		} {
			value, err := proto.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			w.take(&sarama.ConsumerMessage{Topic: w.f.o.Topics.Fetches(), Key: []byte("u"), Value: value, Timestamp: time.Now()})
			_, _, open := w.after(0)
			match := r.GetResult().GetMatchId()
			causes, details := w.deadLetters()
			if got := causes[match] + " " + match; got != cause || details[match] == "" || open != 0 {
				t.Errorf("the dead letter has the cause and match %q and the detail %q, %d open offsets; want %q", got, details[match], open, cause)
			}
		}
		if results, _, _ := w.after(0); len(results) != 0 {
			t.Errorf("the results %v were sent, want none", results)
		}
	})
}

// While Kafka does not acknowledge, no offset is committed. A result that Kafka refuses for good becomes a
// dead letter.
func TestOutcomesOfFetchesAreAcknowledged(t *testing.T) {
	withHarness(t, func(t *testing.T, w *harness) {
		var down atomic.Bool
		down.Store(true)
		w.refuse = func(topic string) error {
			switch {
			case down.Load():
				return kafka.Unavailable(sarama.ErrNotEnoughReplicas)
			case topic == w.f.o.Topics.Results():
				return sarama.ErrMessageSizeTooLarge
			}
			return nil
		}
		w.fetch("b", 0, 10)
		if _, _, open := w.after(time.Minute); open != 10 {
			t.Errorf("%d open offsets while Kafka is down, want 10", open)
		}
		down.Store(false)
		_, _, open := w.after(time.Minute)
		causes, _ := w.deadLetters()
		if got := slices.Sorted(maps.Keys(causes)); !slices.Equal(got, matches("b", 0, 10)) || causes["b0"] != "fetch" || open != 0 {
			t.Errorf("the dead letters are %v, %d open offsets; want one for each match", causes, open)
		}
	})
}

// While boards cannot be read, fetches are retried and the circuit breaker stays closed. Without a board,
// they become dead letters.
func TestFetchesWithoutABoard(t *testing.T) {
	withHarness(t, func(t *testing.T, w *harness) {
		w.boards.err.Store(&leaderboard.ErrUnavailable)
		w.fetch("b", 0, 10)
		if _, parked, open := w.after(30 * time.Second); parked != 10 || open != 0 {
			t.Errorf("%d fetches are parked, %d offsets open; want 10 and 0", parked, open)
		}
		w.boards.err.Store(&leaderboard.ErrBoardNotFound)
		_, _, open := w.after(2 * retryInterval)
		if causes, _ := w.deadLetters(); len(causes) != 10 || causes["b0"] != "board" || open != 0 {
			t.Errorf("the dead letters are %v, %d open offsets; want 10 with the cause board", causes, open)
		}
	})
}

// The end of a session ends its calls. Their offsets stay uncommitted, and the breaker does not count them.
func TestEndOfASessionWithFetches(t *testing.T) {
	withHarness(t, func(t *testing.T, w *harness) {
		var hang atomic.Bool
		hang.Store(true)
		w.answer = func(ctx context.Context, k canonical.Key) (*pb.GetCanonicalResultResponse, error) {
			if !hang.Load() {
				return found(k), nil
			}
			<-ctx.Done()
			return nil, failed(canonical.Unavailable)
		}
		session, end := context.WithCancel(w.ctx)
		later := w.ctx
		w.ctx = session
		w.fetch("b", 0, 100)
		w.after(0)
		end()
		if results, parked, open := w.after(0); len(results) != 0 || parked != 0 || open != 100 {
			t.Errorf("%d results, %d parked, %d open offsets; want 0, 0 and 100", len(results), parked, open)
		}
		w.ctx = later
		hang.Store(false)
		w.fetch("b", 0, 100)
		if results, _, _ := w.after(0); !slices.Equal(results, matches("b", 0, 100)) {
			t.Errorf("the next session has the results %v, want all", results)
		}
	})
}

// However the messages end, the committed offset is that of the first message that is not done.
func TestOpenOffsets(t *testing.T) {
	committed := int64(-1)
	o := openOffsets{slots: make(chan struct{}, 10), mark: func(offset int64) { committed = offset }}
	offsets := []int64{3, 4, 7, 8, 9, 20} // the log has gaps
	done := map[int64]func(){}
	for _, n := range offsets {
		o.slots <- struct{}{}
		done[n] = o.add(n)
	}
	for _, step := range []struct{ offset, want int64 }{{4, -1}, {20, -1}, {3, 5}, {8, 5}, {7, 9}, {9, 21}} {
		done[step.offset]()
		if committed != step.want {
			t.Errorf("after the message at %d is done, %d is committed, want %d", step.offset, committed, step.want)
		}
	}
	if len(o.slots) != 0 {
		t.Errorf("%d slots are taken at the end, want none", len(o.slots))
	}
}

func TestErrorsOfOtherStores(t *testing.T) {
	if got := problemOf(errors.New("any")); got != canonical.Unavailable {
		t.Errorf("the problem of an unknown error is %s, want %s", got, canonical.Unavailable)
	}
}
