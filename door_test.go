package leaderboard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// A caller must not submit attributes that no board declares, nor leave out a tie-breaker
// of which the lowest value is best.
func TestCheckSubmit(t *testing.T) {
	ties := []leaderboard.TieBreaker{{Name: "wins"}, {Name: "falls", Order: leaderboard.LowerFirst}}
	lax := leaderboard.Board{ID: "b", Divisions: []string{"gender", "gender+age"}, TieBreakers: ties}
	strict := lax
	strict.StrictSubmits = true
	mode, all := strict, strict
	mode.AcceptedAttributes, all.AcceptedAttributes = []string{"mode"}, []string{leaderboard.AnyAttribute}
	removed := strict
	removed.PastDivisions = [][]string{{"team"}}
	linked := []*leaderboard.Board{
		{ID: "l1", Source: &leaderboard.Source{Board: "b", Match: map[string]string{"track": "a"}}},
		{ID: "l2", Source: &leaderboard.Source{Board: "b"}, Divisions: []string{"club"}},
	}
	for _, tt := range []struct {
		name       string
		board      leaderboard.Board
		attributes string
		linked     []*leaderboard.Board
		want       string // part of the error; empty means none
	}{
		{"an older board takes any", lax, "x y", nil, ""},
		{"divisions, also crossed ones", strict, "gender age", nil, ""},
		{"a division that was removed", removed, "team", nil, ""},
		{"an undeclared attribute", strict, "gander", nil, `"gander" is not declared by board "b", which declares age, gender`},
		{"each undeclared attribute", strict, "x y", nil, `"y" is not declared`},
		{"a declared attribute", mode, "mode gender", nil, ""},
		{"another than the declared one", mode, "track", nil, `which declares age, gender, mode`},
		{"any attribute", all, "x", nil, ""},
		{"an attribute of a linked board's match", strict, "track", linked, ""},
		{"an attribute of a linked board's divisions", mode, "club", linked, ""},
		{"an attribute that no linked board declares", strict, "x", linked, `"x"`},
	} {
		r := leaderboard.MatchResult{Attributes: map[string]string{}, TieBreakers: []int64{0, 0}}
		for _, name := range strings.Fields(tt.attributes) {
			r.Attributes[name] = "v"
		}
		if err := tt.board.CheckSubmit(&r, tt.linked); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	for _, tt := range []struct {
		board leaderboard.Board
		ties  []int64
		ok    bool
	}{{lax, nil, true}, {strict, nil, false}, {strict, []int64{1}, false}, {strict, []int64{1, 0}, true}} {
		if err := tt.board.CheckSubmit(&leaderboard.MatchResult{TieBreakers: tt.ties}, nil); (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), `"falls"`) {
			t.Errorf("tie-breakers %v on a board that is strict: %v: %v, want an error about falls: %v", tt.ties, tt.board.StrictSubmits, err, !tt.ok)
		}
	}
}

// A board keeps the attributes of removed divisions among its accepted ones, so that a copy
// of the board accepts the results of the first.
func TestAttributesOfRemovedDivisionsStayAccepted(t *testing.T) {
	b := leaderboard.Board{ID: "b", StrictSubmits: true, Divisions: []string{"gender", "gender+age", "club"}, AcceptedAttributes: []string{"mode"}}
	next := b
	next.Divisions = []string{"gender"}
	b, err := b.Amend(next)
	if got := strings.Join(b.AcceptedAttributes, " "); err != nil || got != "mode age club" {
		t.Errorf("the accepted attributes are %q, %v; want those of the removed divisions too", got, err)
	}
	next = b
	next.AcceptedAttributes = nil
	if b, err = b.Amend(next); err != nil || strings.Join(b.AcceptedAttributes, " ") != "age club" {
		t.Errorf("after their removal, the accepted attributes are %q, %v", b.AcceptedAttributes, err)
	}
	next = b
	next.AcceptedAttributes = []string{leaderboard.AnyAttribute}
	if b, err = b.Amend(next); err != nil || len(b.AcceptedAttributes) != 1 {
		t.Errorf("a board for any attribute has %q, %v", b.AcceptedAttributes, err)
	}
}

// A board without accepted attributes that is not strict accepts all. It is the same as a
// board that says so, and as one that says nothing, and stays so when it is amended.
func TestBoardsOfEarlierBuildsAcceptAllAttributes(t *testing.T) {
	lax := leaderboard.Board{ID: "b", CreatedAt: time.Now()}
	strict := leaderboard.Board{ID: "b", StrictSubmits: true}
	all, mode := strict, strict
	all.AcceptedAttributes, mode.AcceptedAttributes = []string{leaderboard.AnyAttribute}, []string{"mode"}
	for _, tt := range []struct {
		x, y leaderboard.Board
		same bool
	}{{lax, lax, true}, {lax, strict, true}, {lax, all, true}, {strict, strict, true}, {strict, all, false}, {lax, mode, false}, {strict, mode, false}, {all, mode, false}, {mode, mode, true}} {
		if tt.x.SameAs(&tt.y) != tt.same || tt.y.SameAs(&tt.x) != tt.same {
			t.Errorf("SameAs of the attributes %q and %q (strict: %v, %v), want %v", tt.x.AcceptedAttributes, tt.y.AcceptedAttributes, tt.x.StrictSubmits, tt.y.StrictSubmits, tt.same)
		}
	}
	amended, err := lax.Amend(leaderboard.Board{ID: "b", Title: "new", AcceptedAttributes: []string{leaderboard.AnyAttribute}})
	if err != nil || !amended.AcceptsAny() || !amended.SameAs(&leaderboard.Board{ID: "b", Title: "new", StrictSubmits: true}) {
		t.Errorf("an amended title gives %+v, %v; want a board that is like before", amended, err)
	}
	amended, err = lax.Amend(leaderboard.Board{ID: "b", AcceptedAttributes: []string{"mode"}})
	if err != nil || amended.AcceptsAny() {
		t.Errorf("amended attributes give %+v, %v; want a board that accepts mode only", amended, err)
	}
	for name, b := range map[string]leaderboard.Board{
		"twice":         {ID: "b", AcceptedAttributes: []string{"x", "x"}},
		"any and more":  {ID: "b", AcceptedAttributes: []string{"x", "*"}},
		"not a name":    {ID: "b", AcceptedAttributes: []string{"X y"}},
		"linked":        {ID: "b", AcceptedAttributes: []string{"x"}, Source: &leaderboard.Source{Board: "s"}},
		"more than all": {ID: "b", AcceptedAttributes: strings.Split(strings.Repeat("x ", 65), " ")},
	} {
		if err := b.Validate(); err == nil || !strings.Contains(err.Error(), "attributes") {
			t.Errorf("%s: %v, want an error about attributes", name, err)
		}
	}
}
