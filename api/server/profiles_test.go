package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/secret"
)

const zoe = `{"display_name":"Zoë 🏳️‍🌈","avatar_url":"https://e.org/z.png","country":"GBR","attributes":{"price":12.5,"tags":["a"]}}`

func TestProfileOverRESTAndGRPC(t *testing.T) {
	h := newHarness(t, Options{})
	if a := h.do("read", "GET", "/v1/users/zoe/profile", nil); a.status != http.StatusNotFound || a.reason() != "PROFILE_NOT_FOUND" {
		t.Errorf("GET of no profile: %d %s, want 404 with PROFILE_NOT_FOUND", a.status, a.raw)
	}
	put := h.must("submit", "PUT", "/v1/users/zoe/profile", zoe)
	got := h.must("read", "GET", "/v1/users/zoe/profile", nil)
	if diff := cmp.Diff(put, got); diff != "" || put["user_id"] != "zoe" || put["display_name"] != "Zoë 🏳️‍🌈" || put["country"] != "GBR" || fmt.Sprint(get(put, "attributes", "price")) != "12.5" {
		t.Errorf("PUT answered %v, GET differs by (-put +get):\n%s", put, diff)
	}
	res, err := h.client().GetProfile(h.as("read"), &pb.GetProfileRequest{UserId: "zoe"})
	if p := res.GetProfile(); err != nil || p.GetDisplayName() != "Zoë 🏳️‍🌈" || p.GetAttributes().GetFields()["price"].GetNumberValue() != 12.5 || p.GetRevision() < 1 {
		t.Errorf("GetProfile answered %v, %v; want the profile", res, err)
	}
	name := "Zed"
	changed, err := h.client().PutProfile(h.as("submit"), &pb.PutProfileRequest{UserId: "zoe", Profile: &pb.Profile{DisplayName: &name}})
	if err != nil || changed.GetProfile().GetDisplayName() != "Zed" || changed.GetProfile().AvatarUrl != nil || changed.GetProfile().GetRevision() <= res.GetProfile().GetRevision() {
		t.Errorf("PutProfile answered %v, %v; want the new profile only, with a higher revision", changed, err)
	}
	if a := h.must("submit", "PUT", "/v1/users/zoe/profile", `{"display_name":"old","revision":5}`); a["display_name"] != "Zed" {
		t.Errorf("PUT with a lower revision answered %v, want the stored profile", a)
	}
	h.must("submit", "DELETE", "/v1/users/zoe/profile", nil)
	if _, err := h.client().DeleteProfile(h.as("submit"), &pb.DeleteProfileRequest{UserId: "zoe"}); status.Code(err) != codes.NotFound {
		t.Errorf("DeleteProfile of no profile: %v, want NOT_FOUND", err)
	}
	if a := h.do("read", "GET", "/v1/users/zoe/profile", nil); a.status != http.StatusNotFound {
		t.Errorf("GET after DELETE: %d %s, want 404", a.status, a.raw)
	}
}

// profilesIn returns the names that an answer shows for zoe.
func profilesIn(v any) (names []string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			names = append(names, profilesIn(e)...)
		}
	case map[string]any:
		if p, ok := v["profile"].(map[string]any); ok && v["user_id"] == "zoe" {
			names = append(names, fmt.Sprint(p["display_name"]))
		}
		for _, e := range v {
			names = append(names, profilesIn(e)...)
		}
	}
	return names
}

