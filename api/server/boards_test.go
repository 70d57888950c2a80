package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

func eachMethod(f func(method string, md protoreflect.MethodDescriptor)) {
	for md := range methodsOf(apiFiles) {
		f(fmt.Sprintf("/%s/%s", md.Parent().FullName(), md.Name()), md)
	}
}

func requestFor(t *testing.T, md protoreflect.MethodDescriptor, id string) (m proto.Message, hasBoard bool) {
	t.Helper()
	typ, err := protoregistry.GlobalTypes.FindMessageByName(md.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	m = typ.New().Interface()
	fd := md.Input().Fields().ByName("board")
	switch {
	case fd == nil:
	case fd.Message() != nil:
		b := m.ProtoReflect().Mutable(fd).Message()
		b.Set(fd.Message().Fields().ByName("board_id"), protoreflect.ValueOfString(id))
	default:
		m.ProtoReflect().Set(fd, protoreflect.ValueOfString(id))
	}
	return m, fd != nil
}

// A method's reach is the set of boards that its calls concern. A method needs a reach other than
// EVERY_BOARD if a caller without a key may call it, or if its request has the field board.
func TestEveryMethodHasAReach(t *testing.T) {
	eachMethod(func(method string, md protoreflect.MethodDescriptor) {
		req, hasBoard := requestFor(t, md, "x")
		d := doorOf(method)
		if d.scope <= auth.Read && d.reach == pb.Door_EVERY_BOARD {
			t.Errorf("%s needs only the scope read: want a reach other than EVERY_BOARD", method)
		}
		switch named := d.reach == pb.Door_ONE_BOARD || d.reach == pb.Door_DEFAULT_BOARD || d.reach == pb.Door_GIVEN_BOARD; {
		case named && !hasBoard:
			t.Errorf("%s has the reach %v, but its request has no field board: want another reach", method, d.reach)
		case !named && hasBoard:
			t.Errorf("%s has the reach %v, but its request has the field board: want ONE_BOARD, DEFAULT_BOARD or GIVEN_BOARD", method, d.reach)
		case named && boardOf(d.reach, req) != "x":
			t.Errorf("boardOf(%v) = %q, want \"x\"", req, boardOf(d.reach, req))
		}
	})
}

func (h *harness) newKey(name string, body map[string]any) {
	h.t.Helper()
	body["name"] = name
	h.keys[name] = h.must("admin", "POST", "/v1/keys", body)["secret"].(string)
}

// newBoundHarness starts a server with several boards, and a key for each scope. The keys are bound
// to the board cup and the prefix "eu-".
func newBoundHarness(t *testing.T) *harness {
	h := newHarness(t, Options{})
	h.http.Client().Timeout = 20 * time.Second // a stream that is not refused would not end
	for _, id := range []string{"cup", "eu-1", "eu-", "other", "cup2", "Cup", "x-eu-1", "*"} {
		h.createBoard(fmt.Sprintf(`{"board_id":%q,"policy":"SUM"}`, id))
		h.must("admin", "POST", "/v1/boards/"+url.PathEscape(id)+"/scores", `{"user_id":"u","match_id":"m","points":1}`)
	}
	for _, scope := range []string{"read", "submit", "admin"} {
		h.newKey("bound "+scope, map[string]any{"scopes": []string{scope}, "boards": []string{"cup"}, "board_prefixes": []string{"eu-"}})
	}
	return h
}

func TestBoundKeysStayOnTheirBoards(t *testing.T) {
	h := newBoundHarness(t)
	checkDenied := func(what string, err error, names string) {
		t.Helper()
		if s := status.Convert(err); s.Code() != codes.PermissionDenied || !strings.Contains(s.Message(), names) || strings.Contains(s.Message(), "scope") {
			t.Errorf("%s with a bound key: %v, want PERMISSION_DENIED naming %s", what, err, names)
		}
	}
	n := 0
	eachMethod(func(method string, md protoreflect.MethodDescriptor) {
		n++
		if doorOf(method).reach == pb.Door_SEEN_BOARDS {
			return
		}
		foreign := map[string]string{"other": `"other"`, "cup2": `"cup2"`, "Cup": `"Cup"`, "x-eu-1": `"x-eu-1"`, "e": `"e"`, "eu": `"eu"`, "nowhere": `"nowhere"`, "*": `"*"`, "": `"default"`, "cup ": `"cup "`, "a\nb": `"a\nb"`}
		for id, names := range foreign {
			req, hasBoard := requestFor(t, md, id)
			if !hasBoard || id == "" && doorOf(method).reach == pb.Door_GIVEN_BOARD {
				names = "all boards"
			}
			switch req := req.(type) { // an empty list would be refused before the board is checked
			case *pb.BatchSubmitScoresRequest:
				req.Results = []*pb.Result{{UserId: "u"}}
			case *pb.BatchSubmitResultsRequest:
				req.Results, names = []*pb.Result{{UserId: "u", BoardId: proto.String("cup")}, {UserId: "u", BoardId: &id}}, foreign[id]
			case *pb.BatchRetractResultsRequest:
				req.Results = []*pb.BatchRetractResultsRequest_Key{{UserId: "u"}}
			case *pb.LookupScoresRequest:
				req.UserIds = []string{"u"}
			case *pb.BatchPutProfilesRequest:
				req.Profiles = []*pb.Profile{{}}
			}
			err := h.invokeWith("bound admin", method, md, req)
			switch reach := doorOf(method).reach; {
			case id == "" && reach == pb.Door_RESULT_BOARDS: // the outcome of the result has the error
			case id == "" && reach == pb.Door_ONE_BOARD:
				if status.Code(err) != codes.InvalidArgument {
					t.Errorf("%s without a board: %v, want INVALID_ARGUMENT", method, err)
				}
			default:
				checkDenied(fmt.Sprintf("%s for %q", method, id), err, names)
			}
		}
		if doorOf(method).reach == pb.Door_EVERY_BOARD || method == pb.LeaderboardService_DeleteBoard_FullMethodName {
			return
		}
		for _, id := range []string{"cup", "eu-1", "eu-", "eu-new"} {
			req, _ := requestFor(t, md, id)
			if err := h.invokeWith("bound admin", method, md, req); status.Code(err) == codes.PermissionDenied {
				t.Errorf("%s for %q, a board of the bound key: %v, want no PERMISSION_DENIED", method, id, err)
			}
		}
	})
	if n != len(calls) {
		t.Errorf("the test called %d methods, want %d", n, len(calls))
	}
	for _, id := range []string{"cup", "other"} {
		if h.do("admin", "GET", "/v1/boards/"+id, nil).status != http.StatusOK {
			t.Errorf("the board %s no longer exists, want it unchanged", id)
		}
	}
}

func TestBoundKeysOverREST(t *testing.T) {
	h := newBoundHarness(t)
	for _, tt := range []struct {
		key, method, path, body string
		want                    int
	}{
		{"bound read", "GET", "/v1/boards/cup/scores", "", 200},
		{"bound read", "GET", "/v1/boards/eu-1/scores/u", "", 200},
		{"bound read", "GET", "/v1/boards/other/scores", "", 403},
		{"bound read", "GET", "/v1/boards/nowhere/scores", "", 403},
		{"bound read", "GET", "/v1/scores", "", 403},
		{"bound read", "GET", "/v1/boards/other/watch", "", 403},
		{"bound read", "GET", "/v1/boards/%2A/scores", "", 403},
		{"bound read", "GET", "/v1/boards/cup/../other/scores", "", 404},
		{"bound read", "POST", "/v1/boards/cup/scores", `{"user_id":"u","points":1}`, 403},
		{"bound submit", "POST", "/v1/boards/cup/scores", `{"user_id":"u","points":1}`, 200},
		{"bound submit", "POST", "/v1/boards/other/scores", `{"user_id":"u","points":1}`, 403},
		{"bound submit", "POST", "/v1/boards/cup/scores:batch", `{"results":[{"user_id":"u","points":1}]}`, 200},
		{"bound submit", "POST", "/v1/boards/other/scores:batch", `{"results":[{"user_id":"u","points":1}]}`, 403},
		{"bound submit", "POST", "/v1/scores:batch", `{"board":"other","results":[{"user_id":"u","points":1}]}`, 403},
		{"bound submit", "POST", "/v1/scores:batch", `{"board":"cup","results":[{"user_id":"u","points":1}]}`, 200},
		{"bound submit", "POST", "/v1/boards/other/results/u/m:retract", `{}`, 403},
		{"bound admin", "POST", "/v1/boards", `{"board_id":"eu-2"}`, 200},
		{"bound admin", "POST", "/v1/boards", `{"board_id":"us-2"}`, 403},
		{"bound admin", "POST", "/v1/boards", `{}`, 400},
		{"bound admin", "PATCH", "/v1/boards/eu-2", `{"title":"t"}`, 200},
		{"bound admin", "PATCH", "/v1/boards/other", `{"title":"t"}`, 403},
		{"bound admin", "DELETE", "/v1/boards/other", "", 403},
		{"bound admin", "DELETE", "/v1/boards/eu-2", "", 200},
		{"bound admin", "POST", "/v1/admin/verify", `{}`, 403},
		{"bound admin", "POST", "/v1/admin/verify", `{"board":"cup"}`, 200},
		{"bound admin", "POST", "/v1/admin/rebuild", `{"board":"other"}`, 403},
		{"bound admin", "GET", "/v1/boards/other/results", "", 403},
		{"bound admin", "GET", "/v1/boards/cup/results", "", 200},
		{"bound admin", "GET", "/v1/keys", "", 403},
		{"bound admin", "POST", "/v1/keys", `{"name":"wider","scopes":["admin"]}`, 403},
		{"bound admin", "POST", "/v1/keys", `{"name":"as wide","scopes":["read"],"boards":["cup"]}`, 403},
		{"bound admin", "DELETE", "/v1/keys/x?force=true", "", 403},
		{"bound admin", "POST", "/v1/users/u:ban", `{}`, 403},
		{"bound admin", "POST", "/v1/users/v:ban", `{"board":"other"}`, 403},
		{"bound admin", "POST", "/v1/users/v:ban", `{"board":"cup"}`, 200},
		{"admin", "POST", "/v1/users/v:ban", `{"board":"other"}`, 200},
		{"bound admin", "POST", "/v1/users/v:unban", `{"board":"other"}`, 403},
		{"bound admin", "POST", "/v1/users/u:unban", `{}`, 403},
		{"bound admin", "GET", "/v1/bans", "", 403},
		{"bound admin", "GET", "/v1/bans?board=other", "", 403},
		{"bound admin", "GET", "/v1/bans?board=cup", "", 200},
		{"bound admin", "POST", "/v1/bans:import", `{"bans":[{"user_id":"z","revision":1,"board":"cup"}]}`, 403},
		{"bound admin", "POST", "/v1/users/u:erase", `{}`, 403},
		{"bound admin", "POST", "/v1/admin/backup", `{}`, 403},
	} {
		a := h.do(tt.key, tt.method, tt.path, tt.body)
		if a.status != tt.want || a.status == 403 && a.reason() != "BOARD_DENIED" && a.reason() != "SCOPE_REQUIRED" {
			t.Errorf("%s %s %s with the %s key: %d %s, want %d", tt.method, tt.path, tt.body, tt.key, a.status, a.raw, tt.want)
		}
	}
	if a := h.do("bound read", "GET", "/v1/boards/other/scores", nil); get(a.body, "message") != `the key or token is not for board "other"` {
		t.Errorf("refusal of board \"other\": %s, want a message that names the board", a.raw)
	}
	if a := h.do("bound admin", "GET", "/v1/users/v/scores", nil); !strings.Contains(a.raw, `"cup"`) || strings.Contains(a.raw, `"other"`) {
		t.Errorf("scores and bans of v for a bound key: %s, want the ban on cup and not the ban on other", a.raw)
	}
	names := func(list any, field string) (ids []string) {
		for _, b := range list.([]any) {
			ids = append(ids, get(b, field).(string))
		}
		slices.Sort(ids)
		return ids
	}
	want := []string{"cup", "eu-", "eu-1"}
	if got := names(h.must("bound read", "GET", "/v1/boards", nil)["boards"], "board_id"); !slices.Equal(got, want) {
		t.Errorf("ListBoards with a bound key: %q, want %q", got, want)
	}
	if got := names(get(h.must("bound read", "GET", "/v1/users/u/scores", nil), "data", "scores"), "board"); !slices.Equal(got, want) {
		t.Errorf("ListUserScores with a bound key: boards %q, want %q", got, want)
	}
}

func TestBoardsOfKeys(t *testing.T) {
	h := newHarness(t, Options{})
	many := make([]string, 101)
	for i := range many {
		many[i] = fmt.Sprint("b", i)
	}
	type fields = map[string]any
	for _, tt := range []struct {
		body  fields
		names string
	}{
		{fields{"boards": many}, "boards"},
		{fields{"boards": many[:60], "board_prefixes": many[60:]}, "boards"},
		{fields{"boards": []string{"a", ""}}, "boards[1]"},
		{fields{"boards": []string{"a", "a"}}, "boards[1]"},
		{fields{"boards": []string{strings.Repeat("x", 129)}}, "boards[0]"},
		{fields{"boards": []string{"a\x00b"}}, "boards[0]"},
		{fields{"board_prefixes": []string{""}}, "board_prefixes[0]"},
		{fields{"board_prefixes": []string{"eu-", "eu-"}}, "board_prefixes[1]"},
		{fields{"board_prefixes": []string{"\u200b"}}, "board_prefixes[0]"},
		{fields{"board_prefixes": []string{strings.Repeat("é", 65)}}, "board_prefixes[0]"},
	} {
		tt.body["name"], tt.body["scopes"] = "k", []string{"read"}
		if a := h.do("admin", "POST", "/v1/keys", tt.body); a.status != http.StatusBadRequest || strings.Join(a.violations(), ",") != tt.names {
			t.Errorf("create the key %.80v: %d %s, want 400 naming %s", tt.body, a.status, a.raw, tt.names)
		}
	}
	_, err := pb.NewAdminServiceClient(h.conn).CreateKey(h.as("admin"), &pb.CreateKeyRequest{Name: "k", Scopes: []string{"read"}, Boards: []string{"a"}, BoardPrefixes: []string{"\u2028"}})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("CreateKey with an invalid prefix over gRPC: %v, want INVALID_ARGUMENT", err)
	}

	hostile := []string{"..", "a/b", "%2e", "*", `"`, "é", "e\u0301", " b", "b ", "\U0001F3C6", "cup\uFF0A"}
	h.newKey("hostile", fields{"scopes": []string{"read"}, "boards": hostile[:9], "board_prefixes": hostile[9:]})
	for _, id := range hostile {
		if a := h.do("hostile", "GET", "/v1/boards/"+url.PathEscape(id), nil); a.status != http.StatusNotFound || a.reason() != "BOARD_NOT_FOUND" {
			t.Errorf("GetBoard %q, which the key allows and which does not exist: %d %s, want 404", id, a.status, a.raw)
		}
	}
	for _, id := range []string{".", "a", "a/", "b", "%2E", "%252e", "ab", "e", "cup", "cup*", "É", " b ", "default"} {
		if a := h.do("hostile", "GET", "/v1/boards/"+url.PathEscape(id), nil); a.status != http.StatusForbidden {
			t.Errorf("GetBoard %q, which the key does not allow: %d %s, want 403", id, a.status, a.raw)
		}
	}
	listed := get(h.must("admin", "GET", "/v1/keys", nil), "keys")
	for _, k := range listed.([]any) {
		if get(k, "name") == "hostile" {
			if got, want := fmt.Sprint(get(k, "boards"), get(k, "board_prefixes")), fmt.Sprint(hostile[:9], hostile[9:]); got != want {
				t.Errorf("boards and prefixes of the listed key: %s, want %s", got, want)
			}
		}
	}
}

