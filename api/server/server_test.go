package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

func TestProbes(t *testing.T) {
	var ready atomic.Bool
	h := newHarness(t, Options{Ready: func() error {
		if !ready.Load() {
			return errors.New("still waking up")
		}
		return nil
	}})
	if a := h.do("", "GET", "/healthz", nil); a.status != http.StatusOK || a.raw != "ok\n" {
		t.Errorf("/healthz: %d %s, want 200 ok", a.status, a.raw)
	}
	health := func() healthpb.HealthCheckResponse_ServingStatus {
		res, err := healthpb.NewHealthClient(h.conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return res.GetStatus()
	}
	if a := h.do("", "GET", "/readyz", nil); a.status != http.StatusServiceUnavailable || a.raw != "not ready: still waking up\n" || health() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("/readyz of a server that is not ready: %d %s, gRPC %v; want 503 with the reason and NOT_SERVING", a.status, a.raw, health())
	}
	ready.Store(true)
	if a := h.do("", "GET", "/readyz", nil); a.status != http.StatusOK || health() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("/readyz of a ready server: %d, gRPC %v; want 200 and SERVING", a.status, health())
	}
	stream, err := reflectionpb.NewServerReflectionClient(h.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	if res, err := stream.Recv(); err != nil || !strings.Contains(res.String(), "leaderboard.v1.LeaderboardService") {
		t.Errorf("reflection answers %v, %v; want LeaderboardService in the list", res, err)
	}
}

func TestMetrics(t *testing.T) {
	h := newHarness(t, Options{})
	h.must("submit", "POST", "/v1/scores", `{"user_id":"secret-user","points":1}`)
	h.must("submit", "POST", "/v1/scores?no_wait=true", `{"user_id":"secret-user","points":1}`) // not in visible_seconds
	h.do("read", "GET", "/v1/scores/nobody", nil)
	if _, err := h.client().ListBoards(h.as("read"), &pb.ListBoardsRequest{}); err != nil {
		t.Fatal(err)
	}
	raw := h.do("", "GET", "/metrics", nil).raw
	for _, line := range []string{
		`leaderboard_api_call_seconds_count{code="OK",method="SubmitScore"} 2`,
		`leaderboard_api_call_seconds_count{code="NotFound",method="GetUserScore"} 1`,
		`leaderboard_api_call_seconds_count{code="OK",method="ListBoards"} 1`,
		`leaderboard_api_running_calls{method="SubmitScore"} 0`,
		`leaderboard_api_visible_seconds_count{method="SubmitScore"} 1`,
	} {
		if !strings.Contains(raw, line+"\n") {
			t.Errorf("/metrics has no line %s:\n%s", line, raw)
		}
	}
	if strings.Contains(raw, "secret-user") || strings.Contains(raw, "default") {
		t.Error("/metrics contains the id of a user or a board, want neither")
	}
}

func TestOpenAPI(t *testing.T) {
	h := newHarness(t, Options{})
	a := h.do("", "GET", "/openapi.json", nil)
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "application/json" || a.body["openapi"] != "3.1.0" {
		t.Fatalf("/openapi.json: %d %v, want 200 with JSON of OpenAPI 3.1", a.status, a.header)
	}
	if old := h.do("", "GET", "/openapi-v2.json", nil); old.status != http.StatusOK || old.body["swagger"] != "2.0" {
		t.Errorf("/openapi-v2.json: %d, want 200 with JSON of OpenAPI 2.0", old.status)
	}
	ids := map[string]bool{}
	for key := range h.routes(t) {
		verb, path := describedRoute(key)
		operation := get(a.body, "paths", path, verb)
		if operation == nil {
			t.Errorf("openapi.json does not describe %s %s", verb, path)
			continue
		}
		id, _ := get(operation, "operationId").(string)
		if ids[id] || !regexp.MustCompile(`^[a-z][A-Za-z]+$`).MatchString(id) {
			t.Errorf("%s %s has the operation id %q, want unique letters", verb, path, id)
		}
		ids[id] = true
	}
	described := 0
	for _, verbs := range a.body["paths"].(map[string]any) {
		described += len(verbs.(map[string]any))
	}
	if described != len(ids) {
		t.Errorf("openapi.json describes %d operations, want the %d of the server", described, len(ids))
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				var steps []any
				for step := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
					steps = append(steps, step)
				}
				if get(a.body, steps...) == nil {
					t.Errorf("%s refers to %s, which openapi.json does not define", path, ref)
				}
			}
			for k, child := range v {
				walk(path+"/"+k, child)
			}
		case []any:
			for i, child := range v {
				walk(fmt.Sprintf("%s/%d", path, i), child)
			}
		}
	}
	walk("", a.body)
}

