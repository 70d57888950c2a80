package ranking_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// naiveSeason computes the season of t without the code under test.
func naiveSeason(s leaderboard.Schedule, t time.Time) leaderboard.SeasonID {
	switch s.Kind {
	case leaderboard.Yearly: // from April 1
		return leaderboard.SeasonID(t.UTC().AddDate(0, -3, 0).Format("2006"))
	case leaderboard.Every: // nine hours
		begin := s.From
		for !t.Before(begin.Add(9 * time.Hour)) {
			begin = begin.Add(9 * time.Hour)
		}
		return leaderboard.SeasonID(begin.Format("20060102T1504"))
	case leaderboard.Monthly:
		return leaderboard.SeasonID(t.UTC().Format("200601"))
	case leaderboard.Daily:
		return leaderboard.SeasonID(t.UTC().Format("20060102"))
	default:
		return leaderboard.SeasonAll
	}
}

var lapDivisions = []string{"team", "mode", "team+mode"}

func randomDivisions(rng *rand.Rand) (divisions []string) {
	for _, i := range rng.Perm(len(lapDivisions))[:rng.IntN(len(lapDivisions)+1)] {
		divisions = append(divisions, lapDivisions[i])
	}
	return divisions
}

type naiveEntry struct {
	score      int64
	ties       []int64   // a smaller value ranks better
	achievedAt time.Time // the event time of the result that decides the score
	match      string
	attributes map[string]*leaderboard.MatchResult // the latest result with the attribute
}

// comesAfter reports whether r is later than the result with the given event time and match.
func comesAfter(r *leaderboard.MatchResult, achievedAt time.Time, match string) bool {
	return cmp.Or(r.AchievedAt.Compare(achievedAt), cmp.Compare(matchOf(r), match)) > 0
}

// matchOf returns the key by which linked boards order the matches of the source.
func matchOf(r *leaderboard.MatchResult) string { return string(r.Season) + "/" + string(r.Match) }

// add adds the result r to e, or to a new entry if e is nil. ties are from rankTies.
func (e *naiveEntry) add(b *leaderboard.Board, r *leaderboard.MatchResult, ties []int64) *naiveEntry {
	switch {
	case e == nil:
		e = &naiveEntry{int64(r.Score), ties, r.AchievedAt, matchOf(r), map[string]*leaderboard.MatchResult{}}
	case b.Policy == leaderboard.Sum:
		e.score += int64(r.Score)
		for i := range ties {
			e.ties[i] += ties[i]
		}
	case b.Policy == leaderboard.Latest && comesAfter(r, e.achievedAt, e.match),
		b.Policy == leaderboard.Best && isBetter(b, int64(r.Score), e.score):
		e.score, e.ties, e.achievedAt, e.match = int64(r.Score), ties, r.AchievedAt, matchOf(r)
	}
	for name := range r.Attributes {
		if latest := e.attributes[name]; latest == nil || comesAfter(r, latest.AchievedAt, matchOf(latest)) {
			e.attributes[name] = r
		}
	}
	return e
}

func isBetter(b *leaderboard.Board, score, other int64) bool {
	return score < other && b.Order == leaderboard.LowerFirst || score > other && b.Order == leaderboard.HigherFirst
}

func (e *naiveEntry) isIn(d leaderboard.Division) bool {
	for _, part := range d.Parts() {
		if r := e.attributes[part.Attribute]; r == nil || r.Attributes[part.Attribute] != part.Value {
			return false
		}
	}
	return true
}

// divisionsOf returns every division in which b may have users, and the zero Division for
// the overall ladder.
func divisionsOf(b *leaderboard.Board) []leaderboard.Division {
	all := []leaderboard.Division{{}}
	for _, name := range b.Divisions {
		parts := [][]leaderboard.Division{nil}
		for _, attribute := range strings.Split(name, "+") {
			var longer [][]leaderboard.Division
			for _, value := range slices.Compact(slices.Clone(lapAttributes[attribute])) {
				for _, p := range parts {
					longer = append(longer, append(slices.Clone(p), leaderboard.Division{Attribute: attribute, Value: value}))
				}
			}
			parts = longer
		}
		for _, p := range parts {
			all = append(all, leaderboard.Cross(p...))
		}
	}
	return all
}

func counts(b *leaderboard.Board, r *leaderboard.MatchResult) bool {
	if r.Retracted {
		return false
	}
	if b.Source != nil {
		for name, value := range b.Source.Match {
			if r.Attributes[name] != value {
				return false
			}
		}
	}
	return true
}

// rankTies returns the values of r for the tie-breakers of b. A smaller value ranks better.
func rankTies(source, b *leaderboard.Board, r *leaderboard.MatchResult) (ties []int64) {
	for _, tie := range b.TieBreakers {
		i := slices.IndexFunc(source.TieBreakers, func(t leaderboard.TieBreaker) bool { return t.Name == tie.Name })
		v := int64(0)
		if i < len(r.TieBreakers) {
			v = r.TieBreakers[i]
		}
		if tie.Order == leaderboard.HigherFirst {
			v = -v
		}
		ties = append(ties, v)
	}
	return ties
}

// recount computes all ladders of a board from the results that stand on the source, without
// hidden results. Lines have the form of fixture.list, and are sorted.
func recount(source, b *leaderboard.Board, results []leaderboard.MatchResult, hidden func(*leaderboard.MatchResult) bool) map[leaderboard.Ladder][]string {
	seasons := map[leaderboard.SeasonID]map[leaderboard.UserID]*naiveEntry{}
	for i := range results {
		r := &results[i]
		if hidden(r) || !counts(b, r) {
			continue
		}
		season := naiveSeason(b.Season, r.AchievedAt)
		if seasons[season] == nil {
			seasons[season] = map[leaderboard.UserID]*naiveEntry{}
		}
		seasons[season][r.User] = seasons[season][r.User].add(b, r, rankTies(source, b, r))
	}
	ladders := map[leaderboard.Ladder][]string{}
	for season, entries := range seasons {
		for _, d := range divisionsOf(b) {
			members := maps.Clone(entries)
			maps.DeleteFunc(members, func(_ leaderboard.UserID, e *naiveEntry) bool { return !e.isIn(d) })
			if lines := naiveLines(b, members); len(lines) > 0 {
				ladders[leaderboard.Ladder{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: season}, Division: d}] = lines
			}
		}
	}
	return ladders
}

func naiveLines(b *leaderboard.Board, users map[leaderboard.UserID]*naiveEntry) []string {
	lines := []string{}
	for user, e := range users {
		rank := 1
		for _, o := range users {
			if isBetter(b, o.score, e.score) || o.score == e.score && slices.Compare(o.ties, e.ties) < 0 {
				rank++
			}
		}
		lines = append(lines, fmt.Sprintf("%s %d %d", user, e.score, rank))
	}
	slices.Sort(lines)
	return lines
}
