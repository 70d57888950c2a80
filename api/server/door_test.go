package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/open-leaderboard/leaderboard/api"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// The rights of all methods in one place, for reviewers: a change of a door changes this file.
func TestDoors(t *testing.T) {
	idempotency := map[string]string{}
	eachMethod(func(method string, md protoreflect.MethodDescriptor) {
		idempotency[method] = md.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel().String()
	})
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "method\tscope\treach\tmax_bytes\tidempotency_level")
	for _, method := range slices.Sorted(maps.Keys(doors)) {
		d := doors[method]
		fmt.Fprintf(w, "%s\t%s\t%v\t%d\t%v\n", method, cmp.Or(d.scope.String(), "public"), d.reach, d.maxBytes, cmp.Or(idempotency[method], "-"))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/doors.txt"
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(out.Bytes(), want) {
		t.Errorf("doors:\n%s\nwant %s, %v:\n%s\nIf the change is intended, run the test with -update.", &out, golden, err, want)
	}
}

func TestUnknownMethodsAreClosed(t *testing.T) {
	if d := doorOf("/leaderboard.v1.LeaderboardService/None"); d.scope.String() != "nobody" || d.reach.String() != "EVERY_BOARD" {
		t.Errorf("the door of an unknown method has the scope %s and the reach %v, want nobody and EVERY_BOARD", d.scope, d.reach)
	}
}

// timeOfBan matches what a repeated ban changes: it states when an administrator last decided.
var timeOfBan = regexp.MustCompile(`"at":"[^"]*","revision":\d+`)

// The levels of idempotency are true: a call without side effects changes nothing that is stored, and an
// idempotent call changes nothing when it is repeated.
func TestIdempotencyLevels(t *testing.T) {
	h := newHarness(t, Options{Backup: func(context.Context, string) error { return nil }})
	h.must("admin", "POST", "/v1/scores", `{"user_id":"u","match_id":"m","points":1}`)
	state := func() string {
		var all []string
		for _, path := range []string{
			"/v1/boards", "/v1/boards/default/results", "/v1/boards/default/scores", "/v1/boards/x/results?include_voids=true", "/v1/boards/x/seasons",
			"/v1/bans?include_lifted=true", "/v1/keys", "/v1/users/u/scores",
		} {
			all = append(all, h.do("admin", "GET", path, nil).raw)
		}
		return timeOfBan.ReplaceAllString(strings.Join(all, "\n"), "")
	}
	n := 0
	eachMethod(func(_ string, md protoreflect.MethodDescriptor) {
		call := calls[string(md.Name())]
		level := md.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel()
		if level == descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN {
			return
		}
		n++
		h.do("admin", "POST", "/v1/boards", `{"board_id":"x","matches":true}`) // 409 if another call has changed x
		before := state()
		for i := range 2 {
			h.do("admin", call[0], call[1], call[2])
			after := state()
			if (level == descriptorpb.MethodOptions_NO_SIDE_EFFECTS || i == 1) && after != before {
				t.Errorf("%s is %v, but call %d changed the state from\n%s\nto\n%s", md.Name(), level, i+1, before, after)
			}
			before = after
		}
	})
	if n < 25 {
		t.Errorf("the test called %d methods, want at least 25", n)
	}
}

// A call for one board must not mean the default board, except where REST has a route without a board.
func TestOnlyShortRoutesMeanTheDefaultBoard(t *testing.T) {
	h := newHarness(t, Options{})
	for _, method := range slices.Sorted(maps.Keys(doors)) {
		d := doors[method]
		if d.http == nil {
			continue
		}
		short := false
		for _, rule := range append([]*annotations.HttpRule{d.http}, d.http.GetAdditionalBindings()...) {
			_, path := verbAndPath(rule)
			short = short || strings.HasPrefix(path, "/v1/scores")
		}
		if short != (d.reach == pb.Door_DEFAULT_BOARD) {
			t.Errorf("%s has the reach %v and a short route: %v; want DEFAULT_BOARD exactly with a short route", method, d.reach, short)
		}
	}
	eachMethod(func(method string, md protoreflect.MethodDescriptor) {
		if doorOf(method).reach != pb.Door_ONE_BOARD {
			return
		}
		req, _ := requestFor(t, md, "")
		if r, ok := req.(*pb.BatchRetractResultsRequest); ok {
			r.Results = []*pb.BatchRetractResultsRequest_Key{{UserId: "u", MatchId: "m"}}
		}
		err := h.invokeWith("admin", method, md, req)
		if s := status.Convert(err); s.Code() != codes.InvalidArgument || !strings.Contains(s.Message(), "board") {
			t.Errorf("%s with an empty board: %v, want INVALID_ARGUMENT that names the field", method, err)
		}
	})
	a := h.must("submit", "POST", "/v1/results:batch", `{"results":[{"user_id":"u","points":1},{"board_id":"","user_id":"u","points":1},{"board_id":"default","user_id":"u","points":1}]}`)
	for i, want := range []string{"REJECTED", "REJECTED", "APPLIED"} {
		if o := get(a, "outcomes", i); get(o, "status") != want || want == "REJECTED" && get(o, "detail") != "board_id: is required" {
			t.Errorf("outcome %d of results without board_id: %v, want %s that names board_id", i, o, want)
		}
	}
	if a := h.do("submit", "POST", "/v1/scores?board=", `{"user_id":"u","points":1}`); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{"board"}) {
		t.Errorf("a submit with an empty parameter board: %d %s, want 400 naming board", a.status, a.raw)
	}
}

