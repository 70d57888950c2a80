package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/secret"
)

func TestEveryMethodHasAScope(t *testing.T) {
	h := newHarness(t, Options{})
	served := map[string]bool{}
	for service, info := range h.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			method := "/" + service + "/" + m.Name
			served[method] = true
			if doorOf(method).scope == auth.Nobody {
				t.Errorf("the served method %s has no scope, so nobody can call it", method)
			}
		}
	}
	for method := range doors {
		if !served[method] {
			t.Errorf("%s has a door, but is not served", method)
		}
	}
}

var calls = map[string][3]string{
	"ListDeadLetters":     {"GET", "/v1/dead-letters", ``},
	"GetDeadLetter":       {"GET", "/v1/dead-letters/3:17", ``},
	"ReplayDeadLetters":   {"POST", "/v1/dead-letters:replay", `{"dead_letter_ids":["3:17"]}`},
	"SubmitScore":         {"POST", "/v1/scores", `{"user_id":"u","points":1}`},
	"BatchSubmitScores":   {"POST", "/v1/scores:batch", `{"results":[{"user_id":"u","points":1}]}`},
	"BatchSubmitResults":  {"POST", "/v1/results:batch", `{"results":[{"user_id":"u","points":1}]}`},
	"RetractResult":       {"POST", "/v1/boards/default/results/u/m:retract", `{}`},
	"BatchRetractResults": {"POST", "/v1/boards/default/results:retract", `{"results":[{"user_id":"u","match_id":"m"}]}`},
	"PurgeResults":        {"POST", "/v1/boards/default/results/u:purge", `{"from":"2026-11-20T10:00:00Z"}`},
	"VoidMatch":           {"POST", "/v1/boards/x/matches/m:void", `{"reason":"r","allow_unknown":true}`},
	"RestoreMatch":        {"POST", "/v1/boards/x/matches/m:restore", `{"reason":"r"}`},
	"ListMatches":         {"GET", "/v1/boards/x/matches", ``},
	"GetMatch":            {"GET", "/v1/boards/x/matches/m", ``},
	"CorrectResult":       {"PATCH", "/v1/boards/default/results/u/m", `{"points":1}`},
	"GetResult":           {"GET", "/v1/boards/default/results/u/m", ``},
	"ListUserResults":     {"GET", "/v1/boards/default/results/u", ``},
	"ListScores":          {"GET", "/v1/scores", ``},
	"GetUserScore":        {"GET", "/v1/scores/u", ``},
	"LookupScores":        {"POST", "/v1/scores:lookup", `{"user_ids":["u"]}`},
	"SearchUsers":         {"GET", "/v1/boards/default/users?prefix=u", ``},
	"GetStats":            {"GET", "/v1/boards/default/stats", ``},
	"ListSeasons":         {"GET", "/v1/boards/default/seasons", ``},
	"WatchScores":         {"GET", "/v1/boards/nowhere/watch", ``},
	"ListBoards":          {"GET", "/v1/boards", ``},
	"GetBoard":            {"GET", "/v1/boards/default", ``},
	"CreateBoard":         {"POST", "/v1/boards", `{"board_id":"x","matches":true}`},
	"UpdateBoard":         {"PATCH", "/v1/boards/x", `{"title":"t"}`},
	"DeleteBoard":         {"DELETE", "/v1/boards/x", ``},
	"BanUser":             {"POST", "/v1/users/z:ban", `{}`},
	"UnbanUser":           {"POST", "/v1/users/z:unban", `{}`},
	"EraseUser":           {"POST", "/v1/users/z:erase", `{}`},
	"ListUserScores":      {"GET", "/v1/users/u/scores", ``},
	"GetProfile":          {"GET", "/v1/users/u/profile", ``},
	"PutProfile":          {"PUT", "/v1/users/z/profile", `{"display_name":"Z"}`},
	"DeleteProfile":       {"DELETE", "/v1/users/z/profile", ``},
	"BatchPutProfiles":    {"POST", "/v1/profiles:batch", `{"profiles":[{"user_id":"z"}]}`},
	"CreateKey":           {"POST", "/v1/keys", `{"name":"k","scopes":["read"]}`},
	"ListKeys":            {"GET", "/v1/keys", ``},
	"RevokeKey":           {"DELETE", "/v1/keys/none", ``},
	"Verify":              {"POST", "/v1/admin/verify", `{}`},
	"Rebuild":             {"POST", "/v1/admin/rebuild", `{}`},
	"Backup":              {"POST", "/v1/admin/backup", `{}`},
	"ExportResults":       {"GET", "/v1/boards/default/results", ``},
	"ListBans":            {"GET", "/v1/bans", ``},
	"ListActs":            {"GET", "/v1/audit", ``},
	"ImportBans":          {"POST", "/v1/bans:import", `{"bans":[{"user_id":"z","revision":1}]}`},
	"GetSeason":           {"GET", "/v1/boards/default/seasons/latest", ``},
	"EndSeason":           {"POST", "/v1/boards/x/seasons/all:end", `{"reason":"test"}`},
}

