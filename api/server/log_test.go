package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

func (h *harness) logLines(message string) (lines []map[string]any) {
	h.t.Helper()
	for text := range strings.Lines(h.log.String()) {
		line := map[string]any{}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			h.t.Fatalf("line %s: %v", text, err)
		}
		if line["msg"] == message {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestCallsAreLogged(t *testing.T) {
	for _, all := range []bool{false, true} {
		h := newHarness(t, Options{LogCalls: all})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.http.URL+"/v1/scores/nobody", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+h.keys["read"])
		req.Header.Set("X-Request-Id", "rest-1")
		h.send(req)
		var header metadata.MD
		ctx := metadata.AppendToOutgoingContext(h.as("read"), "x-request-id", "grpc-1")
		if _, err := h.client().ListBoards(ctx, &pb.ListBoardsRequest{}, grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		if got := header.Get("x-request-id"); len(got) != 1 || got[0] != "grpc-1" {
			t.Errorf("the metadata of the answer has the request id %v, want grpc-1", got)
		}
		level := map[bool]string{false: "DEBUG", true: "INFO"}[all]
		for i, want := range []map[string]any{
			{"method": "GetUserScore", "code": "NotFound", "client": "127.0.0.1", "request_id": "rest-1"},
			{"method": "ListBoards", "code": "OK", "client": "127.0.0.1", "request_id": "grpc-1"},
		} {
			lines := h.logLines("call")
			if len(lines) != 2 {
				t.Fatalf("the log has %d lines about calls, want 2: %v", len(lines), lines)
			}
			for key, value := range want {
				if lines[i][key] != value {
					t.Errorf("%s is %v, want %v in %v", key, lines[i][key], value, lines[i])
				}
			}
			if seconds, _ := lines[i]["seconds"].(float64); seconds <= 0 || seconds > 60 {
				t.Errorf("the line has seconds %v, want more than 0 and at most 60", lines[i]["seconds"])
			}
			if caller, _ := lines[i]["caller"].(string); !strings.HasPrefix(caller, "key:") || lines[i]["level"] != level {
				t.Errorf("the caller is %q and the level %v, want a caller with the prefix key: and the level %s", caller, lines[i]["level"], level)
			}
		}
	}
}

func TestFaultsAreLoggedAsErrors(t *testing.T) {
	h := newHarness(t, Options{LogCalls: true, Backup: func(context.Context, string) error { panic("disk") }})
	h.do("admin", "POST", "/v1/admin/backup", `{}`)
	if lines := h.logLines("call"); len(lines) != 1 || lines[0]["level"] != "ERROR" {
		t.Errorf("the log has the calls %v, want one at level ERROR", lines)
	}
}

// The log omits the reasons of acts, because reasons may contain personal data.
func TestAdministrativeActsAreLogged(t *testing.T) {
	h := newHarness(t, Options{})
	h.must("admin", "POST", "/v1/boards", `{"board_id":"cup"}`)
	h.must("admin", "POST", "/v1/users/mallory:ban", `{"board":"cup","reason":"Mallory Smith"}`)
	key := get(h.must("admin", "POST", "/v1/keys", `{"name":"k","scopes":["read"]}`), "key", "key_id").(string)
	h.must("admin", "DELETE", "/v1/keys/"+key, nil)
	if a := h.do("admin", "POST", "/v1/boards", `{"board_id":"cup","order":"LOWER_FIRST"}`); a.status != http.StatusConflict {
		t.Fatalf("create a board that exists with other rules: %d %s, want 409", a.status, a.raw)
	}
	lines, acts := h.logLines("administrative act"), h.acts("")
	want := []map[string]any{
		{"action": "board.create", "board": "cup", "user": nil, "err": nil},
		{"action": "ban", "board": "cup", "user": "mallory"},
		{"action": "key.create", "key": key},
		{"action": "key.revoke", "key": key, "board": nil},
	}
	if len(lines) != len(want) {
		t.Fatalf("the log has %d lines about acts, want %d: %v", len(lines), len(want), lines)
	}
	for i, fields := range want {
		for key, value := range fields {
			if lines[i][key] != value {
				t.Errorf("%s is %v, want %v in %v", key, lines[i][key], value, lines[i])
			}
		}
		act := acts[len(acts)-1-i]
		if lines[i]["actor"] != act["actor"] || lines[i]["request_id"] != act["request_id"] || lines[i]["client"] != "127.0.0.1" {
			t.Errorf("line %v and the record %v differ, want the same actor and request id, and the client 127.0.0.1", lines[i], act)
		}
	}
	if strings.Contains(h.log.String(), "Mallory Smith") {
		t.Error("the log contains the reason of a ban, want no reasons")
	}
}
