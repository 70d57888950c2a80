package faults

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/storage/cql"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// One of three nodes misses writes while it is down. It restarts, and another node is killed. So
// the only quorum is a stale replica and a current replica. Readers must not see stale data, and
// later writes must leave no orphan rows.
func TestStaleReplica(t *testing.T) {
	needs.Slow(t, "faults")
	c := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: cluster.OneDC(3), Logf: t.Logf})
	ctx := t.Context()
	for _, s := range c.Servers {
		_, err := cluster.Nodetool(ctx, s, "disablehandoff")
		must(t, err)
	}
	o := cql.Options{Hosts: c.Addrs(), DataCenter: "dc1", Keyspace: "stale", Buckets: 4, Timeout: time.Minute}
	must(t, cql.ApplySchema(ctx, o, map[string]int{"dc1": 3}, nil))
	b := leaderboard.Board{ID: "stale", Policy: leaderboard.Best, Divisions: []string{"team"}, CreatedAt: epoch}
	l := &staleLadder{t: t, board: &b, key: leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}, options: o, want: map[string]place{}}
	must(t, l.open().CreateBoard(ctx, b))

	const users = 60
	name := func(i int) string { return fmt.Sprintf("user-%02d", i) }
	s := l.open()
	for i := range users {
		l.apply(s, name(i), place{int64(100 + i), "red"})
	}
	must(t, c.Servers[2].Kill())
	for i := range users {
		l.apply(s, name(i), place{int64(1000 + i*37%users), []string{"red", "blue"}[i%2]})
	}
	must(t, c.Servers[2].Start(ctx))
	must(t, c.Servers[0].Kill())

	// A read of a user repairs the stale replica. So each kind of call is the first call for some
	// users.
	s = l.open()
	for i := range users {
		switch user := leaderboard.UserID(name(i)); i % 4 {
		case 0:
			var e leaderboard.Entry
			deployment.Eventually(t, func(ctx context.Context) (err error) {
				e, err = s.Entry(ctx, l.key, user)
				return err
			})
			l.checkPlace(e)
		case 1:
			var change leaderboard.Change
			deployment.Eventually(t, func(ctx context.Context) (err error) {
				change, err = s.Recount(ctx, &b, l.key.Season, user)
				return err
			})
			l.checkPlace(change.Before)
			l.checkPlace(change.After)
		case 2:
			l.apply(s, name(i), place{int64(5000 + i), "blue"})
		}
	}
	l.check(s)
	for i := range users {
		l.apply(s, name(i), place{int64(9000 + i*41%users), []string{"blue", "red"}[i/2%2]})
	}
	l.check(s)
	must(t, c.Servers[0].Start(ctx))
	must(t, c.Servers[1].Kill())
	l.check(l.open())
}

type place struct {
	score int64
	team  string
}

type staleLadder struct {
	t       *testing.T
	board   *leaderboard.Board
	key     leaderboard.SeasonKey
	options cql.Options
	want    map[string]place
	results int
}

// open returns a new store, which has no cached tallies.
func (l *staleLadder) open() *cql.Store {
	l.t.Helper()
	var s *cql.Store
	deployment.Eventually(l.t, func(ctx context.Context) (err error) {
		s, err = cql.Open(ctx, l.options)
		return err
	})
	l.t.Cleanup(func() { must(l.t, s.Close()) })
	engine.New(s) // s asks it for the accounts of users
	return s
}

func (l *staleLadder) apply(s *cql.Store, user string, target place) {
	l.t.Helper()
	l.results++
	at := epoch.Add(time.Duration(l.results) * time.Second)
	r := leaderboard.MatchResult{Score: leaderboard.Score(target.score), AchievedAt: at, ReceivedAt: at, Attributes: map[string]string{"team": target.team}}
	r.SeasonKey, r.User, r.Match = l.key, leaderboard.UserID(user), leaderboard.MatchID(fmt.Sprint(l.results))
	deployment.Eventually(l.t, func(ctx context.Context) error {
		_, _, err := s.Apply(ctx, l.board, []leaderboard.MatchResult{r})
		return err
	})
	l.want[user] = target
}

func (l *staleLadder) checkPlace(e leaderboard.Entry) {
	l.t.Helper()
	var got place
	if e.Key != "" && len(e.Divisions) == 1 {
		got = place{int64(l.board.ScoreOf(e.Key, e.AchievedAt)), e.Divisions[0].Value}
	}
	if got != l.want[string(e.User)] {
		l.t.Errorf("%s has the score and team %v, want %v", e.User, got, l.want[string(e.User)])
	}
}

func (l *staleLadder) check(s *cql.Store) {
	l.t.Helper()
	for _, team := range []string{"", "red", "blue"} {
		ladder := leaderboard.Ladder{SeasonKey: l.key}
		users := slices.Collect(maps.Keys(l.want))
		if team != "" {
			ladder.Division = leaderboard.Division{Attribute: "team", Value: team}
			users = slices.DeleteFunc(users, func(u string) bool { return l.want[u].team != team })
		}
		slices.SortFunc(users, func(x, y string) int { return cmp.Compare(l.want[y].score, l.want[x].score) })
		var got []string
		for _, e := range collect(l.t, func(ctx context.Context) iter.Seq2[leaderboard.Entry, error] { return s.Entries(ctx, ladder, "") }) {
			got = append(got, string(e.User))
			l.checkPlace(e)
		}
		if !slices.Equal(users, got) {
			l.t.Errorf("the ladder of team %q has the users %v, want %v", team, got, users)
		}
	}
	for _, orphan := range collect(l.t, func(ctx context.Context) iter.Seq2[leaderboard.OrphanRow, error] {
		return s.OrphanRows(ctx, l.key)
	}) {
		l.t.Errorf("%s has an orphan row in the ladder of division %q", orphan.User, orphan.Division)
	}
}

func collect[T any](t *testing.T, read func(context.Context) iter.Seq2[T, error]) (list []T) {
	t.Helper()
	deployment.Eventually(t, func(ctx context.Context) error {
		list = nil
		for v, err := range read(ctx) {
			if err != nil {
				return err
			}
			list = append(list, v)
		}
		return nil
	})
	return list
}
