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
	"github.com/open-leaderboard/leaderboard/storage/cql"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

// Users move while a Cassandra node is down. It comes back, told of nothing that it
// missed, and another goes that has seen the moves: of each quorum one replica, and
// its part of the index, is as before. Nobody sees that, and what is written then
// leaves nothing behind.
func TestStaleReplica(t *testing.T) {
	c := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: cluster.OneDC(3), Logf: t.Logf})
	ctx := t.Context()
	for _, s := range c.Servers {
		_, err := cluster.Nodetool(ctx, s, "disablehandoff")
		must(t, err)
	}
	o := cql.Options{Hosts: c.Addrs(), DataCenter: "dc1", Keyspace: "stale", Buckets: 4, Timeout: time.Minute}
	must(t, cql.ApplySchema(ctx, o, map[string]int{"dc1": 3}, nil))
	b := leaderboard.Board{ID: "stale", Policy: leaderboard.Best, Divisions: []string{"team"}, CreatedAt: epoch}
	l := &staleLadder{t: t, board: &b, scope: leaderboard.Scope{Board: b.ID, Season: leaderboard.SeasonAll}, options: o, want: map[string]place{}}
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

	// A read brings the replicas that it asks up to date, so each kind of call is the
	// first to meet some of the users.
	s = l.open()
	for i := range users {
		switch user := leaderboard.UserID(name(i)); i % 4 {
		case 0:
			var e leaderboard.Entry
			eventually(t, func(ctx context.Context) (err error) {
				e, err = s.Entry(ctx, l.scope, user)
				return err
			})
			l.is(e)
		case 1:
			var change leaderboard.Change
			eventually(t, func(ctx context.Context) (err error) {
				change, err = s.Recount(ctx, &b, l.scope.Season, user)
				return err
			})
			l.is(change.Before)
			l.is(change.After)
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

// place is where a user is to stand.
type place struct {
	score int64
	team  string
}

// staleLadder is a board, and what is to be on it.
type staleLadder struct {
	t       *testing.T
	board   *leaderboard.Board
	scope   leaderboard.Scope
	options cql.Options
	want    map[string]place
	results int
}

// open returns a store that knows nothing by heart.
func (l *staleLadder) open() *cql.Store {
	l.t.Helper()
	var s *cql.Store
	eventually(l.t, func(ctx context.Context) (err error) {
		s, err = cql.Open(ctx, l.options)
		return err
	})
	l.t.Cleanup(func() { must(l.t, s.Close()) })
	return s
}

// apply applies a result with which the user comes to stand there.
func (l *staleLadder) apply(s *cql.Store, user string, to place) {
	l.t.Helper()
	l.results++
	at := epoch.Add(time.Duration(l.results) * time.Second)
	r := leaderboard.MatchResult{Score: leaderboard.Score(to.score), AchievedAt: at, ReceivedAt: at, Attributes: map[string]string{"team": to.team}}
	r.Scope, r.User, r.Match = l.scope, leaderboard.UserID(user), leaderboard.MatchID(fmt.Sprint(l.results))
	eventually(l.t, func(ctx context.Context) error {
		_, err := s.Apply(ctx, l.board, []leaderboard.MatchResult{r})
		return err
	})
	l.want[user] = to
}

// is compares an entry with what it is to be.
func (l *staleLadder) is(e leaderboard.Entry) {
	l.t.Helper()
	var have place
	if e.Key != "" && len(e.Divisions) == 1 {
		have = place{int64(l.board.ScoreOf(e.Key, e.AchievedAt)), e.Divisions[0].Value}
	}
	if have != l.want[string(e.User)] {
		l.t.Errorf("%s stands at %v, want %v", e.User, have, l.want[string(e.User)])
	}
}

// check compares all ladders with what they are to be, and looks for rows that are
// no user's.
func (l *staleLadder) check(s *cql.Store) {
	l.t.Helper()
	for _, team := range []string{"", "red", "blue"} {
		ladder := leaderboard.Ladder{Scope: l.scope}
		users := slices.Collect(maps.Keys(l.want))
		if team != "" {
			ladder.Division = leaderboard.Division{Attribute: "team", Value: team}
			users = slices.DeleteFunc(users, func(u string) bool { return l.want[u].team != team })
		}
		slices.SortFunc(users, func(x, y string) int { return cmp.Compare(l.want[y].score, l.want[x].score) })
		var have []string
		for _, e := range all(l.t, func(ctx context.Context) iter.Seq2[leaderboard.Entry, error] { return s.Entries(ctx, ladder, "") }) {
			have = append(have, string(e.User))
			l.is(e)
		}
		if !slices.Equal(users, have) {
			l.t.Errorf("ladder %q: %v, want %v", team, have, users)
		}
	}
	for _, stray := range all(l.t, func(ctx context.Context) iter.Seq2[leaderboard.Stray, error] { return s.Strays(ctx, l.scope) }) {
		l.t.Errorf("%s has a row in the ladder %q that is no entry's", stray.User, stray.Division)
	}
}

// all returns what there is to be read, once it can be.
func all[T any](t *testing.T, read func(context.Context) iter.Seq2[T, error]) (list []T) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
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
