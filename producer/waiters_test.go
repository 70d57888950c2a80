package producer_test

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/producer"
)

// The contents (scores) differ, so an update without a content id answers no call.
func TestEachSubmitGetsTheOutcomeOfItsContent(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, kafka.Topics{}.Results()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	p, err := producer.New(fake.ListenAddrs(), kafka.Options{}.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	client, err := sarama.NewClient(fake.ListenAddrs(), kafka.Options{}.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s := producer.NewSubmitter(p, kafka.Topics{}, time.Minute)
	b := leaderboard.Board{ID: "b"}
	result := func(score leaderboard.Score) leaderboard.MatchResult {
		return leaderboard.MatchResult{ResultKey: leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, User: "u", Match: "m"}, Score: score}
	}
	type answer struct {
		score  leaderboard.Score
		status leaderboard.Status
		err    error
	}
	answers := make(chan answer)
	const calls = 3
	for i, score := range []leaderboard.Score{7, 9, 9} {
		go func() {
			got, err := s.Submit(t.Context(), &b, []leaderboard.MatchResult{result(score)})
			if err != nil {
				got = make([]leaderboard.Outcome, 1)
			}
			answers <- answer{score, got[0].Status, err}
		}()
		for n := int64(0); n <= int64(i); { // until the message of this call is in the log
			if n, err = client.GetOffset(kafka.Topics{}.Results(), 0, sarama.OffsetNewest); err != nil {
				t.Fatal(err)
			}
		}
	}
	update := func(score leaderboard.Score, status pb.Outcome_Status) *pb.LeaderboardUpdate {
		r := result(score)
		id := r.ContentID()
		return &pb.LeaderboardUpdate{BoardId: "b", Season: string(leaderboard.SeasonAll), UserId: "u", MatchId: "m", Status: status, ContentId: id[:]}
	}
	for _, u := range []*pb.LeaderboardUpdate{update(8, pb.Outcome_SUPERSEDED), update(9, pb.Outcome_APPLIED), update(9, pb.Outcome_DUPLICATE), update(7, pb.Outcome_CONFLICT)} {
		if err := s.Deliver(u); err != nil {
			t.Fatal(err)
		}
	}
	got := map[leaderboard.Score]map[leaderboard.Status]int{}
	for range calls {
		a := <-answers
		if a.err != nil {
			t.Fatal(a.err)
		}
		if got[a.score] == nil {
			got[a.score] = map[leaderboard.Status]int{}
		}
		got[a.score][a.status]++
	}
	want := map[leaderboard.Score]map[leaderboard.Status]int{7: {leaderboard.Conflict: 1}, 9: {leaderboard.Applied: 1, leaderboard.Duplicate: 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes by content (-want +got):\n%s", diff)
	}
}
