package leaderboard

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseDivision(t *testing.T) {
	for _, s := range []string{"", "gender:F", "team:a:b", "guild:名前 %/", `team:a+b\`, "gender+age:F+30-34", `a+b+c:x:y+\+\++\\`} {
		d, err := ParseDivision(s)
		if err != nil || d.String() != s {
			t.Errorf("ParseDivision(%q) = %v, %v, want the same text and no error", s, d, err)
		}
		if got := Cross(d.Parts()...); got != d {
			t.Errorf("Cross(%q) = %q, want %q", d.Parts(), got, d)
		}
	}
	for _, s := range []string{"gender", ":F", "gender:", "Gender:F", "ge nder:F", "gender:a\x00", "9a:x",
		"a+b:x", "a+b:x+y+z", "a+b:+y", `a+b:x+y\`, `a+b:\x+y`, "a+:x+y", "a+B:x+y", "a+b+c+d:w+x+y+z", "a+b:x+\x00"} {
		if d, err := ParseDivision(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseDivision(%q) = %v, %v, want ErrInvalid", s, d, err)
		}
	}
}

func TestCrossKeepsCombinationsApart(t *testing.T) {
	seen := map[Division][2]string{}
	values := []string{"a", "+", `\`, `\+`, "a+b", `a\`, `+\`, ":", "a:b"}
	for _, x := range values {
		for _, y := range values {
			d := Cross(Division{"x", x}, Division{"y", y})
			if other, ok := seen[d]; ok {
				t.Errorf("Cross of %q and %q is %v, want a division other than Cross of %q", x, y, d, other)
			}
			seen[d] = [2]string{x, y}
			if diff := cmp.Diff([]Division{{"x", x}, {"y", y}}, d.Parts()); diff != "" {
				t.Errorf("parts of %v (-want +got):\n%s", d, diff)
			}
		}
	}
}

func TestBoardDivision(t *testing.T) {
	b := Board{Divisions: []string{"gender", "gender+age", "age+team+gender"}}
	division := func(texts ...string) Division {
		var parts []Division
		for _, text := range texts {
			d, err := ParseDivision(text)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, d.Parts()...)
		}
		return Cross(parts...)
	}
	for query, want := range map[string]string{
		"": "", "gender:F": "gender:F", "gender:F age:30": "gender+age:F+30", "age:30 gender:F": "gender+age:F+30",
		"age+gender:30+F": "gender+age:F+30", "team:x gender:F age:30": "age+team+gender:30+x+F", "gender+age:F+30 team:x": "age+team+gender:30+x+F",
	} {
		got, err := b.Division(division(strings.Fields(query)...))
		if err != nil || got.String() != want {
			t.Errorf("Division of %q = %q, %v, want %q", query, got, err, want)
		}
	}
	for _, query := range []string{"age:30", "country:KEN", "gender:F country:KEN", "gender:F gender:M", "gender:F gender:F", "gender:F age:30 age:31",
		"gender:F age:30 team:x country:KEN", "team:x age:30"} {
		_, err := b.Division(division(strings.Fields(query)...))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `"gender", "gender+age", "age+team+gender"`) {
			t.Errorf("Division of %q: error %v, want an ErrInvalid that lists the divisions of the board", query, err)
		}
	}
}

func TestEntryHasCrossedDivisionsOfTheLatestValues(t *testing.T) {
	b := Board{ID: "b", Policy: Best, Divisions: []string{"gender+age", "age", "club+gender"}}
	var results []MatchResult
	for i, attributes := range []map[string]string{{"gender": "F"}, {"age": "30-34"}, {"age": "35-39", "team": "x"}} {
		results = append(results, MatchResult{ResultKey: ResultKey{Match: MatchID(rune('a' + i))}, AchievedAt: time.Unix(int64(i), 0), Attributes: attributes})
	}
	want := []string{"", "gender+age:F+30-34 age:30-34", "gender+age:F+35-39 age:35-39"}
	var tally Tally
	for i := range results {
		tally = b.Add(tally, &results[i])
		var names []string
		for _, d := range b.Entry(&tally, "all", "u").Divisions {
			names = append(names, d.String())
		}
		if got := strings.Join(names, " "); got != want[i] {
			t.Errorf("divisions after %d results: %q, want %q", i+1, got, want[i])
		}
	}
	data, _ := tally.AppendBinary(nil)
	var again Tally
	if err := again.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.Entry(&tally, "all", "u"), b.Entry(&again, "all", "u")); diff != "" {
		t.Errorf("entry after a round trip of the tally (-want +got):\n%s", diff)
	}
}

func TestAmendDivisions(t *testing.T) {
	b := race()                // with the divisions gender and country
	b.RecountDue = b.CreatedAt // during a recount
	amend := func(divisions ...string) {
		t.Helper()
		proposal := b.Clone()
		proposal.Divisions = divisions
		var err error
		if b, err = b.Amend(proposal); err != nil {
			t.Fatal(err)
		}
	}
	check := func(rules int, divisions, unfilled, every, attributes string) {
		t.Helper()
		got := []string{strings.Join(b.Divisions, " "), strings.Join(b.Unfilled, " "), strings.Join(b.EveryDivision(), " "), strings.Join(b.talliedAttributes(), " ")}
		if diff := cmp.Diff([]string{divisions, unfilled, every, attributes}, got); diff != "" || b.Rules() != rules {
			t.Errorf("Rules = %d, want %d; Divisions, Unfilled, EveryDivision and talliedAttributes (-want +got):\n%s", b.Rules(), rules, diff)
		}
	}
	check(0, "gender country", "", "gender country", "gender country")
	amend("country", "gender")
	check(0, "gender country", "", "gender country", "gender country")
	amend("gender+age", "country", "gender")
	check(1, "gender country gender+age", "gender+age", "gender country gender+age", "gender country age")
	amend("club", "country", "gender+age")
	check(2, "country gender+age club", "gender+age club", "gender country gender+age club", "gender country age club")
	b.RecountDue = time.Time{} // the end of the recount
	amend(b.Divisions...)
	check(2, "country gender+age club", "", "gender country gender+age club", "gender country age club")
	b.RecountDue = b.CreatedAt
	amend("gender", "club")
	check(3, "club gender", "gender", "gender country gender+age club", "gender country age club")
	for rules, want := range []string{"gender country", "gender country gender+age", "country gender+age club", "club gender", "club gender"} {
		if got := strings.Join(b.WithRules(rules).Divisions, " "); got != want {
			t.Errorf("divisions after %d changes are %q, want %q", rules, got, want)
		}
		if rules < 3 && b.WithRules(rules).Rules() != rules {
			t.Errorf("WithRules(%d).Rules() = %d, want %[1]d", rules, b.WithRules(rules).Rules())
		}
	}
	for i := b.Rules(); i < MaxDivisionChanges; i++ {
		amend("x" + strings.Repeat("y", i))
	}
	proposal := b.Clone()
	proposal.Divisions = nil
	if _, err := b.Amend(proposal); !errors.Is(err, ErrInvalid) {
		t.Errorf("MaxDivisionChanges+1 changes: error %v, want ErrInvalid", err)
	}
}

func TestTallyKeepsItsValuesAfterAChangeOfDivisions(t *testing.T) {
	old := Board{ID: "b", Policy: Sum, Divisions: []string{"gender", "age"}}
	r := MatchResult{ResultKey: ResultKey{Match: "a"}, AchievedAt: time.Unix(1, 0), Attributes: map[string]string{"gender": "F", "age": "30", "club": "x"}}
	tally := old.Add(Tally{}, &r)
	before := old.Entry(&tally, "all", "u")
	proposal := old
	proposal.Divisions = []string{"club", "gender+age"}
	b, err := old.Amend(proposal)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, b.WithRules(0).Entry(&tally, "all", "u")); diff != "" {
		t.Errorf("the entry with the old rules (-before +after):\n%s", diff)
	}
	later := MatchResult{ResultKey: ResultKey{Match: "b"}, AchievedAt: time.Unix(2, 0), Attributes: map[string]string{"age": "31", "club": "y"}}
	extended := b.Add(tally, &later)
	recounted, err := b.Count(func(yield func(MatchResult, error) bool) {
		_ = yield(later, nil) && yield(r, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Division{{"club", "y"}, {"gender+age", "F+31"}}
	for name, tally := range map[string]Tally{"extended": extended, "recounted": recounted} {
		if diff := cmp.Diff(want, b.Entry(&tally, "all", "u").Divisions); diff != "" {
			t.Errorf("divisions of the %s tally (-want +got):\n%s", name, diff)
		}
	}
}

func TestOrderOfDivisionsIsNoDifference(t *testing.T) {
	x, y := Board{ID: "b", Divisions: []string{"age", "gender"}}, Board{ID: "b", Divisions: []string{"gender", "age"}}
	if d := x.Differences(&y); !x.SameAs(&y) || len(d) > 0 {
		t.Errorf("SameAs = %v, Differences = %q; want true and no difference", x.SameAs(&y), d)
	}
	if y.Divisions = []string{"gender"}; x.SameAs(&y) || len(x.Differences(&y)) != 1 {
		t.Errorf("without one of the divisions: SameAs = %v, Differences = %q; want false and one difference", x.SameAs(&y), x.Differences(&y))
	}
}
