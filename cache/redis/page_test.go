package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// Pages deep in a ladder of several shards are exact for any distribution of users,
// and take few round trips.
func TestDeepPagesAreExactAndTakeFewTrips(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	const users, shards = 12_000, 8
	runSeed := seed.New(t)
	for name, shape := range map[string]struct {
		score func(rng *rand.Rand, i, shard int) int64
		trips int64 // the highest average per page that the test allows
	}{
		"many different scores": {func(rng *rand.Rand, i, shard int) int64 { return rng.Int64N(1 << 50) }, 3},
		"few different scores":  {func(rng *rand.Rand, i, shard int) int64 { return rng.Int64N(5) }, 3},
		// Shard 3 has the highest scores, and each other shard has its own range of scores. A hash never
		// distributes users like this, so the estimates of readDeep are wrong.
		"a range of scores for each shard": {func(rng *rand.Rand, i, shard int) int64 {
			if shard == 3 {
				return 1<<40 + rng.Int64N(1<<30)
			}
			return int64(shard)<<32 + rng.Int64N(1<<20)
		}, 16},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(runSeed, 0))
			x := openIndex(t, options([]string{cluster.Redis(t)}, shards))
			s := &store{entries: map[leaderboard.UserID]leaderboard.Entry{}}
			for i := range users {
				user := fmt.Sprint("user ", i)
				s.put(entry(user, 1, shape.score(rng, i, shardOf(leaderboard.UserID(user), shards)), ""))
			}
			s.rebuild(t, x)
			want := ladder(t, s.entries, leaderboard.Division{})
			l := leaderboard.Ladder{SeasonKey: testSeason}
			check := func(position int64, n int) {
				t.Helper()
				got, v, err := x.Page(t.Context(), l, position, n, leaderboard.Competition)
				must(t, err)
				first := min(int(position)-1, users)
				page := want[first:min(first+n, users)]
				if diff := cmp.Diff(withoutDense(page), withoutDense(got)); diff != "" && len(page)+len(got) > 0 || v.Size != users {
					t.Fatalf("Page(position %d, %d standings): size %d, want %d; standings (-want +got)\n%s", position, n, v.Size, users, diff)
				}
			}
			tripCount := countTrips(x)
			const pages = 60
			for range pages {
				check(1+rng.Int64N(users), 1+rng.IntN(100))
			}
			if trips := tripCount.Load(); trips > pages*shape.trips {
				t.Errorf("%d trips for %d pages, want at most %d per page", trips, pages, shape.trips)
			}
			check(users, 10)
			check(users-5, 1000)
			check(users+1, 10)
			check(users/2, users)
		})
	}
}

