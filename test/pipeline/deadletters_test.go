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
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/storage/cql"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

const asJSON = "content-type=application/json"

var sumBoard = map[string]any{"order": "HIGHER_FIRST", "policy": "SUM", "season": map[string]any{"schedule": "NONE"}}

// The consumer rejects match "huge", whose score is out of range, in an update and not in a dead
// letter. Invalid messages do not delay the other results.
func TestInvalidMessagesBecomeDeadLetters(t *testing.T) {
	d := deployment.New(t, deployment.Options{})
	api := serveAPI(t, d)
	board := api.Board(t, "invalid", sumBoard)
	s := newStream(t, d)
	var mu sync.Mutex
	var deadLetters []message
	read(t, d, s.topics.DeadLetters(), func(m message) error {
		mu.Lock()
		defer mu.Unlock()
		deadLetters = append(deadLetters, m)
		return nil
	})
	points := func(match, n string) string {
		return fmt.Sprintf(`{"board_id":%q,"result":{"user_id":"ann","match_id":%q,"points":%s}}`, board, match, n)
	}
	invalid := []struct{ value, header, cause string }{
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
	for i, p := range invalid {
		send(p.value, p.header)
		good := fmt.Sprint("good", i)
		send(points(good, "1"), asJSON)
		want[match{board, "ann", good}] = 1
	}
	send(points("huge", "9007199254740993"), asJSON)
	consumer := d.Serve(t, "--roles=consumer")
	if err := s.wait(ctx, want); err == nil || !strings.Contains(err.Error(), "rejected") {
		t.Errorf("updates: error %v, want a rejection of match huge", err)
	}
	delete(want, match{board, "ann", "huge"})
	if err := s.wait(ctx, want); err != nil {
		t.Fatal(err)
	}
	if u := s.lastUpdate(match{board, "ann", "huge"}); u.GetStatus() != pb.Outcome_REJECTED || u.GetReason() != string(leaderboard.ReasonInvalid) {
		t.Errorf("the update of match huge is %v, want status REJECTED and reason %s", u, leaderboard.ReasonInvalid)
	}
	deployment.Eventually(t, func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if len(deadLetters) < len(invalid) {
			return fmt.Errorf("%d dead letters, want %d", len(deadLetters), len(invalid))
		}
		return nil
	})
	checkScore(t, api, board, "ann", int64(len(invalid)), 1)

	mu.Lock()
	defer mu.Unlock()
	slices.SortFunc(deadLetters, func(x, y message) int { return int(x.offset - y.offset) })
	for i, p := range invalid {
		l := deadLetters[i]
		if string(l.value) != p.value || l.key != "ann" {
			t.Errorf("the dead letter of %.60q is %.60q with key %q, want the message unchanged", p.value, l.value, l.key)
		}
		if name, value, ok := strings.Cut(p.header, "="); ok && l.headers[name] != value {
			t.Errorf("the dead letter of %.60q has the headers %v, want %s", p.value, l.headers, p.header)
		}
		h := l.headers
		if h["cause"] != p.cause || h["detail"] == "" || h["origin-topic"] != s.topics.Results() || h["origin-offset"] != fmt.Sprint(2*i) ||
			h["origin-partition"] == "" || h["origin-timestamp"] == "" {
			t.Errorf("the dead letter of %.60q has the headers %v, want cause %s, a detail and the message's origin", p.value, h, p.cause)
		}
	}
	checkDeadLettersOfTheAPI(t, api, len(invalid))
	// The consumer may retry a batch because a server is busy, but never because a message is
	// invalid.
	log, err := consumer.Log()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, "a batch failed and will be retried") && !strings.Contains(line, leaderboard.ErrUnavailable.Error()) && !strings.Contains(line, "deadline exceeded") {
			t.Errorf("the consumer retried a batch because of an invalid message: %s", line)
		}
	}
}