var publicReads = [][3]string{
	{"GET", "/v1/boards/BOARD", ""}, {"GET", "/v1/boards/BOARD/scores", ""}, {"GET", "/v1/boards/BOARD/scores?limit=0", ""},
	{"GET", "/v1/boards/BOARD/scores?season=bogus", ""}, {"GET", "/v1/boards/BOARD/scores?division=x:y", ""},
	{"GET", "/v1/boards/BOARD/scores?page_token=x", ""}, {"GET", "/v1/boards/BOARD/scores?method=x", ""}, {"GET", "/v1/boards/BOARD/scores?bogus=x", ""},
	{"GET", "/v1/boards/BOARD/scores/u", ""}, {"GET", "/v1/boards/BOARD/scores/u?neighbors=99", ""}, {"GET", "/v1/boards/BOARD/scores/%00", ""},
	{"POST", "/v1/boards/BOARD/scores:lookup", `{"user_ids":["u"]}`}, {"POST", "/v1/boards/BOARD/scores:lookup", `{"user_ids":[]}`},
	{"POST", "/v1/boards/BOARD/scores:lookup", `{`}, {"POST", "/v1/scores:lookup", `{"board":"BOARD","user_ids":["u"]}`},
	{"GET", "/v1/boards/BOARD/stats", ""}, {"GET", "/v1/boards/BOARD/stats?rank=0", ""}, {"GET", "/v1/boards/BOARD/seasons", ""},
	{"GET", "/v1/boards/BOARD/results/u/m", ""}, {"GET", "/v1/boards/BOARD/results/u/none", ""}, {"GET", "/v1/boards/BOARD/watch", ""},
	{"GET", "/v1/boards/BOARD/watch?limit=0", ""}, {"POST", "/v1/boards/BOARD/scores", `{"user_id":"u","points":1}`},
	{"PATCH", "/v1/boards/BOARD", `{"title":"t"}`}, {"DELETE", "/v1/boards/BOARD", ""}, {"GET", "/v1/boards/BOARD/results", ""},
}

