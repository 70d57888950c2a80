package producer_test

import (
	"context"
	"crypto/rand"
	"os"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/producer"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

func TestSubmitReturnsOutcomesThatArriveInTime(t *testing.T) {
	brokers := cluster.Kafka(t, 1)
	names := kafka.Topics{Prefix: "producer-" + rand.Text() + "-"}
	if _, err := kafka.EnsureTopics(t.Context(), brokers, kafka.Options{}.Config("test"), kafka.TopicOptions{
		Topics: names, Partitions: 1, ReplicationFactor: 1, Retention: time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	p, err := producer.New(brokers, kafka.Options{}.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s := producer.NewSubmitter(p, names, time.Second)
	result := func(user leaderboard.UserID) leaderboard.MatchResult {
		return leaderboard.MatchResult{ResultKey: leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, User: user, Match: "m"}}
	}
	bob := result("bob")
	id := bob.ContentID()
	ctx, cancel := context.WithCancel(t.Context())
	delivered := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := s.Deliver(&pb.LeaderboardUpdate{BoardId: "b", Season: string(leaderboard.SeasonAll), UserId: "bob", MatchId: "m", Status: pb.Outcome_APPLIED, ContentId: id[:]}); err != nil {
				delivered <- err
				return
			}
		}
		delivered <- nil
	}()
	b := leaderboard.Board{ID: "b"}
	got, err := s.Submit(t.Context(), &b, []leaderboard.MatchResult{result("ann"), bob, result("eve")})
	cancel()
	if deliverErr := <-delivered; err != nil || deliverErr != nil {
		t.Fatal(err, deliverErr)
	}
	for i, want := range []leaderboard.Status{leaderboard.Accepted, leaderboard.Applied, leaderboard.Accepted} {
		if got[i].Status != want {
			t.Errorf("outcome %d is %v, want %v", i, got[i].Status, want)
		}
	}
}
