package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// finalTables returns the lines of each final table that an export has, as text, by division.
func finalTables(t *testing.T, conn grpc.ClientConnInterface, h *harness, board string) map[string][]string {
	t.Helper()
	stream, err := pb.NewAdminServiceClient(conn).ExportResults(h.as("admin"), &pb.ExportResultsRequest{Board: board, IncludeStandings: true})
	if err != nil {
		t.Fatal(err)
	}
	tables, last := map[string][]string{}, map[string]int64{}
	for {
		res, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return tables
		}
		if err != nil {
			t.Fatal(err)
		}
		if st := res.GetStanding(); st != nil {
			e := st.GetEntry()
			key := st.GetSeason() + " " + st.GetDivision()
			if st.GetPosition() <= last[key] {
				t.Errorf("position %d of %s follows position %d in table %q, want ascending positions", st.GetPosition(), e.GetUserId(), last[key], key)
			}
			last[key] = st.GetPosition()
			ordinal := st.GetPosition()
			if e.Rank == nil {
				ordinal = 0 // lists have no ordinal rank of an entry with a status
			}
			tables[key] = append(tables[key], fmt.Sprint(e.GetUserId(), e.GetScore(), e.GetTieBreakers(), e.GetAchievedAt().AsTime(), e.GetStatus(), e.GetRank(), st.GetDenseRank(), ordinal))
		}
	}
}

// An export has the lines of each final table, with the ranks that the lists by the three methods have.
func TestExportedStandingsEqualTheLists(t *testing.T) {
	h, clock := newMonthlyHarness(t, firstOfNovember)
	h.createBoard(`{"board_id":"race","policy":"BEST","statuses":["DNF"],"divisions":["gender"],"season":{"schedule":"MONTHLY","grace":"259200s"}}`)
	for i := range 20 {
		for _, board := range []string{"cup", "race"} {
			status := ""
			if board == "race" && i%6 == 0 {
				status = `"status":"DNF",`
			}
			h.must("submit", "POST", "/v1/boards/"+board+"/scores", fmt.Sprintf(`{%s"user_id":"u%d","match_id":"m","score":%d,"achieved_at":"2026-10-20T08:00:%02dZ","attributes":{"gender":%q}}`,
				status, i, i/3, i, []string{"F", "M"}[i%2]))
		}
	}
	if got := finalTables(t, h.conn, h, "cup"); len(got) > 0 {
		t.Errorf("standings of an open season: %v, want none", got)
	}
	later := firstOfNovember.Add(100 * time.Hour)
	clock.Store(&later)
	if err := h.service.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.must("admin", "POST", "/v1/users/u7:erase", `{}`)
	for _, board := range []string{"cup", "race"} {
		want := map[string][]string{}
		for _, division := range []string{"", "gender:F", "gender:M"} {
			ranks := map[string][]int64{}
			for _, method := range []string{"dense", "ordinal", "competition"} {
				list, err := h.client().ListScores(h.as("read"), &pb.ListScoresRequest{Board: board, Season: "202610", Division: division, Method: method, Limit: new(int32(1000))})
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range list.GetData().GetLeaderboard() {
					ranks[e.GetUserId()] = append(ranks[e.GetUserId()], e.GetRank())
					if r := ranks[e.GetUserId()]; len(r) == 3 {
						want["202610 "+division] = append(want["202610 "+division], fmt.Sprint(e.GetUserId(), e.GetScore(), e.GetTieBreakers(), e.GetAchievedAt().AsTime(), e.GetStatus(), e.GetRank(), r[0], r[1]))
					}
				}
			}
		}
		got := finalTables(t, h.conn, h, board)
		if diff := cmp.Diff(want, got); diff != "" || len(want) != 3 {
			t.Errorf("standings of %s differ (-lists +export), %d tables:\n%s", board, len(want), diff)
		}
		if diff := cmp.Diff(finalTables(t, h.conn, h, board), finalTables(t, h.Local(), h, board)); diff != "" {
			t.Errorf("standings of %s over the local connection differ (-network +local):\n%s", board, diff)
		}
	}
}

func TestChangedAtFollowsEachChange(t *testing.T) {
	h, clock := newMonthlyHarness(t, firstOfNovember)
	changedAt := func() string {
		got, _ := get(h.must("read", "GET", "/v1/boards/cup/seasons/202610", nil), "data", "changed_at").(string)
		return got
	}
	if got := changedAt(); got != "" {
		t.Errorf("changed_at of a season without results: %s, want none", got)
	}
	for i, change := range []struct{ name, method, path, body string }{
		{"a result", "POST", "/v1/boards/cup/scores", `{"user_id":"ann","match_id":"m","score":10,"achieved_at":"2026-10-20T08:00:00Z"}`},
		{"a result that counts for nothing", "POST", "/v1/boards/cup/scores", `{"user_id":"ann","match_id":"n","score":1,"achieved_at":"2026-10-20T08:00:00Z"}`},
		{"a correction of metadata only", "PATCH", "/v1/boards/cup/results/ann/n", `{"metadata":{"bib":7},"season":"202610","reason":"r"}`},
		{"a ban", "POST", "/v1/users/ann:ban", `{}`},
		{"a retraction", "POST", "/v1/boards/cup/results/ann/n:retract", `{"season":"202610","reason":"r"}`},
		{"an erasure", "POST", "/v1/users/ann:erase", `{}`},
	} {
		now := firstOfNovember.Add(time.Duration(i+1) * time.Hour)
		clock.Store(&now)
		h.must("admin", change.method, change.path, change.body)
		if got, want := changedAt(), now.Format(time.RFC3339); got != want {
			t.Errorf("changed_at after %s: %s, want %s", change.name, got, want)
		}
	}
}

// A client cannot get the rights of the local connection, and the local connection needs no key.
func TestLocalConnectionNeedsNoKey(t *testing.T) {
	h := newHarness(t, Options{})
	keys := func(conn grpc.ClientConnInterface) error {
		_, err := pb.NewAdminServiceClient(conn).ListKeys(t.Context(), &pb.ListKeysRequest{})
		return err
	}
	if err := keys(h.Local()); err != nil {
		t.Errorf("ListKeys over the local connection: %v", err)
	}
	if err := keys(h.conn); status.Code(err) != codes.Unauthenticated {
		t.Errorf("ListKeys over the network without a key: %v, want UNAUTHENTICATED", err)
	}
	if a := h.do("", "GET", "/v1/keys", nil); a.status != http.StatusUnauthorized {
		t.Errorf("GET /v1/keys without a key: %d, want 401", a.status)
	}
}
