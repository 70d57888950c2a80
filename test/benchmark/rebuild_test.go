package benchmark

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/redis"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/storage/cql"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// BenchmarkRebuild loads a season from Cassandra into Redis. The floor reads the same rows with gocql
// alone, as many partitions at a time as [cql.Store.Scan]. The plain load does so too, and adds the users to
// a sorted set. The three take turns.
// LEADERBOARD_BENCH_USERS is the number of users, by default 100,000.
func BenchmarkRebuild(b *testing.B) {
	n := benchUsers(b)
	d := deployment.New(b, deployment.Options{})
	session := d.Session(b)
	store, err := cql.Open(b.Context(), cql.Options{Hosts: d.Cassandra, DataCenter: d.DataCenter, Keyspace: d.Keyspace})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	engine.New(store) // the store asks it for the accounts of users
	x, err := redis.Open(b.Context(), redis.Options{Redis: &goredis.UniversalOptions{Addrs: d.Redis}, Prefix: d.RedisPrefix})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = x.Close() })

	board := leaderboard.Board{ID: leaderboard.BoardID(fmt.Sprintf("rebuild-%08x", rand.Uint32())), Policy: leaderboard.Best, Order: leaderboard.HigherFirst, CreatedAt: time.Now()}
	if err := store.CreateBoard(b.Context(), board); err != nil {
		b.Fatal(err)
	}
	season := leaderboard.SeasonKey{Board: board.ID, Season: leaderboard.SeasonAll}
	fillStore(b, store, &board, season, n)
	partitions := partitionsOf(b, session, season)

	client := goredis.NewClient(&goredis.Options{Addr: d.Redis[0]})
	b.Cleanup(func() { _ = client.Close() })
	plainSet := d.RedisPrefix + "plain"

	var rebuilds, floors, plains []float64
	for b.Loop() {
		began := time.Now()
		if got := readPartitions(b, session, partitions, func([]string) {}); got != n {
			b.Fatalf("the floor read %d rows, want %d", got, n)
		}
		floors = append(floors, time.Since(began).Seconds())
		began = time.Now()
		readPartitions(b, session, partitions, func(users []string) { addPlain(b, client, plainSet, users) })
		plains = append(plains, time.Since(began).Seconds())
		if got := client.ZCard(b.Context(), plainSet).Val(); got != int64(n) {
			b.Fatalf("the sorted set has %d users, want %d", got, n)
		}
		if err := client.Unlink(b.Context(), plainSet).Err(); err != nil {
			b.Fatal(err)
		}
		began = time.Now()
		if err := x.Rebuild(b.Context(), &board, season, began, store.Scan(b.Context(), season, leaderboard.Part{})); err != nil {
			b.Fatal(err)
		}
		rebuilds = append(rebuilds, time.Since(began).Seconds())
		_, v, err := x.Page(b.Context(), leaderboard.Ladder{SeasonKey: season}, 1, 1)
		if err != nil || v.Size != int64(n) {
			b.Fatalf("the ladder has %d standings, error %v, want %d", v.Size, err, n)
		}
	}
	rebuild, floor, plain := middle(rebuilds), middle(floors), middle(plains)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(n)/rebuild, "users/s")
	b.ReportMetric(float64(n)/floor, "floor/s")
	b.ReportMetric(floor/rebuild, "of_floor")
	b.ReportMetric(float64(n)/plain, "plain/s")
	b.ReportMetric(floor/plain, "plain_of_floor")
}

// fillStore gives n users a result each.
func fillStore(b *testing.B, store *cql.Store, board *leaderboard.Board, season leaderboard.SeasonKey, n int) {
	now := time.Now()
	all := make([]leaderboard.MatchResult, n)
	for i := range all {
		all[i] = leaderboard.MatchResult{
			ResultKey: leaderboard.ResultKey{SeasonKey: season, User: leaderboard.UserID(fmt.Sprintf("user-%011d", i)), Match: "match"},
			Score:     leaderboard.Score(rand.Int64N(1 << 50)), AchievedAt: now, ReceivedAt: now,
		}
	}
	began := time.Now()
	batches := make(chan []leaderboard.MatchResult)
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for batch := range batches {
				if _, _, err := store.Apply(b.Context(), board, batch); err != nil {
					b.Error(err)
				}
			}
		})
	}
	sent := 0
	for batch := range slices.Chunk(all, 500) {
		batches <- batch
		if sent += len(batch); sent%50_000 == 0 {
			b.Logf("%d of %d users are stored after %v", sent, n, time.Since(began).Round(time.Second))
		}
	}
	close(batches)
	writers.Wait()
}

// partition is the key of a partition of user_entries.
type partition struct {
	board, season, division string
	incarnation, bucket     int
}

// partitionsOf returns the partitions of a season's entries.
func partitionsOf(b *testing.B, session *gocql.Session, season leaderboard.SeasonKey) (all []partition) {
	b.Helper()
	iter := session.Query(`SELECT DISTINCT board, season, incarnation, division, bucket FROM user_entries`).Iter()
	var p partition
	for iter.Scan(&p.board, &p.season, &p.incarnation, &p.division, &p.bucket) {
		if p.board == string(season.Board) && p.division == "" {
			all = append(all, p)
		}
	}
	if err := iter.Close(); err != nil || len(all) == 0 {
		b.Fatalf("found %d partitions, error %v", len(all), err)
	}
	return all
}

// plainBatch is the number of users in a pipeline of the plain load.
const plainBatch = 1000

func addPlain(b *testing.B, client *goredis.Client, key string, users []string) {
	pipe := client.Pipeline()
	for _, user := range users {
		pipe.ZAdd(b.Context(), key, goredis.Z{Score: float64(rand.Int64N(1 << 50)), Member: user})
	}
	if _, err := pipe.Exec(b.Context()); err != nil {
		b.Error(err)
	}
}

// readPartitions returns the number of rows with an entry. It passes the users to add, at most plainBatch
// at a time, from several goroutines.
func readPartitions(b *testing.B, session *gocql.Session, all []partition, add func(users []string)) int {
	b.Helper()
	const parallel = 4
	var wg sync.WaitGroup
	rows := make([]int, parallel)
	for i := range parallel {
		wg.Go(func() {
			var user string
			var entry []byte
			users := make([]string, 0, plainBatch)
			for j := i; j < len(all); j += parallel {
				p := all[j]
				iter := session.Query(`SELECT user_id, entry FROM user_entries WHERE board = ? AND season = ? AND incarnation = ? AND division = ? AND bucket = ?`,
					p.board, p.season, p.incarnation, p.division, p.bucket).Iter()
				for iter.Scan(&user, &entry) {
					if entry == nil {
						continue
					}
					rows[i]++
					if users = append(users, user); len(users) == plainBatch {
						add(users)
						users = users[:0]
					}
				}
				if err := iter.Close(); err != nil {
					b.Error(err)
				}
			}
			add(users)
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range rows {
		sum += n
	}
	return sum
}