var routeParameter = regexp.MustCompile(`\{(?:\w+\.)*(\w+)=\*\}`)

// describedRoute returns the verb and the path that openapi.json has for a key of gateway.routes.
func describedRoute(key string) (verb, path string) {
	verb, pattern, _ := strings.Cut(key, " ")
	path = strings.ReplaceAll(routeParameter.ReplaceAllString(pattern, "{$1}"), "{board_id}", "{board}")
	return strings.ToLower(verb), path
}

// The pages have no inline scripts or styles, so the policy needs no exception.
func TestPages(t *testing.T) {
	h := newHarness(t, Options{})
	for path, script := range map[string]string{"/": "/web/page.js", "/embed": "/embed.js", "/gallery": "/web/gallery.js", "/admin": "/web/admin.js"} {
		a := h.do("", "GET", path, nil)
		policy := a.header.Get("Content-Security-Policy")
		if a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") || !strings.Contains(a.raw, script) {
			t.Fatalf("GET %s: %d %v, want 200 with HTML and the script %s", path, a.status, a.header, script)
		}
		for _, part := range []string{"default-src 'none'", "connect-src 'self'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("GET %s: the Content-Security-Policy has no %s: %s", path, part, policy)
			}
		}
		if strings.Contains(policy, "unsafe") {
			t.Errorf("GET %s: the Content-Security-Policy is %s, want no unsafe sources", path, policy)
		}
		for _, pattern := range []string{`(?i)\b(?:src|href)="(?:https?:)?//`, `(?i)\son[a-z]+\s*=`, `style="`, `<style`, `<script[^>]*>[^<]`} {
			if match := regexp.MustCompile(pattern).FindString(a.raw); match != "" {
				t.Errorf("GET %s contains %q, want nothing from other origins, and nothing inline", path, match)
			}
		}
	}
	if a := h.do("", "GET", "/nope", nil); a.status != http.StatusNotFound {
		t.Errorf("GET /nope: %d, want 404", a.status)
	}
	if a := h.do("", "POST", "/", "x"); a.status != http.StatusMethodNotAllowed {
		t.Errorf("POST /: %d, want 405", a.status)
	}
}

// No page may frame the page for administrators, whatever may frame the others, and nothing keeps or lists it.
func TestAdminPageIsNeverFramed(t *testing.T) {
	for _, ancestors := range [][]string{nil, {"'self'", "https://portal.example"}, {"*"}} {
		a := newHarness(t, Options{FrameAncestors: ancestors}).do("", "GET", "/admin", nil)
		for name, want := range map[string]string{"X-Frame-Options": "DENY", "Cache-Control": "no-store", "X-Robots-Tag": "noindex, nofollow", "ETag": "", "Access-Control-Allow-Origin": ""} {
			if got := a.header.Get(name); got != want {
				t.Errorf("GET /admin with the frame ancestors %q: the header %s is %q, want %q", ancestors, name, got, want)
			}
		}
		const want = "default-src 'none'; connect-src 'self'; style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'none'; " +
			"img-src 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html"
		if got := a.header.Get("Content-Security-Policy"); got != want {
			t.Errorf("GET /admin with the frame ancestors %q: the policy is %q, want %q", ancestors, got, want)
		}
	}
}

// Pages of other origins load the element's script and texts, and browsers ask whether they have changed.
func TestFilesOfThePages(t *testing.T) {
	h := newHarness(t, Options{})
	for path, contentType := range map[string]string{"/embed.js": "text/javascript", "/web/page.css": "text/css", "/web/text/de.json": "application/json", "/web/licenses.txt": "text/plain"} {
		a := h.do("", "GET", path, nil)
		tag := a.header.Get("ETag")
		if a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("Content-Type"), contentType) || a.header.Get("Access-Control-Allow-Origin") != "*" || tag == "" {
			t.Errorf("GET %s: %d %v, want 200, the type %s, an ETag, and any origin", path, a.status, a.header, contentType)
		}
		again, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.http.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		again.Header.Set("If-None-Match", tag)
		if a := h.send(again); a.status != http.StatusNotModified {
			t.Errorf("GET %s with its ETag: %d, want 304", path, a.status)
		}
	}
}