func TestEveryMethodChecksTheScope(t *testing.T) {
	h := newHarness(t, Options{})
	for method, d := range doors {
		need := d.scope
		if !strings.HasPrefix(method, "/leaderboard.v1.") {
			continue
		}
		name := method[strings.LastIndexByte(method, '/')+1:]
		call, ok := calls[name]
		if !ok {
			t.Errorf("the method %s has no request in the map calls: add one", name)
			continue
		}
		for scope := auth.Public; scope <= auth.Admin; scope++ {
			a := h.do(scope.String(), call[0], call[1], call[2])
			grpcCode := status.Code(h.invoke(scope, method))
			switch {
			case scope == auth.Public:
				if a.status != http.StatusUnauthorized || a.header.Get("WWW-Authenticate") != "Bearer" || grpcCode != codes.Unauthenticated {
					t.Errorf("%s without a key: %d %s, gRPC %v; want 401 and Unauthenticated", name, a.status, a.raw, grpcCode)
				}
			case scope < need:
				if a.status != http.StatusForbidden || a.reason() != "SCOPE_REQUIRED" || !strings.Contains(a.raw, "the "+need.String()+" scope") || grpcCode != codes.PermissionDenied {
					t.Errorf("%s with scope %s: %d %s, gRPC %v; want 403 and PermissionDenied naming the scope %s", name, scope, a.status, a.raw, grpcCode, need)
				}
			case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden || grpcCode == codes.Unauthenticated || grpcCode == codes.PermissionDenied:
				t.Errorf("%s with scope %s: %d %s, gRPC %v; want the call allowed", name, scope, a.status, a.raw, grpcCode)
			}
		}
	}
}

func (h *harness) invoke(s auth.Scope, method string) error {
	desc, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(method[1:], "/", ".")))
	if err != nil {
		h.t.Fatal(err)
	}
	m := desc.(interface {
		IsStreamingServer() bool
	})
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	if s != auth.Public {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+h.keys[s.String()])
	}
	if !m.IsStreamingServer() {
		return h.conn.Invoke(ctx, method, &pb.ListKeysRequest{}, &pb.DeleteBoardResponse{}) // any empty message has the same encoding
	}
	stream, err := h.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&pb.ListKeysRequest{}); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(&pb.DeleteBoardResponse{})
}

func TestAuthorizationHeader(t *testing.T) {
	h := newHarness(t, Options{})
	key := h.keys["read"]
	try := func(values ...string) int {
		req, _ := http.NewRequest(http.MethodGet, h.http.URL+"/v1/scores", nil)
		req.Header["Authorization"] = values
		return h.send(req).status
	}
	for _, value := range []string{"Bearer " + key, "bearer " + key, "BEARER  " + key + " "} {
		if got := try(value); got != http.StatusOK {
			t.Errorf("Authorization %q: %d, want 200", strings.Replace(value, key, "KEY", 1), got)
		}
	}
	for _, values := range [][]string{
		{""}, {"Bearer"}, {"Bearer "}, {key}, {"Basic " + key}, {"Bearer" + key}, {"Bearer " + key + "x"}, {"Bearer " + key[:len(key)-1]},
		{"Bearer " + key, "Bearer " + key}, {"Bearer " + strings.ToUpper(key)}, {"Bearer eyJ.x.y"}, {"Bearer " + strings.Repeat("k", 20000)},
	} {
		if got := try(values...); got != http.StatusUnauthorized && got != http.StatusBadRequest {
			t.Errorf("Authorization %.60q, sent %d times: %d, want 401 or 400", strings.Replace(values[0], key, "KEY", 1), len(values), got)
		}
	}
	// A refused caller does not learn whether the request has other errors.
	for _, path := range []string{"/v1/scores?limit=x", "/v1/scores?bogus=1", "/v1/boards/default/watch?limit=x"} {
		if a := h.do("", "GET", path, nil); a.status != http.StatusUnauthorized {
			t.Errorf("GET %s without a key: %d %s, want 401", path, a.status, a.raw)
		}
	}
	if a := h.do("", "GET", "/v1/scores?key="+key, nil); a.status != http.StatusUnauthorized {
		t.Errorf("GET with a key in the query: %d %s, want 401", a.status, a.raw)
	}
}

