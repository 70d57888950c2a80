package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

type event struct {
	name, id, retry string
	data            map[string]any
}

type events struct {
	t    testing.TB
	body io.ReadCloser
	r    *bufio.Reader
}

func (h *harness) watch(path string) *events {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, h.http.URL+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+h.keys["read"])
	res, err := h.http.Client().Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("Cache-Control") != "no-store" {
		h.t.Fatalf("watch: %d %v, want 200 with an event stream that is not cached", res.StatusCode, res.Header)
	}
	return &events{h.t, res.Body, bufio.NewReader(res.Body)}
}

func (e *events) next() (event, bool) {
	e.t.Helper()
	var ev event
	for {
		line, err := e.r.ReadString('\n')
		if err == io.EOF && line == "" && ev.data == nil {
			return event{}, false
		}
		if err != nil && err != io.EOF {
			return event{}, false
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "":
			if ev.data != nil {
				return ev, true
			}
		case "event":
			ev.name = value
		case "id":
			ev.id = value
		case "retry":
			ev.retry = value
		case "data":
			dec := json.NewDecoder(strings.NewReader(value))
			dec.UseNumber()
			if err := dec.Decode(&ev.data); err != nil {
				e.t.Fatalf("data %q: %v", value, err)
			}
		default:
			e.t.Fatalf("the stream has the unexpected line %q", line)
		}
	}
}

func TestWatchOverREST(t *testing.T) {
	h := newHarness(t, Options{})
	watch := h.watch("/v1/boards/default/watch?limit=3")
	first, ok := watch.next()
	created, err := time.Parse(time.RFC3339Nano, get(h.must("read", "GET", "/v1/boards/default", nil), "created_at").(string))
	if err != nil {
		t.Fatal(err)
	}
	if !ok || first.name != "" || first.id != fmt.Sprint(created.UnixMicro()) || first.data["count"] != number(0) || first.data["season"] == "" || first.data["method"] != "competition" {
		t.Fatalf("the first event is %+v, want the time of the board's creation as id, and no entries", first)
	}
	last := ""
	for i := 1; i <= 5; i++ {
		h.must("submit", "POST", "/v1/scores", fmt.Sprintf(`{"user_id":"u%d","points":%d}`, i, i))
		ev, ok := watch.next()
		leader := get(ev.data, "leaderboard", 0)
		if !ok || get(leader, "user_id") != fmt.Sprintf("u%d", i) || get(leader, "score") != number(int64(i)) || get(leader, "rank") != number(1) || ev.data["count"] != number(int64(min(i, 3))) || ev.data["total"] != number(int64(i)) {
			t.Fatalf("event %d is %+v, want u%d as the leader and the total %d", i, ev, i, i)
		}
		if len(ev.id) < len(last) || len(ev.id) == len(last) && ev.id <= last {
			t.Errorf("the event id %s follows %s, want increasing numbers", ev.id, last)
		}
		last = ev.id
	}
	// A change of another board sends no event.
	h.createBoard(`{"board_id":"other","season":{"schedule":"NONE"}}`)
	h.must("submit", "POST", "/v1/boards/other/scores", `{"user_id":"x","score":1}`)
	h.must("admin", "POST", "/v1/users/u5:ban", nil)
	if ev, _ := watch.next(); get(ev.data, "leaderboard", 0, "user_id") != "u4" || ev.data["total"] != number(4) {
		t.Errorf("the event after the ban: %+v, want u4 as the leader and the total 4", ev)
	}
	h.Server.stop()
	ev, ok := watch.next()
	if !ok || ev.name != "reconnect" || ev.retry == "" || get(ev.data, "error", "status") != "UNAVAILABLE" {
		t.Errorf("the event when the server stops: %+v, want reconnect with a retry time and UNAVAILABLE", ev)
	}
	if ev, ok := watch.next(); ok {
		t.Errorf("event after the last one: %+v, want the end of the stream", ev)
	}
}

