package consumer_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/api/canonical"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// game is a game's own store, over HTTP.
type game struct {
	*httptest.Server
	mu      sync.Mutex
	results map[string]gameResult // by path
	// fault answers a request in place of the store, if it returns true.
	fault func(w http.ResponseWriter, r *http.Request) bool
}

type gameResult struct {
	user, match      string
	points, revision int
	retracted        bool
}

func newGame(t *testing.T) *game {
	t.Helper()
	g := &game{results: map[string]gameResult{}}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		result, ok := g.results[r.URL.Path]
		fault := g.fault
		g.mu.Unlock()
		if fault != nil && fault(w, r) {
			return
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if result.retracted {
			w.WriteHeader(http.StatusGone)
		}
		fmt.Fprintf(w, `{"board_id":"b","result":{"user_id":%q,"match_id":%q,"points":%d,"revision":%d,"achieved_at":"2026-11-20T10:00:00Z"}}`,
			result.user, result.match, result.points, result.revision)
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *game) set(r gameResult) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.results["/boards/b/users/"+r.user+"/matches/"+r.match] = r
}

func (g *game) setFault(f func(w http.ResponseWriter, r *http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fault = f
}

// options returns the options of a consumer that fetches from g.
func (g *game) options(t *testing.T) consumer.Options {
	t.Helper()
	u, err := url.Parse(g.URL)
	if err != nil {
		t.Fatal(err)
	}
	client, err := canonical.New(canonical.Options{URL: u, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return consumer.Options{Canonical: &consumer.Canonical{Store: client, RetryInterval: 200 * time.Millisecond}}
}

func fetchOf(user, match string) *pb.MatchResultRecord {
	return &pb.MatchResultRecord{BoardId: "b", Fetch: true, Result: &pb.Result{UserId: user, MatchId: match}}
}

func (c *cluster) sendRecords(records ...*pb.MatchResultRecord) {
	c.t.Helper()
	if err := c.SendResults(c.t.Context(), c.topics, records...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) createFetchTopics() {
	c.t.Helper()
	for _, topic := range []string{c.topics.Fetches(), c.topics.ParkedFetches()} {
		if err := c.createTopic(topic); err != nil {
			c.t.Fatal(err)
		}
	}
}

// idle reports whether all messages of the results and the fetches are committed.
func (c *cluster) idle() bool {
	c.t.Helper()
	for group, topics := range map[string][]string{c.group(): {c.topics.Results()}, c.group() + ".fetch": {c.topics.Fetches(), c.topics.ParkedFetches()}} {
		for _, topic := range topics {
			committed := int64(0)
			got, err := c.admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1, 2, 3}})
			if err != nil {
				return false
			}
			for p := range int32(partitions) {
				if b := got.GetBlock(topic, p); b != nil {
					committed += max(b.Offset, 0)
				}
			}
			if committed < c.messagesIn(topic) {
				return false
			}
		}
	}
	return true
}

// The board agrees with a model that knows only the game's store, whatever the order and the number of the
// fetches, and although the store fails at times. A replay of all messages changes nothing.
func TestFetchesInAnyOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, c *cluster) {
		random := rand.New(rand.NewPCG(seed.New(t), 0))
		c.createFetchTopics()
		s, _ := newService(t, ranking.Options{})
		g := newGame(t)
		var faults sync.Mutex // random is not safe for concurrent use
		failing := rand.New(rand.NewPCG(random.Uint64(), 0))
		g.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			faults.Lock()
			defer faults.Unlock()
			switch failing.IntN(20) {
			case 0:
				http.Error(w, "fault", http.StatusInternalServerError)
			case 1:
				http.Error(w, "not yet", http.StatusNotFound)
			case 2:
				http.Redirect(w, r, "/elsewhere", http.StatusFound)
			default:
				return false
			}
			return true
		})
		first, second := c.join(s, g.options(t)), c.join(s, g.options(t))
		model := map[string]gameResult{}
		var all []*pb.MatchResultRecord
		for range needs.More(t, 300) {
			user, match := fmt.Sprint("u", random.IntN(5)), fmt.Sprint("m", random.IntN(8))
			r, known := model[user+match]
			r.user, r.match, r.points = user, match, random.IntN(100)
			if known {
				r.revision++
			}
			r.retracted = known && random.IntN(3) == 0
			model[user+match] = r
			g.set(r)
			all = append(all, fetchOf(user, match))
			c.sendRecords(all[len(all)-1])
			if random.IntN(4) == 0 {
				c.sendRecords(all[random.IntN(len(all))])
			}
			if random.IntN(100) == 0 {
				first.stop()
				first, second = second, c.join(s, g.options(t))
			}
		}
		points, results := map[string]int{}, map[string]int{}
		for _, r := range model {
			if !r.retracted {
				points[r.user] += r.points
				results[r.user]++
			}
		}
		var want []string
		for user, n := range points {
			if results[user] > 0 {
				want = append(want, fmt.Sprint(user, " ", n))
			}
		}
		slices.Sort(want)
		check := func(when string) {
			t.Helper()
			eventually(t, "all messages are committed "+when, c.idle)
			if diff := gocmp.Diff(want, boardLines(t, s)); diff != "" {
				t.Errorf("lines of the board %s (-want +got):\n%s", when, diff)
			}
		}
		check("after all fetches")
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		c.sendRecords(all...)
		check("after a replay")
		if n := c.messagesIn(c.topics.DeadLetters()); n != 0 {
			t.Errorf("there are %d dead letters, want none", n)
		}
		second.stop()
	})
}