func TestKeys(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	h := newHarness(t, Options{Now: func() time.Time { return now }})
	made := h.must("admin", "POST", "/v1/keys", `{"name":"arena 7","scopes":["submit"],"expires_at":"2026-11-21T00:00:00Z"}`)
	text := made["secret"].(string)
	id := get(made, "key", "key_id").(string)
	if !regexp.MustCompile(`^lbk_.{43}$`).MatchString(text) || get(made, "key", "name") != "arena 7" || get(made, "key", "expires_at") != "2026-11-21T00:00:00Z" {
		t.Errorf("answer to CreateKey: %v, want a secret lbk_…, the name \"arena 7\" and the given expiry", made)
	}
	stored, err := h.store.APIKey(t.Context(), auth.KeyFrom(secret.Text(text), "", nil, now).Hash)
	if err != nil || strings.Contains(fmt.Sprintf("%+v", stored), text) {
		t.Errorf("the stored key is %+v, error %v; want a key without the secret", stored, err)
	}
	h.keys["arena"] = text
	submit := func() int { return h.do("arena", "POST", "/v1/scores", `{"user_id":"u","points":1}`).status }
	if got := submit(); got != http.StatusOK {
		t.Errorf("submit with the new key: %d, want 200", got)
	}
	list := h.do("admin", "GET", "/v1/keys", nil)
	if len(list.body["keys"].([]any)) != 4 || strings.Contains(list.raw, text) || strings.Contains(list.raw, "secret") || strings.Contains(list.raw, "hash") {
		t.Errorf("list of keys: %s, want 4 keys without secrets or hashes", list.raw)
	}
	for _, key := range list.body["keys"].([]any) {
		name, used := get(key, "name").(string), get(key, "last_used_at")
		if want := map[string]any{"arena 7": "2026-11-20T12:00:00Z", "admin": "2026-11-20T12:00:00Z"}[name]; used != want {
			t.Errorf("key %q was last used at %v, want %v", name, used, want)
		}
	}
	now = now.Add(12 * time.Hour)
	if got := submit(); got != http.StatusUnauthorized {
		t.Errorf("submit with an expired key: %d, want 401", got)
	}
	now = now.Add(-time.Hour)
	if got := submit(); got != http.StatusOK {
		t.Errorf("submit an hour before the key expires: %d, want 200", got)
	}
	h.must("admin", "DELETE", "/v1/keys/"+id, nil)
	if got := submit(); got != http.StatusUnauthorized {
		t.Errorf("submit with a revoked key: %d, want 401", got)
	}
	if a := h.do("admin", "DELETE", "/v1/keys/"+id, nil); a.status != http.StatusNotFound || a.reason() != "API_KEY_NOT_FOUND" {
		t.Errorf("revoke a key that is already revoked: %d %s, want 404 with API_KEY_NOT_FOUND", a.status, a.raw)
	}
	for body, field := range map[string]string{
		`{"scopes":["read"]}`:                                                "name",
		`{"name":"x"}`:                                                       "scopes",
		`{"name":"x","scopes":["root"]}`:                                     "scopes[0]",
		`{"name":"x","scopes":[""]}`:                                         "scopes[0]",
		`{"name":"a\nb","scopes":["read"]}`:                                  "name",
		`{"name":"x","scopes":["read"],"expires_at":"soon"}`:                 "expires_at",
		`{"name":"x","scopes":["read"],"expires_at":"2020-01-01T00:00:00Z"}`: "expires_at",
	} {
		if a := h.do("admin", "POST", "/v1/keys", body); a.status != http.StatusBadRequest || strings.Join(a.violations(), ",") != field {
			t.Errorf("create the key %s: %d %s, want 400 naming %s", body, a.status, a.raw, field)
		}
	}
}

