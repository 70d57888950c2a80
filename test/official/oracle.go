package official

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

var methods = []string{"competition", "dense", "ordinal"}

// standing is a user's line in an expected ladder.
type standing struct {
	user  string
	score int64
	ties  []int64   // tie-breakers; greater is better
	at    time.Time // when the user reached the score

	rank  map[string]int64 // by method
	tied  int64            // number of users with this score and tie-breakers, this user included
	worse int64            // number of users with a worse score or worse tie-breakers
}

// ladder sorts and ranks standings. The function better compares only scores and tie-breakers, and
// returns a negative number if x is better. If it returns 0, the time and then the user decide.
func ladder(standings []standing, better func(x, y *standing) int) []standing {
	slices.SortFunc(standings, func(x, y standing) int {
		return cmp.Or(better(&x, &y), x.at.Compare(y.at), strings.Compare(x.user, y.user))
	})
	n := int64(len(standings))
	for first, distinct := 0, int64(1); first < len(standings); distinct++ {
		end := first + 1
		for end < len(standings) && better(&standings[first], &standings[end]) == 0 {
			end++
		}
		for i := first; i < end; i++ {
			s := &standings[i]
			s.rank = map[string]int64{"competition": int64(first) + 1, "dense": distinct, "ordinal": int64(i) + 1}
			s.tied, s.worse = int64(end-first), n-int64(end)
		}
		first = end
	}
	return standings
}

func higherFirst(x, y *standing) int {
	return cmp.Or(cmp.Compare(y.score, x.score), slices.Compare(y.ties, x.ties))
}

func lowerFirst(x, y *standing) int {
	return cmp.Or(cmp.Compare(x.score, y.score), slices.Compare(y.ties, x.ties))
}

// recountSums returns one standing per user, in no order.
func recountSums(results []Result) []standing {
	type sum struct {
		standing
		match   string // the match of the result that determines the field at
		changed bool   // at least one result changed the sum
	}
	users := map[string]*sum{}
	for i := range results {
		r := &results[i]
		changes := *r.Points != 0 || slices.ContainsFunc(r.TieBreakers, func(v int64) bool { return v != 0 })
		s, known := users[r.User]
		if !known {
			s = &sum{standing: standing{user: r.User, ties: make([]int64, len(r.TieBreakers))}}
			users[r.User] = s
		}
		s.score += *r.Points
		for j, v := range r.TieBreakers {
			s.ties[j] += v
		}
		// The last result that changed the sum determines the time. If no result changed the sum,
		// the first result determines the time.
		later := cmp.Or(r.AchievedAt.Compare(s.at), strings.Compare(r.Match, s.match))
		if !known || changes && !s.changed || changes && later > 0 || !changes && !s.changed && later < 0 {
			s.at, s.match, s.changed = r.AchievedAt, r.Match, changes
		}
	}
	all := make([]standing, 0, len(users))
	for _, s := range users {
		all = append(all, s.standing)
	}
	return all
}

func recountBests(t interface{ Fatalf(string, ...any) }, results []Result) []standing {
	all := make([]standing, 0, len(results))
	seen := map[string]bool{}
	for i := range results {
		r := &results[i]
		if seen[r.User] {
			t.Fatalf("user %q has more than one result", r.User)
		}
		seen[r.User] = true
		all = append(all, standing{user: r.User, score: *r.Score, at: r.AchievedAt})
	}
	return all
}

const maxDifferences = 5

func compareLadder(want []standing, got []entry, method string) error {
	var all []string
	for i := range max(len(want), len(got)) {
		var difference string
		switch {
		case i >= len(got):
			difference = fmt.Sprintf("is missing, want %s", want[i].line(method))
		case i >= len(want):
			difference = fmt.Sprintf("is %s, want none", got[i].line())
		default:
			if err := compareEntry(&want[i], &got[i], method); err != nil {
				difference = err.Error()
			}
		}
		if difference != "" {
			all = append(all, fmt.Sprintf("position %d %s", i+1, difference))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%d positions differ (want %d entries, got %d): %s", len(all), len(want), len(got), strings.Join(all[:min(len(all), maxDifferences)], "; "))
}

func compareEntry(want *standing, got *entry, method string) error {
	if got.User == want.user && got.Score == want.score && got.Rank != nil && *got.Rank == want.rank[method] &&
		got.AchievedAt.Equal(want.at) && slices.Equal(got.TieBreakers, want.ties) {
		return nil
	}
	return fmt.Errorf("is %s, want %s", got.line(), want.line(method))
}

func (s *standing) line(method string) string {
	return fmt.Sprintf("{%q score %d %v rank %d at %s}", s.user, s.score, s.ties, s.rank[method], s.at.Format(time.RFC3339Nano))
}
