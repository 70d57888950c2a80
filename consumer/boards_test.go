package consumer_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// outcomes returns "match status" of the first n updates, sorted.
func (c *cluster) outcomes(n int) []string {
	c.t.Helper()
	var got []string
	for _, m := range c.read(c.topics.Updates(), n) {
		u := &pb.LeaderboardUpdate{}
		if err := proto.Unmarshal(m.Value, u); err != nil {
			c.t.Fatal(err)
		}
		got = append(got, u.GetMatchId()+" "+u.GetStatus().String()+u.GetReason())
	}
	slices.Sort(got)
	return got
}

// A consumer that has cached an older version of a board reads the board again before
// it refuses a result: the result may have been accepted for the newer version.
func TestBoardIsReadAgainBeforeARefusal(t *testing.T) {
	window := func(id leaderboard.SeasonID, year int) leaderboard.Season {
		return leaderboard.Season{ID: id, Start: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), End: time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC)}
	}
	now := time.Now().UTC()
	board := leaderboard.Board{ID: "b", Policy: leaderboard.Sum, MaxScore: new(leaderboard.Score(10)),
		Season: leaderboard.Schedule{Kind: leaderboard.Explicit, Windows: []leaderboard.Season{window("now", now.Year())}}}
	amend := func(change func(*leaderboard.Board)) func(*testing.T, *ranking.Service) {
		return func(t *testing.T, s *ranking.Service) {
			_, err := s.AmendBoard(t.Context(), "b", func(b *leaderboard.Board) error { change(b); return nil })
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	at := func(n int64, years int) *pb.MatchResultRecord {
		r := points("u", "second", n)
		r.Result.AchievedAt = timestamppb.New(now.AddDate(-years, 0, 0))
		r.ReceivedAt = timestamppb.New(now)
		return r
	}
	for _, tt := range []struct {
		name   string
		change func(*testing.T, *ranking.Service)
		record *pb.MatchResultRecord
	}{
		{"a greater bound", amend(func(b *leaderboard.Board) { b.MaxScore = new(leaderboard.Score(100)) }), at(50, 0)},
		{"a new window", amend(func(b *leaderboard.Board) {
			b.Season.Windows = append([]leaderboard.Season{window("before", now.Year()-1)}, b.Season.Windows...)
			b.Season.Grace = 5 * 365 * 24 * time.Hour
		}), at(1, 1)},
		{"a recreated board", func(t *testing.T, s *ranking.Service) {
			if err := s.DeleteBoard(t.Context(), "b"); err != nil {
				t.Fatal(err)
			}
			if _, err := s.CreateBoard(t.Context(), board); err != nil {
				t.Fatal(err)
			}
		}, points("u", "second", 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := start(t)
			store, index := embedded.Open(t)
			admin := ranking.New(store, index, ranking.Options{})
			if _, err := admin.CreateBoard(t.Context(), board); err != nil {
				t.Fatal(err)
			}
			c.consume(ranking.New(store, index, ranking.Options{BoardTTL: time.Hour}))
			c.send(message(points("u", "first", 1)))
			if diff := cmp.Diff([]string{"first APPLIED"}, c.outcomes(1)); diff != "" {
				t.Fatal(diff)
			}
			tt.change(t, admin)
			c.send(message(tt.record))
			eventually(t, "commit of both messages", func() bool { return c.allCommitted() == 2 })
			if n := c.newest(c.topics.DeadLetters()); n > 0 {
				t.Fatalf("dead letter: %v", headers(c.read(c.topics.DeadLetters(), 1)[0]))
			}
			if diff := cmp.Diff([]string{"first APPLIED", "second APPLIED"}, c.outcomes(2)); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
		})
	}
}
