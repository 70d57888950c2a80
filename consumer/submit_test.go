package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/IBM/sarama"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
)

func TestSubmitThroughKafkaReturnsTheNewScore(t *testing.T) {
	c := start(t)
	submitter := producer.NewSubmitter(c.Producer, kafka.Topics{}, 20*time.Second)
	s, store, index := newServiceIndex(t, ranking.Options{Results: submitter})
	applying := ranking.New(store, index, ranking.Options{})
	c.follow(submitter)
	c.consume(applying)
	result := func(match string, n leaderboard.Score) []leaderboard.MatchResult {
		return []leaderboard.MatchResult{{ResultKey: leaderboard.ResultKey{User: "ann", Match: leaderboard.MatchID(match)}, Score: n}}
	}
	for i, want := range []leaderboard.Score{5, 10, 15} {
		got, err := s.Submit(t.Context(), boardB(t, s), result(fmt.Sprint("m", i), 5))
		if err != nil || got[0].Status != leaderboard.Applied || got[0].Score != want || got[0].Err != nil {
			t.Fatalf("submit %d: %+v, error %v; want the status Applied and the score %d", i, got, err, want)
		}
	}
	got, err := s.Submit(t.Context(), boardB(t, s), result("m1", 5))
	if err != nil || got[0].Status != leaderboard.Duplicate || got[0].Score != 15 {
		t.Errorf("submit of a duplicate: %+v, error %v; want the status Duplicate and the score 15", got, err)
	}
	key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b"}, User: "ann", Match: "m0"}
	if got, err := s.Retract(t.Context(), boardB(t, s), key, nil); err != nil || got.Status != leaderboard.Applied || got.Score != 10 {
		t.Errorf("retract: %+v, error %v; want the status Applied and the score 10", got, err)
	}
	if _, err := applying.SetBan(t.Context(), leaderboard.Ban{User: "ann", Board: "b", Banned: true}); err != nil {
		t.Fatal(err)
	}
	got, err = s.Submit(t.Context(), boardB(t, s), result("m9", 5))
	if err != nil || !got[0].Banned || got[0].Status != leaderboard.Applied || got[0].Score != 15 || got[0].Rank != 0 {
		t.Errorf("submit of a banned user: %+v, error %v; want Banned, the status Applied, the score 15 and no rank", got, err)
	}
}

func TestProcessStartsBeforeKafka(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	brokers := []string{l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var fake *kfake.Cluster
	t.Cleanup(func() { // runs last
		if fake != nil {
			fake.Close()
		}
	})
	p, err := producer.New(brokers, kafka.Options{}.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	submitter := producer.NewSubmitter(p, kafka.Topics{}, 5*time.Second)
	follower, err := consumer.Follow(brokers, kafka.Options{}.Config("api"), kafka.Topics{}, slog.New(slog.NewTextHandler(t.Output(), nil)), submitter.Deliver)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { follower.Close() })
	s, store, index := newServiceIndex(t, ranking.Options{Results: submitter})
	c := &cluster{t: t, brokers: brokers, Producer: p}
	c.consume(ranking.New(store, index, ranking.Options{}))
	submit := func(match string) ([]ranking.Receipt, error) {
		return s.Submit(t.Context(), boardB(t, s), []leaderboard.MatchResult{{ResultKey: leaderboard.ResultKey{User: "ann", Match: leaderboard.MatchID(match)}, Score: 1}})
	}
	if _, err := submit("m"); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("submit without Kafka: %v, want ErrUnavailable", err)
	}
	fake, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.GroupMinSessionTimeout(100*time.Millisecond),
		kfake.SeedTopics(partitions, c.topics.Results(), c.topics.Updates(), c.topics.DeadLetters()))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	eventually(t, "a submit is applied", func() bool {
		n++
		got, err := submit(fmt.Sprint("m", n))
		return err == nil && got[0].Status == leaderboard.Applied
	})
}