// Every answer with include_profile shows a change at once, in a sealed season too.
func TestChangesOfProfilesShowEverywhere(t *testing.T) {
	now := time.Date(2026, 11, 19, 10, 0, 0, 0, time.UTC)
	var clock atomic.Pointer[time.Time]
	clock.Store(&now)
	h := newHarness(t, Options{Now: func() time.Time { return *clock.Load() }})
	h.createBoard(`{"board_id":"b","policy":"BEST","matches":true,"season":{"schedule":"DAILY","grace":"0s"}}`)
	for _, day := range []int{19, 20} {
		now := time.Date(2026, 11, day, 10, 0, 0, 0, time.UTC)
		clock.Store(&now)
		for i, user := range []string{"ann", "zoe", "bob"} {
			h.must("submit", "POST", "/v1/boards/b/scores", fmt.Sprintf(`{"user_id":%q,"match_id":"m","score":%d,"achieved_at":"2026-11-%dT09:00:00Z","metadata":{"car":"red"}}`, user, 9-i, day))
		}
	}
	h.sealClosed(t, &clock)
	if got := get(h.must("read", "GET", "/v1/boards/b/scores?season=20261119", nil), "data", "sealed"); got != true {
		t.Fatalf("season 20261119 is sealed: %v, want true", got)
	}
	reads := map[string]int{ // the number of profiles in the answer
		"/v1/boards/b/scores?": 1, "/v1/boards/b/scores/zoe?": 2, "/v1/boards/b/scores/ann?neighbors=1": 1, "/v1/boards/b/scores/zoe?neighbors=0": 2,
		"/v1/boards/b/results/zoe/m?": 1, "/v1/boards/b/results/zoe?": 2, "/v1/boards/b/matches/m?": 1,
	}
	check := func(want string) {
		t.Helper()
		for path, n := range reads {
			for _, season := range []string{"20261119", "20261120"} {
				a := h.must("read", "GET", path+"&include_profile=true&season="+season, nil)
				if strings.HasSuffix(path, "results/zoe?") {
					n = 1
				}
				wantNames := slices.Repeat([]string{want}, n)
				if want == "" {
					wantNames = nil
				}
				if got := profilesIn(a); !slices.Equal(got, wantNames) {
					t.Errorf("GET %s in season %s shows the names %q, want %q", path, season, got, wantNames)
				}
			}
		}
		lookup := h.must("read", "POST", "/v1/boards/b/scores:lookup", `{"user_ids":["bob","zoe"],"include_profile":true,"include_metadata":true}`)
		if got := profilesIn(lookup); len(got) != min(len(want), 1) || want != "" && got[0] != want {
			t.Errorf("lookup shows the names %q, want %q", got, want)
		}
		if got := get(lookup, "data", "leaderboard", 0, "metadata", "car"); got != "red" {
			t.Errorf("lookup has the metadata %v, want red", got)
		}
	}
	events := h.watch("/v1/boards/b/watch?include_profile=true&include_metadata=true")
	watched := func(want string) {
		t.Helper()
		for {
			ev, ok := events.next()
			if !ok {
				t.Fatal("the watch ended")
			}
			if get(ev.data, "leaderboard", 0, "metadata", "car") != "red" {
				t.Errorf("the watch has the entry %v, want its metadata", get(ev.data, "leaderboard", 0))
			}
			if names := profilesIn(ev.data); strings.Join(names, ",") == want {
				return
			}
		}
	}
	check("")
	watched("")
	for _, name := range []string{"Zoë", "Zed"} {
		h.must("submit", "PUT", "/v1/users/zoe/profile", fmt.Sprintf(`{"display_name":%q}`, name))
		check(name)
		watched(name)
	}
	if p := get(h.must("read", "GET", "/v1/boards/b/scores?include_profile=true", nil), "data", "leaderboard", 1, "profile"); !slices.Equal(keysOf(p), []string{"display_name"}) {
		t.Errorf("an entry shows %v, want the name only", p)
	}
	for _, e := range get(h.must("read", "GET", "/v1/boards/b/scores/zoe?include_metadata=true", nil), "data", "neighbors").([]any) {
		if get(e, "metadata", "car") != "red" {
			t.Errorf("the neighbor %v has no metadata", e)
		}
	}
	h.must("submit", "DELETE", "/v1/users/zoe/profile", nil)
	check("")
	watched("")
	h.must("submit", "PUT", "/v1/users/zoe/profile", `{"display_name":"Zoë"}`)
	h.must("admin", "POST", "/v1/users/zoe:erase", nil)
	if a := h.do("read", "GET", "/v1/users/zoe/profile", nil); a.status != http.StatusNotFound {
		t.Errorf("GET of the profile of an erased user: %d %s, want 404", a.status, a.raw)
	}
	if acts := h.must("admin", "GET", "/v1/audit", nil); strings.Contains(fmt.Sprint(acts), "Zoë") {
		t.Errorf("after the erasure, the audit log has the name: %v", acts)
	}
}