func TestDocsPage(t *testing.T) {
	h := newHarness(t, Options{})
	for path, want := range map[string][2]string{
		"/docs": {"text/html", "docs/start.js"}, "/docs/start.js": {"text/javascript", "openapi.json"},
		"/docs/swagger-ui-bundle.js": {"text/javascript", "SwaggerUIBundle"}, "/docs/swagger-ui.css": {"text/css", ".swagger-ui"},
	} {
		plain, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.http.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		plain.Header.Set("Accept-Encoding", "identity")
		for _, a := range []answer{h.do("", "GET", path, nil), h.send(plain)} { // the client asks for gzip, and decompresses it
			if a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("Content-Type"), want[0]) || !strings.Contains(a.raw, want[1]) {
				t.Errorf("GET %s: %d %s, want 200 %s with %s", path, a.status, a.header, want[0], want[1])
			}
			if policy := a.header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
				t.Errorf("GET %s: the policy is %q, want default-src 'none' and no unsafe sources", path, policy)
			}
		}
	}
	if a := h.do("", "GET", "/docs/none.js", nil); a.status != http.StatusNotFound {
		t.Errorf("GET /docs/none.js: %d, want 404", a.status)
	}
}

func TestSecurityHeaders(t *testing.T) {
	h := newHarness(t, Options{})
	for _, path := range []string{"/", "/v1/scores", "/healthz", "/openapi.json", "/v1/nope", "/nope"} {
		header := h.do("", "GET", path, nil).header
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Access-Control-Allow-Origin": "", "Server": "", "Set-Cookie": "",
		} {
			if got := header.Get(name); got != want {
				t.Errorf("GET %s: the header %s is %q, want %q", path, name, got, want)
			}
		}
		if !strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("GET %s: the policy is %q, want default-src 'none'", path, header.Get("Content-Security-Policy"))
		}
	}
}

func TestCrossOriginRequests(t *testing.T) {
	h := newHarness(t, Options{Insecure: true})
	try := func(method string, headers map[string]string) int {
		body := `{"user_id":"u","points":1}`
		if method == "GET" {
			body = ""
		}
		req, _ := http.NewRequest(method, h.http.URL+"/v1/scores", strings.NewReader(body))
		for k, v := range headers {
			req.Header.Set(k, v)
		}
		return h.send(req).status
	}
	for _, headers := range []map[string]string{{"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "same-site", "Origin": "http://other.localhost"}} {
		if got := try("POST", headers); got != http.StatusForbidden {
			t.Errorf("POST with %v: %d, want 403", headers, got)
		}
	}
	for _, headers := range []map[string]string{{}, {"Sec-Fetch-Site": "same-origin"}, {"Origin": h.http.URL}} {
		if got := try("POST", headers); got != http.StatusOK {
			t.Errorf("POST with %v: %d, want 200", headers, got)
		}
	}
	if got := try("GET", map[string]string{"Sec-Fetch-Site": "cross-site"}); got != http.StatusOK {
		t.Errorf("GET from a page of another site: %d, want 200", got)
	}
}

// faulty is a service whose Page fails if page does.
type faulty struct {
	*ranking.Service
	page func(context.Context) error
}

func (f faulty) Page(ctx context.Context, q ranking.PageQuery) (ranking.Page, error) {
	if err := f.page(ctx); err != nil {
		return ranking.Page{}, err
	}
	return f.Service.Page(ctx, q)
}

func TestFaultsOfTheService(t *testing.T) {
	base := newHarness(t, Options{})
	for _, tt := range []struct {
		name   string
		page   func(context.Context) error
		status int
		code   codes.Code
		retry  bool
		cause  string // in the log
	}{
		{"a panic", func(context.Context) error { panic("password=hunter2") }, 500, codes.Internal, false, "hunter2"},
		{"an unknown error", func(context.Context) error { return errors.New("password=hunter2") }, 500, codes.Internal, false, "hunter2"},
		{"the store is down", func(context.Context) error { return fmt.Errorf("cql: hunter2: %w", leaderboard.ErrUnavailable) }, 503, codes.Unavailable, true, "hunter2"},
		{"the index is down", func(context.Context) error { return fmt.Errorf("redis: hunter2: %w", leaderboard.ErrRankUnavailable) }, 503, codes.Unavailable, true, "hunter2"},
		{"the deadline passes", func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("hunter2: %w", ctx.Err()) }, 504, codes.DeadlineExceeded, false, "context deadline exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := serve(t, faulty{base.service, tt.page}, base.store, Options{Timeout: 20 * time.Millisecond})
			a := h.do("read", "GET", "/v1/scores", nil)
			if a.status != tt.status || strings.Contains(a.raw, "hunter2") || (a.header.Get("Retry-After") != "") != tt.retry {
				t.Errorf("REST: %d, Retry-After %q, %s; want %d, Retry-After %v and no cause", a.status, a.header.Get("Retry-After"), a.raw, tt.status, tt.retry)
			}
			_, err := h.client().ListScores(h.as("read"), &pb.ListScoresRequest{})
			if status.Code(err) != tt.code || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("gRPC: %v, want %v and no cause", err, tt.code)
			}
			waitFor(t, "the cause in the log", func() bool { return strings.Count(h.log.String(), tt.cause) >= 2 })
			if tt.code == codes.Internal && !strings.Contains(h.log.String(), `"level":"ERROR"`) {
				t.Errorf("the log is %s, want a line with level ERROR", h.log.String())
			}
		})
	}
}

