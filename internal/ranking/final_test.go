package ranking

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

// twoFinals is a store that returns finals[0] for the first reads, and finals[1]
// afterwards.
type twoFinals struct {
	leaderboard.Store
	finals [2][]leaderboard.Standing
	reads  int // the number of remaining reads that return finals[0]
}

func (s *twoFinals) now() []leaderboard.Standing {
	if s.reads--; s.reads >= 0 {
		return s.finals[0]
	}
	return s.finals[1]
}

func (s *twoFinals) FinalStandings(_ context.Context, _ leaderboard.Ladder, position int64, n int) ([]leaderboard.Standing, int64, error) {
	now := s.now()
	from := min(int(position)-1, len(now))
	return append([]leaderboard.Standing(nil), now[from:min(from+n, len(now))]...), int64(len(now)), nil
}

func (s *twoFinals) FinalStanding(_ context.Context, _ leaderboard.Ladder, user leaderboard.UserID) (leaderboard.Standing, error) {
	for _, st := range s.now() {
		if st.User == user {
			return st, nil
		}
	}
	return leaderboard.Standing{}, leaderboard.ErrEntryNotFound
}

// final returns final standings. Each letter of users is the id of a user, the best
// first.
func final(users string) (all []leaderboard.Standing) {
	for i, u := range users {
		st := leaderboard.Standing{User: leaderboard.UserID(u), Key: leaderboard.RankKey([]byte{byte(u)})}
		st.Ranks.Ordinal, st.Ranks.Dense = int64(i)+1, int64(i)+1
		all = append(all, st)
	}
	return all
}

// If a season is amended during a read of its final standings, the answer is
// consistent: it uses either only the old or only the new final standings.
func TestFinalStandingsAreReadConsistently(t *testing.T) {
	l := leaderboard.Ladder{}
	after := final("d")[0].SortKey()
	for _, users := range [][2]string{{"abcdefgh", "cefgh"}, {"cefgh", "abcdefgh"}, {"abcdefgh", "e"}, {"e", "abcdefgh"}, {"abce", ""}, {"", "abce"}} {
		for what, ask := range map[string]func(finalRanker) (any, error){
			"Around": func(f finalRanker) (any, error) { all, _, err := f.Around(t.Context(), l, "e", 2, 2); return all, err },
			"PageAfter": func(f finalRanker) (any, error) {
				all, v, err := f.PageAfter(t.Context(), l, after, 3)
				return fmt.Sprint(all, v.Size), err
			},
			"Count": func(f finalRanker) (any, error) {
				all, _, err := f.Count(t.Context(), l, []leaderboard.RankKey{"e"})
				return all, err
			},
		} {
			var want [2]string
			for i := range want {
				got, err := ask(finalRanker{store: &twoFinals{finals: [2][]leaderboard.Standing{final(users[i]), final(users[i])}}})
				want[i] = fmt.Sprint(got, err)
			}
			for reads := range 12 {
				got, err := ask(finalRanker{store: &twoFinals{finals: [2][]leaderboard.Standing{final(users[0]), final(users[1])}, reads: reads}})
				if s := fmt.Sprint(got, err); s != want[0] && s != want[1] {
					t.Errorf("%s of %q, amended to %q after %d reads: %s\nwant %s\nor   %s", what, users[0], users[1], reads, s, want[0], want[1])
				}
			}
		}
	}
}

// If an amendment happens during every read, readConsistently returns an error.
func TestReadConsistentlyReturnsAnError(t *testing.T) {
	err := readConsistently(func() (bool, error) { return false, nil })
	if !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("error %v, want ErrUnavailable", err)
	}
}