// While the game's store hangs, results are applied and their offsets committed.
func TestFetchesDoNotDelayResults(t *testing.T) {
	c := start(t)
	c.createFetchTopics()
	s, _ := newService(t, ranking.Options{})
	g := newGame(t)
	hanging := make(chan struct{}, 100)
	release := make(chan struct{})
	g.setFault(func(_ http.ResponseWriter, r *http.Request) bool {
		hanging <- struct{}{}
		select {
		case <-r.Context().Done():
			return true
		case <-release:
			return false
		}
	})
	g.set(gameResult{user: "ann", match: "fetched", points: 5})
	o := g.options(t)
	m := c.join(s, o)
	c.sendRecords(fetchOf("ann", "fetched"))
	<-hanging
	for i := range 20 {
		c.sendRecords(points("ann", fmt.Sprint("m", i), 1))
	}
	eventually(t, "the results and the fetch are committed", func() bool { return c.allCommitted() == 21 })
	if diff := gocmp.Diff([]string{"ann 20"}, boardLines(t, s)); diff != "" {
		t.Errorf("lines while the store hangs (-want +got):\n%s", diff)
	}
	close(release)
	g.setFault(nil)
	eventually(t, "the result is fetched", func() bool { return slices.Equal(boardLines(t, s), []string{"ann 25"}) })
	if n := m.count("fetches_total"); n == 0 {
		t.Error("fetches_total is 0, want the calls of the store")
	}
}

// A dead letter of a fetch is replayed after the game has corrected its store, and fetches the new result.
func TestReplayedFetches(t *testing.T) {
	c := start(t)
	c.createFetchTopics()
	s, _ := newService(t, ranking.Options{})
	g := newGame(t)
	g.set(gameResult{user: "ann", match: "m", points: 1<<53 + 1})
	c.join(s, g.options(t))
	c.sendRecords(fetchOf("ann", "m"))
	h := headers(c.read(c.topics.DeadLetters(), 1)[0])
	if h["cause"] != "fetch" || !strings.Contains(h["detail"], "points") || h["origin-topic"] != c.topics.Fetches() {
		t.Errorf("the dead letter has the headers %v, want the cause fetch, a detail about points and the topic of fetches", h)
	}
	g.set(gameResult{user: "ann", match: "m", points: 7})
	list, _, err := c.openDeadLetters().Page(t.Context(), consumer.DeadLetterQuery{Limit: 10})
	if err != nil || len(list) != 1 {
		t.Fatalf("Page = %v, %v; want one", list, err)
	}
	if skipped, err := consumer.ReplayDeadLetters(t.Context(), c.Producer, c.topics, list); err != nil || len(skipped) != 0 {
		t.Fatalf("ReplayDeadLetters skips %v, error %v", skipped, err)
	}
	eventually(t, "the corrected result counts", func() bool { return slices.Equal(boardLines(t, s), []string{"ann 7"}) })
}

