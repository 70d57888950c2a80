package consumer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

func TestOrderAndDuplicatesDoNotMatter(t *testing.T) {
	runSeed := seed.New(t)
	rng := rand.New(rand.NewPCG(runSeed, 0))
	c := start(t, "eu.match-results")
	s, _ := newService(t, ranking.Options{})
	sums := map[string]int64{}
	var messages []*sarama.ProducerMessage
	for i := range 600 {
		user, score := fmt.Sprint("u", rng.IntN(40)), rng.Int64N(9)+1
		sums[user] += score
		m := message(points(user, fmt.Sprint("m", i), score))
		if i%3 == 0 {
			m.Topic = "eu.match-results"
		}
		messages = append(messages, m)
		if rng.IntN(5) == 0 {
			duplicate := *m
			messages = append(messages, &duplicate)
		}
	}
	rng.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	c.consume(s)
	c.send(messages...)
	updates := c.read(c.topics.Updates(), len(messages))
	var want []string
	for user, score := range sums {
		want = append(want, fmt.Sprintf("%s %d", user, score))
	}
	slices.Sort(want)
	if diff := gocmp.Diff(want, boardLines(t, s)); diff != "" {
		t.Errorf("seed %d: lines of the board (-want +got):\n%s", runSeed, diff)
	}
	applied := 0
	for _, m := range updates {
		u := &pb.LeaderboardUpdate{}
		if err := proto.Unmarshal(m.Value, u); err != nil {
			t.Fatal(err)
		}
		if u.GetStatus() == pb.Outcome_APPLIED {
			applied++
		}
	}
	if applied != 600 {
		t.Errorf("%d updates have status APPLIED, want 600", applied)
	}
}

// A rank band is the rank, rounded up to 1, 3 or a power of ten.
func TestUpdatesHaveScoresAndRankBands(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	for i := range 20 {
		if _, err := s.Submit(t.Context(), boardB(t, s), []leaderboard.MatchResult{{
			ResultKey: leaderboard.ResultKey{User: leaderboard.UserID(fmt.Sprint("u", i)), Match: "m"}, Score: leaderboard.Score(100 - i),
		}}); err != nil {
			t.Fatal(err)
		}
	}
	c.consume(s)
	c.send(message(points("ann", "m1", 90)))
	c.read(c.topics.Updates(), 1)
	c.send(message(points("ann", "m2", 50)))
	updates := map[string]*pb.LeaderboardUpdate{}
	for _, m := range c.read(c.topics.Updates(), 2) {
		u := &pb.LeaderboardUpdate{}
		if err := proto.Unmarshal(m.Value, u); err != nil {
			t.Fatal(err)
		}
		updates[u.GetMatchId()] = u
	}
	if u := updates["m1"]; u.OldScore != nil || u.GetNewScore() != 90 || u.GetNewRankBand() != 100 {
		t.Errorf("the update of the first result is %v, want no old score, the new score 90 and band 100", u)
	}
	if u := updates["m2"]; u.GetOldScore() != 90 || u.GetNewScore() != 140 || u.GetOldRankBand() != 100 || u.GetNewRankBand() != 1 {
		t.Errorf("the update of the second result is %v, want the scores 90 and 140 and the bands 100 and 1", u)
	}
}

type bandReads struct {
	*ranking.Service
	reads atomic.Int64
}

func (s *bandReads) KeysAt(ctx context.Context, key leaderboard.SeasonKey, positions []int64) ([]leaderboard.RankKey, error) {
	s.reads.Add(1)
	return s.Service.KeysAt(ctx, key, positions)
}

func TestRankBandsAreReadOnceASecond(t *testing.T) {
	c := start(t)
	service, _ := newService(t, ranking.Options{})
	s := &bandReads{Service: service}
	began := time.Now()
	c.consume(s)
	const results = 30
	for i := range results {
		c.send(message(points("ann", fmt.Sprint("m", i), 1)))
		time.Sleep(20 * time.Millisecond)
	}
	c.read(c.topics.Updates(), results)
	if limit := int64(time.Since(began).Seconds()) + 1; s.reads.Load() == 0 || s.reads.Load() > limit {
		t.Errorf("%d reads for %d results in %v, want 1 to %d", s.reads.Load(), results, time.Since(began), limit)
	}
}

