package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

func TestBadBodies(t *testing.T) {
	h := newHarness(t, Options{})
	for _, tt := range []struct{ name, body, field, text string }{
		{"an empty body", ``, "user_id,points", "is required"},
		{"a text that is not JSON", `hello`, "body", "not valid JSON"},
		{"a list", `[]`, "body", "must be a JSON object"},
		{"null", `null`, "body", "must be a JSON object"},
		{"a number", `7`, "body", "must be a JSON object"},
		{"an incomplete object", `{"user_id":"u"`, "body", "not valid JSON"},
		{"text after the object", `{"user_id":"u","points":1}{}`, "body", "more text after the JSON object"},
		{"an unknown field", `{"user_id":"u","points":1,"bogus":true}`, "bogus", "is unknown; the known fields are user_id"},
		{"a field name in camel case", `{"userId":"u","points":1}`, "userId", "is unknown"},
		{"a field name with capital letters", `{"User_ID":"u","points":1}`, "User_ID", "is unknown"},
		{"the board in the body", `{"board":"x","user_id":"u","points":1}`, "board", "is unknown"},
		{"a key given twice", `{"user_id":"u","points":1,"points":2}`, "points", "is given twice"},
		{"a query parameter in the body", `{"user_id":"u","points":1,"no_wait":true}`, "no_wait", "is unknown"},
		{"a number with a fraction", `{"user_id":"u","points":1.5}`, "points", "is not an integer"},
		{"a number with a fraction, in a string", `{"user_id":"u","points":"1.5"}`, "points", "is not an integer"},
		{"the number NaN", `{"user_id":"u","points":NaN}`, "points", "not valid JSON"},
		{"NaN in a string", `{"user_id":"u","points":"NaN"}`, "points", "is not an integer"},
		{"a number too large for a float64", `{"user_id":"u","points":1e999}`, "points", "is not an integer"},
		{"a word instead of a number", `{"user_id":"u","points":"many"}`, "points", "is not an integer"},
		{"true instead of a number", `{"user_id":"u","points":true}`, "points", "is not an integer"},
		{"a list instead of a number", `{"user_id":"u","points":[1]}`, "points", "is not an integer"},
		{"an object instead of a number", `{"user_id":"u","points":{}}`, "points", "is not an integer"},
		{"null points", `{"user_id":"u","points":null}`, "points", "is required"},
		{"the number 2^53 + 1", `{"user_id":"u","points":9007199254740993}`, "points", "is not in the range -9007199254740992 to 9007199254740992"},
		{"the number -2^53 - 1", `{"user_id":"u","points":-9007199254740993}`, "points", "is not in the range -9007199254740992"},
		{"the number 2^63", `{"user_id":"u","points":9223372036854775808}`, "points", "is not an integer within ±2^53"},
		{"a number instead of a string", `{"user_id":7,"points":1}`, "user_id", "must be a string"},
		{"no user id", `{"points":1}`, "user_id", "is required"},
		{"an empty user id", `{"user_id":"","points":1}`, "user_id", "is required"},
		{"a user id of 129 bytes", `{"user_id":"` + strings.Repeat("u", 129) + `","points":1}`, "user_id", "at most 128"},
		{"a user id with a control character", `{"user_id":"a\u0007b","points":1}`, "user_id", "unprintable"},
		{"a user id with a null byte", `{"user_id":"a\u0000b","points":1}`, "user_id", "unprintable"},
		{"a user id with a no-break space", `{"user_id":"a\u00a0b","points":1}`, "user_id", "a no-break space (U+00A0)"},
		{"a combining mark as a user id", `{"user_id":"\u0300","points":1}`, "user_id", "no visible character"},
		{"an object replacement character as an attribute", `{"user_id":"u","points":1,"attributes":{"club":"\ufffc"}}`, "attributes.club", "no visible character"},
		{"a user id with a right-to-left override", `{"user_id":"a\u202eb","points":1}`, "user_id", "unprintable"},
		{"a user id with half a surrogate pair", `{"user_id":"a\ud800b","points":1}`, "user_id", "valid text"},
		{"bytes that are not UTF-8", "{\"user_id\":\"a\xffb\",\"points\":1}", "body", "not valid UTF-8"},
		{"a match id of 129 bytes", `{"user_id":"u","points":1,"match_id":"` + strings.Repeat("m", 129) + `"}`, "match_id", "at most 128"},
		{"a negative revision", `{"user_id":"u","points":1,"revision":-1}`, "revision", "is not in the range 0 to"},
		{"score on a sum board", `{"user_id":"u","score":1}`, "score", "takes points, not score"},
		{"score and points", `{"user_id":"u","score":1,"points":1}`, "score", "takes points, not score"},
		{"neither score nor points", `{"user_id":"u"}`, "points", "is required"},
		{"a time that is not in RFC 3339", `{"user_id":"u","points":1,"achieved_at":"yesterday"}`, "achieved_at", "must be a time such as"},
		{"a time as a number", `{"user_id":"u","points":1,"achieved_at":1700000000}`, "achieved_at", "must be a time such as"},
		{"a time in the future", `{"user_id":"u","points":1,"achieved_at":"2999-01-01T00:00:00Z"}`, "achieved_at", "ahead of the server's clock"},
		{"the first instant of year 1", `{"user_id":"u","points":1,"achieved_at":"0001-01-01T00:00:00Z"}`, "achieved_at", "must be set"},
		{"a tie-breaker on a board without tie-breakers", `{"user_id":"u","points":1,"tie_breakers":[1]}`, "tie_breakers", "the board has 0"},
		{"a tie-breaker that is not an integer", `{"user_id":"u","points":1,"tie_breakers":[1,"x"]}`, "tie_breakers[1]", "is not an integer"},
		{"null in a list", `{"user_id":"u","points":1,"tie_breakers":[null]}`, "tie_breakers[0]", "must not be null"},
		{"a number instead of a list", `{"user_id":"u","points":1,"tie_breakers":3}`, "tie_breakers", "must be a list"},
		{"a list instead of attributes", `{"user_id":"u","points":1,"attributes":[]}`, "attributes", "must be a JSON object"},
		{"an attribute that is a number", `{"user_id":"u","points":1,"attributes":{"gender":1}}`, "attributes.gender", "must be a string"},
		{"an attribute given twice", `{"user_id":"u","points":1,"attributes":{"gender":"F","gender":"M"}}`, "attributes.gender", "is given twice"},
		{"an invalid attribute name", `{"user_id":"u","points":1,"attributes":{"Gender!":"F"}}`, "attributes", "is not a name"},
		{"metadata that is a string", `{"user_id":"u","points":1,"metadata":"x"}`, "metadata", "must be a JSON object"},
		{"metadata that is too long", `{"user_id":"u","points":1,"metadata":{"k":"` + strings.Repeat("x", 4096) + `"}}`, "metadata", "at most 4096"},
		{"deeply nested metadata", `{"user_id":"u","points":1,"metadata":{"k":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}}`, "metadata", "nested more than 32 deep"},
		{"a deeply nested list instead of a number", `{"user_id":"u","points":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, "points", "is not an integer"},
		{"a deeply nested list instead of a time", `{"user_id":"u","points":1,"achieved_at":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, "achieved_at", "must be a time such as"},
		{"metadata with a number too large for a float64", `{"user_id":"u","points":1,"metadata":{"k":{"a":[0,1e400]}}}`, "metadata.k.a[1]", "cannot be stored exactly"},
		{"metadata with a key given twice", `{"user_id":"u","points":1,"metadata":{"k":{"a":1,"a":2}}}`, "metadata.k.a", "is given twice"},
		{"metadata with half a surrogate pair", `{"user_id":"u","points":1,"metadata":{"k":["a\ud800b"]}}`, "metadata.k[0]", "valid text"},
		{"an attribute's name with half a surrogate pair", `{"user_id":"u","points":1,"attributes":{"a\ud800b":"x"}}`, "attributes.a\ufffdb", "valid text"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := h.do("submit", "POST", "/v1/scores", tt.body)
			if a.status != http.StatusBadRequest || a.body["status"] != "INVALID_ARGUMENT" || strings.Join(a.violations(), ",") != tt.field || !strings.Contains(a.raw, tt.text) {
				t.Errorf("%d %s, want 400 that names %s and contains %q", a.status, a.raw, tt.field, tt.text)
			}
		})
	}
	if got := get(h.must("read", "GET", "/v1/scores", nil), "data", "total"); got != number(0) {
		t.Errorf("after the invalid requests the board has %v entries, want 0", got)
	}
	a := h.do("admin", "POST", "/v1/boards", `{"board_id":"","decimals":12,"half_life":"60s","season":{"time_zone":"Mars/Olympus"}}`)
	if got := a.violations(); a.status != http.StatusBadRequest || len(got) < 4 {
		t.Errorf("a board with several faults: %d %s, want 400 naming at least 4 fields", a.status, a.raw)
	}
	for body, field := range map[string]string{
		`{"board_id":"b","order":"SIDEWAYS"}`:                                                             "order",
		`{"board_id":"b","policy":"best"}`:                                                                "policy",
		`{"board_id":"b","half_life":"soon"}`:                                                             "half_life",
		`{"board_id":"b","half_life":60}`:                                                                 "half_life",
		`{"board_id":"b","policy":"DECAY","half_life":"315576000000s"}`:                                   "half_life",
		`{"board_id":"b","season":{"schedule":"FORTNIGHTLY"}}`:                                            "season.schedule",
		`{"board_id":"b","season":{"schedule":"HOURLY","day_start":"04:00"}}`:                             "season.day_start",
		`{"board_id":"b","season":{"schedule":"DAILY","day_start":"4 am"}}`:                               "season.day_start",
		`{"board_id":"b","season":{"schedule":"MONTHLY","week_start":"SUNDAY"}}`:                          "season.week_start",
		`{"board_id":"b","season":{"schedule":"WEEKLY","week_start":"SUN"}}`:                              "season.week_start",
		`{"board_id":"b","season":{"schedule":"YEARLY","year_start":"02-29"}}`:                            "season.year_start",
		`{"board_id":"b","season":{"schedule":"EVERY","every":"336h"}}`:                                   "season.from",
		`{"board_id":"b","season":{"schedule":"EVERY","every":"fortnight"}}`:                              "season.every",
		`{"board_id":"b","season":{"schedule":"EVERY","every":"-1h","from":"2026-01-01T00:00:00Z"}}`:      "season.every",
		`{"board_id":"b","season":{"schedule":"EVERY","every":"9999999h","from":"2026-01-01T00:00:00Z"}}`: "season.every",
		`{"board_id":"b","season":{"schedule":"DAILY","days":3}}`:                                         "season.days",
		`{"board_id":"b","season":{"schedule":"ROLLING"}}`:                                                "season.days",
		`{"board_id":"b","season":{"schedule":"ROLLING","days":7}}`:                                       "source",
		`{"board_id":"b","season":{"schedule":"ROLLING","days":2}}`:                                       "retention",
		`{"board_id":"b","season":{"start":"now"}}`:                                                       "season.start",
		`{"board_id":"b","tie_breakers":[{"name":"a"},{"nam":"b"}]}`:                                      "tie_breakers[1].nam",
		`{"board_id":"b","decimals":99999999999}`:                                                         "decimals",
		`{"board_id":"b","min_score":1e30}`:                                                               "min_score",
		`{"board_id":"b","min_score":5,"max_score":4}`:                                                    "min_score",
		`{"board_id":"b","season":{"windows":[{"id":"w","start":true}]}}`:                                 "season.windows[0].start",
	} {
		if a := h.do("admin", "POST", "/v1/boards", body); a.status != http.StatusBadRequest || !slices.Contains(a.violations(), field) {
			t.Errorf("create the board %s: %d %s, want 400 naming %s", body, a.status, a.raw, field)
		}
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"b","policy":"BEST"}`)
	for _, tt := range []struct {
		method, path, body string
		status             int
		fields             string
		texts              []string
	}{
		{"PATCH", "/v1/boards/b", `{}`, 400, "body", []string{"names no field to change"}},
		{"PATCH", "/v1/boards/b", ``, 400, "body", []string{"names no field to change"}},
		{"POST", "/v1/boards", `{"board_id":"b","policy":"SUM"}`, 409, "", []string{"board exists with other rules", "choose another board_id", "PATCH"}},
		{"GET", "/v1/boards/b/results/u/m", ``, 404, "", []string{"match result not found", "user_id, match_id and season"}},
	} {
		a := h.do("admin", tt.method, tt.path, tt.body)
		if a.status != tt.status || strings.Join(a.violations(), ",") != tt.fields {
			t.Errorf("%s %s %s: %d %s, want %d naming %q", tt.method, tt.path, tt.body, a.status, a.raw, tt.status, tt.fields)
		}
		for _, text := range tt.texts {
			if !strings.Contains(a.raw, text) {
				t.Errorf("%s %s %s: %s, want it to contain %q", tt.method, tt.path, tt.body, a.raw, text)
			}
		}
	}
}

func TestUnknownEnums(t *testing.T) {
	h := newHarness(t, Options{})
	for _, number := range []int32{-1, -2147483648, 99, 257} {
		for field, body := range map[string]string{
			"order":                 `{"board_id":"b","order":%d}`,
			"policy":                `{"board_id":"b","policy":%d}`,
			"season.schedule":       `{"board_id":"b","season":{"schedule":%d}}`,
			"tie_breakers[1].order": `{"board_id":"b","tie_breakers":[{"name":"a"},{"name":"b","order":%d}]}`,
		} {
			a := h.do("admin", "POST", "/v1/boards", fmt.Sprintf(body, number))
			if a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{field}) || !strings.Contains(a.raw, fmt.Sprintf("%d is not one of ", number)) {
				t.Errorf("create a board with %s = %d: %d %s, want 400 naming the field", field, number, a.status, a.raw)
			}
		}
		_, err := h.client().CreateBoard(h.as("admin"), &pb.CreateBoardRequest{Board: &pb.Board{BoardId: "b", Order: pb.Board_Order(number)}})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "HIGHER_FIRST, LOWER_FIRST") {
			t.Errorf("create a board with order = %d over gRPC: %v, want INVALID_ARGUMENT", number, err)
		}
		if a := h.do("admin", "PATCH", "/v1/boards/default", fmt.Sprintf(`{"order":%d}`, number)); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{"order"}) {
			t.Errorf("PATCH with order = %d: %d %s, want 400 naming order", number, a.status, a.raw)
		}
	}
}

func TestMetadataNumbers(t *testing.T) {
	h := newHarness(t, Options{})
	submit := func(number string) answer {
		return h.do("submit", "POST", "/v1/scores", `{"user_id":"u","match_id":"m`+strings.Trim(number, "-")+`","points":1,"metadata":{"a":{"b":[0,`+number+`]}}}`)
	}
	for _, number := range []string{"0", "0.1", "0.30000000000000004", "1e23", "9007199254740992", "-9007199254740992", "9007199254740994", "1795168800000000", "1.7976931348623157e308", "5e-324", "1e2", "0e999999999", "1.50000000000000000000"} {
		if a := submit(number); a.status != http.StatusOK {
			t.Errorf("metadata with the number %s: %d %s, want 200", number, a.status, a.raw)
			continue
		}
		stored := get(h.must("read", "GET", "/v1/boards/default/results/u/m"+strings.Trim(number, "-"), nil), "result", "metadata", "a", "b", 1)
		want, _ := strconv.ParseFloat(number, 64)
		if got, err := stored.(json.Number).Float64(); err != nil || got != want {
			t.Errorf("metadata with the number %s is read as %v, want an equal number", number, stored)
		}
	}
	for _, number := range []string{"9007199254740993", "-9007199254740993", "18446744073709551615", "3.14159265358979323846", "1e400", "-1e400", "1e-400", "1e999999999999", "1e-999999999999", strings.Repeat("1", 65), "1" + strings.Repeat("0", 64)} {
		if a := submit(number); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{"metadata.a.b[1]"}) || !strings.Contains(a.raw, "cannot be stored exactly") {
			t.Errorf("metadata with the number %s: %d %s, want 400: cannot be stored exactly", number, a.status, a.raw)
		}
	}
}

// The time to parse a number grows with the square of its length, so a long number is refused.
func TestLongNumbers(t *testing.T) {
	h := newHarness(t, Options{})
	digits := strings.Repeat("1", 1<<20)
	for _, number := range []string{digits, "-" + digits, "1." + digits, `"` + digits + `"`, "1e" + digits, "0." + digits + "e1", digits + "e-1"} {
		a := h.do("submit", "POST", "/v1/scores:batch", `{"results":[{"user_id":"a","points":`+number+`}]}`)
		if a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{"results[0].points"}) || !strings.Contains(a.raw, "longer than 64 characters") {
			t.Errorf("points = %.10s… (%d bytes): %d %.300s, want 400: longer than 64 characters", number, len(number), a.status, a.raw)
		}
	}
	if a := h.do("read", "GET", "/v1/scores?limit="+digits[:20000], nil); a.status != http.StatusBadRequest || !strings.Contains(a.raw, "is not an integer") {
		t.Errorf("limit with 20,000 digits: %d %.300s, want 400", a.status, a.raw)
	}
}

func TestBoundsOverGRPC(t *testing.T) {
	h := newHarness(t, Options{Limits: auth.Limits{PerUser: auth.Rate{PerSecond: 1, Burst: 1}}})
	one := int64(1)
	result := func(metadata *structpb.Value) *pb.Result {
		return &pb.Result{UserId: "u", Points: &one, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"k": metadata}}}
	}
	deep := structpb.NewNumberValue(1)
	for range 40 {
		deep = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{deep}})
	}
	for _, results := range [][]*pb.Result{nil, slices.Repeat([]*pb.Result{{UserId: "u", Points: &one}}, 5001)} {
		if _, err := h.client().BatchSubmitScores(h.as("submit"), &pb.BatchSubmitScoresRequest{Results: results}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "1 to 5000") {
			t.Errorf("batch of %d results: %v, want INVALID_ARGUMENT", len(results), err)
		}
	}
	if _, err := h.client().LookupScores(h.as("submit"), &pb.LookupScoresRequest{UserIds: make([]string, 5001)}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "1 to 5000") {
		t.Errorf("lookup of 5,001 users: %v, want INVALID_ARGUMENT", err)
	}
	// n<<3|2 is the tag of field n. The first message has 6 million empty results. The second has
	// 600,000 values in metadata.
	empty := bytes.Repeat([]byte{2<<3 | 2, 0}, 6<<20)
	list := protowire.AppendBytes([]byte{6<<3 | 2}, bytes.Repeat([]byte{1<<3 | 2, 0}, 600_000))
	list = protowire.AppendBytes(append(protowire.AppendBytes([]byte{1<<3 | 2}, []byte("k")), 2<<3|2), list)
	list = protowire.AppendBytes([]byte{9<<3 | 2}, protowire.AppendBytes([]byte{1<<3 | 2}, list))
	for name, raw := range map[string][]byte{"results": empty, "values": protowire.AppendBytes([]byte{2<<3 | 2}, list)} {
		m := &pb.BatchSubmitScoresRequest{}
		if err := decodeMessage(doorOf(pb.LeaderboardService_BatchSubmitScores_FullMethodName), raw, m); err == nil || !strings.Contains(err.Error(), "more than 500000 values") || len(m.GetResults()) > 0 {
			t.Errorf("decodeMessage with too many %s: %v, %d results decoded; want an error and 0", name, err, len(m.GetResults()))
		}
		err := h.conn.Invoke(h.as("submit"), pb.LeaderboardService_BatchSubmitScores_FullMethodName, raw, m, grpc.ForceCodec(bytesCodec{}))
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "more than 500000 values") {
			t.Errorf("gRPC call with too many %s: %v, want INVALID_ARGUMENT", name, err)
		}
	}
	deepest := []byte{}
	for range 4000 {
		deepest = protowire.AppendBytes([]byte{1<<3 | 2}, protowire.AppendBytes([]byte{6<<3 | 2}, deepest))
	}
	if err := decodeMessage(doorOf(""), deepest, &structpb.ListValue{}); err == nil || !strings.Contains(err.Error(), "messages deep") {
		t.Errorf("decodeMessage of a message 8,000 deep: %v, want an error about its depth", err)
	}
	// This call succeeds only if the refused calls did not count against the user's rate.
	res, err := h.client().BatchSubmitScores(h.as("submit"), &pb.BatchSubmitScoresRequest{Results: []*pb.Result{
		result(deep), result(structpb.NewStringValue(strings.Repeat("x", 1<<20))),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"metadata: is nested more than 32 deep", "metadata: is longer than the 4096 bytes"} {
		if got := res.GetOutcomes()[i].GetDetail(); !strings.Contains(got, want) {
			t.Errorf("outcome %d: %q, want %q", i, got, want)
		}
	}
}

func TestGoodNumbers(t *testing.T) {
	h := newHarness(t, Options{})
	for i, number := range []string{`5`, `"5"`, `5.0`, `5e0`, `0.5e1`, `50e-1`, `"5e0"`} {
		body := fmt.Sprintf(`{"user_id":"u%d","points":%s}`, i, number)
		if got := h.must("submit", "POST", "/v1/scores", body); got["new_score"] != json.Number("5") {
			t.Errorf("submit of %s answered %v, want the score 5", body, got)
		}
	}
	for _, extreme := range []string{"9007199254740992", "-9007199254740992"} {
		body := fmt.Sprintf(`{"user_id":"max%s","points":%s}`, extreme, extreme)
		if got := h.must("submit", "POST", "/v1/scores", body); got["new_score"] != json.Number(extreme) {
			t.Errorf("submit of %s answered %v, want the score %s", body, got, extreme)
		}
	}
}

func TestBadQueries(t *testing.T) {
	h := newHarness(t, Options{})
	h.must("submit", "POST", "/v1/scores", `{"user_id":"u","match_id":"m","points":1}`)
	for _, tt := range []struct{ method, path, field string }{
		{"GET", "/v1/scores?bogus=1", "bogus"},
		{"GET", "/v1/scores?pageToken=x", "pageToken"},
		{"GET", "/v1/scores?limit=10&limit=20", "limit"},
		{"GET", "/v1/scores?limit=0", "limit"},
		{"GET", "/v1/scores?limit=1001", "limit"},
		{"GET", "/v1/scores?limit=-1", "limit"},
		{"GET", "/v1/scores?limit=ten", "limit"},
		{"GET", "/v1/scores?limit=1.5", "limit"},
		{"GET", "/v1/scores?limit=1e3", "limit"},
		{"GET", "/v1/scores?limit=99999999999", "limit"},
		{"GET", "/v1/scores?limit=", "limit"},
		{"GET", "/v1/scores?start_rank=0", "start_rank"},
		{"GET", "/v1/scores?start_rank=-5", "start_rank"},
		{"GET", "/v1/scores?start_rank=2&page_token=x", "start_rank"},
		{"GET", "/v1/scores?start_rank=2&min_score=1", "start_rank"},
		{"GET", "/v1/scores?order=asc", "order"},
		{"GET", "/v1/scores/u?fill=maybe", "fill"},
		{"GET", "/v1/scores/u?allow_missing=1", "allow_missing"},
		{"GET", "/v1/scores?around_score=NaN", "around_score"},
		{"GET", "/v1/scores?around_score=1.5", "around_score"},
		{"GET", "/v1/scores?around_score=9007199254740993", "around_score"},
		{"GET", "/v1/scores?around_score=1&page_token=x", "around_score"},
		{"GET", "/v1/scores?around_score=1&start_rank=1", "around_score"},
		{"GET", "/v1/scores?around_score=1&min_score=1", "around_score"},
		{"GET", "/v1/scores?around_score=1&order=worst", "around_score"},
		{"GET", "/v1/scores?around_score=1&top_percent=5", "around_score"},
		{"GET", "/v1/scores?top_percent=0", "top_percent"},
		{"GET", "/v1/scores?top_percent=-0", "top_percent"},
		{"GET", "/v1/scores?top_percent=-1", "top_percent"},
		{"GET", "/v1/scores?top_percent=100.01", "top_percent"},
		{"GET", "/v1/scores?top_percent=NaN", "top_percent"},
		{"GET", "/v1/scores?top_percent=Inf", "top_percent"},
		{"GET", "/v1/scores?top_percent=1e999", "top_percent"},
		{"GET", "/v1/scores?top_percent=0x1p3", "top_percent"},
		{"GET", "/v1/scores?top_percent=" + strings.Repeat("1", 65), "top_percent"},
		{"GET", "/v1/scores?top_percent=10%25", "top_percent"},
		{"GET", "/v1/scores?top_percent=10&order=worst", "top_percent"},
		{"GET", "/v1/scores?top_percent=10&max_score=1", "top_percent"},
		{"GET", "/v1/users/u/scores?boards=", "boards"},
		{"GET", "/v1/users/u/scores?boards=default&boards=", "boards"},
		{"GET", "/v1/users/u/scores?boards=" + strings.Repeat("default&boards=", 100) + "default", "boards"},
		{"GET", "/v1/users/u/scores?board=default", "board"},
		{"GET", "/v1/scores?start_rank=2&order=worst", "start_rank"},
		{"GET", "/v1/scores?min_score=2&max_score=1", "min_score"},
		{"GET", "/v1/scores?min_score=NaN", "min_score"},
		{"GET", "/v1/scores?max_score=1.5", "max_score"},
		{"GET", "/v1/scores?max_score=9007199254740993", "max_score"},
		{"GET", "/v1/boards/default/watch?min_score=1", "min_score"},
		{"GET", "/v1/scores?page_token=%00", "page_token"},
		{"GET", "/v1/scores?page_token=" + strings.Repeat("A", 3000), "page_token"},
		{"GET", "/v1/scores?method=olympic", "method"},
		{"GET", "/v1/scores?division=gender", "division"},
		{"GET", "/v1/scores?division=gender:F", "division"},
		{"GET", "/v1/scores?include_metadata=maybe", "include_metadata"},
		{"GET", "/v1/scores?season=%ff", "season"},
		{"GET", "/v1/scores?%zz", "query"},
		{"GET", "/v1/scores?a;b=1", "query"},
		{"GET", "/v1/scores/u?neighbors=51", "neighbors"},
		{"GET", "/v1/scores/u?neighbors=-1", "neighbors"},
		{"GET", "/v1/scores/u?limit=3", "limit"},
		{"GET", "/v1/scores/u?user_id=v", "user_id"},
		{"GET", "/v1/boards/default/scores?board=other", "board"},
		{"GET", "/v1/boards?limit=1", "limit"},
		{"GET", "/v1/boards/default?x=", "x"},
		{"GET", "/v1/boards/default/stats?buckets=101", "buckets"},
		{"GET", "/v1/boards/default/stats?rank=0", "rank"},
		{"GET", "/v1/boards/default/stats?score=9007199254740993", "score"},
		{"GET", "/v1/boards/default/watch?limit=0", "limit"},
		{"GET", "/v1/boards/default/watch?every=1s", "every"},
		{"GET", "/v1/users/u/scores?method=x", "method"},
		{"POST", "/v1/scores?bogus=1", "bogus"},
		{"POST", "/v1/scores:batch?bogus=1", "bogus"},
		{"POST", "/v1/scores?no_wait=maybe", "no_wait"},
		{"POST", "/v1/scores?no_wait=", "no_wait"},
		{"POST", "/v1/scores?no_wait=true&no_wait=false", "no_wait"},
		{"POST", "/v1/scores?noWait=true", "noWait"},
		{"POST", "/v1/scores:batch?no_wait=2", "no_wait"},
		{"POST", "/v1/boards/default/results/u/m:retract?no_wait=true", "no_wait"},
		{"POST", "/v1/scores:lookup?user_ids=u", "user_ids"},
		{"POST", "/v1/users/u:ban?user_id=v", "user_id"},
		{"PATCH", "/v1/boards/default?update_mask=title", "update_mask"},
		{"DELETE", "/v1/boards/default?force=true", "force"},
	} {
		var body any
		if tt.method == "POST" || tt.method == "PATCH" {
			body = "{}"
		}
		a := h.do("admin", tt.method, tt.path, body)
		if a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{tt.field}) {
			t.Errorf("%s %.80s: %d %.300s, want 400 naming %s", tt.method, tt.path, a.status, a.raw, tt.field)
		}
	}
	if a := h.do("admin", "POST", "/v1/scores:lookup?season=202611", `{"user_ids":["u"],"season":"202611"}`); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{"season"}) {
		t.Errorf("season in the body and in the query: %d %s, want 400 naming season", a.status, a.raw)
	}
	if a := h.do("admin", "POST", "/v1/boards/default/results/u/m:retract", `{"user_id":"v"}`); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{"user_id"}) {
		t.Errorf("user_id in the path and another in the body: %d %s, want 400 naming user_id", a.status, a.raw)
	}
	for _, n := range []int{0, 50} {
		if a := h.do("read", "GET", fmt.Sprintf("/v1/scores/u?neighbors=%d", n), nil); a.status != http.StatusOK {
			t.Errorf("neighbors=%d: %d %s, want 200", n, a.status, a.raw)
		}
	}
}

func TestLookupBounds(t *testing.T) {
	h := newHarness(t, Options{})
	for body, field := range map[string]string{
		`{}`:                       "user_ids",
		`{"user_ids":[""]}`:        "user_ids[0]",
		`{"user_ids":"u"}`:         "user_ids",
		`{"user_ids":["u",7]}`:     "user_ids[1]",
		`{"user_ids":["u\u0001"]}`: "user_ids[0]",
	} {
		if a := h.do("read", "POST", "/v1/scores:lookup", body); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{field}) {
			t.Errorf("lookup %s: %d %s, want 400 naming %s", body, a.status, a.raw, field)
		}
	}
}

func TestLongBodies(t *testing.T) {
	h := newHarness(t, Options{})
	a := h.do("submit", "POST", "/v1/scores", `{"user_id":"`+strings.Repeat("u", maxBodyBytes)+`"}`)
	if a.status != http.StatusRequestEntityTooLarge || a.reason() != "BODY_TOO_LARGE" || !strings.Contains(a.raw, "65536 bytes") {
		t.Errorf("a long body: %d %s, want 413", a.status, a.raw)
	}
	a = h.do("submit", "POST", "/v1/scores:batch", `{"results":[{"user_id":"`+strings.Repeat("u", 16<<20)+`"}]}`)
	if a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a long batch: %d %s, want 413", a.status, a.raw)
	}
	a = h.do("submit", "POST", "/v1/scores:lookup", `{"user_ids":["`+strings.Repeat("u", 4<<20)+`"]}`)
	if a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a long lookup: %d %s, want 413", a.status, a.raw)
	}
	longest := strings.Repeat(`"`+strings.Repeat(`\u0041`, 128)+`",`, ranking.MaxLookup)
	if a := h.do("submit", "POST", "/v1/scores:lookup", `{"user_ids":[`+longest[:len(longest)-1]+`]}`); a.status != http.StatusOK {
		t.Errorf("a lookup of MaxLookup ids, each as long as allowed and escaped: %d %.300s, want 200", a.status, a.raw)
	}
	if a := h.do("submit", "POST", "/v1/scores:batch", `{"results":[{"user_id":"u","points":1}]}`+strings.Repeat(" ", maxBodyBytes)); a.status != http.StatusOK {
		t.Errorf("a batch longer than maxBodyBytes: %d %s, want 200", a.status, a.raw)
	}
}

// Ids may contain any printable character. In paths, ids are escaped.
func TestIDsInPaths(t *testing.T) {
	h := newHarness(t, Options{})
	ids := []string{
		"plain", "with space", "a/b", "a//b", "/", "//", ".", "..", "../..", "a:b", ":", ":ban", "x:ban", "x:batch", "scores:lookup", "50%", "%3A", "%2F", "%252F", "100%25", "%", "%zz",
		"a+b", "a&b=c", "a?b", "a#b", "a;b", `"quotes"`, `back\slash`, "ümläut", "日本語", "👩\u200d🚀", "می\u200cخواهم", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "é", "<script>", "{user_id}", "*", "**", "~", "'", "null", strings.Repeat("é", 64),
	}
	runSeed := seed.New(t)
	rng := rand.New(rand.NewPCG(runSeed, 0))
	alphabet := []rune("ab/:%+.~ é?#&=;@!$'()*,[]{}|^`\\\"<>日2F3A")
	for range needs.More(t, 12) {
		id := make([]rune, 1+rng.IntN(12))
		for i := range id {
			id[i] = alphabet[rng.IntN(len(alphabet))]
		}
		ids = append(ids, string(id))
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		body, _ := json.Marshal(map[string]any{"user_id": id, "match_id": id, "points": 1})
		if leaderboard.UserID(id).ValidateNew() == nil {
			h.must("submit", "POST", "/v1/scores", string(body))
		} else {
			if a := h.do("submit", "POST", "/v1/scores", string(body)); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{"user_id", "match_id"}) {
				t.Errorf("submit with the id %q: %d %s, want 400", id, a.status, a.raw)
			}
			h.storeResult(id)
		}
		escaped := everyByte(id)
		for _, segment := range []string{url.PathEscape(id), escaped, strings.ToLower(escaped)} {
			if id == "." || id == ".." {
				segment = escaped // HTTP clients remove "." and ".." unless the bytes are escaped
			}
			if got := get(h.must("read", "GET", "/v1/scores/"+segment, nil), "data", "user_id"); got != id {
				t.Errorf("seed %d: GET /v1/scores/%s returns user %q, want %q", runSeed, segment, got, id)
			}
			if got := h.must("read", "GET", "/v1/boards/default/results/"+segment+"/"+segment, nil); got["match_id"] != id || got["user_id"] != id {
				t.Errorf("seed %d: GET of the result %s/%s returns %v, want user and match %q", runSeed, segment, segment, got, id)
			}
			for _, action := range []string{"ban", "unban"} {
				if got := h.must("admin", "POST", "/v1/users/"+segment+":"+action, nil); got["user_id"] != id {
					t.Errorf("seed %d: POST /v1/users/%s:%s returns %v, want user %q", runSeed, segment, action, got, id)
				}
			}
		}
		if got := h.must("submit", "POST", "/v1/boards/default/results/"+escaped+"/"+escaped+":retract", nil); got["user_id"] != id || got["match_id"] != id {
			t.Errorf("seed %d: the retraction of %s returns %v, want user and match %q", runSeed, escaped, got, id)
		}
	}
	for _, id := range []string{"a/b", "a:b%3A", "..", "Brett 1"} {
		body, _ := json.Marshal(map[string]any{"board_id": id})
		if id != ".." {
			h.must("admin", "POST", "/v1/boards", string(body))
		} else {
			b, err := protoconv.ToBoard(&pb.Board{BoardId: id})
			if err == nil {
				_, err = h.service.CreateBoard(t.Context(), b)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		path := "/v1/boards/" + everyByte(id)
		if got := h.must("read", "GET", path, nil)["board_id"]; got != id {
			t.Errorf("GET %s returns the board %q, want %q", path, got, id)
		}
		h.must("submit", "POST", path+"/scores", `{"user_id":"u","score":1}`)
		if got := get(h.must("read", "GET", path+"/scores", nil), "data", "board"); got != id {
			t.Errorf("GET %s/scores returns the board %q, want %q", path, got, id)
		}
		if got := h.must("admin", "PATCH", path, `{"title":"T"}`); got["board_id"] != id || got["title"] != "T" {
			t.Errorf("PATCH %s returns %v, want board %q with the title T", path, got, id)
		}
	}
	for _, path := range []string{"/v1/scores/%ff", "/v1/scores/%00", "/v1/scores/" + strings.Repeat("u", 129), "/v1/boards/%07/scores"} {
		if a := h.do("read", "GET", path, nil); a.status != http.StatusBadRequest {
			t.Errorf("GET %.40s: %d %s, want 400", path, a.status, a.raw)
		}
	}
}

func (h *harness) storeResult(id string) {
	h.t.Helper()
	b, err := h.service.Board(h.t.Context(), leaderboard.DefaultBoard)
	if err != nil {
		h.t.Fatal(err)
	}
	_, err = h.service.Submit(h.t.Context(), &b, []leaderboard.MatchResult{{
		ResultKey: leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: b.ID}, User: leaderboard.UserID(id), Match: leaderboard.MatchID(id)}, Score: 1,
	}})
	if err != nil {
		h.t.Fatal(err)
	}
}