// The API lists all n dead letters in pages. The one whose board is missing counts once after the board is created and the
// message is replayed, twice.
func checkDeadLettersOfTheAPI(t *testing.T, api *deployment.Node, n int) {
	t.Helper()
	call := func(method, path string, body, answer any) {
		t.Helper()
		if status, err := api.Call(t.Context(), method, path, body, answer); err != nil || status != http.StatusOK {
			t.Fatalf("%s %s: status %d, error %v", method, path, status, err)
		}
	}
	ids, missing := map[string]bool{}, ""
	for token := ""; ; {
		var page struct {
			DeadLetters []struct {
				ID         string `json:"dead_letter_id"`
				Cause      string `json:"cause"`
				Replayable bool   `json:"replayable"`
			} `json:"dead_letters"`
			Next string `json:"next_page_token"`
		}
		call(http.MethodGet, "/v1/dead-letters?limit=3&page_token="+token, nil, &page)
		for _, d := range page.DeadLetters {
			if ids[d.ID] = true; d.Replayable != (d.Cause != "form") {
				t.Errorf("the dead letter %+v, want it replayable unless it cannot be decoded", d)
			}
			if d.Cause == "board" {
				missing = d.ID
			}
		}
		if token = page.Next; token == "" {
			break
		}
	}
	if len(ids) != n || missing == "" {
		t.Fatalf("the API lists %v, want %d dead letters, one with the cause board", ids, n)
	}
	call(http.MethodPost, "/v1/boards", map[string]any{"board_id": "nowhere", "policy": "SUM", "season": map[string]any{"schedule": "NONE"}}, nil)
	for range 2 {
		var answer struct{ Replayed, Skipped []struct{ Cause string } }
		call(http.MethodPost, "/v1/dead-letters:replay", map[string]any{"dead_letter_ids": []string{missing}, "reason": "the board exists now"}, &answer)
		if len(answer.Replayed) != 1 || len(answer.Skipped) != 0 {
			t.Errorf("the replay answers %+v, want one replayed message", answer)
		}
		deployment.Eventually(t, func(ctx context.Context) error {
			var user struct {
				Data struct{ Score, Rank int64 }
			}
			status, err := api.Call(ctx, http.MethodGet, "/v1/boards/nowhere/scores/ann", nil, &user)
			if err == nil && (status != http.StatusOK || user.Data.Score != 1 || user.Data.Rank != 1) {
				err = fmt.Errorf("status %d, score %d, want the score 1 of the replayed result", status, user.Data.Score)
			}
			return err
		})
	}
	var audit struct{ Acts []struct{ Reason string } }
	call(http.MethodGet, "/v1/audit?action=dead_letter.replay&user_id=ann", nil, &audit)
	if len(audit.Acts) != 4 || audit.Acts[0].Reason != "the board exists now" { // an intent and an outcome each
		t.Errorf("the records of the replays are %+v, want two acts", audit.Acts)
	}
}

// For a notification, the consumer computes the user's entry from the stored results. So a repeated
// notification changes nothing.
func TestNotificationUpdatesEntryFromStoredResults(t *testing.T) {
	d := deployment.New(t, deployment.Options{})
	api := serveAPI(t, d)
	d.Serve(t, "--roles=consumer")
	board := api.Board(t, "noted", sumBoard)
	s := newStream(t, d)

	backend, err := cql.Open(t.Context(), cql.Options{Hosts: d.Cassandra, DataCenter: d.DataCenter, Keyspace: d.Keyspace, Buckets: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	store := engine.New(backend)
	b, err := store.Board(t.Context(), leaderboard.BoardID(board))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for i, score := range []leaderboard.Score{30, 12} {
		if _, err := store.Apply(t.Context(), &b, []leaderboard.MatchResult{{
			ResultKey: leaderboard.ResultKey{
				SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}, User: "eve", Match: leaderboard.MatchID(fmt.Sprint("m", i)),
			},
			Score: score, AchievedAt: at, ReceivedAt: at,
		}}); err != nil {
			t.Fatal(err)
		}
	}
	notification := message{key: "eve", value: fmt.Appendf(nil, `{"board_id":%q,"notification":true,"season":"all","result":{"user_id":"eve","match_id":"m1"}}`, board)}
	if err := write(t.Context(), d, s.topics.Results(), []message{notification, notification}, asJSON); err != nil {
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

func scoreOf(ctx context.Context, api *deployment.Node, board, user string) (score, rank int64, err error) {
	var answer struct {
		Data struct {
			Score *int64 `json:"score"`
			Rank  *int64 `json:"rank"`
		} `json:"data"`
	}
	status, err := api.Call(ctx, http.MethodGet, "/v1/boards/"+board+"/scores/"+user, nil, &answer)
	if err != nil || status != http.StatusOK || answer.Data.Score == nil || answer.Data.Rank == nil {
		return 0, 0, fmt.Errorf("read score of %s on %s: status %d, error %v: %s", user, board, status, err, show(answer))
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