// An erasure removes a result that was announced before it, even if the store answers after it.
func TestErasureAfterTheMessageOfAFetch(t *testing.T) {
	c := start(t)
	c.createFetchTopics()
	s, _ := newService(t, ranking.Options{})
	g := newGame(t)
	m := c.join(s, g.options(t))
	c.sendRecords(fetchOf("ann", "m"), points("bob", "m", 1))
	eventually(t, "the store was asked", func() bool { return m.count("fetches_total") > 0 })
	if err := s.Erase(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	g.set(gameResult{user: "ann", match: "m", points: 7})
	c.read(c.topics.Updates(), 2)
	if diff := gocmp.Diff([]string{"bob 1"}, boardLines(t, s)); diff != "" {
		t.Errorf("lines after the erasure (-want +got):\n%s", diff)
	}
}

// Without a store of the game, fetches become dead letters. A fetch in the mirror of another region is left
// to that region.
func TestFetchesThatAreNotMoved(t *testing.T) {
	const mirror = "us.match-results"
	c := start(t, mirror)
	c.createFetchTopics()
	s, _ := newService(t, ranking.Options{})
	mirrored := message(fetchOf("ann", "m"))
	mirrored.Topic = mirror
	with := c.join(s, newGame(t).options(t))
	c.send(mirrored)
	eventually(t, "the mirrored message is handled", func() bool {
		n, _, _ := with.metric("results_total")
		return n == 1
	})
	with.stop()
	c.join(s, consumer.Options{})
	both := fetchOf("ann", "m")
	both.Retracted = true
	elsewhere := fetchOf("ann", "m")
	elsewhere.BoardId = "nowhere"
	asJSON := &sarama.ProducerMessage{
		Topic: c.topics.Results(), Key: sarama.StringEncoder("ann"), Value: sarama.StringEncoder(`{"board_id":"b","fetch":"yes","result":{"user_id":"ann","match_id":"m"}}`),
		Headers: []sarama.RecordHeader{{Key: []byte(kafka.ContentType), Value: []byte(kafka.JSON)}},
	}
	c.send(message(fetchOf("ann", "m")), message(fetchOf("", "m")), message(both), message(elsewhere), asJSON)
	got := map[string]string{}
	for _, m := range c.read(c.topics.DeadLetters(), 5) {
		h := headers(m)
		got[h["cause"]] = got[h["cause"]] + h["detail"] + "\n"
	}
	for cause, want := range map[string]string{"fetch": "canonical.url", "invalid": "must not be set together", "board": "nowhere", "form": "fetch"} {
		if !strings.Contains(got[cause], want) {
			t.Errorf("the dead letters with the cause %s have the details %q, want %q", cause, got[cause], want)
		}
	}
	if n := c.messagesIn(c.topics.Fetches()); n != 0 {
		t.Errorf("%d fetches were moved, want none", n)
	}
	if lines := boardLines(t, s); len(lines) > 0 {
		t.Errorf("the board has the lines %v, want none", lines)
	}
}

// A consumer stops while the store hangs. The next one fetches what the first has not.
func TestFetchesAreHandedOver(t *testing.T) {
	c := start(t)
	c.createFetchTopics()
	s, _ := newService(t, ranking.Options{})
	silent, g := newGame(t), newGame(t)
	silent.setFault(func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return true
	})
	o := silent.options(t)
	o.Canonical.RetryInterval = time.Hour // no message is parked within the test
	first := c.join(s, o)
	var records []*pb.MatchResultRecord
	for i := range 50 {
		records = append(records, fetchOf("ann", fmt.Sprint("m", i)))
		g.set(gameResult{user: "ann", match: fmt.Sprint("m", i), points: 1})
	}
	c.sendRecords(records...)
	eventually(t, "the fetches are moved", func() bool { return c.messagesIn(c.topics.Fetches()) == 50 })
	eventually(t, "the fetches are in memory", func() bool { return first.count("pending_fetches") > 0 })
	first.stop()
	c.join(s, g.options(t))
	eventually(t, "all results count", func() bool { return slices.Equal(boardLines(t, s), []string{"ann 50"}) })
}
