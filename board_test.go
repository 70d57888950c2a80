package leaderboard

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func scoreOf(s Score) *Score { return &s }

// race returns a valid BEST board with many settings.
func race() Board {
	return Board{
		ID: "marathon", Title: "Marathon", Order: LowerFirst, Policy: Best,
		TieBreakers: []TieBreaker{{Name: "shots", Order: HigherFirst}, {Name: "penalties", Order: LowerFirst}},
		Unit:        "s", Decimals: 2,
		Season:    Schedule{Kind: Monthly, TimeZone: "Europe/Berlin", Grace: time.Hour},
		Divisions: []string{"gender", "country"},
		MinScore:  scoreOf(1), MaxScore: scoreOf(100000), Retention: 24 * time.Hour,
		CreatedAt: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
	}
}

func TestIDValidate(t *testing.T) {
	tests := []struct {
		name, id string
		ok       bool
	}{
		{"one letter", "a", true},
		{"printable characters", "a/b:c%d é 名前 \"'\\", true},
		{"longest allowed", strings.Repeat("x", MaxIDBytes), true},
		{"empty", "", false},
		{"too long", strings.Repeat("x", MaxIDBytes+1), false},
		{"too many bytes, but not too many letters", strings.Repeat("é", MaxIDBytes/2+1), false},
		{"control character", "a\x00b", false},
		{"newline", "a\nb", false},
		{"zero-width space", "a\u200bb", false},
		{"right-to-left override", "a\u202eb", false},
		{"not UTF-8", "a\xff", false},
		{"encoded surrogate", "\xed\xa0\x80", false},
		{"the replacement character itself", "\ufffd", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := UserID(tt.id).Validate()
			if (err == nil) != tt.ok {
				t.Fatalf("Validate(%q) = %v; want an error: %v", tt.id, err, !tt.ok)
			}
			if fe := (*FieldError)(nil); err != nil && (!errors.As(err, &fe) || fe.Field != "user_id" || !errors.Is(err, ErrInvalid)) {
				t.Errorf("Validate(%q) = %v, want a FieldError of user_id", tt.id, err)
			}
		})
	}
}

func TestBoardValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Board)
		fields string // in any order
	}{
		{"valid", func(*Board) {}, ""},
		{"no id", func(b *Board) { b.ID = "" }, "board_id"},
		{"long title", func(b *Board) { b.Title = strings.Repeat("x", MaxTitleBytes+1) }, "title"},
		{"unit with a newline", func(b *Board) { b.Unit = "s\n" }, "unit"},
		{"too many decimals", func(b *Board) { b.Decimals = 10 }, "decimals"},
		{"unknown order and policy", func(b *Board) { b.Order, b.Policy = 7, -1 }, "order policy"},
		{"half-life on a best board", func(b *Board) { b.HalfLife = time.Hour }, "half_life"},
		{"decay without half-life", func(b *Board) { b.Policy = Decay }, "half_life"},
		{"half-life that is not in whole microseconds", func(b *Board) { b.Policy, b.HalfLife = Decay, time.Second+1 }, "half_life"},
		{"valid decay board", func(b *Board) { b.Policy, b.HalfLife = Decay, time.Second }, ""},
		{"count of results with bounds and decimals", func(b *Board) { b.Policy = Count }, "decimals max_score min_score"},
		{"count with a floor and a half-life", func(b *Board) { *b = Board{ID: "b", Policy: Count, Floor: scoreOf(0), HalfLife: time.Hour} }, "floor half_life"},
		{"first with a floor and a half-life", func(b *Board) { b.Policy, b.Floor, b.HalfLife = First, scoreOf(0), time.Hour }, "floor half_life"},
		{"average with a floor and a half-life", func(b *Board) { b.Policy, b.Floor, b.HalfLife = Average, scoreOf(0), time.Hour }, "floor half_life"},
		{"best-k without k", func(b *Board) { b.Policy = BestK }, "k"},
		{"k below 1", func(b *Board) { b.Policy, b.K = BestK, -1 }, "k"},
		{"k above 100", func(b *Board) { b.Policy, b.K = BestK, 101 }, "k"},
		{"valid best-k board", func(b *Board) { b.Policy, b.K = BestK, 100 }, ""},
		{"k on a sum board", func(b *Board) { b.Policy, b.K = Sum, 3 }, "k"},
		{"best-k with a floor and a half-life", func(b *Board) { b.Policy, b.K, b.Floor, b.HalfLife = BestK, 3, scoreOf(0), time.Hour }, "floor half_life"},
		{"best-k whose sums could exceed 2^53", func(b *Board) { b.Policy, b.K, b.MaxScore = BestK, 2, scoreOf(1<<52+1) }, "max_score"},
		{"best-k whose sums reach 2^53", func(b *Board) { b.Policy, b.K, b.MaxScore = BestK, 2, scoreOf(1<<52) }, ""},
		{"valid board that drops results", func(b *Board) { b.Policy, b.DropWorst = BestK, 100 }, ""},
		{"drop_worst with k", func(b *Board) { b.Policy, b.K, b.DropWorst = BestK, 3, 1 }, "drop_worst"},
		{"drop_worst below 1", func(b *Board) { b.Policy, b.DropWorst = BestK, -1 }, "drop_worst"},
		{"drop_worst above 100", func(b *Board) { b.Policy, b.DropWorst = BestK, 101 }, "drop_worst"},
		{"drop_worst on a sum board", func(b *Board) { b.Policy, b.DropWorst = Sum, 1 }, "drop_worst"},
		{"drop_worst whose sums could exceed 2^53", func(b *Board) { b.Policy, b.DropWorst, b.MaxScore = BestK, 1, scoreOf(1<<53/10_000+1) }, "max_score"},
		{"combined tie-breakers", func(b *Board) { b.Policy, b.TieBreakers[0].Combine, b.TieBreakers[1].Combine = Sum, Greatest, Last }, ""},
		{"combined tie-breakers of one result", func(b *Board) { b.TieBreakers[0].Combine = Least }, "tie_breakers[0].combine"},
		{"unknown combination", func(b *Board) { b.Policy, b.TieBreakers[1].Combine = Sum, 4 }, "tie_breakers[1].combine"},
		{"unknown rule for ties", func(b *Board) { b.Ties = 4 }, "ties"},
		{"negative min_results", func(b *Board) { b.MinResults = -1 }, "min_results"},
		{"too many min_results", func(b *Board) { b.MinResults = MaxMinResults + 1 }, "min_results"},
		{"valid statuses", func(b *Board) { b.MinResults, b.Statuses = 2, []Finish{Cut, DNF, DNS, DSQ, HorsConcours} }, ""},
		{"statuses that no result has", func(b *Board) { b.Statuses = []Finish{Ranked, TooFew, -1} }, "statuses[0] statuses[1] statuses[2]"},
		{"status twice", func(b *Board) { b.Statuses = []Finish{DNF, DNF} }, "statuses[1]"},
		{"floor on a best board", func(b *Board) { b.Floor = scoreOf(0) }, "floor"},
		{"floor above 0", func(b *Board) { b.Policy, b.Floor = Sum, scoreOf(1) }, "floor"},
		{"valid floor", func(b *Board) { b.Policy, b.Floor = Sum, scoreOf(-5) }, ""},
		{"bounds beyond 2^53", func(b *Board) { b.MaxScore = scoreOf(MaxScore + 1) }, "max_score"},
		{"minimum above maximum", func(b *Board) { b.MinScore = scoreOf(100001) }, "min_score"},
		{"25 tie-breakers", func(b *Board) {
			b.TieBreakers = nil
			for i := range MaxTieBreakers + 1 {
				b.TieBreakers = append(b.TieBreakers, TieBreaker{Name: "t" + string(rune('a'+i))})
			}
		}, "tie_breakers"},
		{"tie-breaker twice", func(b *Board) { b.TieBreakers[1].Name = "shots" }, "tie_breakers[1].name"},
		{"invalid tie-breaker name", func(b *Board) { b.TieBreakers[0].Name = "Shots!" }, "tie_breakers[0].name"},
		{"unknown tie-breaker order", func(b *Board) { b.TieBreakers[0].Order = 2 }, "tie_breakers[0].order"},
		{"nine divisions", func(b *Board) { b.Divisions = strings.Fields("a b c d e f g h i") }, "divisions"},
		{"division twice", func(b *Board) { b.Divisions = []string{"a", "a"} }, "divisions[1]"},
		{"valid crossed divisions", func(b *Board) { b.Divisions = []string{"a+b+c", "a", "b+a", "a+d"} }, ""},
		{"crossed division twice", func(b *Board) { b.Divisions = []string{"a+b", "b+a"} }, "divisions[1]"},
		{"four attributes crossed", func(b *Board) { b.Divisions = []string{"a+b+c+d"} }, "divisions[0]"},
		{"attribute crossed with itself", func(b *Board) { b.Divisions = []string{"a+b+a"} }, "divisions[0]"},
		{"invalid names in crossed divisions", func(b *Board) { b.Divisions = []string{"a+", "+a", "a+B"} }, "divisions[0] divisions[1] divisions[2]"},
		{"unknown time zone", func(b *Board) { b.Season.TimeZone = "Mars/Olympus" }, "season.time_zone"},
		{"negative retention", func(b *Board) { b.Retention = -1 }, "retention"},
		{"negative shards", func(b *Board) { b.Shards = -1 }, "shards"},
		{"too many shards", func(b *Board) { b.Shards = MaxShards + 1 }, "shards"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := race()
			tt.change(&b)
			err := b.Validate()
			if (err == nil) != (tt.fields == "") {
				t.Fatalf("Validate() = %v, want faults of these fields: %q", err, tt.fields)
			}
			for _, field := range strings.Fields(tt.fields) {
				if !strings.Contains(err.Error(), field+":") || !errors.Is(err, ErrInvalid) {
					t.Errorf("Validate() = %v, want a fault of %s", err, field)
				}
			}
		})
	}
}

