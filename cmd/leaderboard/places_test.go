package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/cache/redis"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// Windows around a score, percentages and places of users without an entry are the same on Redis, in one shard and in
// several, as in memory.
func TestPlacesOnRedis(t *testing.T) {
	addr := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{}).Addrs()[0]
	rng := rand.New(rand.NewPCG(seed.New(t), 0))
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	store := embedded.Store(t)
	serve := func(index leaderboard.Index) *ranking.Service {
		s := ranking.New(store, index, ranking.Options{Now: func() time.Time { return now }})
		t.Cleanup(s.Close)
		return s
	}
	index, err := redis.Open(t.Context(), redis.Options{Redis: &goredis.UniversalOptions{Addrs: []string{addr}}, Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = index.Close() })
	inMemory, onRedis := serve(memory.New()), serve(index)
	for shards := range 3 {
		b, err := inMemory.CreateBoard(t.Context(), leaderboard.Board{
			ID: leaderboard.BoardID(fmt.Sprint("b", shards)), Policy: leaderboard.Sum, Shards: shards + 1, Divisions: []string{"team"}, Statuses: []leaderboard.Finish{leaderboard.DNF},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 60 {
			r := leaderboard.MatchResult{
				ResultKey: leaderboard.ResultKey{User: leaderboard.UserID(fmt.Sprintf("u%02d", i)), Match: "m"}, Score: leaderboard.Score(rng.IntN(12) - 4),
				AchievedAt: now.Add(-time.Duration(rng.IntN(3)) * time.Hour), Attributes: map[string]string{"team": fmt.Sprint(rng.IntN(2))}, Finish: leaderboard.Finish(rng.IntN(9) / 8 * int(leaderboard.DNF)),
			}
			if _, err := inMemory.Submit(t.Context(), &b, []leaderboard.MatchResult{r}); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range []leaderboard.Method{leaderboard.Competition, leaderboard.Dense, leaderboard.Ordinal} {
			for _, d := range []leaderboard.Division{{}, {Attribute: "team", Value: "1"}} {
				q := ranking.Query{Board: b.ID, Method: m, Division: d}
				score := leaderboard.Score(rng.IntN(14) - 5)
				for _, pq := range []ranking.PageQuery{{Query: q, Limit: 1 + rng.IntN(20), Around: &score}, {Query: q, Limit: 50, TopPercent: rng.Float64() * 100}, {Query: q, Limit: 7, Worst: true}} {
					want, err := inMemory.Page(t.Context(), pq)
					got, redisErr := onRedis.Page(t.Context(), pq)
					checkPlaces(t, fmt.Sprintf("%+v", pq), m == leaderboard.Dense && shards > 0, want, got, err, redisErr)
				}
				uq := ranking.UserQuery{Query: q, Neighbors: rng.IntN(6), Fill: rng.IntN(2) == 0, AllowMissing: true}
				want, err := inMemory.UserToRank(t.Context(), uq, "nobody")
				got, redisErr := onRedis.UserToRank(t.Context(), uq, "nobody")
				checkPlaces(t, fmt.Sprintf("%+v", uq), m == leaderboard.Dense && shards > 0, want, got, err, redisErr)
			}
		}
	}
}

func checkPlaces[T any](t *testing.T, query string, unavailable bool, want, got T, err, redisErr error) {
	t.Helper()
	if unavailable && errors.Is(redisErr, leaderboard.ErrMethodUnavailable) {
		return // several shards have no dense ranks
	}
	if err := errors.Join(err, redisErr); err != nil || unavailable {
		t.Fatalf("%s: error %v; want no dense ranks: %v", query, err, unavailable)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(x, y ranking.About) bool { return x.Total == y.Total && x.Unranked == y.Unranked && !y.Degraded })); diff != "" {
		t.Fatalf("%s on Redis (-in memory +Redis):\n%s", query, diff)
	}
}
