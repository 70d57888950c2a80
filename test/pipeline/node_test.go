package pipeline

import (
	"encoding/json"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// serveAPI starts an API node with long timeouts, because the machine may be busy.
func serveAPI(t *testing.T, d *deployment.Deployment) *deployment.Node {
	t.Helper()
	return d.Serve(t, "--roles=api", "--kafka-apply-wait=1m", "--request-timeout=2m")
}
