package server

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

const endOctober = "/v1/boards/cup/seasons/202610:end"

func TestEndSeason(t *testing.T) {
	h, _ := newMonthlyHarness(t, firstOfNovember) // October is in its grace period
	for user, achievedAt := range map[string]string{"ann": "2026-10-20T08:00:00Z", "bob": "2026-10-25T08:00:00Z"} {
		h.must("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(`{"user_id":%q,"match_id":"m","score":10,"achieved_at":%q}`, user, achievedAt))
	}
	body := `{"at":"2026-10-25T08:00:00Z","reason":"aimbot","dry_run":%v}`
	for _, dryRun := range []bool{true, false} {
		a := h.must("admin", "POST", endOctober, fmt.Sprintf(body, dryRun))
		if get(a, "season", "end") != "2026-10-25T08:00:00Z" || get(a, "season", "ended_at") != "2026-11-01T12:00:00Z" || get(a, "season", "closes_at") != "2026-11-04T12:00:00Z" ||
			get(a, "season", "status") != "grace" || get(a, "next_season") != "202611" || get(a, "next_start") != "2026-11-01T00:00:00Z" ||
			get(a, "excluded_results") != number(1) || get(a, "excluded_users") != number(1) || get(a, "dry_run") != dryRun {
			t.Errorf("end with dry_run %v: %v; want the season with its new end, 1 excluded result of 1 user, and the next season", dryRun, a)
		}
		list := h.must("read", "GET", "/v1/boards/cup/scores?season=202610", nil)
		if want := map[bool]string{true: "2", false: "1"}[dryRun]; fmt.Sprint(get(list, "data", "count")) != want {
			t.Errorf("entries after an end with dry_run %v: %v, want %s", dryRun, list, want)
		}
	}
	acts := h.acts("?action=season.end")
	if len(acts) != 1 || acts[0]["season"] != "202610" || acts[0]["reason"] != "aimbot" || get(acts[0], "before", "end") != "2026-11-01T00:00:00Z" || get(acts[0], "after", "end") != "2026-10-25T08:00:00Z" {
		t.Errorf("acts: %v, want one with the season, the reason and the end", acts)
	}
	lateResult := `{"user_id":"cat","match_id":"m","score":10,"achieved_at":"2026-10-26T08:00:00Z"}`
	for range 2 {
		a := h.do("submit", "POST", "/v1/boards/cup/scores", lateResult)
		want := "an administrator ended season 202610 at 2026-10-25T08:00:00Z, and the result is not before that time; the next season, 202611, starts at 2026-11-01T00:00:00Z"
		if a.status != http.StatusConflict || a.reason() != "SEASON_ENDED" || get(a.body, "message") != want {
			t.Errorf("submit after the end: %d %s, want 409 SEASON_ENDED with %q", a.status, a.raw, want)
		}
	}
	if got := get(h.must("submit", "POST", "/v1/boards/cup/scores:batch", `{"results":[`+lateResult+`]}`), "outcomes", 0); get(got, "status") != "REJECTED" || get(got, "reason") != "SEASON_ENDED" {
		t.Errorf("batch after the end: %v, want REJECTED, SEASON_ENDED", got)
	}
	for _, user := range []string{"bob", "cat"} {
		if a := h.must("read", "GET", "/v1/boards/cup/results/"+user+"/m?season=202610", nil); a["status"] != "REJECTED" || a["reason"] != "SEASON_ENDED" {
			t.Errorf("state of the result of %s: %v, want REJECTED, SEASON_ENDED", user, a)
		}
	}
	h.must("admin", "PATCH", "/v1/boards/cup", `{"title":"Cup","season":{"grace":"400000s"}}`)
	got := get(h.must("read", "GET", "/v1/boards/cup/seasons", nil), "data", "seasons", 1)
	if get(got, "end") != "2026-10-25T08:00:00Z" || get(got, "ended_at") != "2026-11-01T12:00:00Z" {
		t.Errorf("October in the list of seasons: %v, want the early end", got)
	}
	res, err := h.client().EndSeason(h.as("admin"), &pb.EndSeasonRequest{Board: "cup", Season: "202611", Reason: "test"})
	if err != nil || !res.GetSeason().GetEnd().AsTime().Equal(firstOfNovember) || res.GetNextSeason() != "202612" {
		t.Errorf("end over gRPC: %v, %v; want an end now and the next season 202612", res, err)
	}
}

func TestEndSeasonRefusesBadInput(t *testing.T) {
	h, clock := newMonthlyHarness(t, firstOfNovember)
	for _, tt := range []struct {
		path, body string
		status     int
		want       string
	}{
		{endOctober, `{}`, 400, "reason: is required"},
		{endOctober, `{"reason":""}`, 400, "reason: is required"},
		{endOctober, `{"reason":"` + strings.Repeat("x", 257) + `"}`, 400, "reason: must be at most 256 bytes"},
		{endOctober, `{"reason":"r","at":"yesterday"}`, 400, "at"},
		{endOctober, `{"reason":"r","at":"2026-10-01T00:00:00Z"}`, 400, "at: must be after the start of season"},
		{endOctober, `{"reason":"r","at":"2026-11-01T00:00:00Z"}`, 400, "at: must be after the start of season"},
		{endOctober, `{"reason":"r"}`, 400, "at: must be after the start of season"},
		{endOctober, `{"reason":"r","when":1}`, 400, "when"},
		{"/v1/boards/cup/seasons/202611:end", `{"reason":"r","at":"2026-11-01T12:00:00.000001Z"}`, 400, "at: must not be after the server's time"},
		{"/v1/boards/cup/seasons/202612:end", `{"reason":"r","dry_run":true}`, 400, "at: must be after the start of season"},
		{"/v1/boards/cup/seasons/2026W01:end", `{"reason":"r"}`, 404, "season"},
		{"/v1/boards/none/seasons/202610:end", `{"reason":"r"}`, 404, "board"},
	} {
		a := h.do("admin", "POST", tt.path, tt.body)
		if a.status != tt.status || !strings.Contains(a.raw, tt.want) {
			t.Errorf("%s %s: %d %s, want %d with %q", tt.path, tt.body, a.status, a.raw, tt.status, tt.want)
		}
	}
	h.must("admin", "POST", endOctober, `{"reason":"r","at":"2026-10-20T00:00:00Z"}`)
	if a := h.do("admin", "POST", endOctober, `{"reason":"r","at":"2026-10-21T00:00:00Z"}`); a.status != 400 || !strings.Contains(a.raw, "was ended then") {
		t.Errorf("a later end: %d %s, want 400", a.status, a.raw)
	}
	later := firstOfNovember.Add(72 * time.Hour)
	clock.Store(&later)
	if a := h.do("admin", "POST", endOctober, `{"reason":"r","at":"2026-10-19T00:00:00Z"}`); a.status != 400 || !strings.Contains(a.raw, "closed at 2026-11-04T12:00:00Z") {
		t.Errorf("the end of a closed season: %d %s, want 400", a.status, a.raw)
	}
	const imported = `{"reason":"import","at":"2026-10-19T00:00:00Z","decided_at":"2026-10-19T01:00:00Z"}`
	if season := get(h.must("admin", "POST", endOctober, imported), "season"); get(season, "end") != "2026-10-19T00:00:00Z" || get(season, "status") != "closed" {
		t.Errorf("an imported end of a closed season: %v, want the imported end and the status closed", season)
	}
	for include, want := range map[string]bool{"": false, "?include_ends=true": true} {
		if a := h.do("admin", "GET", "/v1/boards/cup/results"+include, nil); strings.Contains(a.raw, `"end":{"season":"202610","at":"2026-10-19T00:00:00Z","decided_at":"2026-10-19T00:00:00Z"}`) != want {
			t.Errorf("export%s: %s; contains the early end: want %v", include, a.raw, want)
		}
	}
	_, err := h.client().EndSeason(h.as("admin"), &pb.EndSeasonRequest{Board: "cup", Season: "202611", Reason: "r", At: timestamppb.New(later.Add(time.Hour))})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a future end over gRPC: %v, want INVALID_ARGUMENT", err)
	}
}

