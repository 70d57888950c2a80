package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// damagedUser is a store in which the data of the user "bad" cannot be read, except the
// ids. If board is not empty, only the data on this board are damaged.
type damagedUser struct {
	leaderboard.Store
	board leaderboard.BoardID
}

var errDamaged = fmt.Errorf("test: %w", leaderboard.ErrFormat)

func (s damagedUser) damaged(board leaderboard.BoardID, user leaderboard.UserID) bool {
	return user == "bad" && (s.board == "" || s.board == board)
}

func (s damagedUser) SetBan(ctx context.Context, b leaderboard.Ban) ([]leaderboard.Change, error) {
	if s.damaged("", b.User) {
		return nil, errDamaged
	}
	return s.Store.SetBan(ctx, b)
}

func (s damagedUser) Result(ctx context.Context, key leaderboard.ResultKey) (leaderboard.Record, error) {
	if s.damaged(key.Board, key.User) {
		return leaderboard.Record{}, errDamaged
	}
	return s.Store.Result(ctx, key)
}

func (s damagedUser) Results(ctx context.Context, key leaderboard.SeasonKey, user leaderboard.UserID) iter.Seq2[leaderboard.MatchResult, error] {
	if s.damaged(key.Board, user) {
		return func(yield func(leaderboard.MatchResult, error) bool) { yield(leaderboard.MatchResult{}, errDamaged) }
	}
	return s.Store.Results(ctx, key, user)
}

func (s damagedUser) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	outcomes := make([]leaderboard.Outcome, len(results))
	var intact []leaderboard.MatchResult
	var at []int
	for i := range results {
		if outcomes[i].Err = errDamaged; !s.damaged(b.ID, results[i].User) {
			intact, at = append(intact, results[i]), append(at, i)
		}
	}
	if len(intact) == 0 && len(results) > 0 {
		return leaderboard.ApplyReport{}, errDamaged
	}
	report, err := s.Store.Apply(ctx, b, intact)
	for n := range report.Outcomes {
		outcomes[at[n]] = report.Outcomes[n]
	}
	report.Outcomes = outcomes
	return report, err
}

// One user whose data are damaged does not keep the bans of others from ending.
func TestBansEndDespiteADamagedUser(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	for i, user := range []string{"bad", "ann", "bob"} {
		f.submit("b", points(user, "m", 5))
		f.ban(leaderboard.Ban{User: leaderboard.UserID(user), Until: start.Add(time.Duration(i+1) * time.Hour)})
	}
	s := over(t, damagedUser{Store: f.store}, f.index)
	s.clock.set(start.Add(150 * time.Minute))
	next, err := s.LiftEndedBans(t.Context(), start.Add(9*time.Hour))
	if !errors.Is(err, leaderboard.ErrFormat) || !strings.Contains(err.Error(), "bad") {
		t.Errorf("LiftEndedBans: %v, want ErrFormat and the user", err)
	}
	if want := start.Add(3 * time.Hour); !next.Equal(want) {
		t.Errorf("the next end is %v, want %v", next, want)
	}
	f.wantList(ranking.Query{Board: "b"}, "ann 5 1")
}
