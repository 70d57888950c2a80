package benchmark

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// floorVariable has the address on which the test program serves the floor instead of running tests.
const floorVariable = "LEADERBOARD_BENCH_FLOOR"

// serveFloor is the least that a server over HTTP can do. It answers a GET. It writes a POST to a
// database, as often and as long as the rows of a result are, and syncs it.
func serveFloor(addr string) error {
	db, err := pebble.Open("floor", &pebble.Options{MemTableSize: 32 << 20})
	if err != nil {
		return err
	}
	var keys atomic.Int64
	answer := []byte(strings.Repeat("x", 250))
	return http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(r.Body)
			batch := db.NewBatch()
			for range 4 {
				row := fmt.Appendf(nil, "%040d", rand.Int64N(1<<40)+keys.Add(1))
				if err == nil {
					err = batch.Set(row, body[:min(len(body), 40)], nil)
				}
			}
			if err == nil {
				err = batch.Commit(pebble.Sync)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}))
}

// BenchmarkEmbedded asks an embedded server over REST. 50 callers each have one request in flight. It
// reports the server's processor time of each request, and that of the floor: see serveFloor.
// LEADERBOARD_BENCH_USERS is the number of users, by default 100,000. Each has one result at first.
func BenchmarkEmbedded(b *testing.B) {
	node := deployment.Embedded(b, filepath.Join(b.TempDir(), "data"))
	board := node.Board(b, "embedded", map[string]any{"policy": "SUM", "order": "HIGHER_FIRST"})
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	floor := cluster.Program(b, cluster.ProgramConfig{
		Name: "floor", Ports: 1,
		Command: func(dir string, addrs []string) *exec.Cmd {
			cmd := exec.Command(program)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), floorVariable+"="+addrs[0])
			return cmd
		},
		Ready: func(ctx context.Context, addrs []string) error {
			return request(ctx, http.DefaultClient, http.MethodGet, "http://"+addrs[0], "", "")
		},
	})
	m := &measurement{servers: map[string]*cluster.Server{"": node.Server, "-floor": floor}, users: benchUsers(b)}
	path := node.URL + "/v1/boards/" + board + "/scores"
	loadResults(b, node, path, m)

	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: readers}}
	var matches atomic.Int64
	submit := func(ctx context.Context, url string) error {
		body := fmt.Sprintf(`{"user_id":%q,"match_id":"match-%010d","points":%d}`, m.user(rand.IntN(m.users)), matches.Add(1), rand.IntN(1000))
		return request(ctx, client, http.MethodPost, url, node.Key, body)
	}
	get := func(ctx context.Context, url string) error {
		return request(ctx, client, http.MethodGet, url, node.Key, "")
	}
	questions := map[string]func(ctx context.Context, path string) error{
		"submit": submit,
		"rank": func(ctx context.Context, path string) error {
			return get(ctx, path+"/"+m.user(rand.IntN(m.users))+"?neighbors=0")
		},
		"neighbors": func(ctx context.Context, path string) error {
			return get(ctx, path+"/"+m.user(rand.IntN(m.users))+"?neighbors=4")
		},
		"top10": func(ctx context.Context, path string) error { return get(ctx, path+"?limit=10") },
	}
	questions["mix"] = func(ctx context.Context, path string) error {
		return questions[[]string{"submit", "submit", "submit", "submit", "submit", "submit", "rank", "rank", "top10", "neighbors"}[rand.IntN(10)]](ctx, path)
	}
	for _, name := range []string{"rank", "top10", "neighbors", "submit", "mix"} {
		b.Run(name, func(b *testing.B) {
			began := m.times(b)
			for b.Loop() {
				askAll(b, func(ctx context.Context) error { return questions[name](ctx, path) })
				askAll(b, func(ctx context.Context) error { return questions[name](ctx, "http://"+floor.Addr) })
			}
			spent := m.since(b, began)
			for server, seconds := range spent {
				b.ReportMetric(seconds/float64(b.N*readers*readsEach)*1e6, "µs"+server)
			}
			b.ReportMetric(spent[""]/spent["-floor"], "x_floor")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// loadResults submits a result of each user.
func loadResults(b *testing.B, node *deployment.Node, path string, m *measurement) {
	client := &http.Client{Timeout: time.Minute}
	const size = 1000
	for from := 0; from < m.users; from += size {
		var results []string
		for i := from; i < min(from+size, m.users); i++ {
			results = append(results, fmt.Sprintf(`{"user_id":%q,"match_id":"first","points":%d}`, m.user(i), rand.IntN(1_000_000)))
		}
		if err := request(b.Context(), client, http.MethodPost, path+":batch", node.Key, `{"results":[`+strings.Join(results, ",")+`]}`); err != nil {
			b.Fatal(err)
		}
	}
}

// askAll makes each caller ask, one question after another.
func askAll(b *testing.B, ask func(context.Context) error) {
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			for range readsEach {
				if err := ask(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func request(ctx context.Context, client *http.Client, method, url, key, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || bytes.Contains(answer, []byte(`"REJECTED"`))) {
		err = fmt.Errorf("%s %s: status %d: %.300s", method, url, resp.StatusCode, answer)
	}
	return err
}
