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

// damaged is a store that cannot decode the data of users called "bad".
type damaged struct{ leaderboard.Store }

var errDamaged = fmt.Errorf("cql: account: %w", leaderboard.ErrFormat)

// Apply reports damaged data in the same way as the Cassandra store: the outcomes of
// users called "bad" have the error. If there are no other users in results, Apply itself
// returns the error.
func (d damaged) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	var good []leaderboard.MatchResult
	var at []int
	for i := range results {
		if results[i].User != "bad" {
			good, at = append(good, results[i]), append(at, i)
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
	for n, i := range at {
		report.Outcomes[i] = applied.Outcomes[n]
	}
	return report, nil
}

func (d damaged) Recount(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error) {
	if user == "bad" {
		return leaderboard.Change{}, errDamaged
	}
	return d.Store.Recount(ctx, b, season, user)
}

func (d damaged) Result(ctx context.Context, key leaderboard.ResultKey) (leaderboard.Record, error) {
	if key.User == "bad" {
		return leaderboard.Record{}, errDamaged
	}
	return d.Store.Result(ctx, key)
}

// If the stored data of one user cannot be decoded, that user's messages become dead
// letters. All other messages of the batch are applied, reported and committed.
func TestDamagedUserDoesNotStopThePartition(t *testing.T) {
	c := start(t)
	store, index := embedded.Open(t)
	s := ranking.New(damaged{store}, index, ranking.Options{})
	if _, err := s.CreateBoard(t.Context(), leaderboard.Board{ID: "b", Policy: leaderboard.Sum}); err != nil {
		t.Fatal(err)
	}
	const users, each = 6, 3
	var want []string
	for n := range each {
		c.send(c.results(n*users, (n+1)*users, users)...)
		c.send(message(points("bad", fmt.Sprint("bad", n), 1)))
	}
	for u := range users {
		want = append(want, fmt.Sprintf("u%d %d", u, each))
	}
	c.send(message(&pb.MatchResultRecord{BoardId: "b", Notification: true, Result: &pb.Result{UserId: "bad", MatchId: "bad0"}}))
	m := c.join(s, consumer.Options{StuckAfter: 2 * time.Second})
	eventually(t, "commit of every message", func() bool { return c.allCommitted() == users*each+each+1 })
	if diff := cmp.Diff(want, board(t, s)); diff != "" {
		t.Errorf("board (-want +got):\n%s", diff)
	}
	for _, d := range c.read(c.topics.DeadLetters(), each+1) {
		if h := headers(d); h["cause"] != "damaged" || string(d.Key) != "bad" || h["detail"] != errDamaged.Error() {
			t.Errorf("a dead letter has the key %q, cause %q and detail %q, want bad, damaged and the store's error", d.Key, h["cause"], h["detail"])
		}
	}
	if n := m.count("dead_letters_total"); n != each+1 {
		t.Errorf("dead_letters_total = %d, want %d", n, each+1)
	}
}