func TestBoardJSONRoundTrip(t *testing.T) {
	for _, b := range []Board{race(), {ID: "d", Policy: Decay, HalfLife: time.Hour, Floor: nil}, {ID: "s", Policy: Sum, Floor: scoreOf(0)}} {
		data, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		var got Board
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if diff := cmp.Diff(b, got); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", data, diff)
		}
	}
}

func TestEnumsRejectUnknownNames(t *testing.T) {
	var o Order
	var p Policy
	var m Method
	for _, text := range []string{"", "asc", "best", "HIGHER", "Competition"} {
		if o.UnmarshalText([]byte(text)) == nil || p.UnmarshalText([]byte(text)) == nil || m.UnmarshalText([]byte(text)) == nil {
			t.Errorf("UnmarshalText(%q) of Order, Policy or Method returned nil, want an error", text)
		}
	}
}

func TestAmendKeepsWindowsWithOldIDs(t *testing.T) {
	window := func(id SeasonID, from int) Season {
		return Season{id, time.Date(from, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(from+1, 1, 1, 0, 0, 0, 0, time.UTC)}
	}
	b := race()
	b.Season.Kind, b.Season.Windows = Explicit, []Season{window("..", 2026)} // not allowed in new windows
	proposal := b
	proposal.Season.Windows = append(slices.Clone(b.Season.Windows), window("2027", 2027))
	if got, err := b.Amend(proposal); err != nil || len(got.Season.Windows) != 2 {
		t.Errorf("Amend() = %v, %v; want both windows", got.Season.Windows, err)
	}
	if err := b.ValidateNew(); !errors.Is(err, ErrInvalid) {
		t.Errorf("ValidateNew() = %v, want ErrInvalid", err)
	}
}

func TestAmend(t *testing.T) {
	window := func(id SeasonID, from int) Season {
		return Season{id, time.Date(from, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(from+1, 1, 1, 0, 0, 0, 0, time.UTC)}
	}
	tests := []struct {
		name   string
		change func(*Board)
		ok     bool
	}{
		{"title, unit, decimals", func(b *Board) { b.Title, b.Unit, b.Decimals = "New", "ms", 3 }, true},
		{"bounds", func(b *Board) { b.MinScore, b.MaxScore = nil, scoreOf(5) }, true},
		{"shards", func(b *Board) { b.Shards = 3 }, true},
		{"grace and retention", func(b *Board) { b.Season.Grace, b.Retention = 2*time.Hour, 0 }, true},
		{"private", func(b *Board) { b.Private = true }, true},
		{"an additional window", func(b *Board) { b.Season.Windows = append(b.Season.Windows, window("2027", 2027)) }, true},
		{"an additional window with the id .., which HTTP clients remove from the path of a URL", func(b *Board) { b.Season.Windows = append(b.Season.Windows, window("..", 2027)) }, false},
		{"a removed window", func(b *Board) { b.Season.Windows = nil }, false},
		{"a later end of a window", func(b *Board) { b.Season.Windows[0].End = b.Season.Windows[0].End.AddDate(0, 1, 0) }, true},
		{"an earlier end of a window", func(b *Board) { b.Season.Windows[0].End = b.Season.Windows[0].End.AddDate(0, -1, 0) }, true},
		{"a window that ends after the next one begins", func(b *Board) {
			b.Season.Windows = []Season{{"2026", b.Season.Windows[0].Start, b.Season.Windows[0].End.Add(1)}, window("2027", 2027)}
		}, false},
		{"a moved window", func(b *Board) { b.Season.Windows = []Season{window("2026", 2025)} }, false},
		{"order", func(b *Board) { b.Order = HigherFirst }, false},
		{"policy", func(b *Board) { b.Policy = Latest }, false},
		{"tie-breakers", func(b *Board) { b.TieBreakers = b.TieBreakers[:1] }, false},
		{"time zone", func(b *Board) { b.Season.TimeZone = "UTC" }, false},
		{"divisions", func(b *Board) { b.Divisions = []string{"country", "gender+age"} }, true},
		{"no divisions", func(b *Board) { b.Divisions = nil }, true},
		{"invalid divisions", func(b *Board) { b.Divisions = []string{"country", "country"} }, false},
		{"invalid title", func(b *Board) { b.Title = "\x00" }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := race()
			b.Season.Kind, b.Season.Windows = Explicit, []Season{window("2026", 2026)}
			proposal := b
			proposal.TieBreakers = append([]TieBreaker(nil), b.TieBreakers...)
			proposal.Season.Windows = append([]Season(nil), b.Season.Windows...)
			tt.change(&proposal)
			got, err := b.Amend(proposal)
			if (err == nil) != tt.ok {
				t.Fatalf("Amend() = %v; want an error: %v", err, !tt.ok)
			}
			if tt.ok && !got.SameAs(&proposal) {
				t.Errorf("Amend() = %+v, want %+v", got, proposal)
			}
			if !tt.ok && !errors.Is(err, ErrInvalid) {
				t.Errorf("Amend() = %v, want ErrInvalid", err)
			}
		})
	}
}

func TestClosesAt(t *testing.T) {
	b := race()
	november, err := b.Season.ByID("202611")
	if err != nil {
		t.Fatal(err)
	}
	closes := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC) // midnight in Berlin, plus one hour of grace
	if got := b.ClosesAt(november); !got.Equal(closes) {
		t.Errorf("ClosesAt(202611) = %v, want %v", got, closes)
	}
	if before, atEnd := b.Closed(november, closes.Add(-1)), b.Closed(november, closes); before || !atEnd {
		t.Errorf("Closed = %v before the end of the grace and %v at its end, want false and true", before, atEnd)
	}
	old, err := b.Season.ByID("187211")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := b.ClosesAt(old), b.CreatedAt.Add(time.Hour); !got.Equal(want) {
		t.Errorf("ClosesAt(187211) = %v, want %v, a grace after the creation of the board", got, want)
	}
	if all := (Season{ID: SeasonAll}); b.Closed(all, closes) {
		t.Errorf("Closed(%q) = true, want false, because this season has no end", SeasonAll)
	}
}