func TestTwoServersKeepTheLastAdminKey(t *testing.T) {
	base := newHarness(t, Options{})
	if err := base.store.DeleteAPIKey(t.Context(), adminKeyID(base)); err != nil {
		t.Fatal(err)
	}
	for _, force := range []bool{false, true} {
		store := &concurrentDeletes{Store: base.store}
		store.both.Add(2)
		servers := []*harness{serve(t, base.service, store, Options{}), serve(t, base.service, store, Options{})}
		answers := make([]answer, len(servers))
		var calls sync.WaitGroup
		for i, h := range servers {
			calls.Go(func() {
				answers[i] = h.do("admin", "DELETE", fmt.Sprintf("/v1/keys/%s?force=%v", adminKeyID(h), force), nil)
			})
		}
		calls.Wait()
		refused, remaining := 0, 0
		for i, a := range answers {
			switch {
			case a.status == http.StatusConflict && a.reason() == "LAST_ADMIN_KEY":
				refused++
			case a.status != http.StatusOK:
				t.Errorf("revoke with force = %v: %d %s, want 200, or 409 with LAST_ADMIN_KEY", force, a.status, a.raw)
			}
			if servers[i].do("admin", "GET", "/v1/keys", nil).status == http.StatusOK {
				remaining++
			}
		}
		if want := !force; refused > 0 != want || remaining > 0 != want || refused != remaining {
			t.Errorf("revoke with force = %v: %d of 2 calls are refused, and %d admin keys remain; want equal numbers: 0 with force, and more than 0 without", force, refused, remaining)
		}
		for _, h := range servers {
			_ = base.store.DeleteAPIKey(t.Context(), adminKeyID(h))
		}
	}
}

func adminKeyID(h *harness) string {
	return auth.KeyFrom(secret.Text(h.keys["admin"]), "", nil, tokenNow).ID
}

// concurrentDeletes is a store whose first two calls of DeleteAPIKey begin together.
type concurrentDeletes struct {
	leaderboard.Store
	both sync.WaitGroup
}

func (s *concurrentDeletes) DeleteAPIKey(ctx context.Context, id string) error {
	s.both.Done()
	s.both.Wait()
	return s.Store.DeleteAPIKey(ctx, id)
}

// While the store is unavailable, a call with a key that is not cached fails with 503, not 401.
func TestKeyStoreDown(t *testing.T) {
	base := newHarness(t, Options{})
	h := serve(t, base.service, downKeyStore{base.store}, Options{})
	a := h.do("read", "GET", "/v1/scores", nil)
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || strings.Contains(a.raw, "node 7") {
		t.Errorf("call while the key store is down: %d %s, want 503 with Retry-After and without the cause", a.status, a.raw)
	}
}

type downKeyStore struct{ leaderboard.Store }

func (downKeyStore) APIKey(context.Context, [32]byte) (leaderboard.APIKey, error) {
	return leaderboard.APIKey{}, fmt.Errorf("cql: node 7: %w", leaderboard.ErrUnavailable)
}

func TestOpenServers(t *testing.T) {
	h := newHarness(t, Options{Insecure: true})
	if got := h.do("", "POST", "/v1/boards", `{"board_id":"x"}`).status; got != http.StatusOK {
		t.Errorf("CreateBoard without a key on an insecure server, over REST: %d, want 200", got)
	}
	if _, err := h.client().CreateBoard(t.Context(), &pb.CreateBoardRequest{Board: &pb.Board{BoardId: "y"}}); err != nil {
		t.Errorf("CreateBoard without a key on an insecure server, over gRPC: %v, want nil", err)
	}
	h = newHarness(t, Options{PublicRead: true})
	if got := h.do("", "GET", "/v1/scores", nil).status; got != http.StatusOK {
		t.Errorf("a read without a key under public_read: %d, want 200", got)
	}
	if got := h.do("", "POST", "/v1/scores", `{"user_id":"u","points":1}`).status; got != http.StatusUnauthorized {
		t.Errorf("a submit without a key under public_read: %d, want 401", got)
	}
	h.keys["bad"] = "lbk_nonsense"
	if got := h.do("bad", "GET", "/v1/scores", nil).status; got != http.StatusUnauthorized {
		t.Errorf("a read with an invalid key under public_read: %d, want 401", got)
	}
}