// Equal calls that wait at the same time share an answer, over REST and gRPC. It has every result that
// was applied before the last of these calls began.
func TestEqualListsShareAnAnswer(t *testing.T) {
	base := newHarness(t, Options{})
	base.must("submit", "POST", "/v1/scores", `{"user_id":"ann","points":10}`)
	var reads atomic.Int64
	release := make(chan struct{})
	h := serve(t, faulty{base.service, func(context.Context) error {
		if reads.Add(1) == 1 {
			<-release
		}
		return nil
	}}, base.store, Options{})
	h.lists.MaxWait = 0
	var all sync.WaitGroup
	all.Go(func() { h.must("read", "GET", "/v1/scores", nil) })
	waitFor(t, "the first read", func() bool { return reads.Load() == 1 })
	base.must("submit", "POST", "/v1/scores", `{"user_id":"bob","points":20}`)
	want := base.do("read", "GET", "/v1/scores", nil)
	const callers = 20
	for i := range callers {
		all.Go(func() {
			if i%2 == 0 {
				got := h.do("read", "GET", "/v1/scores", nil)
				if got.raw != want.raw || got.status != http.StatusOK || got.header.Get("Content-Type") != want.header.Get("Content-Type") {
					t.Errorf("REST: %d, Content-Type %q, %s; want %q, %s", got.status, got.header.Get("Content-Type"), got.raw, want.header.Get("Content-Type"), want.raw)
				}
				return
			}
			got, err := h.client().ListScores(h.as("read"), &pb.ListScoresRequest{})
			if err != nil || got.GetData().GetTotal() != 2 || got.GetData().GetLeaderboard()[0].GetUserId() != "bob" {
				t.Errorf("gRPC: %v, error %v, want bob before ann", got, err)
			}
		})
	}
	running := fmt.Sprintf(`leaderboard_api_running_calls{method="ListScores"} %d`, callers+1)
	waitFor(t, "the calls", func() bool { return strings.Contains(h.do("", "GET", "/metrics", nil).raw, running) })
	close(release)
	all.Wait()
	if n := reads.Load(); n > 5 { // calls that have begun may join late
		t.Errorf("%d reads for 1 and %d calls, want about 2", n, callers)
	}
}

// keepQuery keeps the last query for a page.
type keepQuery struct {
	*ranking.Service
	last ranking.PageQuery
}

func (k *keepQuery) Page(ctx context.Context, q ranking.PageQuery) (ranking.Page, error) {
	k.last = q
	return k.Service.Page(ctx, q)
}