func TestAcceptDoesNotWait(t *testing.T) {
	c := start(t)
	submitter := producer.NewSubmitter(c.Producer, kafka.Topics{}, time.Hour)
	s, store, index := newServiceIndex(t, ranking.Options{Results: submitter})
	got, err := s.Accept(t.Context(), boardB(t, s), []leaderboard.MatchResult{{ResultKey: leaderboard.ResultKey{User: "ann", Match: "m"}, Score: 7}})
	if err != nil || got[0].Status != leaderboard.Accepted || got[0].HasScore || got[0].Err != nil {
		t.Fatalf("accept: %+v, error %v; want the status Accepted without a score", got, err)
	}
	if _, err := s.Result(t.Context(), boardB(t, s), leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b"}, User: "ann", Match: "m"}, nil); !errors.Is(err, leaderboard.ErrResultNotFound) {
		t.Errorf("result before it is applied: %v, want ErrResultNotFound", err)
	}
	c.consume(ranking.New(store, index, ranking.Options{}))
	c.read(c.topics.Updates(), 1)
	if diff := gocmp.Diff([]string{"ann 7"}, boardLines(t, s)); diff != "" {
		t.Errorf("board after the result is applied (-want +got):\n%s", diff)
	}
}

func TestSubmitWithoutConsumerIsAccepted(t *testing.T) {
	c := start(t)
	submitter := producer.NewSubmitter(c.Producer, kafka.Topics{}, 50*time.Millisecond)
	s, _ := newService(t, ranking.Options{Results: submitter})
	got, err := s.Submit(t.Context(), boardB(t, s), []leaderboard.MatchResult{{ResultKey: leaderboard.ResultKey{User: "ann", Match: "m"}, Score: 1}})
	if err != nil || got[0].Status != leaderboard.Accepted || got[0].HasScore {
		t.Errorf("submit without a consumer: %+v, error %v; want the status Accepted without a score", got, err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Send(canceled, []*sarama.ProducerMessage{message(points("a", "m", 1))}); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("Send with a canceled context: %v, want ErrUnavailable", err)
	}
}

func (c *cluster) follow(submitter *producer.Submitter) {
	c.t.Helper()
	follower, err := consumer.Follow(c.brokers, kafka.Options{}.Config("api"), kafka.Topics{}, slog.New(slog.DiscardHandler), submitter.Deliver)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := follower.Close(); err != nil {
			c.t.Error(err)
		}
	})
}