func TestRejectedResultsAreReported(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	c.consume(s)
	c.send(message(points("ann", "m", 1<<53+1)))
	u := &pb.LeaderboardUpdate{}
	if err := proto.Unmarshal(c.read(c.topics.Updates(), 1)[0].Value, u); err != nil || u.GetReason() != string(leaderboard.ReasonInvalid) {
		t.Errorf("the update is %v, error %v, want the reason %s", u, err, leaderboard.ReasonInvalid)
	}
	got, err := s.Result(t.Context(), boardB(t, s), leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b"}, User: "ann", Match: "m"}, nil)
	if err != nil || got.Status != leaderboard.Rejected {
		t.Errorf("the stored result is %+v, error %v, want the status Rejected", got, err)
	}
}

func TestEveryKindOfMessage(t *testing.T) {
	c := start(t)
	s, store := newService(t, ranking.Options{})
	c.consume(s)
	json := &sarama.ProducerMessage{
		Topic: c.topics.Results(), Key: sarama.StringEncoder("ann"),
		Value:   sarama.StringEncoder(`{"board_id":"b","result":{"user_id":"ann","match_id":"m1","points":5,"achieved_at":"2026-11-20T10:00:00Z","metadata":{"lap":[71.25,9007199254740992]}}}`),
		Headers: []sarama.RecordHeader{{Key: []byte(kafka.ContentType), Value: []byte(kafka.JSON)}},
	}
	retraction := points("bob", "m1", 7)
	retraction.Retracted, retraction.Result.Revision, retraction.Result.Points = true, 1, nil
	c.send(json, message(points("bob", "m1", 7)), message(points("bob", "m2", 2)), message(retraction))
	c.read(c.topics.Updates(), 4)
	if diff := gocmp.Diff([]string{"ann 5", "bob 2"}, boardLines(t, s)); diff != "" {
		t.Errorf("lines of the board (-want +got):\n%s", diff)
	}

	b, err := s.Board(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	written := leaderboard.MatchResult{
		ResultKey: leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, User: "eve", Match: "m"},
		Score:     9, AchievedAt: time.Now().UTC(), ReceivedAt: time.Now().UTC(),
	}
	if _, err := store.Apply(t.Context(), &b, []leaderboard.MatchResult{written}); err != nil {
		t.Fatal(err)
	}
	notification := points("eve", "m", 0)
	notification.Notification, notification.Result.Points = true, nil
	c.send(message(notification), message(points("eve", "m2", 1)))
	reported := false
	for _, m := range c.read(c.topics.Updates(), 6) {
		u := &pb.LeaderboardUpdate{}
		if err := proto.Unmarshal(m.Value, u); err != nil {
			t.Fatal(err)
		}
		reported = reported || u.GetUserId() == "eve" && u.GetSeason() == "all" && u.GetMatchId() == "" && u.GetStatus() == pb.Outcome_APPLIED && u.GetNewScore() == 9
	}
	if !reported {
		t.Error("no update reports the score 9 of user eve, whom the notification names")
	}
	if diff := gocmp.Diff([]string{"ann 5", "bob 2", "eve 10"}, boardLines(t, s)); diff != "" {
		t.Errorf("lines of the board (-want +got):\n%s", diff)
	}
}

// flakyService fails the first calls of Apply. Later calls apply all results, but report an error for
// some results.
type flakyService struct {
	*ranking.Service
	mu      sync.Mutex
	down    int // number of calls that still fail
	rng     *rand.Rand
	applied []leaderboard.MatchID
}

func (f *flakyService) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down > 0 {
		f.down--
		return leaderboard.ApplyReport{}, fmt.Errorf("flaky: %w", leaderboard.ErrUnavailable)
	}
	report, err := f.Service.Apply(ctx, b, results)
	for i := range report.Outcomes {
		f.applied = append(f.applied, results[i].Match)
		if f.rng.IntN(10) == 0 {
			report.Outcomes[i] = leaderboard.Outcome{Err: leaderboard.ErrUnavailable} // although the result is applied
		}
	}
	return report, err
}

func TestStoreOutageLosesNothing(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	f := &flakyService{Service: s, down: 6, rng: rand.New(rand.NewPCG(1, 1))}
	c.consume(f)
	var messages []*sarama.ProducerMessage
	for i := range 100 {
		messages = append(messages, message(points(fmt.Sprint("u", i%3), fmt.Sprint("m", i), 1)))
	}
	c.send(messages...)
	c.read(c.topics.Updates(), 100)
	if diff := gocmp.Diff([]string{"u0 34", "u1 33", "u2 33"}, boardLines(t, s)); diff != "" {
		t.Errorf("lines of the board (-want +got):\n%s", diff)
	}
}

type slowService struct {
	*ranking.Service
	limit int
}

func (s slowService) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	if len(results) > s.limit {
		<-ctx.Done()
		return leaderboard.ApplyReport{}, ctx.Err()
	}
	return s.Service.Apply(ctx, b, results)
}

func TestSlowStoreGetsSmallerBatches(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	const n = 500
	var messages []*sarama.ProducerMessage
	for i := range n {
		messages = append(messages, message(points(fmt.Sprintf("u%d", i%50), fmt.Sprint("m", i), 1)))
	}
	c.send(messages...)
	stop := c.join(slowService{s, 3}, consumer.Options{ApplyTimeout: 200 * time.Millisecond}).stop
	// An update may be published twice, as its publication has the same timeout.
	eventually(t, "commit of every message", func() bool { return c.allCommitted() == n })
	stop()
	c.read(c.topics.Updates(), n)
	for _, line := range boardLines(t, s) {
		if !strings.HasSuffix(line, " 10") {
			t.Errorf("line %q, want the score 10", line)
		}
	}
	if got := len(boardLines(t, s)); got != 50 {
		t.Errorf("%d users, want 50", got)
	}
}

func TestRetryAfterTheSeasonsEnd(t *testing.T) {
	c := start(t)
	end := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	s, _ := newService(t, ranking.Options{Now: func() time.Time { return end.Add(time.Minute) }})
	if _, err := s.CreateBoard(t.Context(), leaderboard.Board{
		ID: "monthly", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Monthly, TimeZone: "UTC", Grace: time.Hour},
	}); err != nil {
		t.Fatal(err)
	}
	sent := func(offset time.Duration, match string, n int64) *sarama.ProducerMessage {
		r := points("ann", match, n)
		r.BoardId = "monthly"
		m := message(r)
		m.Timestamp = end.Add(offset)
		return m
	}
	c.send(sent(-2*time.Second, "m", 5), sent(time.Second, "other", 1), sent(2*time.Second, "m", 5), sent(3*time.Second, "another", 2))
	c.consume(s)
	c.read(c.topics.Updates(), 4)
	for season, want := range map[leaderboard.SeasonID]leaderboard.Score{"202611": 5, "202612": 3} {
		page, err := s.User(t.Context(), ranking.Query{Board: "monthly", Season: season}, "ann", 0, false)
		if err != nil || page.Score != want {
			t.Errorf("season %s: ann has the score %d, want %d; error %v", season, page.Score, want, err)
		}
	}
}