// Before the calls of a shared read, a board may have changed between their reads of it. So the shared
// read reads the board again.
func TestASharedListReadsItsBoardAgain(t *testing.T) {
	base := newHarness(t, Options{})
	svc := &keepQuery{Service: base.service}
	h := serve(t, svc, base.store, Options{})
	old := &leaderboard.Board{ID: leaderboard.DefaultBoard}
	for calls := 1; calls <= 2; calls++ {
		answers := make([]*listAnswer, calls)
		for i := range answers {
			answers[i] = &listAnswer{board: old}
		}
		q := ranking.PageQuery{Query: ranking.Query{Board: leaderboard.DefaultBoard}, Limit: 10}
		if err := h.shareScores(t.Context(), q, answers); err != nil || answers[0].err != nil {
			t.Fatal(err, answers[0].err)
		}
		if got, want := svc.last.Resolved == old, calls == 1; got != want {
			t.Errorf("%d calls: the read used the board of the first call: %v, want %v", calls, got, want)
		}
	}
}

// fixedOutcomes is a [ranking.ResultLog] that returns fixed statuses and counts calls.
type fixedOutcomes struct {
	submit, accept   leaderboard.Status
	submits, accepts atomic.Int64
}

func (f *fixedOutcomes) Submit(_ context.Context, _ *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Outcome, error) {
	f.submits.Add(1)
	return slices.Repeat([]leaderboard.Outcome{{Status: f.submit}}, len(results)), nil
}

func (f *fixedOutcomes) Accept(_ context.Context, _ *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Outcome, error) {
	f.accepts.Add(1)
	return slices.Repeat([]leaderboard.Outcome{{Status: f.accept}}, len(results)), nil
}

// If a result is durable but not applied in time, the answer is 202 with success false.
func TestAccepted(t *testing.T) {
	base := newHarness(t, Options{})
	svc := ranking.New(base.store, nil, ranking.Options{Results: &fixedOutcomes{submit: leaderboard.Accepted, accept: leaderboard.Accepted}})
	h := serve(t, svc, base.store, Options{})
	for path, body := range map[string]string{"/v1/scores": `{"user_id":"u","match_id":"m","points":1}`, "/v1/boards/default/results/u/m:retract": `{"revision":1}`} {
		a := h.do("submit", "POST", path, body)
		if a.status != http.StatusAccepted || a.body["success"] != false || a.body["status"] != "ACCEPTED" || a.body["new_score"] != nil || a.body["rank"] != nil || a.body["match_id"] != "m" {
			t.Errorf("POST %s: %d %s, want 202 with ACCEPTED and no score", path, a.status, a.raw)
		}
	}
	a := h.do("submit", "POST", "/v1/scores:batch", `{"results":[{"user_id":"u","points":1}]}`)
	if a.status != http.StatusAccepted || get(a.body, "outcomes", 0, "status") != "ACCEPTED" {
		t.Errorf("batch: %d %s, want 202 with ACCEPTED", a.status, a.raw)
	}
}

