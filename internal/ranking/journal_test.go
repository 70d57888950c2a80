package ranking_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// journal records the users that Note receives, as "board user". Note returns err.
type journal struct {
	noted []string
	err   error
}

func (j *journal) Note(_ context.Context, key leaderboard.SeasonKey, users []leaderboard.UserID) error {
	for _, u := range users {
		j.noted = append(j.noted, string(key.Board)+" "+string(u))
	}
	return j.err
}

func (j *journal) take() []string {
	noted := slices.Compact(slices.Sorted(slices.Values(j.noted)))
	j.noted = nil
	return noted
}

func openWith(t *testing.T, j *journal) *fixture {
	t.Helper()
	store, index := embedded.Open(t)
	c := &clock{t: start}
	service := ranking.New(store, index, ranking.Options{Journal: j, Now: c.now})
	t.Cleanup(service.Close)
	return &fixture{service, t, store, index, c}
}

// Submit and Refresh note nothing, because messages of the log cause them.
func TestChangesOutsideTheLogAreNoted(t *testing.T) {
	j := &journal{}
	f := openWith(t, j)
	voidable := sumBoard
	voidable.Matches = true
	f.create(voidable)
	for _, user := range []string{"ann", "bob"} {
		f.submit("b", points(user, "m", 5))
	}
	b := f.board("b")
	if _, err := f.Refresh(t.Context(), b, leaderboard.SeasonAll, "ann"); err != nil {
		t.Fatal(err)
	}
	if noted := j.take(); len(noted) > 0 {
		t.Errorf("submits and a refresh noted %q, want nothing", noted)
	}

	f.create(leaderboard.Board{ID: "linked", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "b"}})
	if err := f.FillLinked(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"linked ann", "linked bob"}, j.take()); diff != "" {
		t.Errorf("noted after a fill (-want +got):\n%s", diff)
	}

	match := leaderboard.MatchState{MatchKey: leaderboard.MatchKey{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, Match: "m"}}
	if _, err := f.SetVoid(t.Context(), b, match, true); err != nil {
		t.Fatal(err)
	}
	noted := j.take()
	for _, want := range []string{"b ann", "b bob"} {
		if !slices.Contains(noted, want) {
			t.Errorf("noted %q after a void, want %q too", noted, want)
		}
	}
}

func TestAChangeThatCannotBeNotedFails(t *testing.T) {
	j := &journal{err: errors.New("the log is full")}
	f := openWith(t, j)
	f.create(sumBoard)
	f.submit("b", points("ann", "m", 5))
	f.create(leaderboard.Board{ID: "linked", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "b"}})
	if err := f.FillLinked(t.Context()); !errors.Is(err, j.err) {
		t.Errorf("FillLinked: error %v, want %v", err, j.err)
	}
	f.ban(leaderboard.Ban{User: "ann"}) // succeeds, because SetBan notes nothing: see fromLog
	f.wantList(ranking.Query{Board: "b"})
}
