package server

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

type reply struct {
	StatusCode int
	Status     string
	Header     http.Header
}

func request(t *testing.T, method, url, body string, header ...string) (reply, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	// Unlike http.DefaultClient, this client does not decompress answers.
	res, err := (&http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{res.StatusCode, res.Status, res.Header}, string(text)
}

func TestSeparateProbes(t *testing.T) {
	metrics := prometheus.NewRegistry()
	rest, _ := newHarness(t, Options{SeparateProbes: true, Metrics: metrics}).onSockets()
	open, _ := newHarness(t, Options{}).onSockets()
	admin := httptest.NewServer(NewAdminServer(false, func() error { return nil }, metrics, slog.New(slog.DiscardHandler)).Handler)
	t.Cleanup(admin.Close)
	for path, wantOpen := range map[string]int{"/metrics": 200, "/healthz": 200, "/readyz": 200, "/debug/pprof/": 404, "/debug/pprof/heap": 404, "/debug/pprof/cmdline": 404} {
		if res, _ := request(t, "GET", "http://"+rest+path, ""); res.StatusCode != http.StatusNotFound {
			t.Errorf("with SeparateProbes, the public port answers %s with %s, want 404", path, res.Status)
		}
		if res, _ := request(t, "GET", "http://"+open+path, ""); res.StatusCode != wantOpen {
			t.Errorf("without SeparateProbes, the public port answers %s with %s, want %d", path, res.Status, wantOpen)
		}
		if res, _ := request(t, "GET", admin.URL+path, ""); res.StatusCode != http.StatusOK {
			t.Errorf("the admin port answers %s with %s, want 200", path, res.Status)
		}
	}
	if res, body := request(t, "GET", admin.URL+"/metrics", ""); !strings.Contains(body, "leaderboard_api_panics_total") {
		t.Errorf("the admin port's metrics are %s %s, want leaderboard_api_panics_total", res.Status, body)
	}
	if res, _ := request(t, "GET", admin.URL+"/v1/scores", ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("the admin port answers /v1/scores with %s, want 404", res.Status)
	}
}

// A web page can make a browser on this machine send requests to an insecure server, under the page's
// own domain with DNS rebinding.
func TestInsecureProbesRefuseWebPages(t *testing.T) {
	ready, log := func() error { return nil }, slog.New(slog.DiscardHandler)
	get := func(handler http.Handler, path, host string, header ...string) int {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = host
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	for name, open := range map[string]func(bool) *http.Server{
		"admin": func(insecure bool) *http.Server {
			return NewAdminServer(insecure, ready, prometheus.NewRegistry(), log)
		},
		"probe": func(insecure bool) *http.Server {
			return NewProbeServer(insecure, ready, prometheus.NewRegistry(), log)
		},
	} {
		for _, tt := range []struct {
			host   string
			header []string
			want   int // of an insecure server
		}{
			{"localhost:9000", nil, 200},
			{"127.0.0.1:9000", nil, 200},
			{"[::1]:9000", []string{"Sec-Fetch-Site", "none"}, 200},
			{"localhost:9000", []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://localhost:9000"}, 200},
			{"evil.example", nil, 421},
			{"evil.example:9000", []string{"Sec-Fetch-Site", "same-origin"}, 421},
			{"localhost.evil.example", nil, 421},
			{"", nil, 421},
			{"localhost:9000", []string{"Sec-Fetch-Site", "cross-site"}, 403},
			{"localhost:9000", []string{"Sec-Fetch-Site", "same-site"}, 403}, // a page of another port
			{"localhost:9000", []string{"Origin", "https://evil.example"}, 403},
			{"localhost:9000", []string{"Origin", "null"}, 403},
		} {
			for _, path := range []string{"/metrics", "/healthz", "/readyz", "/debug/pprof/cmdline"} {
				if name == "probe" && strings.HasPrefix(path, "/debug") {
					continue
				}
				if got := get(open(true).Handler, path, tt.host, tt.header...); got != tt.want {
					t.Errorf("insecure %s server, %s of host %q, %q: %d, want %d", name, path, tt.host, tt.header, got, tt.want)
				}
				if got := get(open(false).Handler, path, tt.host, tt.header...); got != http.StatusOK {
					t.Errorf("%s server, %s of host %q, %q: %d, want 200", name, path, tt.host, tt.header, got)
				}
			}
		}
	}
}

func TestProfilesHaveALimit(t *testing.T) {
	admin := NewAdminServer(false, func() error { return nil }, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	for _, path := range []string{"profile", "trace", "heap", "goroutine", "symbol"} {
		for _, seconds := range []string{"61", "3600", "1e9", "60.1", "-1", "0", "NaN", "Inf", "9223372036854775808", "x"} {
			w := httptest.NewRecorder()
			admin.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/pprof/"+path+"?seconds="+seconds, nil))
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "60") {
				t.Errorf("%s of %s seconds: %d %s, want 400 with the limit", path, seconds, w.Code, w.Body)
			}
		}
	}
	for _, path := range []string{"trace?seconds=0.01", "heap?seconds=", "heap"} {
		w := httptest.NewRecorder()
		admin.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/pprof/"+path, nil))
		if w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%s: %d with %d bytes, want 200 and a profile", path, w.Code, w.Body.Len())
		}
	}
}

// Every public path counts towards the address's rate, except probes, because an orchestrator restarts
// servers whose probes fail. With a key, the path counts towards the key's rate.
func TestPublicPathsCountTowardsTheRate(t *testing.T) {
	for _, path := range []string{"/", "/openapi.json", "/metrics", "/unknown"} {
		limit := auth.Rate{PerSecond: 0.001, Burst: 2}
		h := newHarness(t, Options{Limits: auth.Limits{PerPeer: limit, PerKey: limit}})
		for _, scope := range []string{"", "read"} {
			for i, limited := range []bool{false, false, true} {
				a := h.do(scope, "GET", path, nil)
				if got := a.status == http.StatusTooManyRequests; got != limited || got && a.reason() != "RATE_LIMITED" {
					t.Errorf("%s with the key %q, call %d: %d %.100s; limited: want %t", path, scope, i+1, a.status, a.raw, limited)
				}
			}
		}
		for _, probe := range []string{"/healthz", "/readyz"} {
			if a := h.do("", "GET", probe, nil); a.status != http.StatusOK {
				t.Errorf("%s over the rate: %d %s, want 200", probe, a.status, a.raw)
			}
		}
	}
}

func limitedPeers(t *testing.T, proxies ...string) (rest, overGRPC string) {
	t.Helper()
	o := Options{PublicRead: true, Limits: auth.Limits{PerPeer: auth.Rate{PerSecond: 0.0001, Burst: 1}}}
	for _, p := range proxies {
		o.TrustedProxies = append(o.TrustedProxies, netip.MustParsePrefix(p))
	}
	return newHarness(t, o).onSockets()
}

func TestForwardedClientsAreLimitedSeparately(t *testing.T) {
	for _, tt := range []struct {
		name          string
		proxies       []string
		first, second []string // X-Forwarded-For of two calls
		same          bool     // whether both calls count as calls of one client
	}{
		{"no proxy is trusted", nil, []string{"192.0.2.1"}, []string{"192.0.2.2"}, true},
		{"another proxy is trusted", []string{"10.0.0.0/8"}, []string{"192.0.2.1"}, []string{"192.0.2.2"}, true},
		{"two clients behind a trusted proxy", []string{"127.0.0.0/8"}, []string{"192.0.2.1"}, []string{"192.0.2.2"}, false},
		{"one client behind a trusted proxy", []string{"127.0.0.1/32"}, []string{"192.0.2.1"}, []string{"192.0.2.1"}, true},
		{"an address that the client itself sent is ignored", []string{"127.0.0.0/8"}, []string{"203.0.113.1, 192.0.2.1"}, []string{"203.0.113.2, 192.0.2.1"}, true},
		{"a header line that the client itself sent is ignored", []string{"127.0.0.0/8"}, []string{"203.0.113.1", "192.0.2.1"}, []string{"203.0.113.2", "192.0.2.1"}, true},
		{"two clients behind several trusted proxies", []string{"127.0.0.0/8", "10.0.0.0/8"}, []string{"192.0.2.1, 10.1.1.1, 10.1.1.2"}, []string{"192.0.2.2,10.1.1.1"}, false},
		{"two clients behind a proxy that is not trusted", []string{"127.0.0.0/8"}, []string{"192.0.2.1, 10.1.1.1"}, []string{"192.0.2.2, 10.1.1.1"}, true},
		{"ports are ignored", []string{"127.0.0.0/8"}, []string{"192.0.2.1:1000"}, []string{"192.0.2.1:2000"}, true},
		{"two addresses of one IPv6 /64", []string{"127.0.0.0/8"}, []string{"[2001:db8::1]:1000"}, []string{"2001:db8::2"}, true},
		{"addresses of two IPv6 /64s", []string{"127.0.0.0/8"}, []string{"2001:db8:0:1::1"}, []string{"2001:db8:0:2::1"}, false},
		{"one client as IPv4 and as IPv4 in IPv6", []string{"127.0.0.0/8"}, []string{"::ffff:192.0.2.1"}, []string{"192.0.2.1"}, true},
		{"the right-most text is not an address", []string{"127.0.0.0/8"}, []string{"192.0.2.1, unknown"}, []string{"192.0.2.2, _hidden"}, true},
		{"no header", []string{"127.0.0.0/8"}, nil, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rest, _ := limitedPeers(t, tt.proxies...)
			want, wantCode := http.StatusOK, codes.OK
			if tt.same {
				want, wantCode = http.StatusTooManyRequests, codes.ResourceExhausted
			}
			header := func(values []string) (fields []string) {
				for _, v := range values {
					fields = append(fields, "X-Forwarded-For", v)
				}
				return fields
			}
			request(t, "GET", "http://"+rest+"/v1/scores", "", header(tt.first)...)
			if res, body := request(t, "GET", "http://"+rest+"/v1/scores", "", header(tt.second)...); res.StatusCode != want {
				t.Errorf("REST answers the second call with %s %s, want %d", res.Status, body, want)
			}
			_, overGRPC := limitedPeers(t, tt.proxies...)
			c := pb.NewLeaderboardServiceClient(dial(t, overGRPC))
			call := func(values []string) codes.Code {
				md := metadata.MD{"x-forwarded-for": values}
				_, err := c.ListScores(metadata.NewOutgoingContext(t.Context(), md), &pb.ListScoresRequest{})
				return status.Code(err)
			}
			call(tt.first)
			if code := call(tt.second); code != wantCode {
				t.Errorf("gRPC answers the second call with %v, want %v", code, wantCode)
			}
		})
	}
}

func TestStreamsCountTheForwardedClient(t *testing.T) {
	h := newHarness(t, Options{PublicRead: true, MaxPeerStreams: 1, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	_, overGRPC := h.onSockets()
	c := pb.NewLeaderboardServiceClient(dial(t, overGRPC))
	watch := func(client string) error {
		stream, err := c.WatchScores(metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", client), &pb.WatchScoresRequest{Board: "default"})
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}
	if err := watch("192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	if err := watch("192.0.2.2"); err != nil {
		t.Errorf("watch of the second client: %v, want nil", err)
	}
	if err := watch("192.0.2.1"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("second watch of the first client: %v, want RESOURCE_EXHAUSTED", err)
	}
}

func TestCORS(t *testing.T) {
	const page = "https://game.example"
	rest, _ := newHarness(t, Options{PublicRead: true, CORSOrigins: []string{page}}).onSockets()
	closed, _ := newHarness(t, Options{PublicRead: true}).onSockets()
	all, _ := newHarness(t, Options{PublicRead: true, CORSOrigins: []string{"*"}}).onSockets()
	preflight := []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,cache-control,content-type,last-event-id,traceparent,tracestate,x-request-id"}
	connectPreflight := []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,connect-protocol-version,connect-timeout-ms,content-type,grpc-timeout,x-grpc-web,x-user-agent"}
	for _, tt := range []struct {
		server, origin, allowed string
		post                    int
	}{
		{rest, page, page, http.StatusUnauthorized},
		{rest, "https://evil.example", "", http.StatusForbidden},
		{rest, "http://game.example", "", http.StatusForbidden},
		{closed, page, "", http.StatusForbidden},
		{all, page, "*", http.StatusUnauthorized},
		{all, "null", "*", http.StatusUnauthorized},
	} {
		name := tt.server + " from " + tt.origin
		read, _ := request(t, "GET", "http://"+tt.server+"/v1/scores", "", "Origin", tt.origin)
		if got := read.Header.Get("Access-Control-Allow-Origin"); got != tt.allowed || read.StatusCode != http.StatusOK {
			t.Errorf("%s: a read returns %s and allows the origin %q, want 200 and %q", name, read.Status, got, tt.allowed)
		}
		if got := read.Header.Get("Access-Control-Allow-Credentials"); got != "" {
			t.Errorf("%s: Access-Control-Allow-Credentials is %q, want it absent", name, got)
		}
		pre, _ := request(t, "OPTIONS", "http://"+tt.server+"/v1/scores", "", append(slices.Clone(preflight), "Origin", tt.origin)...)
		if got := pre.Header.Get("Access-Control-Allow-Origin"); got != tt.allowed {
			t.Errorf("%s: the preflight allows the origin %q, want %q", name, got, tt.allowed)
		}
		// A browser sends text/plain without a preflight.
		post, _ := request(t, "POST", "http://"+tt.server+"/v1/scores", `{"user_id":"u","points":1}`, "Origin", tt.origin, "Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain")
		if post.StatusCode != tt.post {
			t.Errorf("%s: a submit without a key returns %s, want %d", name, post.Status, tt.post)
		}
		const list = "/leaderboard.v1.LeaderboardService/ListScores"
		pre, _ = request(t, "OPTIONS", "http://"+tt.server+list, "", append(slices.Clone(connectPreflight), "Origin", tt.origin)...)
		if got := pre.Header.Get("Access-Control-Allow-Origin"); got != tt.allowed {
			t.Errorf("%s: the preflight of Connect and gRPC-Web allows the origin %q, want %q", name, got, tt.allowed)
		}
		rpc, _ := request(t, "POST", "http://"+tt.server+list, "\x00\x00\x00\x00\x00", "Origin", tt.origin, "Sec-Fetch-Site", "cross-site", "Content-Type", "application/grpc-web")
		if want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[tt.allowed != ""]; rpc.StatusCode != want || rpc.Header.Get("Access-Control-Allow-Origin") != tt.allowed {
			t.Errorf("%s: a read over gRPC-Web returns %s and allows the origin %q, want %d and %q", name, rpc.Status, rpc.Header.Get("Access-Control-Allow-Origin"), want, tt.allowed)
		}
		if exposed := rpc.Header.Get("Access-Control-Expose-Headers"); tt.allowed != "" && !strings.Contains(exposed, "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin") {
			t.Errorf("%s: the headers %q are exposed, want the status of gRPC-Web among them", name, exposed)
		}
		probe, _ := request(t, "GET", "http://"+tt.server+"/metrics", "", "Origin", tt.origin)
		if got := probe.Header.Get("Access-Control-Allow-Origin"); got != "" {
			t.Errorf("%s: the metrics allow the origin %q, want none", name, got)
		}
	}
	// Without the CORS header, a page cannot read an error.
	if res, _ := request(t, "GET", "http://"+rest+"/v1/boards/none/scores", "", "Origin", page); res.StatusCode != http.StatusNotFound || res.Header.Get("Access-Control-Allow-Origin") != page {
		t.Errorf("a read of an unknown board returns %s and allows the origin %q, want 404 and %q", res.Status, res.Header.Get("Access-Control-Allow-Origin"), page)
	}
}

// Every layer answers an error as JSON with a reason.
func TestErrorsOfEveryLayer(t *testing.T) {
	h := newHarness(t, Options{CORSOrigins: []string{"https://game.example"}})
	rest, _ := h.onSockets()
	insecure, _ := newHarness(t, Options{Insecure: true}).onSockets()
	log := slog.New(slog.DiscardHandler)
	probes := httptest.NewServer(NewProbeServer(false, func() error { return nil }, prometheus.NewRegistry(), log).Handler)
	defer probes.Close()
	admin := httptest.NewServer(NewAdminServer(false, func() error { return nil }, prometheus.NewRegistry(), log).Handler)
	defer admin.Close()
	h.newKey("bound", map[string]any{"scopes": []string{"read"}, "boards": []string{"b"}})
	for _, tt := range []struct {
		method, url string
		header      []string
		status      int
		reason      string
	}{
		{"GET", insecure + "/v1/scores", []string{"Host", "evil.example"}, 421, "HOST_DENIED"},
		{"GET", insecure + "/", []string{"Host", "evil.example"}, 421, "HOST_DENIED"},
		{"POST", rest + "/v1/scores", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, 403, "CROSS_ORIGIN"},
		{"POST", rest + "/healthz", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, 403, "CROSS_ORIGIN"},
		{"GET", rest + "/v1/boards/other", []string{"Authorization", "Bearer " + h.keys["bound"]}, 403, "BOARD_DENIED"},
		{"POST", rest + "/v1/scores", []string{"Authorization", "Bearer " + h.keys["read"]}, 403, "SCOPE_REQUIRED"},
		{"GET", rest + "/nope", nil, 404, "NO_SUCH_ROUTE"},
		{"GET", rest + "/v1", nil, 404, "NO_SUCH_ROUTE"},
		{"GET", rest + "/v1/nope", nil, 404, "NO_SUCH_ROUTE"},
		{"GET", rest + "/v1/boards/", nil, 404, "EMPTY_ID"},
		{"POST", rest + "/", nil, 405, "METHOD_NOT_ALLOWED"},
		{"PUT", rest + "/openapi.json", nil, 405, "METHOD_NOT_ALLOWED"},
		{"DELETE", rest + "/metrics", nil, 405, "METHOD_NOT_ALLOWED"},
		{"PUT", rest + "/v1/scores", nil, 405, "METHOD_NOT_ALLOWED"},
		{"GET", probes.URL + "/nope", nil, 404, "NO_SUCH_ROUTE"},
		{"POST", probes.URL + "/readyz", nil, 405, "METHOD_NOT_ALLOWED"},
		{"GET", admin.URL + "/v1/scores", nil, 404, "NO_SUCH_ROUTE"},
		{"POST", admin.URL + "/debug/pprof/", nil, 405, "METHOD_NOT_ALLOWED"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, "http://"+strings.TrimPrefix(tt.url, "http://"), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(tt.header); i += 2 {
			req.Header.Set(tt.header[i], tt.header[i+1])
		}
		if host := req.Header.Get("Host"); host != "" {
			req.Host = host
		}
		a := h.send(req)
		if a.status != tt.status || a.reason() != tt.reason || a.header.Get("Content-Type") != "application/json" || get(a.body, "message") == nil || get(a.body, "status") == nil {
			t.Errorf("%s %s %q: %d %s %s, want %d as JSON with the reason %s", tt.method, tt.url, tt.header, a.status, a.header.Get("Content-Type"), a.raw, tt.status, tt.reason)
		}
		if allow := a.header.Get("Allow"); (tt.status == 405) != strings.Contains(allow, "GET, HEAD") {
			t.Errorf("%s %s: Allow is %q, want GET and HEAD on 405 only", tt.method, tt.url, allow)
		}
	}
}

// HEAD has the status and the content type of GET, and no body. It ends even for a stream.
func TestHeadWorksWhereGetDoes(t *testing.T) {
	h := newHarness(t, Options{})
	h.http.Client().Timeout = 30 * time.Second
	h.must("admin", "POST", "/v1/scores", `{"user_id":"u","match_id":"m","points":1}`)
	paths := []string{"/", "/openapi.json", "/healthz", "/readyz", "/metrics", "/v1/boards/none", "/v1/nope", "/v1/boards/default/seasons/latest"}
	for _, call := range calls {
		if call[0] == "GET" {
			paths = append(paths, strings.Replace(call[1], "nowhere", "default", 1))
		}
	}
	for _, path := range paths {
		answers := map[string]string{}
		for _, method := range []string{"GET", "HEAD"} {
			ctx, cancel := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, method, h.http.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+h.keys["admin"])
			res, err := h.http.Client().Do(req)
			if err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			answers[method] = fmt.Sprint(res.StatusCode, " ", res.Header.Get("Content-Type"))
			if method == "HEAD" {
				if body, err := io.ReadAll(res.Body); err != nil || len(body) > 0 {
					t.Errorf("HEAD %s: body %q, %v; want none", path, body, err)
				}
			}
			cancel()
			res.Body.Close()
		}
		if answers["HEAD"] != answers["GET"] {
			t.Errorf("HEAD %s: %s, want %s as for GET", path, answers["HEAD"], answers["GET"])
		}
	}
	waitFor(t, "the watches of GET and HEAD to end", func() bool {
		return strings.Contains(h.do("admin", "GET", "/metrics", nil).raw, "leaderboard_api_running_calls{method=\"WatchScores\"} 0\n")
	})
}

func TestFraming(t *testing.T) {
	closed, _ := newHarness(t, Options{}).onSockets()
	open, _ := newHarness(t, Options{FrameAncestors: []string{"'self'", "https://portal.example"}}).onSockets()
	for _, path := range []string{"/", "/openapi.json"} {
		res, _ := request(t, "GET", "http://"+closed+path, "")
		if csp := res.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") || res.Header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s without FrameAncestors: policy %q, X-Frame-Options %q; want 'none' and DENY", path, csp, res.Header.Get("X-Frame-Options"))
		}
		res, _ = request(t, "GET", "http://"+open+path, "")
		if csp := res.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'self' https://portal.example") || res.Header.Get("X-Frame-Options") != "" {
			t.Errorf("%s with FrameAncestors: policy %q, X-Frame-Options %q; want the origins and no X-Frame-Options", path, csp, res.Header.Get("X-Frame-Options"))
		}
	}
}

func TestPublicReadsMayBeCached(t *testing.T) {
	const want = "public, max-age=5"
	h := newHarness(t, Options{PublicRead: true, PublicCacheControl: want})
	rest, _ := h.onSockets()
	closed, _ := newHarness(t, Options{PublicCacheControl: want}).onSockets()
	plain, _ := newHarness(t, Options{PublicRead: true}).onSockets()
	key := "Bearer " + h.keys["admin"]
	for _, tt := range []struct {
		name, server, method, path string
		header                     []string
		want                       string
	}{
		{"a public read", rest, "GET", "/v1/scores", nil, want},
		{"a public read over Connect", rest, "GET", "/leaderboard.v1.LeaderboardService/ListScores?encoding=json&message={}", nil, want},
		{"an error over Connect", rest, "GET", "/leaderboard.v1.LeaderboardService/ListScores?encoding=json&message={", nil, "no-store"},
		{"a read over Connect with a key", rest, "GET", "/leaderboard.v1.LeaderboardService/ListScores?encoding=json&message={}", []string{"Authorization", key}, "no-store"},
		{"a read with a key", rest, "GET", "/v1/scores", []string{"Authorization", key}, "no-store"},
		{"a read with a wrong key", rest, "GET", "/v1/scores", []string{"Authorization", "Bearer x"}, "no-store"},
		{"an error", rest, "GET", "/v1/scores?season=nonsense", nil, "no-store"},
		{"an unknown user", rest, "GET", "/v1/scores/nobody", nil, "no-store"},
		{"a method for administrators", rest, "GET", "/v1/keys", nil, "no-store"},
		{"a submit", rest, "POST", "/v1/scores", nil, "no-store"},
		{"a lookup", rest, "POST", "/v1/boards/default/scores:lookup", nil, "no-store"},
		{"the metrics", rest, "GET", "/metrics", nil, "no-store"},
		{"a server that needs keys", closed, "GET", "/v1/scores", nil, "no-store"},
		{"a server without PublicCacheControl", plain, "GET", "/v1/scores", nil, "no-store"},
	} {
		res, _ := request(t, tt.method, "http://"+tt.server+tt.path, `{}`, tt.header...)
		if got := res.Header.Get("Cache-Control"); got != tt.want {
			t.Errorf("%s: Cache-Control = %q (%s), want %q", tt.name, got, res.Status, tt.want)
		}
		if tt.want == want && !slices.Contains(strings.Split(strings.Join(res.Header.Values("Vary"), ", "), ", "), "Authorization") {
			t.Errorf("%s: Vary = %q, want it with Authorization", tt.name, res.Header.Values("Vary"))
		}
	}
	header, _ := openEvents(t, rest)
	if got := header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("a stream: Cache-Control = %q, want no-store", got)
	}
}