// To a caller without a key, a private board does not exist, even if the request has other errors.
func TestPrivateBoardsAreAsIfAbsent(t *testing.T) {
	h := newHarness(t, Options{PublicRead: true})
	h.http.Client().Timeout = 20 * time.Second
	for id, private := range map[string]bool{"hidden": true, "public": false} {
		h.createBoard(fmt.Sprintf(`{"board_id":%q,"policy":"SUM","private":%v}`, id, private))
		h.must("admin", "POST", "/v1/boards/"+id+"/scores", `{"user_id":"u","match_id":"m","points":1}`)
	}
	shown := func(a answer) string {
		a.header.Del("Date")
		a.header.Del("X-Request-Id")
		header, _ := json.Marshal(a.header)
		return fmt.Sprint(a.status, " ", string(header), " ", a.raw)
	}
	for _, r := range publicReads {
		ask := func(key, id string) answer {
			return h.do(key, r[0], strings.ReplaceAll(r[1], "BOARD", id), strings.ReplaceAll(r[2], "BOARD", id))
		}
		hidden, absent := ask("", "hidden"), ask("", "absent")
		if got, want := strings.ReplaceAll(shown(hidden), "hidden", "absent"), shown(absent); got != want {
			t.Errorf("%v: answer for a private board:\n%s\nwant the answer for a board that does not exist:\n%s", r, got, want)
		}
		if hidden.status < 400 {
			t.Errorf("%v for a private board: %s, want an error", r, shown(hidden))
		}
	}
	eachMethod(func(method string, md protoreflect.MethodDescriptor) {
		answers := map[string]string{}
		for _, id := range []string{"hidden", "absent"} {
			req, hasBoard := requestFor(t, md, id)
			if !hasBoard {
				return
			}
			s := status.Convert(h.invokeWith("", method, md, req))
			answers[id] = strings.ReplaceAll(fmt.Sprint(s.Code(), s.Message(), s.Details()), "hidden", "absent")
		}
		if answers["hidden"] != answers["absent"] || strings.HasPrefix(answers["hidden"], codes.OK.String()) {
			t.Errorf("%s without a key: answers %q, want the same error for the private and the absent board", method, answers)
		}
	})
	for _, path := range []string{"/v1/boards", "/v1/users/u/scores"} {
		if a := h.do("", "GET", path, nil); a.status != http.StatusOK || strings.Contains(a.raw, "hidden") || !strings.Contains(a.raw, "public") {
			t.Errorf("GET %s without a key: %d %s, want 200 with board \"public\" and not board \"hidden\"", path, a.status, a.raw)
		}
		if a := h.do("read", "GET", path, nil); a.status != http.StatusOK || !strings.Contains(a.raw, "hidden") {
			t.Errorf("GET %s with a key: %d %s, want 200 with board \"hidden\"", path, a.status, a.raw)
		}
	}
	h.newKey("player", map[string]any{"scopes": []string{"read"}, "boards": []string{"hidden"}})
	for _, key := range []string{"read", "player"} {
		if a := h.do(key, "GET", "/v1/boards/hidden/scores/u", nil); a.status != http.StatusOK {
			t.Errorf("read of a private board with the %s key: %d %s, want 200", key, a.status, a.raw)
		}
	}
	if a := h.do("player", "GET", "/v1/boards/public/scores", nil); a.status != http.StatusForbidden {
		t.Errorf("read of a public board with a key for another board: %d %s, want 403", a.status, a.raw)
	}
	closed := serve(t, h.service, h.store, Options{})
	for _, id := range []string{"hidden", "public", "absent"} {
		if a := closed.do("", "GET", "/v1/boards/"+id, nil); a.status != http.StatusUnauthorized {
			t.Errorf("read of board %s without a key, without public_read: %d, want 401", id, a.status)
		}
	}
}