func TestSubmitThroughKafkaStatesWhatItChanged(t *testing.T) {
	c := start(t)
	submitter := producer.NewSubmitter(c.Producer, kafka.Topics{}, 20*time.Second)
	s, store, index := newServiceIndex(t, ranking.Options{Results: submitter})
	c.follow(submitter)
	best, floored := leaderboard.Board{ID: "best", Policy: leaderboard.Best}, leaderboard.Board{ID: "purse", Policy: leaderboard.Sum, Floor: new(leaderboard.Score)}
	for _, b := range []leaderboard.Board{best, floored} {
		if _, err := s.CreateBoard(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	c.consume(ranking.New(store, index, ranking.Options{}))
	submit := func(board leaderboard.BoardID, user, match string, score leaderboard.Score) string {
		b, err := s.Board(t.Context(), board)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Submit(t.Context(), &b, []leaderboard.MatchResult{
			{ResultKey: leaderboard.ResultKey{User: leaderboard.UserID(user), Match: leaderboard.MatchID(match)}, Score: score}})
		if err == nil {
			err = s.AddPreviousRanks(t.Context(), &b, got)
		}
		if err != nil {
			t.Fatal(err)
		}
		r := got[0]
		text := fmt.Sprintf("%v score %d rank %d previous rank %d", r.Status, r.Score, r.Rank, r.PreviousRank)
		if r.Previous != nil {
			text += fmt.Sprint(" previous ", *r.Previous)
		}
		if r.PersonalBest != nil {
			text += fmt.Sprint(" best ", *r.PersonalBest)
		}
		return text + fmt.Sprint(" repeated ", r.Repeated, " stands ", r.Stands)
	}
	for i, tt := range []struct {
		board       leaderboard.BoardID
		user, match string
		score       leaderboard.Score
		want        string
	}{
		{"best", "bob", "m1", 30, "APPLIED score 30 rank 1 previous rank 0 best true repeated false stands false"},
		{"best", "ann", "m1", 20, "APPLIED score 20 rank 2 previous rank 0 best true repeated false stands false"},
		{"best", "ann", "m2", 40, "APPLIED score 40 rank 1 previous rank 2 previous 20 best true repeated false stands false"},
		{"best", "ann", "m2", 40, "DUPLICATE score 40 rank 1 previous rank 0 repeated false stands false"},
		{"best", "ann", "m3", 10, "APPLIED score 40 rank 1 previous rank 1 previous 40 best false repeated false stands false"},
		{"best", "ann", "m3", 50, "CONFLICT score 50 rank 1 previous rank 1 previous 40 best true repeated false stands true"},
		{"best", "ann", "m3", 15, "CONFLICT score 50 rank 1 previous rank 0 repeated false stands false"},
		{"purse", "ann", "bet", -5, "REJECTED score 0 rank 0 previous rank 0 repeated false stands false"},
		{"purse", "ann", "gift", 8, "APPLIED score 8 rank 1 previous rank 0 repeated false stands false"},
		{"purse", "ann", "bet", -5, "REJECTED score 8 rank 1 previous rank 0 repeated true stands false"},
	} {
		if got := submit(tt.board, tt.user, tt.match, tt.score); got != tt.want {
			t.Errorf("submit %d:\n%s, want\n%s", i, got, tt.want)
		}
	}
	var updates []string
	for _, m := range c.read(c.topics.Updates(), 10) {
		u := &pb.LeaderboardUpdate{}
		if err := proto.Unmarshal(m.Value, u); err != nil {
			t.Fatal(err)
		}
		if u.GetUserId() == "ann" && u.GetBoardId() == "best" && u.GetStatus() == pb.Outcome_APPLIED {
			updates = append(updates, fmt.Sprint(u.GetPreviousScore(), u.GetPreviousRank(), u.GetPersonalBest(), u.GetNewScore()))
		}
	}
	if diff := gocmp.Diff([]string{"0 0 true 20", "20 2 true 40", "40 1 false 40"}, updates); diff != "" {
		t.Errorf("previous score, previous rank, personal best and new score of the updates (-want +got):\n%s", diff)
	}
}

func TestCorrectionsThroughKafka(t *testing.T) {
	c := start(t)
	submitter := producer.NewSubmitter(c.Producer, kafka.Topics{}, 20*time.Second)
	s, store, index := newServiceIndex(t, ranking.Options{Results: submitter})
	c.follow(submitter)
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -10)
	window := leaderboard.Season{ID: "old", Start: day, End: day.AddDate(0, 0, 1)}
	b, err := s.CreateBoard(t.Context(), leaderboard.Board{ID: "cup", Season: leaderboard.Schedule{Kind: leaderboard.Explicit, Grace: 0, Windows: []leaderboard.Season{window}}})
	if err != nil {
		t.Fatal(err)
	}
	key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "cup", Season: "old"}, User: "ann", Match: "m"}
	// The store accepts the result, because ReceivedAt is before the season's end.
	if _, err := store.Apply(t.Context(), &b, []leaderboard.MatchResult{{ResultKey: key, Score: 5, AchievedAt: day.Add(time.Hour), ReceivedAt: day.Add(2 * time.Hour)}}); err != nil {
		t.Fatal(err)
	}
	c.consume(ranking.New(store, index, ranking.Options{}))
	correct := func(change ranking.Correction) (ranking.Receipt, error) {
		_, r, err := s.Correct(t.Context(), &b, key, change)
		return r, err
	}
	score := leaderboard.Score(7)
	if r, err := correct(ranking.Correction{Score: &score}); err != nil || r.Reason != leaderboard.ReasonClosed {
		t.Errorf("a correction that does not amend the closed season: %+v, %v; want SEASON_CLOSED", r, err)
	}
	if r, err := correct(ranking.Correction{Score: &score, Amends: true}); err != nil || r.Status != leaderboard.Applied || r.Score != 7 || r.Revision != 2 {
		t.Errorf("a correction that amends the closed season: %+v, %v; want APPLIED with the score 7 and revision 2", r, err)
	}
	var group errgroup.Group
	for i := range 4 {
		group.Go(func() error {
			r, err := correct(ranking.Correction{Attributes: map[string]string{fmt.Sprint("a", i): "x"}, Amends: true})
			if err == nil && r.Status != leaderboard.Applied {
				err = fmt.Errorf("correction %d: %v, want APPLIED", i, r.Status)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	record, err := store.Result(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(map[string]string{"a0": "x", "a1": "x", "a2": "x", "a3": "x"}, record.Result.Attributes); diff != "" || record.Result.Score != 7 {
		t.Errorf("after concurrent corrections: score %d, attributes (-want +got):\n%s; want the score 7", record.Result.Score, diff)
	}
}
