package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// soakVariable is the environment variable with the length of TestSoak.
const soakVariable = "LEADERBOARD_TEST_SOAK"

func soakLength(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv(soakVariable)
	if text == "" {
		return 30 * time.Minute
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 5*time.Minute {
		t.Fatalf("%s is %q, want a duration of at least 5m, such as 30m", soakVariable, text)
	}
	return d
}

const (
	sampleInterval = 2 * time.Second
	quietTime      = 10 * time.Second // between the recovery from a fault and the next fault
)

// Servers and a consumer fail in random order. Meanwhile, clients send results and bans, and
// seasons are sealed. Finally, every ladder equals the recount. In the second half, the memory,
// goroutines and file descriptors of each process must not grow.
func TestSoak(t *testing.T) {
	needs.Slow(t, "soak")
	length := soakLength(t)
	cassandra := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: cluster.OneDC(1), Logf: t.Logf})
	kafka := cluster.Private(t, cluster.StartKafka, cluster.KafkaConfig{Brokers: 1, Logf: t.Logf})
	redisServers := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	d := deployment.New(t, deployment.Options{Cassandra: cassandra.Addrs(), Kafka: kafka.Addrs(), Redis: redisServers.Addrs()})
	s := &service{Deployment: d, seed: seed.New(t)}
	const sweeps = "--sweep-interval=10s"
	s.apis = []*deployment.Node{s.Serve(t, "--roles=api", sweeps), s.Serve(t, "--roles=api", sweeps)}
	s.static = s.Serve(t, "--roles=consumer", "--kafka-instance-id=static", sweeps)
	s.dynamic = s.Serve(t, "--roles=consumer", sweeps)
	ledger := s.ledger(t, "soak")
	load := s.load(t, ledger)
	begun := time.Now()
	seasons := s.startSeasons(t, load, length)

	pause := func(server *cluster.Server, d time.Duration) func() {
		return func() {
			must(t, server.Pause())
			sleep(t, d)
			must(t, server.Resume())
		}
	}
	client := redis.NewClient(&redis.Options{Addr: redisServers.Servers[0].Addr})
	defer client.Close()
	faults := []soakFault{
		{"Redis is killed and restarted empty", func() {
			must(t, redisServers.Servers[0].Kill())
			sleep(t, 5*time.Second)
			must(t, redisServers.Servers[0].Start(t.Context()))
		}},
		{"Redis is flushed", func() { must(t, client.FlushAll(t.Context()).Err()) }},
		{"Redis hangs", pause(redisServers.Servers[0], 8*time.Second)},
		{"Cassandra hangs", pause(cassandra.Servers[0], 8*time.Second)},
		{"Kafka hangs", pause(kafka.Servers[0], 8*time.Second)},
		{"a consumer hangs", pause(s.dynamic.Server, 12*time.Second)},
		// The memory of a new process grows at first. So this fault occurs in the first half only,
		// and the samples are taken in the second half.
		{"a consumer is killed and restarted", func() {
			must(t, s.dynamic.Kill())
			must(t, s.dynamic.Start(t.Context()))
		}},
	}
	random := rand.New(rand.NewPCG(s.seed, 3))
	counts := map[string]int{}
	usages := make([]usage, len(s.nodes()))
	var queue []int // the rest of this round, which has every fault once, in random order
	for time.Since(begun) < length {
		if len(queue) == 0 {
			queue = random.Perm(len(faults))
		}
		f := faults[queue[0]]
		queue = queue[1:]
		secondHalf := time.Since(begun) > length/2
		if secondHalf && f.name == faults[len(faults)-1].name {
			continue
		}
		f.run()
		counts[f.name]++
		delay := load.waitForRecovery(t, time.Now())
		t.Logf("%v after the start: %s; recovered %v after the end of the fault (%d consecutive calls succeeded)", time.Since(begun).Round(time.Second), f.name, delay.Round(time.Millisecond), steadyCalls)
		for end := time.Now().Add(quietTime); time.Now().Before(end); sleep(t, sampleInterval) {
			if secondHalf {
				for i, n := range s.nodes() {
					usages[i].sample(t, n)
				}
			}
		}
	}
	ended := time.Now()
	seasons.stop()
	load.stop()
	t.Logf("soak of %v, faults: %v", time.Since(begun).Round(time.Second), counts)
	for i, name := range []string{"API node 1", "API node 2", "static consumer", "dynamic consumer"} {
		usages[i].check(t, name)
	}
	check(t, ledger, s.apis...)
	seasons.check(t, ended, s.apis...)
}

type soakFault struct {
	name string
	run  func()
}