// A new id must be visible, and must not be "." or "..", which HTTP clients remove from URLs.
func TestNewIDsAreVisibleAndKeptByURLs(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"cups","season":{"schedule":"EXPLICIT","windows":[{"id":"old","start":"2026-01-01T00:00:00Z","end":"2027-01-01T00:00:00Z"}]}}`)
	for _, id := range []string{".", "..", " ", "   ", "\u3164", "\u115f\u1160", "\u2800", "\u034f", "\ufe0f", " \u3164 "} {
		board, _ := json.Marshal(map[string]any{"board_id": id})
		if a := h.do("admin", "POST", "/v1/boards", string(board)); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{"board_id"}) {
			t.Errorf("create a board with the id %q: %d %s, want 400", id, a.status, a.raw)
		}
		windows := map[string]any{"schedule": "EXPLICIT", "windows": []any{
			map[string]any{"id": "old", "start": "2026-01-01T00:00:00Z", "end": "2027-01-01T00:00:00Z"},
			map[string]any{"id": id, "start": "2027-01-01T00:00:00Z", "end": "2028-01-01T00:00:00Z"},
		}}
		for path, method := range map[string]string{"/v1/boards": "POST", "/v1/boards/cups": "PATCH"} {
			body, _ := json.Marshal(map[string]any{"board_id": "more", "season": windows})
			if method == "PATCH" {
				body, _ = json.Marshal(map[string]any{"season": windows})
			}
			if a := h.do("admin", method, path, string(body)); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{"season.windows[1].id"}) {
				t.Errorf("%s %s with a window %q: %d %s, want 400", method, path, id, a.status, a.raw)
			}
		}
		for field, body := range map[string]map[string]any{
			"user_id":  {"user_id": id, "points": 1},
			"match_id": {"user_id": "u", "match_id": id, "points": 1},
		} {
			raw, _ := json.Marshal(body)
			if a := h.do("submit", "POST", "/v1/scores", string(raw)); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{field}) {
				t.Errorf("submit with %s %q: %d %s, want 400", field, id, a.status, a.raw)
			}
			res := h.must("submit", "POST", "/v1/scores:batch", map[string]any{"results": []any{body}})
			if get(res, "outcomes", 0, "status") != "REJECTED" {
				t.Errorf("%s %q in a batch: %v, want REJECTED", field, id, res)
			}
		}
	}
	for _, id := range []string{"...", ".a", "a.", "a b", "\u3164x", "é", "👍"} {
		raw, _ := json.Marshal(map[string]any{"user_id": id, "match_id": id, "points": 1})
		if a := h.do("submit", "POST", "/v1/scores", string(raw)); a.status != http.StatusOK {
			t.Errorf("submit with user and match %q: %d %s, want 200", id, a.status, a.raw)
		}
	}
}

func everyByte(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

func TestUnknownRoutes(t *testing.T) {
	h := newHarness(t, Options{})
	for _, path := range []string{"/v1", "/v1/", "/v1/nope", "/v1/scores/a/b", "/v1/users/u:promote", "/v2/scores", "/v1//scores"} {
		if a := h.do("admin", "GET", path, nil); a.status != http.StatusNotFound || a.reason() != "NO_SUCH_ROUTE" {
			t.Errorf("GET %s: %d %s, want 404 NO_SUCH_ROUTE", path, a.status, a.raw)
		}
	}
	for path, allow := range map[string]string{
		"/v1/scores": "GET, HEAD, POST", "/v1/boards/b": "DELETE, GET, HEAD, PATCH", "/v1/users/u:ban": "POST", "/v1/scores/u": "GET, HEAD", "/v1/scores:batch": "POST",
	} {
		a := h.do("admin", "PUT", path, "{}")
		if a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != allow || a.body["code"] == nil {
			t.Errorf("PUT %s: %d, Allow %q, %s; want 405, %q", path, a.status, a.header.Get("Allow"), a.raw, allow)
		}
	}
	req, _ := http.NewRequest(http.MethodPost, h.http.URL+"/v1/boards/default", strings.NewReader("x=1"))
	req.Header.Set("X-HTTP-Method-Override", "DELETE")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer "+h.keys["admin"])
	if a := h.send(req); a.status != http.StatusMethodNotAllowed {
		t.Errorf("POST with the header X-HTTP-Method-Override: %d %s, want 405", a.status, a.raw)
	}
}

func TestContentTypeDoesNotMatter(t *testing.T) {
	h := newHarness(t, Options{})
	for i, contentType := range []string{"", "application/x-www-form-urlencoded", "text/plain", "application/json; charset=utf-8", "text/event-stream", "multipart/form-data; boundary=x", "nonsense"} {
		req, _ := http.NewRequest(http.MethodPost, h.http.URL+"/v1/scores", strings.NewReader(fmt.Sprintf(`{"user_id":"u%d","points":1}`, i)))
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("Accept", "text/event-stream")
		req.Header.Set("Authorization", "Bearer "+h.keys["submit"])
		if a := h.send(req); a.status != http.StatusOK || a.header.Get("Content-Type") != "application/json" || a.body["success"] != true {
			t.Errorf("submit with Content-Type %q: %d %s, want 200 with JSON", contentType, a.status, a.raw)
		}
	}
}

func FuzzBody(f *testing.F) {
	for _, seed := range []string{`{}`, `{"user_id":"u","points":1}`, `{"user_id":"u","points":1.5}`, `{"user_id":"u","tie_breakers":[1,null]}`, `{"metadata":{"a":[{}]},"attributes":{"x":"y"}}`, `{"achieved_at":"2026-01-01T00:00:00Z"}`, `[`, "{\"a\":\"\xff\"}", `{"user_id":"\ud800"}`, `nul`} {
		f.Add([]byte(seed))
	}
	h := newHarness(f, Options{Insecure: true})
	f.Fuzz(func(t *testing.T, body []byte) {
		h := h.withT(t)
		a := h.do("", "POST", "/v1/scores", string(body))
		switch a.status {
		case http.StatusOK:
			if !json.Valid(body) {
				t.Errorf("the server accepted the body %q, which is not JSON, want 400", body)
			}
			var sent struct {
				User   string `json:"user_id"`
				Points json.Number
			}
			if json.Unmarshal(body, &sent) != nil || leaderboard.UserID(sent.User).Validate() != nil {
				t.Errorf("the server accepted the body %q, which has no valid user_id, want 400", body)
			}
		case http.StatusBadRequest:
			if len(a.violations()) == 0 {
				t.Errorf("body %q: %s, want an error that names a field", body, a.raw)
			}
		case http.StatusRequestEntityTooLarge, http.StatusConflict:
		default:
			t.Errorf("body %q: %d %s, want 200, 400, 409 or 413", body, a.status, a.raw)
		}
	})
}

func FuzzPageToken(f *testing.F) {
	h := newHarness(f, Options{Insecure: true})
	for i := range 5 {
		h.must("", "POST", "/v1/scores", fmt.Sprintf(`{"user_id":"u%d","points":%d}`, i, i))
	}
	token := get(h.must("", "GET", "/v1/scores?limit=2", nil), "data", "next_page_token").(string)
	for _, seed := range []string{token, token[1:], token + "A", "", "AQ", "====", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		h := h.withT(t)
		a := h.do("", "GET", "/v1/scores?limit=2&page_token="+url.QueryEscape(token), nil)
		if a.status == http.StatusBadRequest && len(a.violations()) == 1 || a.status == http.StatusOK && get(a.body, "data", "count") != nil {
			return
		}
		t.Errorf("page token %q: %d %s, want a page or 400 naming one field", token, a.status, a.raw)
	})
}