func TestNoWait(t *testing.T) {
	base := newHarness(t, Options{})
	log := &fixedOutcomes{submit: leaderboard.Applied, accept: leaderboard.Accepted}
	svc := ranking.New(base.store, memory.New(), ranking.Options{Results: log})
	h := serve(t, svc, base.store, Options{})
	const result, batchStart = `{"user_id":"u","match_id":"m","points":1}`, `{"results":[{"user_id":"u","match_id":"m","points":1},{"user_id":"","points":1}]`
	for _, tt := range []struct {
		path, body string
		status     int
		statusPath []any
	}{
		{"/v1/scores", result, http.StatusOK, []any{"status"}},
		{"/v1/scores?no_wait=false", result, http.StatusOK, []any{"status"}},
		{"/v1/scores?no_wait=true", result, http.StatusAccepted, []any{"status"}},
		{"/v1/boards/default/scores?no_wait=true", result, http.StatusAccepted, []any{"status"}},
		{"/v1/scores:batch", batchStart + "}", http.StatusOK, []any{"outcomes", 0, "status"}},
		{"/v1/scores:batch", batchStart + `,"no_wait":false}`, http.StatusOK, []any{"outcomes", 0, "status"}},
		{"/v1/scores:batch", batchStart + `,"no_wait":true}`, http.StatusAccepted, []any{"outcomes", 0, "status"}},
		{"/v1/scores:batch?no_wait=true", batchStart + "}", http.StatusAccepted, []any{"outcomes", 0, "status"}},
	} {
		want, calls := "APPLIED", &log.submits
		if tt.status == http.StatusAccepted {
			want, calls = "ACCEPTED", &log.accepts
		}
		before := calls.Load()
		a := h.do("submit", "POST", tt.path, tt.body)
		if a.status != tt.status || get(a.body, tt.statusPath...) != want || calls.Load() != before+1 {
			t.Errorf("%s %s: %d %s, want %d %s", tt.path, tt.body, a.status, a.raw, tt.status, want)
		}
		if tt.statusPath[0] == "outcomes" && get(a.body, "outcomes", 1, "status") != "REJECTED" {
			t.Errorf("POST %s: %s, want REJECTED for the result without a user", tt.path, a.raw)
		}
	}
	single, err := h.client().SubmitScore(h.as("submit"), &pb.SubmitScoreRequest{Result: &pb.Result{UserId: "u", Points: proto.Int64(1)}, NoWait: true})
	if err != nil || single.GetStatus() != pb.Outcome_ACCEPTED || single.GetSuccess() || single.NewScore != nil || single.GetMatchId() == "" {
		t.Errorf("SubmitScore over gRPC: %v, %v; want ACCEPTED with a match id", single, err)
	}
	batch, err := h.client().BatchSubmitScores(h.as("submit"), &pb.BatchSubmitScoresRequest{Results: []*pb.Result{{UserId: "u", Points: proto.Int64(1)}}, NoWait: true})
	if err != nil || batch.GetOutcomes()[0].GetStatus() != pb.Outcome_ACCEPTED {
		t.Errorf("BatchSubmitScores over gRPC: %v, %v; want ACCEPTED", batch, err)
	}
	// An embedded store makes a result durable by applying it, so no_wait has no effect.
	if got := base.must("submit", "POST", "/v1/scores?no_wait=true", result); got["status"] != "APPLIED" || got["new_score"] != number(1) {
		t.Errorf("submit with no_wait to an embedded store: %v, want APPLIED with score 1", got)
	}
}

func TestBackup(t *testing.T) {
	var names []string
	h := newHarness(t, Options{Backup: func(_ context.Context, name string) error { names = append(names, name); return nil }})
	if got := h.must("admin", "POST", "/v1/admin/backup", `{"name":"before-2.0"}`); got["name"] != "before-2.0" {
		t.Errorf("backup answers %v, want the name before-2.0", got)
	}
	if got := h.must("admin", "POST", "/v1/admin/backup", nil); !regexp.MustCompile(`^\d{8}T\d{6}Z$`).MatchString(got["name"].(string)) {
		t.Errorf("backup without a name answers %v, want the time as the name", got)
	}
	for _, name := range []string{"../x", "/etc", "a/b", ".", "..", ".hidden", "a b", strings.Repeat("x", 129)} {
		body, _ := json.Marshal(map[string]string{"name": name})
		if a := h.do("admin", "POST", "/v1/admin/backup", string(body)); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{"name"}) {
			t.Errorf("backup with the name %q: %d %s, want 400", name, a.status, a.raw)
		}
	}
	if len(names) != 2 {
		t.Errorf("the server made the backups %q, want 2", names)
	}
	if a := newHarness(t, Options{}).do("admin", "POST", "/v1/admin/backup", nil); a.status != http.StatusNotImplemented {
		t.Errorf("backup without Options.Backup: %d %s, want 501", a.status, a.raw)
	}
}

// net/http cancels a request whose read deadline passes. A call without a body may take longer than its
// body could.
func TestCallsWithoutABodyOutliveTheReceiveTimeout(t *testing.T) {
	h := newHarness(t, Options{ReceiveTimeout: 50 * time.Millisecond, Backup: func(ctx context.Context, _ string) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(300 * time.Millisecond):
			return nil
		}
	}})
	for _, body := range []any{nil, `{"name":"before-2.0"}`} {
		if a := h.do("admin", "POST", "/v1/admin/backup", body); a.status != http.StatusOK {
			t.Errorf("backup with the body %v: %d %s, want 200", body, a.status, a.raw)
		}
	}
}

