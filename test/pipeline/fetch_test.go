package pipeline

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// store is a game's own store. It gives each match that it is asked for one point, at the revision 1, unless
// a fault answers.
type store struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]int // by board
	fault func(board string, w http.ResponseWriter, r *http.Request) bool
}

const storeKey = "0123456789abcdef0123456789abcdef"

// startStore starts a store, and makes it the canonical one of all processes that start later. It verifies
// the signatures without code of the service.
func startStore(t *testing.T) *store {
	t.Helper()
	s := &store{calls: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.RequestURI, "/v1")
		mac := hmac.New(sha256.New, []byte(storeKey))
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), path)
		if r.Header.Get("webhook-signature") != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
			http.Error(w, "bad signature", http.StatusUnauthorized)
			return
		}
		parts := strings.Split(r.URL.Path, "/") // "", v1, boards, BOARD, users, USER, matches, MATCH
		board, user, match := parts[3], parts[5], parts[7]
		s.mu.Lock()
		s.calls[board]++
		fault := s.fault
		s.mu.Unlock()
		if fault != nil && fault(board, w, r) {
			return
		}
		if user == "leaderboard-doctor" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"board_id":%q,"result":{"user_id":%q,"match_id":%q,"points":1,"revision":1,"achieved_at":"2026-11-20T10:00:00Z"}}`, board, user, match)
	}))
	t.Cleanup(s.Close)
	t.Setenv("LEADERBOARD_CANONICAL_URL", s.URL+"/v1")
	t.Setenv("LEADERBOARD_CANONICAL_SECRET", "whsec_"+base64.StdEncoding.EncodeToString([]byte(storeKey)))
	return s
}

func (s *store) setFault(f func(board string, w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

func (s *store) callsOf(board string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[board]
}

// sendFetches writes messages about the matches m<from> to m<to-1> of each board.
func sendFetches(t *testing.T, d *deployment.Deployment, from, to int, boards ...string) {
	t.Helper()
	const users = 5
	var messages []message
	for i := from; i < to; i++ {
		for _, board := range boards {
			user := fmt.Sprint("u", i%users)
			messages = append(messages, message{key: user, value: fmt.Appendf(nil, `{"board_id":%q,"fetch":true,"result":{"user_id":%q,"match_id":"m%d"}}`, board, user, i)})
		}
	}
	if err := write(t.Context(), d, d.TopicPrefix+"match-results", messages, asJSON); err != nil {
		t.Fatal(err)
	}
}

// waitForScore waits until the user u0 of a board has a score.
func waitForScore(t *testing.T, api *deployment.Node, board string, want int64) {
	t.Helper()
	deployment.Eventually(t, func(ctx context.Context) error {
		score, _, err := scoreOf(ctx, api, board, "u0")
		if err == nil && score != want {
			err = fmt.Errorf("u0 has the score %d on board %s, want %d", score, board, want)
		}
		return err
	})
}

// A consumer fetches the results that messages name, and a repeated message changes nothing.
func TestFetchFromTheGamesStore(t *testing.T) {
	startStore(t)
	d := deployment.New(t, deployment.Options{})
	api := serveAPI(t, d)
	board := api.Board(t, "fetched", sumBoard)
	d.Serve(t, "--roles=consumer")
	sendFetches(t, d, 0, 20, board)
	sendFetches(t, d, 0, 20, board)
	waitForScore(t, api, board, 4)
	found, _ := doctor(t, d, api, nil, "")
	if !has(found, "canonical", "ok", "answers", "") {
		t.Errorf("the doctor finds %+v, want an ok for the game's store", found)
	}
	found, _ = doctor(t, d, api, []string{"LEADERBOARD_CANONICAL_SECRET=whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))}, "")
	if !has(found, "canonical", "error", "401", "canonical.secret") {
		t.Errorf("with another secret, the doctor finds %+v, want an error of the game's store", found)
	}
	found, _ = doctor(t, d, api, []string{"LEADERBOARD_CANONICAL_SECRET="}, "", "--canonical-url=http://127.0.0.1:1")
	if !has(found, "canonical", "error", "refused", "start the game's store") || !has(found, "canonical", "warning", "not signed", "canonical.secret") {
		t.Errorf("without a store, the doctor finds %+v, want an error and a warning", found)
	}
}

// The store hangs for one board, and then fails for it. The consumer is killed meanwhile. The fetches of the
// other board and all direct results proceed, and no fetch is lost.
func TestGamesStoreFailsForOneBoard(t *testing.T) {
	needs.Slow(t, "pipeline")
	s := startStore(t)
	d := deployment.New(t, deployment.Options{})
	api := serveAPI(t, d)
	bad, good := api.Board(t, "bad", sumBoard), api.Board(t, "good", sumBoard)
	s.setFault(func(board string, _ http.ResponseWriter, r *http.Request) bool {
		if board == bad {
			<-r.Context().Done()
		}
		return board == bad
	})
	flags := []string{"--roles=consumer", "--canonical-timeout=2s", "--canonical-retry-interval=3s", "--kafka-session-timeout=6s"}
	consumer := d.Serve(t, flags...)
	stream := newStream(t, d)

	sendFetches(t, d, 0, 500, bad, good)
	waitForScore(t, api, good, 100)
	if err := stream.send(t.Context(), bad, []result{{"u0", "direct", map[string]any{"user_id": "u0", "match_id": "direct", "points": 1000}}}); err != nil {
		t.Fatal(err)
	}
	waitForScore(t, api, bad, 1000)

	// Some fetches of the board are in memory, others are parked.
	deployment.Eventually(t, func(ctx context.Context) error {
		n, err := consumer.Metric(ctx, `leaderboard_consumer_parked_fetches_total{reason="breaker"}`)
		if err == nil && n == 0 {
			err = errors.New("no circuit breaker has opened")
		}
		return err
	})
	if err := consumer.Kill(); err != nil {
		t.Fatal(err)
	}
	sendFetches(t, d, 500, 600, bad, good)
	s.setFault(func(board string, w http.ResponseWriter, _ *http.Request) bool {
		if board == bad {
			http.Error(w, "the disk is full", http.StatusInternalServerError)
		}
		return board == bad
	})
	if err := consumer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitForScore(t, api, good, 120)
	checkScore(t, api, bad, "u0", 1000, 1)

	// All 600 fetches of the board were parked, and most of them wait for the breaker: a call for each would be
	// many more calls than these.
	before := s.callsOf(bad)
	deployment.Eventually(t, func(ctx context.Context) error {
		n, err := consumer.Metric(ctx, `leaderboard_consumer_parked_fetches_total{reason="breaker"}`)
		if err == nil && n < 1200 {
			err = fmt.Errorf("%v fetches were parked by the breaker, want two rounds of 600", n)
		}
		return err
	})
	if n := s.callsOf(bad) - before; n > 100 {
		t.Errorf("%d calls for the board whose breaker is open, want one each second or so", n)
	}

	// The breaker closes, and every fetch succeeds.
	s.setFault(nil)
	start := time.Now()
	waitForScore(t, api, bad, 1120)
	t.Logf("all fetches succeeded %v after the store answered again", time.Since(start).Round(time.Millisecond))
	if n, err := consumer.Metric(t.Context(), "leaderboard_consumer_dead_letters_total"); err != nil || n != 0 {
		t.Errorf("there are %v dead letters, error %v; want none", n, err)
	}
	stop(t, consumer)
}