func TestDifferencesNameEveryField(t *testing.T) {
	one := Score(1)
	base := Board{ID: "b"}
	variants := map[string]Board{
		"Title": {Title: "x"}, "Order": {Order: LowerFirst}, "Policy": {Policy: Sum}, "HalfLife": {HalfLife: time.Hour}, "K": {K: 2},
		"DropWorst": {DropWorst: 1}, "Ties": {Ties: Shared}, "MinResults": {MinResults: 2}, "Statuses": {Statuses: []Finish{DNF}},
		"TieBreakers": {TieBreakers: []TieBreaker{{Name: "wins"}}}, "Unit": {Unit: "s"}, "Decimals": {Decimals: 1},
		"Season": {Season: Schedule{Kind: Monthly}}, "Divisions": {Divisions: []string{"gender"}},
		"MinScore": {MinScore: &one}, "MaxScore": {MaxScore: &one}, "Floor": {Floor: &one}, "Retention": {Retention: time.Hour},
		"Private": {Private: true}, "Shards": {Shards: 3}, "Matches": {Matches: true}, "AcceptedAttributes": {AcceptedAttributes: []string{"mode"}}, "Source": {Source: &Source{Board: "a"}},
	}
	for i := range reflect.TypeFor[Board]().NumField() {
		name := reflect.TypeFor[Board]().Field(i).Name
		variant, ok := variants[name]
		if slices.Contains([]string{"ID", "CreatedAt", "StrictSubmits", "BoardState"}, name) {
			continue
		}
		if !ok {
			t.Errorf("the field %s is new: add it to Board.fields and to this test", name)
			continue
		}
		variant.ID = base.ID
		if got := base.Differences(&variant); len(got) != 1 {
			t.Errorf("only %s differs: Differences = %q, want one difference", name, got)
		}
		if got := variant.Differences(&variant); len(got) != 0 {
			t.Errorf("Differences of a board from itself = %q, want none", got)
		}
	}
	greatest := Board{ID: "b", TieBreakers: []TieBreaker{{Name: "wins", Combine: Greatest}}}
	if got, want := greatest.Differences(&Board{ID: "b", TieBreakers: []TieBreaker{{Name: "wins"}}}), []string{"tie_breakers (wins HIGHER_FIRST MAX, not wins HIGHER_FIRST)"}; !slices.Equal(got, want) {
		t.Errorf("Differences = %q, want %q", got, want)
	}
	if got, want := base.Differences(&Board{Policy: Sum, Floor: &one}), []string{"floor (none, not 1)", "policy (BEST, not SUM)"}; !slices.Equal(got, want) {
		t.Errorf("Differences = %q, want %q", got, want)
	}
}