func TestInvalidProfilesAreRefused(t *testing.T) {
	h := newHarness(t, Options{DenyName: func(name string) bool { return name == "Admin" }})
	deep := strings.Repeat(`{"a":`, 33) + "1" + strings.Repeat("}", 33)
	for _, tt := range []struct{ name, body, field string }{
		{"a bidi override", `{"display_name":"a\u202eb"}`, "display_name"},
		{"a name on the deny list", `{"display_name":"Admin"}`, "display_name"},
		{"a plain URL", `{"avatar_url":"http://e.org/a.png"}`, "avatar_url"},
		{"a country of two letters", `{"country":"GB"}`, "country"},
		{"attributes that are a list", `{"attributes":[1]}`, "attributes"},
		{"attributes that are nested too deep", `{"attributes":` + deep + `}`, "attributes"},
		{"attributes that are too long", `{"attributes":{"a":"` + strings.Repeat("x", 2041) + `"}}`, "attributes"},
		{"a number that is not a double", `{"attributes":{"a":12345678901234567890}}`, "attributes.a"},
		{"revision 0", `{"revision":0}`, "revision"},
		{"a revision far ahead", `{"revision":9007199254740991}`, "revision"},
		{"an unknown field", `{"name":"a"}`, "name"},
		{"another user", `{"user_id":"other"}`, "user_id"},
		{"a list", `[]`, "body"},
	} {
		a := h.do("submit", "PUT", "/v1/users/u/profile", tt.body)
		if a.status != http.StatusBadRequest || !slices.Contains(a.violations(), tt.field) {
			t.Errorf("%s: %d %s, want 400 about %s", tt.name, a.status, a.raw, tt.field)
		}
	}
	for path, field := range map[string]string{"/v1/users/%2E%2E/profile": "user_id", "/v1/users/u/profile?reason=" + strings.Repeat("r", 257): "reason", "/v1/users/u/profile?x=1": "x"} {
		if a := h.do("submit", "PUT", path, `{}`); a.status != http.StatusBadRequest || !slices.Contains(a.violations(), field) {
			t.Errorf("PUT %s: %d %s, want 400 about %s", path, a.status, a.raw, field)
		}
	}
	if _, err := h.client().PutProfile(h.as("submit"), &pb.PutProfileRequest{UserId: "u", Profile: &pb.Profile{UserId: proto.String("v")}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("PutProfile of two users: %v, want INVALID_ARGUMENT", err)
	}
	if a := h.do("read", "GET", "/v1/users/u/profile", nil); a.status != http.StatusNotFound {
		t.Errorf("after refused calls, GET: %d %s, want 404", a.status, a.raw)
	}
}

func TestBatchPutProfilesHasAnOutcomeForEach(t *testing.T) {
	h := newHarness(t, Options{})
	h.must("submit", "PUT", "/v1/users/kept/profile", `{"display_name":"stored"}`)
	a := h.must("submit", "POST", "/v1/profiles:batch", `{"profiles":[{"user_id":"a","display_name":"A"},{"display_name":"no user"},{"user_id":"b","country":"x"},
		{"user_id":"a","display_name":"again"},{"user_id":"kept","display_name":"old","revision":1},{"user_id":"c","display_name":"C","revision":7}]}`)
	var got []string
	for _, o := range a["outcomes"].([]any) {
		got = append(got, strings.TrimSpace(fmt.Sprint(get(o, "user_id"), " ", get(o, "status"), " ", get(o, "reason"))))
	}
	if diff := cmp.Diff([]string{"a APPLIED", "REJECTED INVALID", "b REJECTED INVALID", "a REJECTED INVALID", "kept SUPERSEDED", "c APPLIED"}, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if get(a, "outcomes", 5, "revision") != number(7) || !strings.Contains(fmt.Sprint(get(a, "outcomes", 3, "detail")), "given twice") {
		t.Errorf("the answer is %v, want revision 7, and a detail about the repeated user", a)
	}
	for user, want := range map[string]string{"a": "A", "kept": "stored", "c": "C"} {
		if p := h.must("read", "GET", "/v1/users/"+user+"/profile", nil); p["display_name"] != want {
			t.Errorf("the profile of %s is %v, want the name %s", user, p, want)
		}
	}
	var many []map[string]any
	for i := range 1001 {
		many = append(many, map[string]any{"user_id": fmt.Sprint("user ", i)})
	}
	for _, n := range []int{0, 1001} {
		if a := h.do("submit", "POST", "/v1/profiles:batch", map[string]any{"profiles": many[:n]}); a.status != http.StatusBadRequest || !slices.Contains(a.violations(), "profiles") {
			t.Errorf("a batch of %d: %d %s, want 400 about profiles", n, a.status, a.raw)
		}
	}
	if got := h.must("submit", "POST", "/v1/profiles:batch", map[string]any{"profiles": many[:1000]}); len(got["outcomes"].([]any)) != 1000 {
		t.Errorf("a batch of 1,000 has %d outcomes", len(got["outcomes"].([]any)))
	}
	res, err := h.client().BatchPutProfiles(h.as("submit"), &pb.BatchPutProfilesRequest{Profiles: []*pb.Profile{{UserId: proto.String("a")}, nil}})
	if err != nil || res.GetOutcomes()[0].GetStatus() != pb.BatchPutProfilesResponse_Outcome_APPLIED || res.GetOutcomes()[1].GetStatus() != pb.BatchPutProfilesResponse_Outcome_REJECTED {
		t.Errorf("BatchPutProfiles answered %v, %v; want APPLIED and REJECTED", res, err)
	}
}

func TestWhoMayChangeAProfile(t *testing.T) {
	key := []byte(strings.Repeat("s", 32))
	jwt := auth.JWT{Algorithm: "HS256", Secret: secret.Text(key), Issuer: "https://id.example", Audience: "leaderboard"}
	for selfEdit, own := range map[bool]int{false: 403, true: 200} {
		h := newHarness(t, Options{JWT: jwt, PublicRead: true, SelfEdit: selfEdit, Now: func() time.Time { return tokenNow }})
		h.keys["token"] = sign(t, key, nil) // of player-7
		h.keys["bound token"] = sign(t, key, func(c map[string]any) { c["boards"] = []string{"default"} })
		h.newKey("bound", map[string]any{"scopes": []string{"submit"}, "boards": []string{"default"}})
		for _, call := range []struct {
			as, user string
			want     int
		}{
			{"submit", "player-7", 200}, {"admin", "player-7", 200}, {"token", "player-7", own}, {"token", "player-8", 403}, {"bound token", "player-7", 403},
			{"read", "player-7", 403}, {"read", "read", 403}, {"", "player-7", 401}, {"bound", "player-7", 403},
		} {
			for method, body := range map[string]any{"PUT": `{"display_name":"x"}`, "DELETE": nil} {
				h.must("submit", "PUT", "/v1/users/"+call.user+"/profile", `{}`)
				if a := h.do(call.as, method, "/v1/users/"+call.user+"/profile", body); a.status != call.want {
					t.Errorf("self_edit %v, %s of %s as %q: %d %s, want %d", selfEdit, method, call.user, call.as, a.status, a.raw, call.want)
				}
			}
		}
		if a := h.do("token", "PUT", "/v1/users/player-7/profile", `{"revision":1}`); a.status == http.StatusOK {
			t.Errorf("self_edit %v: a user chose a revision: %s", selfEdit, a.raw)
		}
		if a := h.do("token", "POST", "/v1/profiles:batch", `{"profiles":[{"user_id":"player-7"}]}`); a.status != http.StatusForbidden {
			t.Errorf("a batch of a user: %d %s, want 403", a.status, a.raw)
		}
		h.must("", "GET", "/v1/scores?include_profile=true", nil)
	}
}

func TestAuditOfProfiles(t *testing.T) {
	h := newHarness(t, Options{})
	h.must("submit", "PUT", "/v1/users/u/profile", `{"display_name":"by a game server"}`)
	h.must("submit", "PUT", "/v1/users/u/profile?reason=ticket", `{"display_name":"with a reason"}`)
	h.must("admin", "PUT", "/v1/users/u/profile", `{"display_name":"by an administrator"}`)
	h.must("admin", "POST", "/v1/profiles:batch", `{"reason":"import","profiles":[{"user_id":"u","display_name":"batch"},{"user_id":"v"}]}`)
	h.must("admin", "DELETE", "/v1/users/u/profile?reason=rude", nil)
	var got []string
	for _, a := range h.must("admin", "GET", "/v1/audit?action=profile&user_id=u", nil)["acts"].([]any) {
		if get(a, "completed_at") != nil {
			got = append(got, fmt.Sprint(get(a, "action"), " ", get(a, "reason"), ": ", get(a, "before", "display_name"), " -> ", get(a, "after", "display_name")))
		}
	}
	want := []string{
		"profile.delete rude: batch -> <nil>", "profile.put import: by an administrator -> batch",
		"profile.put : with a reason -> by an administrator", "profile.put ticket: by a game server -> with a reason",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes in the audit log (-want +got):\n%s", diff)
	}
}

// The export of a board has the profiles of its users.
func TestProfilesAreInTheExport(t *testing.T) {
	h := newHarness(t, Options{})
	h.must("submit", "POST", "/v1/scores", `{"user_id":"u","match_id":"m","points":1}`)
	h.must("submit", "PUT", "/v1/users/u/profile", zoe)
	h.must("submit", "PUT", "/v1/users/elsewhere/profile", zoe)
	lines := jsonLines(t, h.do("admin", "GET", "/v1/boards/default/results?include_profiles=true", nil))
	if len(lines) != 2 || get(lines[1], "profile", "user_id") != "u" || get(lines[1], "profile", "attributes", "tags", 0) != "a" {
		t.Errorf("the export has the lines %v, want a result and the profile of its user", lines)
	}
	if lines := jsonLines(t, h.do("admin", "GET", "/v1/boards/default/results", nil)); len(lines) != 1 {
		t.Errorf("the export without include_profiles has the lines %v, want the result only", lines)
	}
}

// searched returns the users of all pages of a search.
func (h *harness) searched(query string) (users []string) {
	h.t.Helper()
	for token := ""; ; {
		data := get(h.must("read", "GET", "/v1/boards/b/users?"+query+"&page_token="+token, nil), "data")
		for _, e := range get(data, "leaderboard").([]any) {
			users = append(users, fmt.Sprint(get(e, "user_id"), " ", get(e, "rank"), " ", get(e, "profile", "display_name")))
		}
		if token, _ = get(data, "next_page_token").(string); token == "" {
			return users
		}
	}
}

func TestSearchUsers(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"b","policy":"BEST","divisions":["club"]}`)
	h.createBoard(`{"board_id":"other","policy":"BEST"}`)
	names := []string{"u1:Zoë 🏳️‍🌈", "u2:ZOO", "u3:Bob", "zoltan:Max", "zora:zora", "u6:Zoran", "Élan:", "plain", "nobody:Zorro", "u7:Ångström"}
	for i, text := range names {
		user, name, hasProfile := strings.Cut(text, ":")
		board := "b"
		if user == "nobody" {
			board = "other"
		}
		club := []string{"red", "blue"}[i%2]
		if board == "other" {
			h.must("submit", "POST", "/v1/boards/other/scores", fmt.Sprintf(`{"user_id":%q,"score":1}`, user))
		} else {
			h.must("submit", "POST", "/v1/boards/b/scores", fmt.Sprintf(`{"user_id":%q,"score":%d,"attributes":{"club":%q}}`, user, 100-i, club))
		}
		if hasProfile {
			h.must("submit", "PUT", "/v1/users/"+url.PathEscape(user)+"/profile", fmt.Sprintf(`{"display_name":%q}`, name))
		}
	}
	zo := []string{"u1 1 Zoë 🏳️‍🌈", "zoltan 4 Max", "u2 2 ZOO", "zora 5 zora", "u6 6 Zoran"}
	for query, want := range map[string][]string{
		"prefix=zo": zo, "prefix=ZÓ": zo, "prefix=zo&limit=1": zo, "prefix=zo&limit=2": zo, "prefix=zo&method=ordinal": zo,
		"prefix=zo&division=club:blue": {"zoltan 2 Max", "u2 1 ZOO", "u6 3 Zoran"}, "prefix=zor": {"zora 5 zora", "u6 6 Zoran"},
		"prefix=elan": {"Élan 7 <nil>"}, "prefix=%C3%89lan": {"Élan 7 <nil>"}, "prefix=plain": {"plain 8 <nil>"}, "prefix=plai": nil, "prefix=angstrom": {"u7 9 Ångström"}, "prefix=nobody": nil, "prefix=q": nil,
	} {
		if got := h.searched(query); !slices.Equal(got, want) {
			t.Errorf("GET users?%s returned %q, want %q", query, got, want)
		}
	}
	h.must("submit", "PUT", "/v1/users/u2/profile", `{"display_name":"Anna"}`)
	h.must("submit", "DELETE", "/v1/users/zora/profile", nil)
	h.must("admin", "POST", "/v1/users/u6:erase", nil)
	if got, want := h.searched("prefix=zo"), []string{"u1 1 Zoë 🏳️‍🌈", "zoltan 4 Max"}; !slices.Equal(got, want) {
		t.Errorf("after a rename, a deletion and an erasure, the search returned %q, want %q", got, want)
	}
	for query, field := range map[string]string{"": "prefix", "prefix=": "prefix", "prefix=%CC%81": "prefix", "prefix=a&limit=0": "limit", "prefix=a&limit=101": "limit", "prefix=a&page_token=*": "page_token",
		"prefix=a&page_token=eg": "page_token", "prefix=" + strings.Repeat("a", 129): "prefix"} {
		if a := h.do("read", "GET", "/v1/boards/b/users?"+query, nil); a.status != http.StatusBadRequest || !slices.Contains(a.violations(), field) {
			t.Errorf("GET users?%s: %d %s, want 400 about %s", query, a.status, a.raw, field)
		}
	}
	res, err := h.client().SearchUsers(h.as("read"), &pb.SearchUsersRequest{Board: "b", Prefix: "bob"})
	if err != nil || len(res.GetData().GetLeaderboard()) != 1 || res.GetData().GetLeaderboard()[0].GetProfile().GetDisplayName() != "Bob" {
		t.Errorf("SearchUsers answered %v, %v; want Bob", res, err)
	}
}

// A search examines a bounded number of names, and its pages still find each entry once.
func TestSearchAmongManyNames(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"b","policy":"BEST"}`)
	for batch := range 6 {
		var profiles []map[string]any
		for i := range 1000 {
			profiles = append(profiles, map[string]any{"user_id": fmt.Sprint("u", batch*1000+i), "display_name": fmt.Sprintf("Name %04d", batch*1000+i)})
		}
		h.must("submit", "POST", "/v1/profiles:batch", map[string]any{"profiles": profiles})
	}
	var want []string
	for i := 100; i < 6000; i += 1500 {
		h.must("submit", "POST", "/v1/boards/b/scores", fmt.Sprintf(`{"user_id":"u%d","score":%d}`, i, 9000-i))
		want = append(want, fmt.Sprintf("u%d %d Name %04d", i, len(want)+1, i))
	}
	for _, query := range []string{"prefix=name", "prefix=name&limit=1", "prefix=name&limit=100"} {
		if got := h.searched(query); !slices.Equal(got, want) {
			t.Errorf("GET users?%s found %q, want %q", query, got, want)
		}
	}
	if got := h.searched("prefix=u"); len(got) != len(want) {
		t.Errorf("the search by id found %q, want %d entries", got, len(want))
	}
}