type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	file string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key := mustEC(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{key, cert, writeFile(t, "ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

func (a *authority) issue(t *testing.T, serial int64) (certFile, keyFile string) {
	t.Helper()
	key := mustEC(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		writeFile(t, "key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

func serveOnFreePorts(t *testing.T, s *Server) (rest, grpcAddr string, stop func() error) {
	t.Helper()
	var listeners [2]net.Listener
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, listeners[0], listeners[1]) }()
	stop = func() error { cancel(); return <-done }
	return listeners[0].Addr().String(), listeners[1].Addr().String(), stop
}

func TestTLS(t *testing.T) {
	servers, clients := newAuthority(t, "servers"), newAuthority(t, "clients")
	cert, key := servers.issue(t, 2)
	config, err := TLS{CertFile: cert, KeyFile: key, ClientCAFile: clients.file}.config()
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, Options{TLS: config})
	rest, grpcAddr, stop := serveOnFreePorts(t, h.Server)
	defer func() { _ = stop() }()

	roots := x509.NewCertPool()
	roots.AddCert(servers.cert)
	callWith := func(client *authority) (*http.Response, error, error) {
		c := &tls.Config{RootCAs: roots}
		if client != nil {
			pair, err := tls.LoadX509KeyPair(client.issue(t, 3))
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
		req, _ := http.NewRequest(http.MethodGet, "https://"+rest+"/v1/scores", nil)
		req.Header.Set("Authorization", "Bearer "+h.keys["read"])
		web := &http.Client{Transport: &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
		res, restErr := web.Do(req)
		if res != nil {
			res.Body.Close()
		}
		conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(credentials.NewTLS(c)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, grpcErr := pb.NewLeaderboardServiceClient(conn).ListScores(h.as("read"), &pb.ListScoresRequest{})
		return res, restErr, grpcErr
	}
	res, restErr, grpcErr := callWith(clients) //nolint:bodyclose // callWith closes the body
	if restErr != nil || grpcErr != nil || res.StatusCode != http.StatusOK || res.ProtoMajor != 2 || res.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("calls with a client certificate: REST %v, %v, gRPC %v; want 200 over HTTP/2 with Strict-Transport-Security, and no errors", res, restErr, grpcErr)
	}
	for name, client := range map[string]*authority{"no client certificate": nil, "a client certificate of another authority": servers} {
		if res, restErr, grpcErr := callWith(client); restErr == nil || grpcErr == nil { //nolint:bodyclose // callWith closes the body
			t.Errorf("calls with %s: REST %v, gRPC %v; want errors", name, res, grpcErr)
		}
	}
	serial := func() int64 {
		c, err := config.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.SerialNumber.Int64()
	}
	newCert, newKey := servers.issue(t, 9)
	for from, to := range map[string]string{newKey: key, newCert: cert} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Minute)
		if err := os.Chtimes(to, later, later); err != nil {
			t.Fatal(err)
		}
	}
	if got := serial(); got != 9 {
		t.Errorf("after the renewal, the certificate has the serial number %d, want 9", got)
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	if got := serial(); got != 9 {
		t.Errorf("after the removal of its file, the certificate has the serial number %d, want 9", got)
	}
	if err := os.WriteFile(clients.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: servers.cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(clients.file, later, later); err != nil {
		t.Fatal(err)
	}
	if _, restErr, grpcErr := callWith(servers); restErr != nil || grpcErr != nil { //nolint:bodyclose // callWith closes the body
		t.Errorf("calls with a client certificate of the new authority: REST %v, gRPC %v; want no errors", restErr, grpcErr)
	}
	if _, restErr, grpcErr := callWith(clients); restErr == nil || grpcErr == nil { //nolint:bodyclose // callWith closes the body
		t.Error("calls with a client certificate of the old authority succeed, want errors")
	}
}

func TestTLSSettings(t *testing.T) {
	ca := newAuthority(t, "ca")
	cert, key := ca.issue(t, 2)
	if c, err := (TLS{}).config(); c != nil || err != nil {
		t.Errorf("config of the zero TLS returns %v, %v; want nil and nil", c, err)
	}
	for name, settings := range map[string]TLS{
		"no key file":                          {CertFile: cert},
		"no certificate file":                  {KeyFile: key},
		"a missing certificate file":           {CertFile: "missing.pem", KeyFile: key},
		"a certificate as the key":             {CertFile: cert, KeyFile: ca.file},
		"a key as the client authority":        {CertFile: cert, KeyFile: key, ClientCAFile: key},
		"a missing file of client authorities": {CertFile: cert, KeyFile: key, ClientCAFile: "missing.pem"},
	} {
		if _, err := settings.config(); err == nil {
			t.Errorf("%s: config returns no error, want one", name)
		}
	}
}

func TestServeStops(t *testing.T) {
	base := newHarness(t, Options{})
	running, finish := make(chan struct{}, 2), make(chan struct{})
	h := serve(t, faulty{base.service, func(context.Context) error { running <- struct{}{}; <-finish; return nil }}, base.store, Options{})
	rest, grpcAddr, stop := serveOnFreePorts(t, h.Server)
	conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	watch, err := pb.NewLeaderboardServiceClient(conn).WatchScores(h.as("read"), &pb.WatchScoresRequest{Board: "default"})
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan string, 2)
	go func() {
		_, err := pb.NewLeaderboardServiceClient(conn).ListScores(h.as("read"), &pb.ListScoresRequest{})
		answers <- fmt.Sprint("gRPC ", status.Code(err))
	}()
	go func() {
		// equal calls could share one read of the service
		req, _ := http.NewRequest(http.MethodGet, "http://"+rest+"/v1/scores?limit=1", nil)
		req.Header.Set("Authorization", "Bearer "+h.keys["read"])
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			answers <- err.Error()
			return
		}
		res.Body.Close()
		answers <- "REST " + res.Status
	}()
	for range 2 {
		<-running
	}
	stopped := make(chan error)
	go func() { stopped <- stop() }()
	for {
		if _, err := watch.Recv(); err != nil {
			if status.Code(err) != codes.Unavailable {
				t.Errorf("the watch ended with %v, want UNAVAILABLE", err)
			}
			break
		}
	}
	select {
	case err := <-stopped:
		t.Fatalf("Serve returned %v before the running calls were answered", err)
	default:
	}
	close(finish)
	got := []string{<-answers, <-answers}
	slices.Sort(got)
	if want := []string{"REST 200 OK", "gRPC OK"}; !slices.Equal(got, want) {
		t.Errorf("the running calls were answered with %q, want %q", got, want)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Serve returned %v, want nil", err)
	}
}

func TestServeStopsAfterItsGrace(t *testing.T) {
	base := newHarness(t, Options{})
	running := make(chan struct{})
	h := serve(t, faulty{base.service, func(ctx context.Context) error { close(running); <-ctx.Done(); return ctx.Err() }}, base.store, Options{Timeout: time.Hour, ShutdownGrace: 10 * time.Millisecond})
	_, grpcAddr, stop := serveOnFreePorts(t, h.Server)
	conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer := make(chan error)
	go func() {
		_, err := pb.NewLeaderboardServiceClient(conn).ListScores(h.as("read"), &pb.ListScoresRequest{})
		answer <- err
	}()
	<-running
	if err := stop(); err == nil || !strings.Contains(err.Error(), "shutdown_grace") {
		t.Errorf("Serve returned %v, want an error that names shutdown_grace", err)
	}
	if err := <-answer; status.Code(err) != codes.Unavailable {
		t.Errorf("the running call ended with %v, want UNAVAILABLE", err)
	}
}

func TestServeFailsWithItsListener(t *testing.T) {
	h := newHarness(t, Options{})
	rest, _ := net.Listen("tcp", "127.0.0.1:0")
	grpcListener, _ := net.Listen("tcp", "127.0.0.1:0")
	rest.Close()
	if err := h.Serve(t.Context(), rest, grpcListener); err == nil || !strings.Contains(err.Error(), "http") {
		t.Errorf("Serve on a closed listener returned %v, want an error with http", err)
	}
}

func TestServeAndStopAtOnce(t *testing.T) {
	for range 50 {
		_, _, stop := serveOnFreePorts(t, newHarness(t, Options{}).Server)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
}