// The test computes the checksum from the pages of GET /scores, without code of the service.
func TestChecksumFollowsFromTheAPI(t *testing.T) {
	h, clock := newMonthlyHarness(t, firstOfNovember)
	var results []string
	for i := range 25 {
		results = append(results, fmt.Sprintf(`{"user_id":"user %d é","match_id":"m","score":%d,"tie_breakers":[%d],"achieved_at":"2026-10-20T08:00:00.%03dZ"}`, i, i%4, i%2, i*40))
	}
	h.must("submit", "POST", "/v1/boards/cup/scores:batch", `{"results":[`+strings.Join(results, ",")+`]}`)
	if a := h.do("read", "GET", "/v1/boards/cup/seasons/202610?checksum=true", nil); a.status != http.StatusConflict || a.reason() != "NOT_SEALED" {
		t.Errorf("checksum of an open season: %d %s, want 409 NOT_SEALED", a.status, a.raw)
	}
	later := firstOfNovember.Add(100 * time.Hour)
	clock.Store(&later)
	if err := h.service.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	fromAPI := func() string {
		hash := sha256.New()
		path := "/v1/boards/cup/scores?season=202610&limit=10"
		for token := ""; ; {
			data := get(h.must("read", "GET", path+token, nil), "data")
			for _, e := range get(data, "leaderboard").([]any) {
				var ties []string
				for _, tie := range get(e, "tie_breakers").([]any) {
					ties = append(ties, fmt.Sprint(tie))
				}
				fmt.Fprintf(hash, "%s\t%s\t%s\t%s\n", get(e, "user_id"), get(e, "score"), strings.Join(ties, ","), get(e, "achieved_at"))
			}
			nextToken, _ := get(data, "next_page_token").(string)
			if nextToken == "" {
				return fmt.Sprintf("%x", hash.Sum(nil))
			}
			token = "&page_token=" + nextToken
		}
	}
	var last any
	for _, change := range []func(){
		func() {},
		func() {
			h.must("admin", "PATCH", "/v1/boards/cup/results/user%203%20%C3%A9/m", `{"score":900,"season":"202610","reason":"late video"}`)
		},
		func() { h.must("admin", "POST", "/v1/users/user%207%20%C3%A9:ban", `{}`) },
	} {
		later = later.Add(time.Minute)
		clock.Store(&later)
		change()
		got := get(h.must("read", "GET", "/v1/boards/cup/seasons/202610?checksum=true", nil), "data", "checksum")
		if got != fromAPI() || got == last {
			t.Errorf("checksum: %v, want %s, and not the checksum %v from before the change", got, fromAPI(), last)
		}
		last = got
	}
	if a := h.must("read", "GET", "/v1/boards/cup/seasons/202610", nil); get(a, "data", "checksum") != nil || get(a, "data", "status") != "sealed" || get(a, "data", "entrants") != number(24) {
		t.Errorf("season without checksum=true: %v, want it sealed, with 24 entrants and no checksum", a)
	}
	res, err := h.client().GetSeason(h.as("read"), &pb.GetSeasonRequest{Board: "cup", Season: "latest", Checksum: true})
	if err != nil || res.GetData().GetChecksum() != last || res.GetData().GetId() != "202610" {
		t.Errorf("over gRPC: %v, %v; want season 202610 with the checksum %v", res, err, last)
	}
	for path, want := range map[string]int{"202610?checksum=maybe": 400, "202610?sum=true": 400, "2026": 404, "202612?checksum=true": 409} {
		if a := h.do("read", "GET", "/v1/boards/cup/seasons/"+path, nil); a.status != want {
			t.Errorf("GET %s: %d %s, want %d", path, a.status, a.raw, want)
		}
	}
}

