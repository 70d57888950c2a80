package leaderboard

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEarlyEndOfASeason(t *testing.T) {
	s := Schedule{Kind: Monthly}
	at, decided := utc(t, "2026-11-20T12:00:00Z"), utc(t, "2026-11-21T09:00:00Z")
	if err := s.EndEarly(EarlyEnd{"202611", at, decided}); err != nil {
		t.Fatal(err)
	}
	want := Season{"202611", utc(t, "2026-11-01T00:00:00Z"), at}
	for _, now := range []string{"2026-11-01T00:00:00Z", "2026-11-20T12:00:00Z", "2026-11-30T23:59:59Z"} {
		if got, err := s.At(utc(t, now)); err != nil || got != want {
			t.Errorf("At(%s) = %v, %v, want %v", now, got, err, want)
		}
	}
	if got, err := s.ByID("202611"); err != nil || got != want {
		t.Errorf("ByID = %v, %v, want %v", got, err, want)
	}
	december, _ := s.ByID("202612")
	if got, ok := s.Previous(december); !ok || got != want {
		t.Errorf("Previous(202612) = %v, %v, want %v", got, ok, want)
	}
	b := Board{ID: "b", Season: s}
	b.Season.Grace = time.Hour
	if got, want := b.ClosesAt(want), decided.Add(time.Hour); !got.Equal(want) {
		t.Errorf("ClosesAt = %v, want %v, one hour after the decision", got, want)
	}
	text, err := json.Marshal(&b)
	var back Board
	if err := errors.Join(err, json.Unmarshal(text, &back)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, back); diff != "" {
		t.Errorf("board through JSON (-want +got):\n%s", diff)
	}
}

func TestEndEarlyRefusesTimesOutsideTheSeason(t *testing.T) {
	windows := Schedule{Kind: Explicit, Windows: []Season{window(t, "cup", "2026-11-01T00:00:00Z", "2026-11-10T00:00:00Z")}}
	endless := Schedule{}
	if err := endless.EndEarly(EarlyEnd{SeasonAll, utc(t, "2026-11-05T00:00:00Z"), utc(t, "2026-11-05T00:00:00Z")}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		schedule Schedule
		id       SeasonID
		at       string
		field    string
	}{
		{"at the start", windows, "cup", "2026-11-01T00:00:00Z", "at"},
		{"before the start", windows, "cup", "2026-10-01T00:00:00Z", "at"},
		{"at the end", windows, "cup", "2026-11-10T00:00:00Z", "at"},
		{"after the start", windows, "cup", "2026-11-01T00:00:00.000001Z", ""},
		{"at the early end", endless, SeasonAll, "2026-11-05T00:00:00Z", "at"},
		{"after the early end", endless, SeasonAll, "2026-11-06T00:00:00Z", "at"},
		{"before the early end", endless, SeasonAll, "2026-11-04T00:00:00Z", ""},
	} {
		before := tt.schedule.Ends
		err := tt.schedule.EndEarly(EarlyEnd{tt.id, utc(t, tt.at), utc(t, "2026-12-01T00:00:00Z")})
		var fault *FieldError
		if errors.As(err, &fault) != (tt.field != "") || fault != nil && fault.Field != tt.field {
			t.Errorf("%s: EndEarly = %v, want an error of field %q (empty: no error)", tt.name, err, tt.field)
		}
		if len(before) > 0 && !before[0].At.Equal(utc(t, "2026-11-05T00:00:00Z")) {
			t.Errorf("%s: EndEarly modified the slice Ends of another Schedule", tt.name)
		}
	}
	many := Schedule{Kind: Daily}
	for day := utc(t, "2020-01-01T12:00:00Z"); len(many.Ends) < MaxEarlyEnds; day = day.AddDate(0, 0, 1) {
		if err := many.EndEarly(EarlyEnd{SeasonID(day.Format("20060102")), day, day}); err != nil {
			t.Fatal(err)
		}
	}
	last := utc(t, "2026-11-20T12:00:00Z")
	if err := many.EndEarly(EarlyEnd{"20261120", last, last}); !errors.Is(err, ErrInvalid) {
		t.Errorf("MaxEarlyEnds+1 early ends: %v, want ErrInvalid", err)
	}
}

