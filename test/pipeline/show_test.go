package pipeline

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// show returns v as JSON, for a message or a comparison.
func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// metric returns the value of a metric without labels, as a node tells it.
func metric(t *testing.T, n *deployment.Node, name string) string {
	t.Helper()
	resp, err := http.Get(n.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("no metric %s in %.300s", name, body)
	return ""
}
