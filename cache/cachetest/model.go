package cachetest

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// model is a naive index.
type model struct {
	entries map[leaderboard.UserID]leaderboard.Entry
	asOf    time.Time
}

func newModel() *model { return &model{entries: map[leaderboard.UserID]leaderboard.Entry{}} }

func (m *model) update(at time.Time, entries ...leaderboard.Entry) {
	for _, e := range entries {
		if old, known := m.entries[e.User]; !known || e.Version > old.Version {
			m.entries[e.User] = e
		}
	}
	if at.After(m.asOf) {
		m.asOf = at
	}
}

func (m *model) standings(d leaderboard.Division) []leaderboard.Standing {
	var all []leaderboard.Standing
	for _, e := range m.entries {
		if e.Key != "" && !e.Hidden && (d.Overall() || slices.Contains(e.Divisions, d)) {
			all = append(all, leaderboard.Standing{User: e.User, Key: e.Key, AchievedAt: e.AchievedAt})
		}
	}
	slices.SortFunc(all, func(x, y leaderboard.Standing) int {
		if c := bytes.Compare([]byte(x.Key), []byte(y.Key)); c != 0 {
			return c
		}
		if c := x.AchievedAt.Compare(y.AchievedAt); c != 0 {
			return c
		}
		return bytes.Compare([]byte(x.User), []byte(y.User))
	})
	for i := range all {
		better := count(all, all[i].Key)
		all[i].Ranks = leaderboard.Ranks{
			Competition: better.Standings + 1, Dense: better.Distinct + 1, Ordinal: int64(i) + 1,
		}
	}
	return all
}

func count(all []leaderboard.Standing, key leaderboard.RankKey) leaderboard.Counts {
	var c leaderboard.Counts
	distinct := map[leaderboard.RankKey]bool{}
	for _, s := range all {
		if s.Key < key {
			c.Standings++
			distinct[s.Key] = true
		}
	}
	c.Distinct = int64(len(distinct))
	return c
}

func (m *model) divisions() []leaderboard.Division {
	set := map[leaderboard.Division]bool{{}: true, {Attribute: "country", Value: "nobody's"}: true}
	for _, e := range m.entries {
		for _, d := range e.Divisions {
			set[d] = true
		}
	}
	return slices.Collect(maps.Keys(set))
}