func TestSecretsStaySecret(t *testing.T) {
	h := newHarness(t, Options{JWT: auth.JWT{Algorithm: "HS256", Secret: secret.Text(strings.Repeat("jwtsecret", 4)), Issuer: "i", Audience: "a"}})
	made := h.must("admin", "POST", "/v1/keys", `{"name":"k","scopes":["submit"]}`)
	h.keys["new"] = made["secret"].(string)
	h.keys["wrong"] = "lbk_wrongwrongwrongwrongwrong"
	h.keys["token"] = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJldmUifQ.c2lnbmF0dXJl"
	var output strings.Builder
	for scope := range h.keys {
		for _, path := range []string{"/v1/scores", "/v1/scores/nobody", "/v1/keys?x=" + scope} {
			output.WriteString(h.do(scope, "GET", path, nil).raw)
		}
		_, err := h.client().ListBoards(h.as(scope), &pb.ListBoardsRequest{})
		fmt.Fprint(&output, err)
	}
	output.WriteString(h.do("admin", "GET", "/v1/keys", nil).raw)
	output.WriteString(h.do("", "GET", "/metrics", nil).raw)
	output.WriteString(h.log.String())
	for scope, text := range h.keys {
		if strings.Contains(output.String(), text) || strings.Contains(output.String(), text[len("lbk_"):20]) {
			t.Errorf("an answer, a metric or the log contains the %s key, want it hidden", scope)
		}
	}
	if !strings.Contains(h.log.String(), `"method":"ListScores"`) {
		t.Error("the log has no line about ListScores")
	}
}

// By DNS rebinding, a web page can make a browser call this server. Only the Host header shows such
// an attack.
func TestInsecureServerAnswersOnlyLoopbackNames(t *testing.T) {
	open, keyed := newHarness(t, Options{Insecure: true}), newHarness(t, Options{})
	status := func(h *harness, path, host string) int {
		req := httptest.NewRequest(http.MethodGet, path, nil)
		req.Host = host
		req.Header.Set("Authorization", "Bearer "+h.keys["read"])
		w := httptest.NewRecorder()
		h.Handler().ServeHTTP(w, req)
		return w.Code
	}
	for _, host := range []string{"localhost", "localhost:8080", "LocalHost:8080", "localhost.", "play.localhost:8080", "127.0.0.1", "127.0.0.1:8080", "127.8.9.10:1", "[::1]", "[::1]:8080"} {
		if got := status(open, "/v1/scores", host); got != http.StatusOK {
			t.Errorf("insecure server, Host %q: %d, want 200", host, got)
		}
	}
	for _, host := range []string{"", "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example:8080", "notlocalhost", "192.0.2.1:8080", "0.0.0.0:8080", "[::]:8080", "[2001:db8::1]", "::1", "127.1"} {
		for _, path := range []string{"/v1/scores", "/", "/metrics"} {
			if got := status(open, path, host); got != http.StatusMisdirectedRequest {
				t.Errorf("insecure server, GET %s with Host %q: %d, want 421", path, host, got)
			}
		}
		if got := status(keyed, "/v1/scores", host); got != http.StatusOK {
			t.Errorf("server that requires keys, Host %q: %d, want 200", host, got)
		}
	}
	rest, _ := open.onSockets()
	for host, want := range map[string]string{"evil.example": "421", "localhost": "200"} {
		got, _ := exchange(t, rest, "GET /v1/scores HTTP/1.1\r\nConnection: close\r\nHost: "+host+"\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("insecure server, over a socket with Host %s: %.60q, want %s", host, got, want)
		}
	}
}

func TestRefusedBodiesAreNotRead(t *testing.T) {
	h := newHarness(t, Options{})
	for _, scope := range []string{"", "read"} {
		bodyRead := false
		req, _ := http.NewRequest(http.MethodPost, h.http.URL+"/v1/scores:batch", nil)
		r := req.Clone(t.Context())
		r.Header.Set("Authorization", "Bearer "+h.keys[scope])
		r.URL.Host, r.RemoteAddr = "", "192.0.2.1:1"
		r.Body = readerFunc(func(p []byte) (int, error) { bodyRead = true; return 0, fmt.Errorf("read") })
		w := &discardWriter{header: http.Header{}}
		h.Handler().ServeHTTP(w, r)
		if bodyRead || w.status != http.StatusUnauthorized && w.status != http.StatusForbidden {
			t.Errorf("call with scope %q: status %d, body read: %v; want 401 or 403 and false", scope, w.status, bodyRead)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
func (readerFunc) Close() error                 { return nil }

type discardWriter struct {
	header http.Header
	status int
}

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *discardWriter) WriteHeader(status int)      { w.status = status }
