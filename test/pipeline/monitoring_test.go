package pipeline

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/monitoring"
)

// All metrics of the dashboard and the alert rules must exist, except those of the embedded engine
// and its backups. No metric has the id of a board, a user or a match.
func TestMonitoringOfProcesses(t *testing.T) {
	d := deployment.New(t, deployment.Options{})
	n := d.Serve(t)
	board := n.Board(t, "secret-board", map[string]any{"policy": "SUM", "order": "HIGHER_FIRST", "season": map[string]any{"schedule": "NONE"}})
	body := map[string]any{"user_id": "secret-user", "match_id": "secret-match", "points": 5}
	if status, err := n.Call(t.Context(), http.MethodPost, "/v1/boards/"+board+"/scores", body, nil); err != nil || status/100 != 2 {
		t.Fatalf("submit: status %d, error %v", status, err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.URL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range monitoring.Unexposed(t, "../..", string(text), "leaderboard_embedded_", "leaderboard_backup_") {
		t.Errorf("%s is not exposed, want it in the answer to /metrics", name)
	}
	if strings.Contains(string(text), "secret") {
		t.Errorf("the metrics contain the id of a board, a user or a match, want none:\n%s", text)
	}
	for _, name := range []string{`cassandra_nodes{state="up"}`, "cassandra_connections", "redis_masters", "redis_used_memory_bytes", "redis_connections",
		"consumer_partitions", "consumer_visible_seconds_count", "api_visible_seconds_count"} {
		if v, err := n.Metric(t.Context(), "leaderboard_"+name); err != nil || v <= 0 {
			t.Errorf("leaderboard_%s is %v (%v), want more than 0", name, v, err)
		}
	}
}