func TestStreamsEndWhenABoardBecomesPrivate(t *testing.T) {
	h := newHarness(t, Options{PublicRead: true})
	h.createBoard(`{"board_id":"b","policy":"SUM"}`)
	openWatch := func(key string) *bufio.Reader {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.http.URL+"/v1/boards/b/watch", nil)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+h.keys[key])
		}
		res, err := h.http.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		r := bufio.NewReader(res.Body)
		if _, err := r.ReadString('\n'); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("watch: %d, %v; want 200", res.StatusCode, err)
		}
		return r
	}
	anonymous, keyed := openWatch(""), openWatch("read")
	if got := h.must("admin", "PATCH", "/v1/boards/b", `{"private":true}`)["private"]; got != true {
		t.Errorf("private is %v after the update, want true", got)
	}
	rest := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(anonymous)
		rest <- string(all)
	}()
	select {
	case all := <-rest:
		if !strings.Contains(all, "BOARD_NOT_FOUND") {
			t.Errorf("the stream without a key ended with %q, want BOARD_NOT_FOUND", all)
		}
	case <-time.After(3*recheckInterval + 5*time.Second):
		t.Fatal("the stream without a key continues after the board became private, want it to end")
	}
	h.must("admin", "POST", "/v1/boards/b/scores", `{"user_id":"after","points":1}`)
	for {
		line, err := keyed.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream with a key ended with %v, want it to continue", err)
		}
		if strings.Contains(line, "after") {
			break
		}
	}
	if a := h.do("", "GET", "/v1/boards/b", nil); a.status != http.StatusNotFound {
		t.Errorf("GetBoard of a private board without a key: %d, want 404", a.status)
	}
	h.must("admin", "PATCH", "/v1/boards/b", `{"private":false}`)
	waitFor(t, "the board to be public", func() bool { return h.do("", "GET", "/v1/boards/b", nil).status == http.StatusOK })
}
