package leaderboard

import (
	"slices"
	"testing"
	"time"
)

func linkedTo(t *testing.T, source *Board, b Board) *Board {
	t.Helper()
	b.Source = &Source{Board: source.ID}
	if err := b.LinkTo(source); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestLinkedBoardTakesTieBreakersByName(t *testing.T) {
	source := &Board{ID: "a", TieBreakers: []TieBreaker{{Name: "wins"}, {Name: "faults"}, {Name: "laps"}}}
	b := linkedTo(t, source, Board{ID: "b", TieBreakers: []TieBreaker{{Name: "laps"}, {Name: "wins", Order: LowerFirst}}})
	r := b.FromSource(source, &MatchResult{TieBreakers: []int64{7, 8}}, SeasonAll)
	if got := b.ResultTieBreakers(&r); !slices.Equal(got, []int64{0, 7}) {
		t.Errorf("tie-breakers %v, want 0 and 7, the laps and the wins of the source", got)
	}
	tally := b.Add(b.Add(Tally{}, &r), &MatchResult{ResultKey: r.ResultKey, TieBreakers: []int64{1, 0, 5}})
	if got := b.TieBreakersOf(b.Entry(&tally, SeasonAll, "u").Key); !slices.Equal(got, []int64{5, 1}) {
		t.Errorf("the entry has the tie-breakers %v, want 5 and 1, the laps and the wins of the second result", got)
	}
}

func TestMatchIDsOfDifferentSeasonsDoNotCollide(t *testing.T) {
	source := &Board{ID: "a", Season: Schedule{Kind: Explicit, Windows: []Season{{ID: "x"}, {ID: "x/y"}, {ID: "x%2Fy"}}}}
	b := linkedTo(t, source, Board{ID: "b"})
	seen := map[MatchID]bool{}
	for _, w := range source.Season.Windows {
		for _, match := range []MatchID{"m", "y/m", "x/m"} {
			r := b.FromSource(source, &MatchResult{ResultKey: ResultKey{SeasonKey: SeasonKey{"a", w.ID}, Match: match}}, SeasonAll)
			if seen[r.Match] {
				t.Errorf("match id %q is used twice, want different ids", r.Match)
			}
			seen[r.Match] = true
		}
	}
	plain := &Board{ID: "a"}
	r := linkedTo(t, plain, Board{ID: "b"}).FromSource(plain, &MatchResult{ResultKey: ResultKey{Match: "m"}}, "202611")
	if r.Match != "m" || r.Season != "202611" || r.Board != "b" {
		t.Errorf("key %+v, want match m in season 202611 of board b", r.ResultKey)
	}
}

// If a linked board is deleted and created again, the new board must not reject earlier
// results of the source.
func TestDeletionOfAnEarlierLinkedBoardRejectsNoResult(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	r := MatchResult{ResultKey: ResultKey{User: "u", Match: "m"}, AchievedAt: at, ReceivedAt: at}
	r.Season = SeasonAll
	source := &Board{ID: "a"}
	b := linkedTo(t, source, Board{ID: "b", CreatedAt: at.Add(time.Hour)})
	for _, tt := range []struct {
		b         *Board
		deletedAt time.Time
		want      Status
	}{
		{b, b.CreatedAt, Applied},
		{b, b.CreatedAt.Add(time.Second), Rejected}, // a season of b was deleted
		{source, at, Rejected},
	} {
		if got := tt.b.Merge(Known{DeletedAt: tt.deletedAt}, r); got.Status != tt.want {
			t.Errorf("board %q, deleted at %v: status %v, want %v", tt.b.ID, tt.deletedAt, got.Status, tt.want)
		}
	}
}
