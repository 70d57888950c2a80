package ranking_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

func TestBanHidesAUserUntilItIsLifted(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.create(leaderboard.Board{ID: "c"})
	f.submit("b", points("ann", "m", 5))
	f.submit("c", points("ann", "m", 6))
	f.submit("b", points("bob", "m", 1))
	if _, err := f.SetBan(t.Context(), leaderboard.Ban{User: "ann", Banned: true, Reason: "cheat"}); err != nil {
		t.Fatal(err)
	}
	f.wantList(ranking.Query{Board: "b"}, "bob 1 1")
	f.wantList(ranking.Query{Board: "c"})
	if got := f.submit("b", points("ann", "m2", 5)); got.Rank != 0 || got.Score != 10 {
		t.Errorf("submit of a banned user: %+v, want no rank and score 10", got)
	}
	if scores, err := f.UserScores(t.Context(), "ann", leaderboard.Competition, nil); err != nil || len(scores) != 0 {
		t.Errorf("scores of a banned user: %+v, %v, want none", scores, err)
	}
	if _, err := f.SetBan(t.Context(), leaderboard.Ban{User: "ann", Banned: false, Reason: ""}); err != nil {
		t.Fatal(err)
	}
	f.wantList(ranking.Query{Board: "b"}, "ann 10 1", "bob 1 2")
	scores, err := f.UserScores(t.Context(), "ann", leaderboard.Competition, nil)
	if err != nil || len(scores) != 2 || scores[0].Score != 10 || scores[1].Score != 6 || scores[1].Rank != 1 {
		t.Errorf("scores after the ban was lifted: %+v, %v, want 10 on board b and 6 at rank 1 on board c", scores, err)
	}
	if bans, err := f.UserBans(t.Context(), "ann"); err != nil || len(bans) != 1 || bans[0].Banned {
		t.Errorf("bans after the ban was lifted: %+v, %v, want one lifted ban", bans, err)
	}
	if err := f.Erase(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	f.wantList(ranking.Query{Board: "b"}, "bob 1 1")
	if got := f.trySubmit("b", points("ann", "m", 5)); got.Reason != leaderboard.ReasonErased {
		t.Errorf("submit at the time of the erasure: %+v, want a rejection as USER_ERASED", got)
	}
	f.clock.set(start.Add(time.Second))
	if got := f.submit("b", points("ann", "m", 3)); got.Score != 3 || got.Rank != 1 {
		t.Errorf("submit after the erasure: %+v, want score 3 at rank 1", got)
	}
}

func TestEnsureDefaultBoardCanBeRepeated(t *testing.T) {
	f := open(t)
	for range 2 {
		if err := f.EnsureDefaultBoard(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b, err := f.Board(t.Context(), leaderboard.DefaultBoard)
	if err != nil || b.Policy != leaderboard.Sum || b.Order != leaderboard.HigherFirst || b.Season.Kind != leaderboard.Monthly {
		t.Errorf("default board %+v, %v, want a monthly board that sums points, higher first", b, err)
	}
}

func TestBoardsAreCreatedAmendedAndDeleted(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	if _, err := f.CreateBoard(t.Context(), sumBoard); err != nil {
		t.Errorf("second creation of a board: %v, want no error", err)
	}
	if _, err := f.CreateBoard(t.Context(), leaderboard.Board{ID: "b"}); !errors.Is(err, leaderboard.ErrBoardExists) {
		t.Errorf("creation of a different board with the same id: %v, want ErrBoardExists", err)
	}
	if _, err := f.CreateBoard(t.Context(), leaderboard.Board{ID: ""}); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("creation of a board without an id: %v, want ErrInvalid", err)
	}
	amended, err := f.AmendBoard(t.Context(), "b", func(b *leaderboard.Board) error { b.Title = "New"; return nil })
	if err != nil || amended.Title != "New" {
		t.Errorf("AmendBoard = %+v, %v, want the title New", amended, err)
	}
	if b, err := f.Board(t.Context(), "b"); err != nil || b.Title != "New" {
		t.Errorf("board after the amendment: %+v, %v, want the title New", b, err)
	}
	f.submit("b", points("u", "m", 1))
	if err := f.DeleteBoard(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Board(t.Context(), "b"); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		t.Errorf("read of a deleted board: %v, want ErrBoardNotFound", err)
	}
	f.create(sumBoard)
	f.wantList(ranking.Query{Board: "b"})
}

// A season that closed at once would reject results that were submitted in time but have not
// arrived yet.
func TestAmendBoardClosesNoSeasonWithResults(t *testing.T) {
	f := open(t)
	f.clock.set(start.AddDate(0, 0, -3))
	for _, id := range []leaderboard.BoardID{"used", "unused"} {
		f.create(leaderboard.Board{ID: id, Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Daily, Grace: 24 * time.Hour}})
	}
	f.clock.set(start)
	f.submit("used", withTime(points("ann", "m", 5), start.Add(-13*time.Hour))) // in 20261119, which ended 12 hours ago
	grace := func(id leaderboard.BoardID, grace time.Duration, preview bool) error {
		change := func(b *leaderboard.Board) error { b.Season.Grace = grace; return nil }
		if preview {
			_, err := f.PreviewAmendment(t.Context(), id, change)
			return err
		}
		_, err := f.AmendBoard(t.Context(), id, change)
		return err
	}
	for _, preview := range []bool{true, false} {
		for _, short := range []time.Duration{0, 11 * time.Hour, 12 * time.Hour} {
			var fault *leaderboard.FieldError
			err := grace("used", short, preview)
			if !errors.As(err, &fault) || fault.Field != "season.grace" || !strings.Contains(fault.Problem, `"20261119"`) {
				t.Errorf("grace of %v: %v, want an error of field season.grace that names the season", short, err)
			}
		}
		if err := grace("unused", 0, preview); err != nil {
			t.Errorf("shorter grace of a board without results: %v, want nil", err)
		}
	}
	if err := grace("used", 12*time.Hour+time.Minute, false); err != nil {
		t.Errorf("grace that closes the season in a minute: %v, want nil", err)
	}
	f.submit("used", withTime(points("bob", "m", 5), start.Add(-13*time.Hour)))
	f.clock.set(start.Add(time.Minute))
	if err := grace("used", 0, false); err != nil {
		t.Errorf("shorter grace after the season closed: %v, want nil", err)
	}
	f.submit("used", points("bob", "m", 5))
}