func TestWatchOfADivision(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(marathon)
	watch := h.watch("/v1/boards/marathon/watch?division=gender:F&method=dense&season=all")
	watch.next()
	h.must("submit", "POST", "/v1/boards/marathon/scores", `{"user_id":"m","score":1,"attributes":{"gender":"M"}}`)
	h.must("submit", "POST", "/v1/boards/marathon/scores", `{"user_id":"f","score":2,"attributes":{"gender":"F"}}`)
	if ev, _ := watch.next(); ev.data["division"] != "gender:F" || ev.data["count"] != number(1) || get(ev.data, "leaderboard", 0, "user_id") != "f" || ev.data["method"] != "dense" {
		t.Errorf("event of division gender:F: %+v, want only f, with the method dense", ev)
	}
}

func TestWatchErrors(t *testing.T) {
	h := newHarness(t, Options{MaxWatchers: 1})
	a := h.do("read", "GET", "/v1/boards/nowhere/watch", nil)
	if a.status != http.StatusNotFound || a.reason() != "BOARD_NOT_FOUND" || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("watch of an unknown board: %d %v %s, want 404 with BOARD_NOT_FOUND as JSON", a.status, a.header, a.raw)
	}
	watch := h.watch("/v1/boards/default/watch")
	watch.next()
	if a := h.do("read", "GET", "/v1/boards/default/watch", nil); a.status != http.StatusTooManyRequests || a.reason() != "TOO_MANY_WATCHERS" || a.header.Get("Retry-After") == "" {
		t.Errorf("second watch with MaxWatchers 1: %d %s, want 429 with TOO_MANY_WATCHERS", a.status, a.raw)
	}
	watch.body.Close()
	waitFor(t, "the handler to end", func() bool { return h.watches.len() == 0 })
}

