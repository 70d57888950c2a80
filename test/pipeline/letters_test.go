package pipeline

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/storage/cql"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

const asJSON = "content-type=application/json"

var sumBoard = map[string]any{"order": "HIGHER_FIRST", "policy": "SUM", "season": map[string]any{"schedule": "NONE"}}

// What is no result goes to the dead letters as it was, with the reason and where
// it came from; a result that a rule refuses is answered for; the neighbors of
// both, on the same partition, are applied without a pause.
func TestPoison(t *testing.T) {
	d := deployment.New(t, deployment.Options{})
	api := serveAPI(t, d)
	board := api.Board(t, "poison", sumBoard)
	s := newStream(t, d)
	var mu sync.Mutex
	var letters []message
	read(t, d, s.topics.DeadLetters(), func(m message) error {
		mu.Lock()
		defer mu.Unlock()
		letters = append(letters, m)
		return nil
	})
	points := func(match, n string) string {
		return fmt.Sprintf(`{"board_id":%q,"result":{"user_id":"ann","match_id":%q,"points":%s}}`, board, match, n)
	}
	poison := []struct{ value, header, cause string }{
		{"\x00\xfe\xff", "", "form"},
		{points("m", "NaN"), asJSON, "form"},
		{points("m", "0.5"), asJSON, "form"},
		{points("m", "1") + "{", asJSON, "form"},
		{points("m", "1"), "content-type=text/csv", "form"},
		{strings.Repeat("x", 600<<10), asJSON, "form"},
		{points("", "1"), asJSON, "invalid"},
		{strings.Replace(points("m", "1"), board, "nowhere", 1), asJSON, "board"},
	}
	ctx, cancel := context.WithTimeout(t.Context(), sendTimeout)
	defer cancel()
	want := map[match]int{{board, "ann", "huge"}: 1}
	send := func(value, header string) {
		t.Helper()
		headers := []string{header}
		if header == "" {
			headers = nil
		}
		if err := write(ctx, d, s.topics.Results(), []message{{key: "ann", value: []byte(value)}}, headers...); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range poison {
		send(p.value, p.header)
		good := fmt.Sprint("good", i)
		send(points(good, "1"), asJSON)
		want[match{board, "ann", good}] = 1
	}
	send(points("huge", "9007199254740993"), asJSON)
	// All of it lies there before anybody reads it.
	consumer := d.Serve(t, "--roles=consumer")
	if err := s.wait(ctx, want); err == nil || !strings.Contains(err.Error(), "rejected") {
		t.Errorf("the updates say %v, want a rejection of the one that is too large", err)
	}
	delete(want, match{board, "ann", "huge"})
	if err := s.wait(ctx, want); err != nil {
		t.Fatal(err)
	}
	if u := s.last(match{board, "ann", "huge"}); u.GetStatus() != pb.Outcome_REJECTED || u.GetReason() != string(leaderboard.ReasonInvalid) {
		t.Errorf("the update about the result that is too large is %v", u)
	}
	deployment.Eventually(t, func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if len(letters) < len(poison) {
			return fmt.Errorf("%d dead letters, want %d", len(letters), len(poison))
		}
		return nil
	})
	checkScore(t, api, board, "ann", int64(len(poison)), 1)

	mu.Lock()
	defer mu.Unlock()
	slices.SortFunc(letters, func(x, y message) int { return int(x.offset - y.offset) })
	for i, p := range poison {
		l := letters[i]
		if string(l.value) != p.value || l.key != "ann" {
			t.Errorf("the dead letter of %.60q is %.60q with key %q", p.value, l.value, l.key)
		}
		if name, form, ok := strings.Cut(p.header, "="); ok && l.headers[name] != form {
			t.Errorf("the dead letter of %.60q has lost its header: %v", p.value, l.headers)
		}
		h := l.headers
		if h["cause"] != p.cause || h["detail"] == "" || h["origin-topic"] != s.topics.Results() || h["origin-offset"] != fmt.Sprint(2*i) ||
			h["origin-partition"] == "" || h["origin-timestamp"] == "" {
			t.Errorf("the dead letter of %.60q, cause %s, says %v", p.value, p.cause, h)
		}
	}
	// A busy server may make the consumer wait; a bad message never does.
	log, err := consumer.Log()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, "a batch waits") && !strings.Contains(line, leaderboard.ErrUnavailable.Error()) && !strings.Contains(line, "deadline exceeded") {
			t.Errorf("the consumer paused: %s", line)
		}
	}
}

// A game server that keeps its results in the store itself only says that a user
// has some: the entry is made from what is there, once or many times.
func TestNotification(t *testing.T) {
	d := deployment.New(t, deployment.Options{})
	api := serveAPI(t, d)
	d.Serve(t, "--roles=consumer")
	board := api.Board(t, "noted", sumBoard)
	s := newStream(t, d)

	store, err := cql.Open(t.Context(), cql.Options{Hosts: d.Cassandra, DataCenter: d.DataCenter, Keyspace: d.Keyspace, Buckets: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	b, err := store.Board(t.Context(), leaderboard.BoardID(board))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for i, score := range []leaderboard.Score{30, 12} {
		if _, err := store.Apply(t.Context(), &b, []leaderboard.MatchResult{{
			ResultKey: leaderboard.ResultKey{
				Scope: leaderboard.Scope{Board: b.ID, Season: leaderboard.SeasonAll}, User: "eve", Match: leaderboard.MatchID(fmt.Sprint("m", i)),
			},
			Score: score, AchievedAt: at, ReceivedAt: at,
		}}); err != nil {
			t.Fatal(err)
		}
	}
	note := message{key: "eve", value: fmt.Appendf(nil, `{"board_id":%q,"notification":true,"season":"all","result":{"user_id":"eve","match_id":"m1"}}`, board)}
	if err := write(t.Context(), d, s.topics.Results(), []message{note, note}, asJSON); err != nil {
		t.Fatal(err)
	}
	if err := s.send(t.Context(), board, []result{{"bob", "m", map[string]any{"user_id": "bob", "match_id": "m", "points": 50}}}); err != nil {
		t.Fatal(err)
	}
	deployment.Eventually(t, func(ctx context.Context) error {
		score, rank, err := scoreOf(ctx, api, board, "eve")
		if err == nil && (score != 42 || rank != 2) {
			err = fmt.Errorf("eve has score %d and rank %d, want 42 and 2", score, rank)
		}
		return err
	})
}

// scoreOf returns a user's score and competition rank.
func scoreOf(ctx context.Context, api *deployment.Node, board, user string) (score, rank int64, err error) {
	var answer struct {
		Data struct {
			Score *int64 `json:"score"`
			Rank  *int64 `json:"rank"`
		} `json:"data"`
	}
	status, err := api.Call(ctx, http.MethodGet, "/v1/boards/"+board+"/scores/"+user, nil, &answer)
	if err != nil || status != http.StatusOK || answer.Data.Score == nil || answer.Data.Rank == nil {
		return 0, 0, fmt.Errorf("%s of %s: status %d, %v: %s", user, board, status, err, show(answer))
	}
	return *answer.Data.Score, *answer.Data.Rank, nil
}

func checkScore(t *testing.T, api *deployment.Node, board, user string, wantScore, wantRank int64) {
	t.Helper()
	score, rank, err := scoreOf(t.Context(), api, board, user)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{wantScore, wantRank}, []int64{score, rank}); diff != "" {
		t.Errorf("score and rank of %s (-want +got):\n%s", user, diff)
	}
}
