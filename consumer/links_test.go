package consumer_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// linkedTexts returns linked standings as "board season score rank reason". The reason states why the
// linked board does not count the result.
func linkedTexts(r *ranking.Receipt) string {
	var texts []string
	for _, l := range r.Linked {
		score := "-"
		if l.Score != nil {
			score = fmt.Sprint(*l.Score)
		}
		texts = append(texts, strings.TrimSpace(fmt.Sprintf("%s %s %s %d %s", l.Board.ID, l.Season, score, l.Rank, l.Skipped)))
	}
	return strings.Join(texts, ", ")
}

func TestSubmitReturnsLinkedStandings(t *testing.T) {
	var clock atomic.Pointer[time.Time]
	begin := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -10).Add(10 * time.Hour)
	day, later := begin.Format("20060102"), begin.AddDate(0, 0, 2)
	now := func() time.Time { return *clock.Load() }
	c := start(t)
	submitter := producer.NewSubmitter(c.Producer, kafka.Topics{}, 20*time.Second)
	c.follow(submitter)
	store, index := embedded.Open(t)
	c.consume(ranking.New(store, index, ranking.Options{Now: now}))
	distributed := ranking.New(store, index, ranking.Options{Now: now, Results: submitter})
	store, index = embedded.Open(t)
	// submits is the number of submits through Kafka. For each, the consumer publishes one update of
	// the board laps.
	submits := 0
	for name, s := range map[string]*ranking.Service{"embedded": ranking.New(store, index, ranking.Options{Now: now}), "Kafka": distributed} {
		clock.Store(&begin)
		for _, b := range []leaderboard.Board{
			{ID: "laps", Policy: leaderboard.Sum},
			{ID: "best", Source: &leaderboard.Source{Board: "laps"}},
			{ID: "day", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Daily, Grace: time.Hour}, Source: &leaderboard.Source{Board: "laps"}},
			{ID: "ranked", Source: &leaderboard.Source{Board: "laps", Match: map[string]string{"mode": "ranked"}}},
		} {
			if _, err := s.CreateBoard(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		for i, step := range []struct {
			at          time.Time
			user, match string
			revision    int64
			score       leaderboard.Score
			mode        string
			want        string
		}{
			{begin, "ann", "m", 0, 5, "ranked", "best all 5 1, day " + day + " 5 1, ranked all 5 1"},
			{begin, "bob", "m", 0, 7, "casual", "best all 7 1, day " + day + " 7 1"},
			{begin, "ann", "m", 1, 8, "casual", "best all 8 1, day " + day + " 8 1, ranked all - 0"},
			{begin, "ann", "m", 0, 5, "ranked", "best all 8 1, day " + day + " 8 1, ranked all - 0"}, // revision 1 stands
			{later, "bob", "m2", 0, 9, "", "best all 9 1, day " + day + " 7 2 SEASON_CLOSED"},
			{later, "bob", "m2", 0, 9, "", "best all 9 1, day " + day + " 7 2 SEASON_CLOSED"},
			{later, "cyd", "m", 0, 1, "", "best all 1 3, day " + day + " - 0 SEASON_CLOSED"},
		} {
			clock.Store(&step.at)
			b, err := s.Board(t.Context(), "laps")
			if err != nil {
				t.Fatal(err)
			}
			r := leaderboard.MatchResult{ResultKey: leaderboard.ResultKey{User: leaderboard.UserID(step.user), Match: leaderboard.MatchID(step.match)},
				Revision: step.revision, Score: step.score, AchievedAt: begin}
			if step.mode != "" {
				r.Attributes = map[string]string{"mode": step.mode}
			}
			if s == distributed {
				submits++
			}
			receipts, err := s.Submit(t.Context(), &b, []leaderboard.MatchResult{r})
			if err == nil {
				err = s.AddLinked(t.Context(), receipts)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := linkedTexts(&receipts[0]); got != step.want {
				t.Errorf("%s: submit %d answers with the linked standings %q, want %q", name, i, got, step.want)
			}
		}
	}
	want := map[string]int{
		"best all ann: - to 5": 1, "best all ann: 5 to 8": 1, "best all ann: 8 to 8": 1, "best all bob: - to 7": 1, "best all bob: 7 to 9": 1, "best all bob: 9 to 9": 1, "best all cyd: - to 1": 1,
		"day " + day + " ann: - to 5": 1, "day " + day + " ann: 5 to 8": 1, "day " + day + " ann: 8 to 8": 1, "day " + day + " bob: - to 7": 1,
		"ranked all ann: - to 5": 1, "ranked all ann: 5 to -": 1, "ranked all ann: - to -": 1,
	}
	got := map[string]int{}
	for _, m := range c.read(c.topics.Updates(), submits+len(want)) {
		u := &pb.LeaderboardUpdate{}
		if err := proto.Unmarshal(m.Value, u); err != nil {
			t.Fatal(err)
		}
		if u.GetBoardId() != "laps" {
			text := func(n *int64) string {
				if n == nil {
					return "-"
				}
				return fmt.Sprint(*n)
			}
			if u.GetMatchId() != "" {
				t.Errorf("an update of linked board %s names match %q, want none", u.GetBoardId(), u.GetMatchId())
			}
			got[fmt.Sprintf("%s %s %s: %s to %s", u.GetBoardId(), u.GetSeason(), u.GetUserId(), text(u.OldScore), text(u.NewScore))]++
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("updates of linked boards (-want +got):\n%s", diff)
	}
}

func TestTheLogIsNotCheckedLikeSubmits(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	b := leaderboard.Board{ID: "strict", Policy: leaderboard.Sum, StrictSubmits: true, Season: leaderboard.Schedule{Kind: leaderboard.Monthly}, TieBreakers: []leaderboard.TieBreaker{{Name: "falls", Order: leaderboard.LowerFirst}}}
	if _, err := s.CreateBoard(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	record := points("ann", "m", 3)
	record.BoardId, record.Result.Attributes = "strict", map[string]string{"undeclared": "x"}
	record.Result.Revision = 1 // a submit with a revision must have achieved_at
	c.consume(s)
	c.send(message(record))
	u := &pb.LeaderboardUpdate{}
	if err := proto.Unmarshal(c.read(c.topics.Updates(), 1)[0].Value, u); err != nil || u.GetStatus() != pb.Outcome_APPLIED || u.GetNewScore() != 3 {
		t.Errorf("the update is %v, %v; want APPLIED with the score 3", u, err)
	}
}