func TestAmendSwitchesMatchesOn(t *testing.T) {
	b := Board{ID: "b", Policy: Sum, Divisions: []string{"gender"}}
	on := b.Clone()
	on.Matches = true
	amended, err := b.Amend(on)
	if err != nil || !amended.Matches || !amended.UnfilledMatches || amended.Rules() != b.Rules()+1 || !slices.Equal(amended.Divisions, b.Divisions) {
		t.Fatalf("Amend with Matches: %+v, %v; want Matches and UnfilledMatches, new Rules and the same divisions", amended, err)
	}
	if again, err := amended.Amend(amended.Clone()); err != nil || !again.UnfilledMatches || again.Rules() != amended.Rules() {
		t.Errorf("Amend without a change: %+v, %v; want UnfilledMatches and the same Rules", again, err)
	}
	filled := amended.Clone()
	filled.UnfilledMatches = false
	if filled, err = amended.Amend(filled); err != nil || filled.UnfilledMatches || !filled.Matches {
		t.Errorf("Amend after the fill: %+v, %v; want Matches without UnfilledMatches", filled, err)
	}
	if _, err := amended.Amend(b); !errors.Is(err, ErrInvalid) {
		t.Errorf("Amend without Matches: error %v, want ErrInvalid", err)
	}
	if again, err := filled.Amend(amended); err != nil || again.UnfilledMatches {
		t.Errorf("Amend with UnfilledMatches of a filled board: %+v, %v; want it ignored", again, err)
	}
}