func sleep(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

type usage struct {
	heap, goroutines, files []float64
}

// go_memstats_next_gc_bytes is about twice the size of the live heap. No metric has the size.
func (u *usage) sample(t *testing.T, n *deployment.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for metric, series := range map[string]*[]float64{
		"go_memstats_next_gc_bytes": &u.heap, "go_goroutines": &u.goroutines, "process_open_fds": &u.files,
	} {
		v, err := n.Metric(ctx, metric)
		must(t, err)
		if v == 0 {
			t.Fatalf("%s of %s is 0, want a number above 0", metric, n.Addr)
		}
		*series = append(*series, v)
	}
}

func (u *usage) check(t *testing.T, process string) {
	t.Helper()
	for _, s := range []struct {
		name    string
		samples []float64
		slack   float64
	}{{"heap at the next collection, in bytes", u.heap, 8 << 20}, {"goroutines", u.goroutines, 50}, {"open files", u.files, 20}} {
		if len(s.samples) < minSamples {
			t.Errorf("%s: %s: %d samples, want at least %d", process, s.name, len(s.samples), minSamples)
			continue
		}
		first, last, flat := isFlat(s.samples, s.slack)
		t.Logf("%s: %s: %d samples; the median of the first third is %.0f, of the last third %.0f", process, s.name, len(s.samples), first, last)
		if !flat {
			t.Errorf("%s: %s: grew from %.0f to %.0f, want at most %.0f", process, s.name, first, last, 1.2*first+s.slack)
		}
	}
}

const minSamples = 6

// isFlat returns the medians of the first third and the last third of a series. The series is flat
// if the second median is at most 1.2 times the first, plus slack.
func isFlat(series []float64, slack float64) (first, last float64, flat bool) {
	if len(series) < minSamples {
		return 0, 0, false
	}
	third := len(series) / 3
	median := func(part []float64) float64 { return slices.Sorted(slices.Values(part))[len(part)/2] }
	first, last = median(series[:third]), median(series[len(series)-third:])
	return first, last, last <= 1.2*first+slack
}

func TestIsFlat(t *testing.T) {
	series := func(value func(i int) float64) (list []float64) {
		for i := range 60 {
			list = append(list, value(i))
		}
		return list
	}
	for _, tt := range []struct {
		name   string
		series []float64
		want   bool
	}{
		{"noise", series(func(i int) float64 { return 100 + float64(i*7%11) }), true},
		{"one peak", series(func(i int) float64 { return map[bool]float64{true: 900, false: 100}[i == 58] }), true},
		{"a decline", series(func(i int) float64 { return 200 - float64(i) }), true},
		{"a slow leak", series(func(i int) float64 { return 100 + float64(i) }), false},
		{"a leak with noise", series(func(i int) float64 { return 100 + float64(i) + float64(i*7%11) }), false},
		{"a step", series(func(i int) float64 { return map[bool]float64{true: 140, false: 100}[i > 30] }), false},
		{"too few samples", []float64{100, 100, 100, 100, 100}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if first, last, got := isFlat(tt.series, 5); got != tt.want {
				t.Errorf("isFlat = %v (medians %v and %v), want %v", got, first, last, tt.want)
			}
		})
	}
}

// soakSeasons has a board whose seasons end one after another.
type soakSeasons struct {
	board   *board
	windows []soakWindow
	load    *load
	stop    func() // ends the goroutine of startSeasons, which sends results and bans
	// Until stop returns, only this goroutine may use the fields below.
	points  []map[string]int64 // acknowledged, by index of the window and by user
	banned  map[string]bool
	changes int // bans and unbans
}

type soakWindow struct {
	id         string
	start, end time.Time
}

const (
	soakUsers = 20
	soakGrace = time.Minute
	// sealTime is the longest time from the close of a season (its end and soakGrace) to its seal.
	// The service waits at least a minute, and a fault may delay the seal.
	sealTime = 3 * time.Minute
)

func (s *service) startSeasons(t *testing.T, l *load, length time.Duration) *soakSeasons {
	t.Helper()
	q := &soakSeasons{load: l, banned: map[string]bool{}}
	var windows []object
	start, size := time.Now().UTC().Truncate(time.Second), max(length/20, 30*time.Second)
	for i := 0; start.Before(time.Now().Add(length)); i++ {
		w := soakWindow{fmt.Sprint("season-", i), start, start.Add(size)}
		if !w.end.Before(time.Now().Add(length)) {
			w.end = w.start.Add(24 * time.Hour) // so that the last season is open when the test ends
		}
		q.windows, q.points = append(q.windows, w), append(q.points, map[string]int64{})
		windows = append(windows, object{"id": w.id, "start": w.start.Format(time.RFC3339), "end": w.end.Format(time.RFC3339)})
		start = w.end
	}
	q.board = &board{policy: "SUM", id: s.apis[0].Board(t, "soak-seasons", object{"policy": "SUM", "order": "HIGHER_FIRST",
		"season": object{"schedule": "EXPLICIT", "grace": fmt.Sprintf("%.0fs", soakGrace.Seconds()), "windows": windows}})}
	ending, ended := make(chan struct{}), make(chan struct{})
	random := rand.New(rand.NewPCG(s.seed, 4))
	go func() {
		defer close(ended)
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for i := 0; l.wait(tick); i++ {
			select {
			case <-ending:
				return
			default:
			}
			api, user := l.apis[i%len(l.apis)], fmt.Sprintf("user-%02d", random.IntN(soakUsers))
			if i%20 == 19 {
				q.ban(api, user, tick)
			} else {
				q.submit(api, user, fmt.Sprint("match-", i), 1+random.Int64N(100), tick)
			}
		}
	}()
	q.stop = func() {
		close(ending)
		<-ended
	}
	return q
}