func TestListSeasonsHasPages(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	h := newHarness(t, Options{Now: func() time.Time { return now }, PublicRead: true})
	h.createBoard(`{"board_id":"daily","policy":"SUM","season":{"schedule":"DAILY","grace":"8640000s"}}`)
	var want []string
	for d := range 25 {
		at := now.AddDate(0, 0, -d)
		want = append(want, at.Format("20060102"))
		h.must("submit", "POST", "/v1/boards/daily/scores", fmt.Sprintf(`{"user_id":"ann","match_id":"m","points":1,"achieved_at":%q}`, at.Format(time.RFC3339)))
	}
	var got []string
	path, pages := "/v1/boards/daily/seasons?limit=10", 0
	for token := ""; ; {
		data := get(h.must("", "GET", path+"&page_token="+token, nil), "data")
		seasons, _ := get(data, "seasons").([]any)
		for _, s := range seasons {
			got = append(got, fmt.Sprint(get(s, "id")))
		}
		pages++
		if token, _ = get(data, "next_page_token").(string); token == "" || pages > len(want) {
			break
		}
	}
	if pages != 3 || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%d pages have the seasons %q, want 3 pages with %q", pages, got, want)
	}
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=1001": "limit", "limit=-1": "limit", "page_token=%21": "page_token", "page_token=eA": "page_token", "page_token=MjAyNjEx": "page_token",
	} {
		if a := h.do("read", "GET", "/v1/boards/daily/seasons?"+query, nil); a.status != http.StatusBadRequest || strings.Join(a.violations(), " ") != field {
			t.Errorf("%s: %d %s, want 400 for the field %s", query, a.status, a.raw, field)
		}
	}
}
