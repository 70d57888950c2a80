package consumer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// damagedStore cannot decode the data of the user "bad".
type damagedStore struct{ leaderboard.Store }

var errDamaged = fmt.Errorf("cql: account: %w", leaderboard.ErrFormat)

// Apply reports damaged data like the Cassandra store.
func (d damagedStore) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	var good []leaderboard.MatchResult
	var indexes []int
	for i := range results {
		if results[i].User != "bad" {
			good, indexes = append(good, results[i]), append(indexes, i)
		}
	}
	if len(good) == 0 {
		return leaderboard.ApplyReport{}, errDamaged
	}
	applied, err := d.Store.Apply(ctx, b, good)
	if err != nil {
		return applied, err
	}
	report := leaderboard.ApplyReport{Changes: applied.Changes, Outcomes: make([]leaderboard.Outcome, len(results))}
	for i := range report.Outcomes {
		report.Outcomes[i].Err = errDamaged
	}
	for n, i := range indexes {
		report.Outcomes[i] = applied.Outcomes[n]
	}
	return report, nil
}

func (d damagedStore) Recount(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error) {
	if user == "bad" {
		return leaderboard.Change{}, errDamaged
	}
	return d.Store.Recount(ctx, b, season, user)
}

func (d damagedStore) Result(ctx context.Context, key leaderboard.ResultKey) (leaderboard.Record, error) {
	if key.User == "bad" {
		return leaderboard.Record{}, errDamaged
	}
	return d.Store.Result(ctx, key)
}

func TestDamagedUserDoesNotStopThePartition(t *testing.T) {
	c := start(t)
	store, index := embedded.Open(t)
	s := ranking.New(damagedStore{store}, index, ranking.Options{})
	if _, err := s.CreateBoard(t.Context(), leaderboard.Board{ID: "b", Policy: leaderboard.Sum}); err != nil {
		t.Fatal(err)
	}
	const users, perUser = 6, 3
	var want []string
	for n := range perUser {
		c.send(c.results(n*users, (n+1)*users, users)...)
		c.send(message(points("bad", fmt.Sprint("bad", n), 1)))
	}
	for u := range users {
		want = append(want, fmt.Sprintf("u%d %d", u, perUser))
	}
	c.send(message(&pb.MatchResultRecord{BoardId: "b", Notification: true, Result: &pb.Result{UserId: "bad", MatchId: "bad0"}}))
	m := c.join(s, consumer.Options{StuckAfter: 2 * time.Second})
	eventually(t, "all messages are committed", func() bool { return c.allCommitted() == users*perUser+perUser+1 })
	if diff := cmp.Diff(want, boardLines(t, s)); diff != "" {
		t.Errorf("board (-want +got):\n%s", diff)
	}
	for _, d := range c.read(c.topics.DeadLetters(), perUser+1) {
		if h := headers(d); h["cause"] != "damaged" || string(d.Key) != "bad" || h["detail"] != errDamaged.Error() {
			t.Errorf("a dead letter has the key %q, cause %q and detail %q, want bad, damaged and the store's error", d.Key, h["cause"], h["detail"])
		}
	}
	if n := m.count("dead_letters_total"); n != perUser+1 {
		t.Errorf("dead_letters_total = %d, want %d", n, perUser+1)
	}
}