// Each route of openapi.json, with one path parameter empty, is 404. With an id that looks like a part
// of a path, it concerns this id. Neither changes the default board.
func TestPathParametersAreLiteral(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"b","matches":true}`)
	for _, board := range []string{"b", "default"} {
		h.must("admin", "POST", "/v1/boards/"+board+"/scores", map[string]any{"user_id": "u", "match_id": "m", map[string]string{"b": "score", "default": "points"}[board]: 1})
	}
	var doc struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(api.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	state := func() string {
		var all []string
		for _, path := range []string{"/v1/boards", "/v1/boards/default/results", "/v1/boards/b/results", "/v1/boards/default/seasons", "/v1/keys"} {
			all = append(all, h.do("admin", "GET", path, nil).raw)
		}
		return strings.Join(all, "\n")
	}
	before := state()
	valid := map[string]string{"board": "b", "user_id": "nobody", "match_id": "none", "season": "2001", "key_id": "none"}
	body := map[string]string{
		"/v1/boards/{board}": `{"title":"changed"}`, "/v1/boards/{board}/scores": `{"user_id":"x","score":1,"points":1}`,
		"/v1/boards/{board}/scores:batch":  `{"results":[{"user_id":"x","score":1}]}`,
		"/v1/boards/{board}/scores:lookup": `{"user_ids":["u"]}`, "/v1/boards/{board}/results:retract": `{"results":[{"user_id":"u","match_id":"m"}]}`,
	}
	parameter := regexp.MustCompile(`{([a-z_]+)}`)
	n := 0
	for path, verbs := range doc.Paths {
		for verb := range verbs {
			for _, p := range parameter.FindAllStringSubmatch(path, -1) {
				for _, value := range []string{"", "%2F", ".", ".."} {
					n++
					filled := parameter.ReplaceAllStringFunc(path, func(segment string) string {
						name := segment[1 : len(segment)-1]
						if name == p[1] {
							return value
						}
						if valid[name] == "" {
							t.Fatalf("%s: the test has no value for %s", path, name)
						}
						return valid[name]
					})
					req, err := http.NewRequestWithContext(t.Context(), strings.ToUpper(verb), h.http.URL+filled, strings.NewReader(cmp.Or(body[path], "{}")))
					if err != nil {
						t.Fatal(err)
					}
					if verb == "get" || verb == "delete" {
						req.Body, req.ContentLength = nil, 0
					}
					req.Header.Set("Authorization", "Bearer "+h.keys["admin"])
					a := h.send(req)
					id, _ := url.PathUnescape(value)
					switch {
					case value == "" && (a.status != http.StatusNotFound || a.reason() != "EMPTY_ID" || !strings.Contains(a.raw, p[1])):
						t.Errorf("%s %s: %d %s, want 404 EMPTY_ID naming %s", verb, filled, a.status, a.raw, p[1])
					case p[1] == "board" && value != "" && a.status != http.StatusNotFound && a.status != http.StatusBadRequest:
						t.Errorf("%s %s: %d %s, want 404 or 400, because no board %q exists", verb, filled, a.status, a.raw, id)
					case a.status >= 500 || a.status == http.StatusMethodNotAllowed || a.reason() == "NO_SUCH_ROUTE":
						t.Errorf("%s %s: %d %s, want the answer of the route %s", verb, filled, a.status, a.raw, path)
					case a.status == http.StatusOK && p[1] == "user_id" && a.body["user_id"] != nil && a.body["user_id"] != id:
						t.Errorf("%s %s: %s, want an answer about the user %q", verb, filled, a.raw, id)
					}
				}
			}
		}
	}
	if n < 100 {
		t.Errorf("the test sent %d requests, want at least 100: openapi.json has fewer parameters", n)
	}
	if after := state(); after != before {
		t.Errorf("after requests with such ids, the boards, results and keys are\n%s\nwant them unchanged:\n%s", after, before)
	}
}
