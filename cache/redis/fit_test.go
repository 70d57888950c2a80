package redis

import (
	"strings"
	"testing"
)

func TestFit(t *testing.T) {
	const good = "run_id:a\r\nmaster_replid2:b\r\nmaxmemory:0\r\n"
	for _, tt := range []struct {
		name, info string
		cluster    bool
		want       string // part of the error; empty for nil
	}{
		{"a single server", good + "redis_mode:standalone\r\n", false, ""},
		{"a server of a cluster, to a client of the cluster", good + "redis_mode:cluster\r\n", true, ""},
		{"a server of a cluster, to a client of a single server", good + "redis_mode:cluster\r\n", false, "two or more servers of the cluster in redis.addresses"},
		{"an old server", "run_id:a\r\n", false, "Redis 7 or later"},
		{"a server that evicts keys", "run_id:a\r\nmaster_replid2:b\r\nmaxmemory:1\r\nmaxmemory_policy:allkeys-lru\r\n", false, "noeviction"},
	} {
		err := fit(tt.info, tt.cluster)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: fit = %v, want %q", tt.name, err, tt.want)
		}
	}
}
