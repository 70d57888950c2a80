package leaderboard_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

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
		want       string // part of the error
	}{
		{"any attribute on a board that is not strict", lax, "x y", nil, ""},
		{"attributes of divisions and crossed divisions", strict, "gender age", nil, ""},
		{"an attribute of a removed division", removed, "team", nil, ""},
		{"an undeclared attribute", strict, "gander", nil, `"gander" is not declared by board "b", which declares age, gender`},
		{"each undeclared attribute", strict, "x y", nil, `"y" is not declared`},
		{"a declared attribute", mode, "mode gender", nil, ""},
		{"an attribute other than the declared attributes", mode, "track", nil, `which declares age, gender, mode`},
		{"any attribute on a board that declares all", all, "x", nil, ""},
		{"an attribute of a linked board's match", strict, "track", linked, ""},
		{"an attribute of a linked board's divisions", mode, "club", linked, ""},
		{"an attribute that no linked board declares", strict, "x", linked, `"x"`},
	} {
		r := leaderboard.MatchResult{Attributes: map[string]string{}, TieBreakers: []int64{0, 0}}
		for _, name := range strings.Fields(tt.attributes) {
			r.Attributes[name] = "v"
		}
		if err := tt.board.CheckSubmit(&r, tt.linked); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: CheckSubmit = %v, want an error that contains %q (empty: no error)", tt.name, err, tt.want)
		}
	}
	for value, ok := range map[string]bool{"München": true, "\u0300": false, "\ufffd\ufffc": false} {
		err := lax.CheckSubmit(&leaderboard.MatchResult{Attributes: map[string]string{"city": value}, TieBreakers: []int64{0, 0}}, nil)
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "attributes.city: has no visible character") {
			t.Errorf("CheckSubmit with the attribute value %q = %v; want an error: %v", value, err, !ok)
		}
	}
	for _, tt := range []struct {
		board leaderboard.Board
		ties  []int64
		ok    bool
	}{{lax, nil, true}, {strict, nil, false}, {strict, []int64{1}, false}, {strict, []int64{1, 0}, true}} {
		if err := tt.board.CheckSubmit(&leaderboard.MatchResult{TieBreakers: tt.ties}, nil); (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), `"falls"`) {
			t.Errorf("StrictSubmits %v: CheckSubmit with the tie-breakers %v = %v; want an error about falls: %v", tt.board.StrictSubmits, tt.ties, err, !tt.ok)
		}
	}
}

// Stored results may have attributes of removed divisions. Amend adds these attributes to
// AcceptedAttributes, so that a copy of the board accepts the results.
func TestAttributesOfRemovedDivisionsStayAccepted(t *testing.T) {
	b := leaderboard.Board{ID: "b", StrictSubmits: true, Divisions: []string{"gender", "gender+age", "club"}, AcceptedAttributes: []string{"mode"}}
	proposal := b
	proposal.Divisions = []string{"gender"}
	b, err := b.Amend(proposal)
	if got := strings.Join(b.AcceptedAttributes, " "); err != nil || got != "mode age club" {
		t.Errorf("after Amend without two divisions, the accepted attributes are %q, %v; want mode, age and club", got, err)
	}
	proposal = b
	proposal.AcceptedAttributes = nil
	if b, err = b.Amend(proposal); err != nil || strings.Join(b.AcceptedAttributes, " ") != "age club" {
		t.Errorf("after Amend without AcceptedAttributes, the accepted attributes are %q, %v; want age and club", b.AcceptedAttributes, err)
	}
	proposal = b
	proposal.AcceptedAttributes = []string{leaderboard.AnyAttribute}
	if b, err = b.Amend(proposal); err != nil || len(b.AcceptedAttributes) != 1 {
		t.Errorf("after Amend with AnyAttribute, the accepted attributes are %q, %v; want %q only", b.AcceptedAttributes, err, leaderboard.AnyAttribute)
	}
}

