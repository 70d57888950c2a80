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
		"a+b:x", "a+b:x+y+z", "a+b:+y", `a+b:x+y\`, `a+b:\x+y`, "a+:x+y", "a+B:x+y", "a+b:x+\x00"} {
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
				t.Errorf("%q and %q are crossed to the division %v of %q", x, y, d, other)
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
	for asked, want := range map[string]string{
		"": "", "gender:F": "gender:F", "gender:F age:30": "gender+age:F+30", "age:30 gender:F": "gender+age:F+30",
		"age+gender:30+F": "gender+age:F+30", "team:x gender:F age:30": "age+team+gender:30+x+F", "gender+age:F+30 team:x": "age+team+gender:30+x+F",
	} {
		got, err := b.Division(division(strings.Fields(asked)...))
		if err != nil || got.String() != want {
			t.Errorf("Division of %q = %q, %v, want %q", asked, got, err, want)
		}
	}
	for _, asked := range []string{"age:30", "country:KEN", "gender:F country:KEN", "gender:F gender:M", "gender:F gender:F", "gender:F age:30 age:31",
		"gender:F age:30 team:x country:KEN", "team:x age:30"} {
		_, err := b.Division(division(strings.Fields(asked)...))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `"gender", "gender+age", "age+team+gender"`) {
			t.Errorf("Division of %q: error %v, want ErrInvalid that lists the declared divisions", asked, err)
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