func openEvents(t *testing.T, rest string) (header http.Header, events *bufio.Scanner) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+rest+"/v1/boards/default/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res.Header, bufio.NewScanner(res.Body)
}

func TestGzip(t *testing.T) {
	h := newHarness(t, Options{PublicRead: true})
	rest, _ := h.onSockets()
	var results []string
	for i := range 100 {
		results = append(results, fmt.Sprintf(`{"user_id":"user-%03d","match_id":"m","points":%d}`, i, i+1))
	}
	key := "Bearer " + h.keys["admin"]
	if res, body := request(t, "POST", "http://"+rest+"/v1/boards/default/scores:batch", `{"results":[`+strings.Join(results, ",")+`]}`, "Authorization", key); res.StatusCode != http.StatusOK {
		t.Fatalf("batch: %s %s", res.Status, body)
	}
	const list = "/v1/scores?limit=100"
	for _, path := range []string{list, "/leaderboard.v1.LeaderboardService/ListScores?encoding=json&message={%22limit%22:100}", "/openapi.json", "/embed.js"} {
		_, plain := request(t, "GET", "http://"+rest+path, "")
		res, zipped := request(t, "GET", "http://"+rest+path, "", "Accept-Encoding", "gzip")
		r, err := gzip.NewReader(strings.NewReader(zipped))
		if err != nil || res.Header.Get("Content-Encoding") != "gzip" || !strings.Contains(res.Header.Get("Vary"), "Accept-Encoding") {
			t.Fatalf("%s is not compressed: %v, header %v", path, err, res.Header)
		}
		text, err := io.ReadAll(r)
		if err != nil || string(text) != plain || len(zipped) > len(plain)/2 {
			t.Errorf("%s: %d bytes are compressed to %d and decompressed to %d (%v), want at most half the bytes, and the original text after decompression", path, len(plain), len(zipped), len(text), err)
		}
	}
	// The first answer is too short to be compressed. The second has a secret and text from the
	// caller. After compression, its length would reveal parts of the secret.
	for _, tt := range [][2]string{{"GET", "/v1/scores?limit=1"}, {"POST", "/v1/keys"}} {
		body := ""
		if tt[0] == "POST" {
			body = fmt.Sprintf(`{"name":%q,"scopes":["read"]}`, strings.Repeat("n", 100))
		}
		res, _ := request(t, tt[0], "http://"+rest+tt[1], body, "Accept-Encoding", "gzip", "Authorization", key)
		if res.StatusCode != http.StatusOK || res.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %s, Content-Encoding %q; want 200 and no encoding", tt, res.Status, res.Header.Get("Content-Encoding"))
		}
	}
	for range 20 {
		request(t, "POST", "http://"+rest+"/v1/keys", fmt.Sprintf(`{"name":%q,"scopes":["read"]}`, strings.Repeat("n", 100)), "Authorization", key)
	}
	for _, path := range []string{"/v1/keys", "/leaderboard.v1.AdminService/ListKeys?encoding=json&message={}"} {
		if res, body := request(t, "GET", "http://"+rest+path, "", "Accept-Encoding", "gzip", "Authorization", key); res.Header.Get("Content-Encoding") != "" || len(body) < 2000 {
			t.Errorf("%s: the list of keys has %d bytes and Content-Encoding %q, want at least 2000 bytes and no encoding", path, len(body), res.Header.Get("Content-Encoding"))
		}
	}
}

func TestGzipDoesNotDelayEvents(t *testing.T) {
	h := newHarness(t, Options{PublicRead: true})
	rest, _ := h.onSockets()
	header, events := openEvents(t, rest)
	if got := header.Get("Content-Encoding"); got != "" {
		t.Fatalf("Content-Encoding of a stream of events is %q, want none", got)
	}
	nextList := func() (list struct{ Count int }) {
		for events.Scan() {
			if text, ok := strings.CutPrefix(events.Text(), "data:"); ok {
				if err := json.Unmarshal([]byte(text), &list); err != nil {
					t.Fatal(err)
				}
				return list
			}
		}
		t.Fatalf("the stream ended: %v, want another event", events.Err())
		return list
	}
	if list := nextList(); list.Count != 0 {
		t.Errorf("the first event has %d entries, want 0", list.Count)
	}
	request(t, "POST", "http://"+rest+"/v1/scores", `{"user_id":"u","match_id":"m","points":1}`, "Authorization", "Bearer "+h.keys["submit"])
	if list := nextList(); list.Count != 1 {
		t.Errorf("the event after a submit has %d entries, want 1", list.Count)
	}
}
