package consumer_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
)

func TestResultsOfAVoidMatchThroughKafka(t *testing.T) {
	c := start(t)
	api, store, index := newServiceIndex(t, ranking.Options{})
	b, err := api.CreateBoard(t.Context(), leaderboard.Board{ID: "arena", Policy: leaderboard.Sum, Matches: true})
	if err != nil {
		t.Fatal(err)
	}
	set := func(void bool) {
		t.Helper()
		key := leaderboard.MatchKey{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}, Match: "final"}
		if _, err := api.SetVoid(t.Context(), &b, leaderboard.MatchState{MatchKey: key}, void); err != nil {
			t.Fatal(err)
		}
	}
	send := func(user, match string, revision, n int64) {
		record := points(user, match, n)
		record.BoardId, record.Result.Revision = "arena", revision
		c.send(message(record))
	}
	check := func(what string, want ...string) {
		t.Helper()
		page, err := api.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "arena"}, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, l := range page.Lines {
			got = append(got, fmt.Sprintf("%s %d", l.User, l.Score))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: the board is %v, want %v", what, got, want)
		}
	}
	c.consume(ranking.New(store, index, ranking.Options{}))
	send("ann", "final", 0, 10)
	send("ann", "other", 0, 1)
	c.read(c.topics.Updates(), 2)
	check("before the void", "ann 11")
	set(true)
	check("after the void", "ann 1")
	send("ann", "final", 1, 20) // a correction
	send("bob", "final", 0, 30)
	send("bob", "other", 0, 2)
	c.read(c.topics.Updates(), 5)
	check("after results of the void match", "bob 2", "ann 1")
	set(false)
	check("after the restoration", "bob 32", "ann 21")
}

func TestResultOfTheLargestRevisionIsRetractedThroughKafka(t *testing.T) {
	c := start(t)
	submitter := producer.NewSubmitter(c.Producer, kafka.Topics{}, 20*time.Second)
	s, store, index := newServiceIndex(t, ranking.Options{Results: submitter})
	c.follow(submitter)
	c.consume(ranking.New(store, index, ranking.Options{}))
	record := points("ann", "m", 5)
	record.Result.Revision = leaderboard.MaxRevision
	c.send(message(record))
	u := &pb.LeaderboardUpdate{}
	if err := proto.Unmarshal(c.read(c.topics.Updates(), 1)[0].Value, u); err != nil || u.GetStatus() != pb.Outcome_APPLIED {
		t.Fatalf("the update is %v, %v; want APPLIED", u, err)
	}
	key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b"}, User: "ann", Match: "m"}
	for _, want := range []leaderboard.Status{leaderboard.Applied, leaderboard.Duplicate} {
		if r, err := s.Retract(t.Context(), boardB(t, s), key, nil); err != nil || r.Status != want || r.Revision != leaderboard.MaxRevision+1 {
			t.Fatalf("the retraction is %+v, %v; want %v with revision %d", r, err, want, int64(leaderboard.MaxRevision)+1)
		}
	}
	if got := boardLines(t, s); len(got) > 0 {
		t.Errorf("the board is %v, want it empty", got)
	}
}