func (q *soakSeasons) submit(api *deployment.Client, user, match string, points int64, tick *time.Ticker) {
	at := time.Now().UTC().Truncate(time.Second)
	body := object{"user_id": user, "match_id": match, "points": points, "achieved_at": at.Format(time.RFC3339)}
	if !q.repeat(api, "/v1/boards/"+q.board.id+"/scores", body, tick) {
		return
	}
	for i, w := range q.windows {
		if !at.Before(w.start) && at.Before(w.end) {
			q.points[i][user] += points
		}
	}
}

func (q *soakSeasons) ban(api *deployment.Client, user string, tick *time.Ticker) {
	verb := map[bool]string{false: ":ban", true: ":unban"}[q.banned[user]]
	if q.repeat(api, "/v1/users/"+user+verb, object{"board": q.board.id, "reason": "soak"}, tick) {
		q.banned[user] = !q.banned[user]
		q.changes++
	}
}

// repeat returns false if the test ends before a call succeeds.
func (q *soakSeasons) repeat(api *deployment.Client, path string, body object, tick *time.Ticker) bool {
	for {
		var answer struct {
			Message string `json:"message"`
		}
		err := q.load.try(false, func(ctx context.Context) error {
			status, err := api.Call(ctx, http.MethodPost, path, body, &answer)
			if err == nil && status/100 != 2 {
				err = fmt.Errorf("POST %s: status %d, %s", path, status, answer.Message)
			}
			if err == nil || status/100 != 4 {
				return err
			}
			q.load.note("%v", err)
			return err
		})
		if err == nil {
			return true
		}
		if !q.load.wait(tick) {
			return false
		}
	}
}

// A season that closed more than sealTime before the load ended must be sealed, unless it has no
// results.
func (q *soakSeasons) check(t *testing.T, ended time.Time, nodes ...*deployment.Node) {
	t.Helper()
	sealed := 0
	for i, w := range q.windows {
		want := q.recount(i)
		for _, n := range nodes {
			deployment.Eventually(t, func(ctx context.Context) error {
				var answer struct {
					Data struct {
						page
						Sealed bool `json:"sealed"`
					} `json:"data"`
				}
				status, err := n.Call(ctx, http.MethodGet, "/v1/boards/"+q.board.id+"/scores?limit=1000&season="+w.id, nil, &answer)
				if err != nil || status != http.StatusOK {
					return fmt.Errorf("read season %s: status %d, error %v", w.id, status, err)
				}
				got := []string{}
				for _, s := range answer.Data.Standings {
					if s.Rank == nil {
						return fmt.Errorf("season %s: %s has no rank", w.id, s.User)
					}
					got = append(got, fmt.Sprintf("%d %s", s.Score, s.User))
				}
				slices.Sort(got)
				if !slices.Equal(got, want) {
					return fmt.Errorf("season %s has %q, want %q", w.id, got, want)
				}
				if problem := answer.Data.problem(q.board); problem != "" {
					return fmt.Errorf("season %s: %s", w.id, problem)
				}
				late := w.end.Add(soakGrace + sealTime).Before(ended)
				if late && len(q.points[i]) > 0 && !answer.Data.Sealed {
					return fmt.Errorf("season %s, which ended at %v, is not sealed", w.id, w.end.Format(time.RFC3339))
				}
				if answer.Data.Sealed && n == nodes[0] {
					sealed++
				}
				return nil
			})
		}
	}
	if sealed == 0 {
		t.Error("no season is sealed, want at least one")
	}
	if out, code := runVerify(t, nodes[0], q.board); code != 0 {
		t.Errorf("verify exited with %d, want 0; it printed:\n%s", code, out)
	}
	t.Logf("%d seasons equal the recount, %d of them sealed; %d bans and unbans", len(q.windows), sealed, q.changes)
}

func (q *soakSeasons) recount(window int) []string {
	list := []string{}
	for user, points := range q.points[window] {
		if !q.banned[user] {
			list = append(list, fmt.Sprintf("%d %s", points, user))
		}
	}
	slices.Sort(list)
	return list
}