// Each call takes the number of round trips that the package comment states.
func TestTrips(t *testing.T) {
	const users = 2000
	l := leaderboard.Ladder{SeasonKey: testSeason}
	s := newStore(users)
	mid := s.entries["user 700"]
	version := uint64(1)
	standings := func(users ...leaderboard.UserID) func(context.Context, *Index) error {
		return func(ctx context.Context, x *Index) error {
			_, _, err := x.Standings(ctx, l, users, leaderboard.Competition)
			return err
		}
	}
	around := func(ctx context.Context, x *Index) error {
		_, _, err := x.Around(ctx, l, "user 3", 4, 4, leaderboard.Competition)
		return err
	}
	questions := []struct {
		name         string
		one, several int64 // the round trips: with one shard, and with several
		ask          func(ctx context.Context, x *Index) error
	}{
		{"standings of users whose sort keys are not cached", 1, 2, standings("user 1", "user 2")},
		{"standings of users whose sort keys are cached", 1, 1, standings("user 2", "user 1")},
		{"standings of one user whose sort key is not cached", 1, 2, standings("user 4")},
		{"standings of a user without an entry", 1, 1, standings("nobody")},
		{"standings of 200 users", 1, 2, func(ctx context.Context, x *Index) error {
			users := make([]leaderboard.UserID, 200)
			for i := range users {
				users[i] = leaderboard.UserID(fmt.Sprint("user ", 100+i))
			}
			return standings(users...)(ctx, x)
		}},
		{"around a user whose sort key is not cached", 1, 2, around},
		{"around a user whose sort key is cached", 1, 1, around},
		{"count before a rank key", 1, 1, func(ctx context.Context, x *Index) error {
			_, _, err := x.Count(ctx, l, []leaderboard.RankKey{mid.Key}, leaderboard.Competition)
			return err
		}},
		{"count before 200 rank keys", 1, 1, func(ctx context.Context, x *Index) error {
			keys := make([]leaderboard.RankKey, 200)
			for i := range keys {
				keys[i] = testBoard.ScorePrefix(leaderboard.Score(i), epoch)
			}
			_, _, err := x.Count(ctx, l, keys, leaderboard.Competition)
			return err
		}},
		{"the first page", 1, 1, func(ctx context.Context, x *Index) error {
			_, _, err := x.Page(ctx, l, 1, 10, leaderboard.Competition)
			return err
		}},
		{"page after a key", 1, 1, func(ctx context.Context, x *Index) error {
			_, _, err := x.PageAfter(ctx, l, mid.SortKey(), 100, leaderboard.Competition)
			return err
		}},
		{"page from the middle", 1, 2, func(ctx context.Context, x *Index) error {
			_, _, err := x.Page(ctx, l, users/2, 10, leaderboard.Competition)
			return err
		}},
		{"update that adds and removes no rank key", 1, 1, func(ctx context.Context, x *Index) error {
			version++
			return x.Update(ctx, testSeason, epoch, []leaderboard.Entry{entry("user 8", version, 8/3, "F")})
		}},
		{"update to new scores", 1, 1, func(ctx context.Context, x *Index) error {
			version++
			var entries []leaderboard.Entry
			for i := range 10 {
				entries = append(entries, entry(fmt.Sprint("user ", 10+i), version, int64(i)+int64(version)*10_000, "F"))
			}
			return x.Update(ctx, testSeason, epoch, entries)
		}},
		{"standings of users that were just updated", 1, 1, standings("user 14", "user 15")},
		{"survey of the top", 1, 2, func(ctx context.Context, x *Index) error {
			_, _, err := x.Survey(ctx, l, leaderboard.SurveyQuery{Positions: []int64{1}, Percents: []float64{100}, Keys: []leaderboard.RankKey{mid.Key}}, leaderboard.Competition)
			return err
		}},
		{"survey with buckets", 1, 5, func(ctx context.Context, x *Index) error {
			_, _, err := x.Survey(ctx, l, leaderboard.SurveyQuery{Percents: []float64{100, 0}, Buckets: 100, FromWorst: true}, leaderboard.Competition)
			return err
		}},
		{"whether the season is loaded", 1, 1, func(ctx context.Context, x *Index) error {
			_, err := x.Loaded(ctx, testSeason)
			return err
		}},
	}
	for _, shards := range []int{1, 4} {
		o := options([]string{cluster.Redis(t)}, shards)
		o.Hints = users
		// The first index also sends the texts of scripts, so the test checks only the second index.
		for i, x := range []*Index{openIndex(t, o), openIndex(t, o)} {
			s.rebuild(t, x)
			tripCount := countTrips(x)
			for _, q := range questions {
				before := tripCount.Load()
				must(t, q.ask(t.Context(), x))
				got := tripCount.Load() - before
				x.background.Wait() // trips after the answer do not count
				if want := []int64{q.one, q.several}[min(shards-1, 1)]; i == 1 && got != want {
					t.Errorf("%s, %d shards: %d trips, want %d", q.name, shards, got, want)
				}
			}
		}
	}
}

// slowTrips is a hook that counts round trips, and makes each of them take at least 20 ms.
type slowTrips struct{ trips }

func (s *slowTrips) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return s.trips.ProcessHook(func(ctx context.Context, c goredis.Cmder) error {
		time.Sleep(20 * time.Millisecond)
		return next(ctx, c)
	})
}

func (s *slowTrips) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return s.trips.ProcessPipelineHook(func(ctx context.Context, commands []goredis.Cmder) error {
		time.Sleep(20 * time.Millisecond)
		return next(ctx, commands)
	})
}

