package ranking_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/faults"
)

// A preview lists at most MaxEffects entries or seasons, but counts all.
func TestPreviewsAreBounded(t *testing.T) {
	f := open(t)
	f.create(dailyBoard)
	f.create(leaderboard.Board{ID: "c"})
	f.submit("c", points("ann", "m", 1))
	const days = ranking.MaxEffects + 5
	for i := range days {
		r := points("ann", "m", 5)
		r.AchievedAt = start.AddDate(0, 0, -i)
		f.submit("b", r)
	}
	ban, err := f.PreviewBan(t.Context(), leaderboard.Ban{User: "ann", Banned: true})
	seasons := 0
	for _, n := range ban.Seasons {
		seasons += n
	}
	if err != nil || len(ban.Entries) != ranking.MaxEffects || !ban.Truncated || len(ban.Seasons) != 2 || seasons != days+1 {
		t.Errorf("preview of a ban: %d entries, truncated %t, %d boards, %d seasons, error %v; want %d entries, truncated true, 2 boards, %d seasons and no error",
			len(ban.Entries), ban.Truncated, len(ban.Seasons), seasons, err, ranking.MaxEffects, days+1)
	}
	board, err := f.PreviewAmendment(t.Context(), "b", func(b *leaderboard.Board) error {
		b.Season.Grace = 2 * time.Hour
		return nil
	})
	if err != nil || len(board.Seasons) != ranking.MaxEffects || !board.Truncated || board.Changed != days || board.Removed != 0 {
		t.Errorf("preview of a longer grace: %d seasons, truncated %t, %d changed, %d removed, error %v; want %d seasons, truncated true, %d changed, 0 removed and no error",
			len(board.Seasons), board.Truncated, board.Changed, board.Removed, err, ranking.MaxEffects, days)
	}
	if first := start.AddDate(0, 0, 1-days).Format("20060102"); string(board.Seasons[0].ID) != first {
		t.Errorf("the first season is %s, want the oldest, %s", board.Seasons[0].ID, first)
	}
}

func TestPreviewOfABanWithoutTheIndex(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.submit("b", points("ann", "m", 5))
	index := &faults.Index{Index: f.index}
	index.Set(faults.Refuse)
	p, err := serviceOver(t, f.store, index).PreviewBan(t.Context(), leaderboard.Ban{User: "ann", Banned: true})
	want := ranking.EntryEffect{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, Score: 5}
	if err != nil || !p.Degraded || len(p.Entries) != 1 || p.Entries[0] != want {
		t.Errorf("preview: %+v, error %v; want a degraded preview with the entry %+v", p, err, want)
	}
	if _, err := f.PreviewBan(t.Context(), leaderboard.Ban{User: "ann", Board: "none", Banned: true}); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		t.Errorf("preview of a ban on an unknown board: %v, want ErrBoardNotFound", err)
	}
}

func TestPreviewOfARetractionWithoutTheIndex(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.submit("b", points("ann", "m", 5))
	f.submit("b", points("ann", "n", 2))
	index := &faults.Index{Index: f.index}
	index.Set(faults.Refuse)
	key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b"}, User: "ann", Match: "m"}
	p, err := serviceOver(t, f.store, index).PreviewRetraction(t.Context(), f.board("b"), key, nil)
	before, after := leaderboard.Score(7), leaderboard.Score(2)
	want := []ranking.ScoreEffect{{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, User: "ann", ScoreBefore: &before, ScoreAfter: &after}}
	if diff := cmp.Diff(want, p.Entries); err != nil || diff != "" || !p.Degraded || p.Rank != 0 || p.Score != 2 {
		t.Errorf("preview: %+v, error %v; want it degraded, with score 2 and rank 0; entries (-want +got):\n%s", p, err, diff)
	}
	key.Match = "none"
	if _, err := f.PreviewRetraction(t.Context(), f.board("b"), key, nil); !errors.Is(err, leaderboard.ErrResultNotFound) {
		t.Errorf("preview of the retraction of an unknown match: %v, want ErrResultNotFound", err)
	}
}

// A banned user has no rank, and does not count in other ranks. While the match is void, the
// user has no entry, so only the user's bans show that the user is banned.
func TestPreviewOfARestoredMatchOfABannedUser(t *testing.T) {
	f := open(t)
	source := f.create(leaderboard.Board{ID: "laps", Policy: leaderboard.Sum, Matches: true})
	f.create(leaderboard.Board{ID: "link", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "laps"}})
	if err := f.FillLinked(t.Context()); err != nil {
		t.Fatal(err)
	}
	key := leaderboard.MatchKey{SeasonKey: leaderboard.SeasonKey{Board: "laps", Season: leaderboard.SeasonAll}, Match: "m"}
	for user, score := range map[string]int64{"ann": 5, "bob": 2} {
		f.submit("laps", points(user, "m", score))
	}
	if _, err := f.SetVoid(t.Context(), &source, leaderboard.MatchState{MatchKey: key}, true); err != nil {
		t.Fatal(err)
	}
	for _, board := range []leaderboard.BoardID{"link", "laps"} {
		if _, err := f.SetBan(t.Context(), leaderboard.Ban{User: "ann", Board: board, Banned: true}); err != nil {
			t.Fatal(err)
		}
		got, err := f.PreviewVoid(t.Context(), &source, key, false)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, e := range got.Entries {
			lines = append(lines, fmt.Sprint(e.Board, " ", e.User, " ", *e.ScoreAfter, " ", e.RankAfter))
		}
		slices.Sort(lines)
		want := []string{"laps ann 5 1", "laps bob 2 2", "link ann 5 0", "link bob 2 1"}
		if board == "laps" { // a ban on a source hides the user on the linked boards too
			want = []string{"laps ann 5 0", "laps bob 2 1", "link ann 5 0", "link bob 2 1"}
		}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("after the ban on %s (-want +got):\n%s", board, diff)
		}
	}
}
