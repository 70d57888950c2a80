package consumer_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// outcomes returns the match, the status and the reason of the first n updates, sorted.
func (c *cluster) outcomes(n int) []string {
	c.t.Helper()
	var got []string
	for _, m := range c.read(c.topics.Updates(), n) {
		u := &pb.LeaderboardUpdate{}
		if err := proto.Unmarshal(m.Value, u); err != nil {
			c.t.Fatal(err)
		}
		got = append(got, strings.TrimSpace(u.GetMatchId()+" "+u.GetStatus().String()+" "+u.GetReason()))
	}
	slices.Sort(got)
	return got
}

// nextMillisecond waits until the time of a new message, in whole milliseconds, is later than all
// events so far.
func nextMillisecond() {
	for start := time.Now(); !time.Now().Truncate(time.Millisecond).After(start); {
		runtime.Gosched()
	}
}

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
	achieved := func(n int64, years int) *pb.MatchResultRecord {
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
		{"a higher MaxScore", amend(func(b *leaderboard.Board) { b.MaxScore = new(leaderboard.Score(100)) }), achieved(50, 0)},
		{"a new season", amend(func(b *leaderboard.Board) {
			b.Season.Windows = append([]leaderboard.Season{window("before", now.Year()-1)}, b.Season.Windows...)
			b.Season.Grace = 5 * 365 * 24 * time.Hour
		}), achieved(1, 1)},
		{"a recreated board", func(t *testing.T, s *ranking.Service) {
			if err := s.DeleteBoard(t.Context(), "b"); err != nil {
				t.Fatal(err)
			}
			if _, err := s.CreateBoard(t.Context(), board); err != nil {
				t.Fatal(err)
			}
			nextMillisecond()
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
				t.Fatalf("outcomes (-want +got):\n%s", diff)
			}
			tt.change(t, admin)
			c.send(message(tt.record))
			eventually(t, "commit of both messages", func() bool { return c.allCommitted() == 2 })
			if n := c.messagesIn(c.topics.DeadLetters()); n > 0 {
				t.Fatalf("there is a dead letter, want none; its headers are %v", headers(c.read(c.topics.DeadLetters(), 1)[0]))
			}
			if diff := cmp.Diff([]string{"first APPLIED", "second APPLIED"}, c.outcomes(2)); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResultsOfASeasonThatEndedEarly(t *testing.T) {
	c := start(t)
	store, index := embedded.Open(t)
	admin := ranking.New(store, index, ranking.Options{})
	t.Cleanup(admin.Close)
	now := time.Now().UTC()
	board := leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{
		Kind: leaderboard.Explicit, Grace: time.Hour, Windows: []leaderboard.Season{{ID: "cup", Start: now.Add(-time.Hour), End: now.Add(time.Hour)}},
	}}
	if _, err := admin.CreateBoard(t.Context(), board); err != nil {
		t.Fatal(err)
	}
	result := func(match string, achievedAt time.Time) *pb.MatchResultRecord {
		r := points("u", match, 1)
		r.Result.AchievedAt, r.ReceivedAt = timestamppb.New(achievedAt), timestamppb.New(now)
		return r
	}
	c.send(message(result("first", now.Add(-time.Minute))))
	c.consume(ranking.New(store, index, ranking.Options{BoardTTL: time.Hour}))
	c.outcomes(1)
	if _, err := admin.EndSeason(t.Context(), "b", leaderboard.EarlyEnd{ID: "cup", At: now.Add(-2 * time.Minute)}); err != nil {
		t.Fatal(err)
	}
	c.send(message(result("late", now)), message(result("in time", now.Add(-3*time.Minute))))
	if diff := cmp.Diff([]string{"first APPLIED", "in time APPLIED", "late REJECTED SEASON_ENDED"}, c.outcomes(3)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if n := c.messagesIn(c.topics.DeadLetters()); n > 0 {
		t.Errorf("there are %d dead letters, want none", n)
	}
}

// Results wait until their board is created. Meanwhile, their offsets are not committed. Results of
// other boards do not wait.
func TestResultsWaitForTheirBoard(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	early := func(match string, n int64) *pb.MatchResultRecord {
		r := points("u", match, n)
		r.BoardId = "early"
		return r
	}
	c.send(message(early("m0", 5)), message(points("u", "other0", 1)), message(early("m1", -3)))
	first := c.join(s, consumer.Options{BoardWait: time.Hour})
	if diff := cmp.Diff([]string{"other0 APPLIED"}, c.outcomes(1)); diff != "" {
		t.Fatalf("outcomes (-want +got):\n%s", diff)
	}
	first.stop()
	if n := c.allCommitted(); n != 0 {
		t.Fatalf("the committed offsets add up to %d, want 0, because the first message waits", n)
	}
	c.join(s, consumer.Options{BoardWait: time.Hour})
	c.send(message(points("u", "other1", 1)), message(early("m2", -4)))
	if diff := cmp.Diff([]string{"other0 APPLIED", "other0 DUPLICATE", "other1 APPLIED"}, c.outcomes(3)); diff != "" {
		t.Fatalf("outcomes (-want +got):\n%s", diff)
	}
	floor := leaderboard.Score(0)
	if _, err := s.CreateBoard(t.Context(), leaderboard.Board{ID: "early", Policy: leaderboard.Sum, Floor: &floor}); err != nil {
		t.Fatal(err)
	}
	c.send(message(early("m3", 1)))
	eventually(t, "commit of every message", func() bool { return c.allCommitted() == 6 })
	want := []string{"m0 APPLIED", "m1 APPLIED", "m2 REJECTED FLOOR", "m3 APPLIED", "other0 APPLIED", "other0 DUPLICATE", "other1 APPLIED"}
	if diff := cmp.Diff(want, c.outcomes(7)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if n := c.messagesIn(c.topics.DeadLetters()); n > 0 {
		t.Errorf("%d dead letters, want none", n)
	}
}

func TestResultsOfAnUnknownBoardBecomeDeadLetters(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	n := consumer.MaxWaiting + 100
	var messages []*sarama.ProducerMessage
	for i := range n {
		r := points("u", fmt.Sprint("m", i), 1)
		r.BoardId = "none"
		messages = append(messages, message(r))
	}
	c.send(append(messages, message(points("u", "last", 1)))...)
	c.join(s, consumer.Options{BoardWait: 100 * time.Millisecond})
	eventually(t, "commit of every message", func() bool { return c.allCommitted() == n+1 })
	if dead := c.messagesIn(c.topics.DeadLetters()); int(dead) != n {
		t.Errorf("%d dead letters, want %d", dead, n)
	}
	if diff := cmp.Diff([]string{"u 1"}, boardLines(t, s)); diff != "" {
		t.Errorf("board (-want +got):\n%s", diff)
	}
}

// A new consumer group reads the log from the start. Results count on the new board if they were
// received after the deletion of the old board, even before the creation of the new board.
func TestARewoundLogDoesNotFillARecreatedBoard(t *testing.T) {
	c := start(t)
	store, index := embedded.Open(t)
	s := ranking.New(store, index, ranking.Options{})
	sum := leaderboard.Board{ID: "b", Policy: leaderboard.Sum}
	if _, err := s.CreateBoard(t.Context(), sum); err != nil {
		t.Fatal(err)
	}
	c.send(message(points("u", "old", 7)))
	stop := c.consume(s)
	if diff := cmp.Diff([]string{"old APPLIED"}, c.outcomes(1)); diff != "" {
		t.Fatalf("outcomes (-want +got):\n%s", diff)
	}
	stop()
	nextMillisecond()
	if err := s.DeleteBoard(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	nextMillisecond()
	c.send(message(points("u", "before the creation", 1)))
	nextMillisecond()
	if _, err := s.CreateBoard(t.Context(), sum); err != nil {
		t.Fatal(err)
	}
	c.send(message(points("u", "new", 1)))
	group := c.topics.Prefix + "again"
	m := c.join(ranking.New(store, index, ranking.Options{}), consumer.Options{Group: group})
	defer m.stop()
	want := []string{"before the creation APPLIED", "new APPLIED", "old APPLIED", "old REJECTED DELETED"}
	if diff := cmp.Diff(want, c.outcomes(4)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"u 2"}, boardLines(t, s)); diff != "" {
		t.Errorf("board (-want +got):\n%s", diff)
	}
}