// A script reads the neighborhoods of several users. They equal those of a ranked list, for any ties.
func TestNeighborhoodsOfSeveralUsers(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	rng := rand.New(rand.NewPCG(seed.New(t), 0))
	smallTrees(t)
	x := openLocal(t, 1)
	for _, scores := range []int64{1, 6, 1000} {
		entries := map[leaderboard.UserID]leaderboard.Entry{}
		var all []leaderboard.Entry
		for i := range 100 {
			e := entry(fmt.Sprint("user ", i), uint64(scores), rng.Int64N(scores), string("FM"[rng.IntN(2)]))
			all, entries[e.User] = append(all, e), e
		}
		must(t, x.Rebuild(t.Context(), testBoard, testSeason, epoch, sequence(all)))
		for range needs.More(t, 30) {
			l := leaderboard.Ladder{SeasonKey: testSeason}
			if rng.IntN(2) == 0 {
				l.Division = leaderboard.Division{Attribute: "gender", Value: "F"}
			}
			above, below := rng.IntN(4), rng.IntN(4)
			if rng.IntN(4) == 0 {
				above, below = 200, 200
			}
			standings := ladder(t, entries, l.Division)
			answers := make([]*aroundAnswer, 1+rng.IntN(2*sharedUsers))
			for i := range answers {
				answers[i] = &aroundAnswer{user: leaderboard.UserID(fmt.Sprint("user ", rng.IntN(120)))} // from 100 on, unknown
			}
			x.answerArounds(t.Context(), aroundQuery{l, countsOf(nil) + "w", above, below + 1}, answers)
			for _, a := range answers {
				must(t, a.err)
				var want leaderboard.Neighborhood
				if i := slices.IndexFunc(standings, func(s leaderboard.Standing) bool { return s.User == a.user }); i >= 0 {
					want.Of = min(i, above)
					want.Standings = standings[i-want.Of : min(i+below+1, len(standings))]
					rank := standings[i].Ranks.Competition
					want.NotWorse = rank - 1
					for _, s := range standings[rank-1:] {
						if s.Ranks.Competition == rank {
							want.NotWorse++
						}
					}
				}
				if diff := cmp.Diff(want, a.Neighborhood); diff != "" || a.view.Size != int64(len(standings)) {
					t.Fatalf("%d scores, %q, %d above and %d below, ladder %v of size %d: size %d, neighborhood (-want +got)\n%s", scores, a.user, above, below, l, len(standings), a.view.Size, diff)
				}
			}
		}
	}
}

// Concurrent reads of a season share a round trip: of one page, of the ranks of different users, and
// of their neighbors. The shared round trip begins after all these calls. So a read that begins
// after the end of an Update sees the new entries.
func TestConcurrentReadsShareATrip(t *testing.T) {
	const readers, rounds = 50, 5
	x, s := openIndex(t, options([]string{cluster.Redis(t)}, 1)), newStore(20)
	s.rebuild(t, x)
	tripCount := &slowTrips{}
	x.client().AddHook(tripCount)
	l := leaderboard.Ladder{SeasonKey: testSeason}
	for name, read := range map[string]func(ctx context.Context, i int) ([]leaderboard.Standing, leaderboard.View, error){
		"page": func(ctx context.Context, _ int) ([]leaderboard.Standing, leaderboard.View, error) {
			return x.Page(ctx, l, 1, 10, leaderboard.Competition)
		},
		"ranks": func(ctx context.Context, i int) ([]leaderboard.Standing, leaderboard.View, error) {
			user := leaderboard.UserID("first")
			if i%2 == 1 {
				user = leaderboard.UserID(fmt.Sprint("user ", i%20))
			}
			standings, v, err := x.Standings(ctx, l, []leaderboard.UserID{user}, leaderboard.Competition)
			if err == nil && (len(standings) != 1 || standings[0].User != user) {
				err = fmt.Errorf("asked for the standing of %s, got %v", user, standings)
			}
			return standings, v, err
		},
		"neighbors": func(ctx context.Context, i int) ([]leaderboard.Standing, leaderboard.View, error) {
			user := leaderboard.UserID("first")
			if i%2 == 1 {
				user = leaderboard.UserID(fmt.Sprint("user ", i%20))
			}
			n, v, err := x.Around(ctx, l, user, 1, 1, leaderboard.Competition)
			if err != nil {
				return nil, v, err
			}
			if n.Standings[n.Of].User != user {
				err = fmt.Errorf("asked for the neighbors of %s, got those of %v", user, n.Standings[n.Of])
			}
			return n.Standings[n.Of:], v, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for round := range rounds {
				score := int64(1000 + round)
				must(t, x.Update(t.Context(), testSeason, epoch, []leaderboard.Entry{entry("first", uint64(time.Now().UnixNano()), score, "")}))
				before := tripCount.Load()
				var all sync.WaitGroup
				for i := range readers {
					all.Go(func() {
						got, v, err := read(t.Context(), i)
						if err != nil || v.Size != 21 || got[0].User == "first" && (got[0].Key != testBoard.ScorePrefix(leaderboard.Score(score), epoch) || got[0].Ranks.Ordinal != 1) {
							t.Errorf("round %d: got %v, ladder size %d, error %v; want size 21, and if the standing is of \"first\", rank 1 and score %d", round, got, v.Size, err, score)
						}
					})
				}
				all.Wait()
				// One trip may serve only the first reader. Readers that start late may need further trips.
				if n := tripCount.Load() - before; n > 6 {
					t.Errorf("round %d: %d trips for %d concurrent reads, want at most 6", round, n, readers)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, _, err := read(ctx, 0); !errors.Is(err, leaderboard.ErrRankUnavailable) {
				t.Errorf("read with a context that is done: error %v, want ErrRankUnavailable", err)
			}
		})
	}
}