func TestWatchOverGRPC(t *testing.T) {
	h := newHarness(t, Options{})
	ctx, cancel := context.WithCancel(h.as("read"))
	stream, err := h.client().WatchScores(ctx, &pb.WatchScoresRequest{Board: "default"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || m.GetData().GetCount() != 0 {
		t.Fatalf("the first message is %v, %v; want no entries", m, err)
	}
	h.must("submit", "POST", "/v1/scores", `{"user_id":"u","points":1}`)
	m, err := stream.Recv()
	if err != nil || m.GetData().GetLeaderboard()[0].GetUserId() != "u" || m.GetEventId() == "0" {
		t.Errorf("the second message is %v, %v; want the entry of u and an event id other than 0", m, err)
	}
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("Recv after the cancellation: %v, want CANCELED", err)
	}
	waitFor(t, "the handler to end", func() bool { return h.watches.len() == 0 })
}

type sentMessages struct {
	grpc.ServerStreamingServer[pb.WatchScoresResponse]
	ctx  context.Context
	sent chan any
}

func (s sentMessages) Context() context.Context { return s.ctx }

func (s sentMessages) SendMsg(m any) error {
	s.sent <- m
	return nil
}

// All streams of one page send the same message. It is encoded once as protobuf and once as an event.
func TestWatchersShareTheEncoding(t *testing.T) {
	h := newHarness(t, Options{Insecure: true})
	ctx, cancel := context.WithCancel(t.Context())
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer cancel()
	var streams []sentMessages
	for range 3 {
		stream := sentMessages{ctx: ctx, sent: make(chan any, 1)}
		watchers.Go(func() { _ = h.WatchScores(&pb.WatchScoresRequest{Board: "default"}, stream) })
		<-stream.sent // the page without entries
		streams = append(streams, stream)
	}
	h.must("submit", "POST", "/v1/scores", `{"user_id":"u","points":1}`)
	first := (<-streams[0].sent).(*sharedMessage)
	for i, stream := range streams[1:] {
		if m := <-stream.sent; m != first {
			t.Errorf("stream %d sent the message %v, want the message of the first stream", i+1, m)
		}
	}
	encode := func(encode func() ([]byte, error)) []byte {
		t.Helper()
		b, err := encode()
		if err != nil || len(b) == 0 {
			t.Fatalf("encoding: %q, %v; want bytes", b, err)
		}
		if again, _ := encode(); &again[0] != &b[0] {
			t.Error("the second call encoded the message again, want one encoding")
		}
		return b
	}
	var decoded pb.WatchScoresResponse
	if err := proto.Unmarshal(encode(first.protobuf), &decoded); err != nil || !proto.Equal(&decoded, first.WatchScoresResponse) {
		t.Errorf("the encoded message is %v, error %v; want %v", &decoded, err, first.WatchScoresResponse)
	}
	if event := string(encode(first.event)); !strings.HasPrefix(event, "id: "+first.EventId+"\ndata: {") || strings.Contains(event, "\n\n") {
		t.Errorf("the event is %q, want an id and data", event)
	}
}

// The metric running_calls counts the watchers over REST and gRPC until they disconnect.
func TestWatchersAreCounted(t *testing.T) {
	h := newHarness(t, Options{})
	counts := func(n int) {
		t.Helper()
		line := fmt.Sprintf("leaderboard_api_running_calls{method=\"WatchScores\"} %d\n", n)
		waitFor(t, "the metric "+line, func() bool { return strings.Contains(h.do("", "GET", "/metrics", nil).raw, line) })
	}
	counts(0)
	rest := h.watch("/v1/boards/default/watch")
	rest.next()
	counts(1)
	ctx, cancel := context.WithCancel(h.as("read"))
	defer cancel()
	stream, err := h.client().WatchScores(ctx, &pb.WatchScoresRequest{Board: "default"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	counts(2)
	rest.body.Close()
	counts(1)
	cancel()
	counts(0)
}

func TestAdminStreams(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"b","season":{"schedule":"NONE"}}`)
	for i := range 5 {
		h.must("submit", "POST", "/v1/boards/b/scores", fmt.Sprintf(`{"user_id":"u%d","match_id":"m","score":%d,"metadata":{"i":%d}}`, i, i, i))
	}
	h.must("submit", "POST", "/v1/boards/b/results/u4/m:retract", nil)

	a := h.do("admin", "POST", "/v1/admin/verify", `{"board":"b","season":"all","repair":true}`)
	lines := jsonLines(t, a)
	summary := lines[len(lines)-1]
	if a.header.Get("Content-Type") != "application/x-ndjson" || get(summary, "summary", "users") != number(5) || get(summary, "summary", "results") != number(5) || get(summary, "summary", "differences") != number(0) {
		t.Errorf("verify: %v %s, want a summary of 5 users, 5 results and no differences", a.header, a.raw)
	}
	if got := get(lines[0], "progress", "board"); got != "b" {
		t.Errorf("verify: %s, want the progress of board b first", a.raw)
	}
	lines = jsonLines(t, h.do("admin", "POST", "/v1/admin/rebuild", nil))
	if got := get(lines[len(lines)-1], "summary", "users"); got != number(5) {
		t.Errorf("rebuild: %v, want a summary of 5 users", lines)
	}
	lines = jsonLines(t, h.do("admin", "GET", "/v1/boards/b/results?season=all", nil))
	if len(lines) != 5 || get(lines[1], "result", "metadata", "i") != number(1) || get(lines[4], "retracted") != true || get(lines[4], "result", "score") != nil || get(lines[0], "season") != "all" {
		t.Errorf("export: %v, want 4 results and a retraction of season \"all\"", lines)
	}
	if a := h.do("admin", "GET", "/v1/boards/default/results", nil); a.status != http.StatusOK || a.raw != "" || a.header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("export of a board without results: %d %v %q, want 200 with an empty body", a.status, a.header, a.raw)
	}
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/admin/verify", `{"season":"all"}`, 400},
		{"POST", "/v1/admin/rebuild", `{"board":"nowhere"}`, 404},
		{"GET", "/v1/boards/nowhere/results", ``, 404},
		{"GET", "/v1/boards/b/results?season=202611", ``, 404},
	} {
		if a := h.do("admin", tt.method, tt.path, tt.body); a.status != tt.status || a.body["code"] == nil {
			t.Errorf("%s %s: %d %s, want %d", tt.method, tt.path, a.status, a.raw, tt.status)
		}
	}
}

func jsonLines(t *testing.T, a answer) []map[string]any {
	t.Helper()
	if a.status != http.StatusOK {
		t.Fatalf("the answer is %d %s, want 200", a.status, a.raw)
	}
	var lines []map[string]any
	dec := json.NewDecoder(strings.NewReader(a.raw))
	dec.UseNumber()
	for dec.More() {
		var line map[string]any
		if err := dec.Decode(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 || strings.Count(a.raw, "\n") != len(lines) {
		t.Fatalf("the answer is %s, want one JSON object on each line", a.raw)
	}
	return lines
}

func TestExportThatBreaks(t *testing.T) {
	h := newHarness(t, Options{})
	broken := serve(t, breaking{h.service}, h.store, Options{})
	a := broken.do("admin", "GET", "/v1/boards/default/results", nil)
	lines := jsonLines(t, a)
	if len(lines) != 2 || get(lines[1], "error", "status") != "UNAVAILABLE" || strings.Contains(a.raw, "node 7") {
		t.Errorf("the export is %s, want a result and then an UNAVAILABLE error without its cause", a.raw)
	}
}

type breaking struct{ *ranking.Service }

func (breaking) Export(_ context.Context, _ ranking.Selection, _ bool, send func(leaderboard.MatchResult) error) error {
	if err := send(leaderboard.MatchResult{Score: 1, AchievedAt: time.Unix(1, 0)}); err != nil {
		return err
	}
	return fmt.Errorf("cql: node 7: %w", leaderboard.ErrUnavailable)
}

// panickingStream is a stream whose Send waits until the test closes panics, and then panics.
type panickingStream struct {
	grpc.ServerStreamingServer[pb.WatchScoresResponse]
	ctx     context.Context
	panics  chan struct{}
	sending chan struct{}
}

func (s panickingStream) Context() context.Context { return s.ctx }

func (s panickingStream) Send(*pb.WatchScoresResponse) error {
	s.sending <- struct{}{}
	<-s.panics
	panic("hunter2")
}

// The server counts a panic of a stream and continues. If the handler has returned, the server logs
// the panic.
func TestPanicsOfStreamsAreRecovered(t *testing.T) {
	metrics := prometheus.NewRegistry()
	h := newHarness(t, Options{Insecure: true, Metrics: metrics})
	stream := panickingStream{ctx: t.Context(), panics: make(chan struct{}), sending: make(chan struct{}, 2)}
	_, send, stop := prepareStream(h.Server, stream, "")
	sent := make(chan error)
	go func() { sent <- send(&pb.WatchScoresResponse{}) }()
	<-stream.sending
	stop()
	if err := <-sent; !errors.Is(err, context.Canceled) {
		t.Errorf("send of a stream that ended: %v, want context.Canceled", err)
	}
	close(stream.panics)
	waitFor(t, "the panic and its stack in the log", func() bool {
		return strings.Contains(h.log.String(), "hunter2") && strings.Contains(h.log.String(), "panickingStream.Send")
	})

	_, send, stop = prepareStream(h.Server, stream, "")
	defer stop()
	if err := send(&pb.WatchScoresResponse{}); !errors.Is(err, errPanic) || !strings.Contains(err.Error(), "panickingStream.Send") {
		t.Errorf("send: %v, want an error with the panic and its stack", err)
	}
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	panics := 0.0
	for _, f := range families {
		if f.GetName() == "leaderboard_api_panics_total" {
			panics = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if panics != 2 {
		t.Errorf("%v panics are counted, want 2", panics)
	}
}

type faultyBoards struct {
	*ranking.Service
	broken *atomic.Bool
}

func (f faultyBoards) Board(ctx context.Context, id leaderboard.BoardID) (leaderboard.Board, error) {
	if f.broken.Load() {
		panic("hunter2")
	}
	return f.Service.Board(ctx, id)
}

// While a stream runs, the server checks again and again whether the caller may still watch. A panic
// of this check ends the stream.
func TestPanicsOfRechecksEndTheStream(t *testing.T) {
	base := newHarness(t, Options{})
	service := faultyBoards{base.service, &atomic.Bool{}}
	h := serve(t, service, base.store, Options{PublicRead: true})
	stream, err := h.client().WatchScores(t.Context(), &pb.WatchScoresRequest{Board: "default"})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	service.broken.Store(true)
	if _, err := stream.Recv(); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the stream ended with %v, want INTERNAL without the cause", err)
	}
	waitFor(t, "the panic in the log", func() bool { return strings.Contains(h.log.String(), "hunter2") })
}