func TestKeptAttributesAreNoDifference(t *testing.T) {
	first := leaderboard.Board{ID: "b", StrictSubmits: true, Divisions: []string{"gender"}, AcceptedAttributes: []string{"mode"}}
	extended := first.Clone()
	extended.Accept([]string{"kind", "mode", "gender"})
	copied := first.Clone()
	copied.AcceptedAttributes = []string{"mode", "kind"}
	other := first.Clone()
	other.AcceptedAttributes = []string{"mode", "track"}
	for _, tt := range []struct {
		name string
		o    *leaderboard.Board
		same bool
	}{{"the first version", &first, true}, {"a copy", &copied, true}, {"another board", &other, false}} {
		if extended.SameAs(tt.o) != tt.same || tt.o.SameAs(&extended) != tt.same || (len(extended.Differences(tt.o)) == 0) != tt.same {
			t.Errorf("comparison with %s: SameAs = %v, Differences = %q; want SameAs = %v in both directions", tt.name, extended.SameAs(tt.o), extended.Differences(tt.o), tt.same)
		}
	}
	if first.SameAs(&copied) {
		t.Error("SameAs of a board that declares another attribute = true, want false")
	}
	proposal := extended.Clone()
	proposal.AcceptedAttributes = []string{"track"}
	amended, err := extended.Amend(proposal)
	if err != nil || strings.Join(amended.AcceptedAttributes, " ") != "track" || len(amended.KeptAttributes) > 0 {
		t.Errorf("after Amend with the accepted attribute track, AcceptedAttributes is %q and KeptAttributes is %q, %v; want track only", amended.AcceptedAttributes, amended.KeptAttributes, err)
	}
}

// Earlier builds created boards without StrictSubmits.
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
			t.Errorf("SameAs of boards with the attributes %q and %q (StrictSubmits %v and %v) is wrong, want %v in both directions", tt.x.AcceptedAttributes, tt.y.AcceptedAttributes, tt.x.StrictSubmits, tt.y.StrictSubmits, tt.same)
		}
	}
	amended, err := lax.Amend(leaderboard.Board{ID: "b", Title: "new", AcceptedAttributes: []string{leaderboard.AnyAttribute}})
	if err != nil || !amended.AcceptsAny() || !amended.SameAs(&leaderboard.Board{ID: "b", Title: "new", StrictSubmits: true}) {
		t.Errorf("Amend with a new title returns %+v, %v; want a board that accepts any attribute", amended, err)
	}
	amended, err = lax.Amend(leaderboard.Board{ID: "b", AcceptedAttributes: []string{"mode"}})
	if err != nil || amended.AcceptsAny() {
		t.Errorf("Amend with the accepted attribute mode returns %+v, %v; want a board that accepts mode only", amended, err)
	}
	names := make([]string, leaderboard.MaxAcceptedAttributes+1)
	for i := range names {
		names[i] = fmt.Sprint("x", i)
	}
	full := leaderboard.Board{ID: "b", AcceptedAttributes: names[:leaderboard.MaxAcceptedAttributes]}
	if err := full.Validate(); err != nil {
		t.Errorf("a board with MaxAcceptedAttributes attributes: %v, want no error", err)
	}
	for name, b := range map[string]leaderboard.Board{
		"an attribute twice":              {ID: "b", AcceptedAttributes: []string{"x", "x"}},
		"any attribute beside a name":     {ID: "b", AcceptedAttributes: []string{"x", "*"}},
		"a text that is not a name":       {ID: "b", AcceptedAttributes: []string{"X y"}},
		"attributes on a linked board":    {ID: "b", AcceptedAttributes: []string{"x"}, Source: &leaderboard.Source{Board: "s"}},
		"more than MaxAcceptedAttributes": {ID: "b", AcceptedAttributes: names},
	} {
		if err := b.Validate(); err == nil || !strings.Contains(err.Error(), "attributes") {
			t.Errorf("%s: %v, want an error about attributes", name, err)
		}
	}
}