func TestScheduleAfter(t *testing.T) {
	windows := Schedule{Kind: Explicit, Windows: []Season{
		window(t, "cup", "2026-11-01T00:00:00Z", "2026-11-10T00:00:00Z"), window(t, "final", "2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z"),
	}}
	for _, tt := range []struct {
		schedule Schedule
		t        string
		want     SeasonID
	}{
		{Schedule{Kind: Daily}, "2026-11-20T12:00:00Z", "20261121"},
		{Schedule{Kind: Daily}, "2026-11-20T00:00:00Z", "20261120"},
		{Schedule{Kind: Weekly, TimeZone: "Europe/Berlin"}, "2026-11-20T12:00:00Z", "2026W48"},
		{windows, "2026-10-01T00:00:00Z", "cup"},
		{windows, "2026-11-05T00:00:00Z", "final"},
		{windows, "2026-12-01T00:00:01Z", ""},
		{Schedule{}, "2026-11-20T12:00:00Z", ""},
	} {
		if got, ok := tt.schedule.After(utc(t, tt.t)); ok != (tt.want != "") || ok && got.ID != tt.want {
			t.Errorf("%v: After(%s) = %v, %v, want %q", tt.schedule.Kind, tt.t, got, ok, tt.want)
		}
	}
}

func TestAmendKeepsEarlyEnds(t *testing.T) {
	b := Board{ID: "b", Season: Schedule{Kind: Daily}}
	at := utc(t, "2026-11-20T12:00:00Z")
	ended, err := b.Revise(func(b *Board) error { return b.Season.EndEarly(EarlyEnd{"20261120", at, at}) })
	if err != nil || len(ended.Season.Ends) != 1 || !ended.SameAs(&b) {
		t.Fatalf("Revise: %+v, %v, want one early end, and SameAs true", ended, err)
	}
	for _, tt := range []struct {
		name string
		ends []EarlyEnd
		ok   bool
	}{
		{"an early end cannot be removed", nil, false},
		{"an early end cannot move to a later time", []EarlyEnd{{"20261120", at.Add(1), at}}, false},
		{"an early end can move to an earlier time", []EarlyEnd{{"20261120", at.Add(-time.Hour), at}}, true},
		{"another season can end early", []EarlyEnd{{"20261119", at.AddDate(0, 0, -1), at}, {"20261120", at, at}}, true},
	} {
		got, err := ended.Revise(func(b *Board) error { b.Season.Ends = tt.ends; return nil })
		if (err == nil) != tt.ok || tt.ok && !cmp.Equal(got.Season.Ends, tt.ends) {
			t.Errorf("%s: %+v, %v, want success: %v", tt.name, got.Season.Ends, err, tt.ok)
		}
	}
}

// A tally from before EndEarly may include results at or after the early end. If such a
// result is replaced, Merge must request a recount.
func TestMergeRecountsResultsAfterAnEarlyEnd(t *testing.T) {
	at := utc(t, "2026-11-20T12:00:00Z")
	b := Board{ID: "b", Policy: Sum, Season: Schedule{Kind: Daily, Grace: time.Hour}}
	key := ResultKey{SeasonKey{"b", "20261120"}, "u", "m"}
	stored := MatchResult{ResultKey: key, Score: 5, AchievedAt: at, ReceivedAt: at}
	known := Known{Result: &stored, Tally: b.Add(Tally{}, &stored)}
	if err := b.Season.EndEarly(EarlyEnd{"20261120", at, at}); err != nil {
		t.Fatal(err)
	}
	if b.Counts(&stored) {
		t.Error("Counts of a result at the early end = true, want false")
	}
	correction := stored
	correction.Revision, correction.Score = 1, 7
	if d := b.Merge(known, correction); d.Status != Rejected || d.Reason != ReasonEnded || d.Refuse == nil {
		t.Errorf("correction at the early end: %+v, want REJECTED with reason SEASON_ENDED, and Refuse set", d)
	}
	correction.Amends = true
	if d := b.Merge(known, correction); d.Reason != ReasonEnded {
		t.Errorf("correction by an administrator at the early end: %+v, want reason SEASON_ENDED", d)
	}
	correction.AchievedAt = at.Add(-time.Microsecond)
	if d := b.Merge(known, correction); d.Status != Applied || !d.Recount {
		t.Errorf("correction to a time before the early end: %+v, want APPLIED with a recount", d)
	}
	if d := b.Merge(known, MatchResult{ResultKey: key, Revision: 1, Retracted: true, ReceivedAt: at}); d.Status != Applied || !d.Recount {
		t.Errorf("retraction: %+v, want APPLIED with a recount", d)
	}
}
