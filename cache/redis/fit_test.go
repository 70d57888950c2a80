package redis

import (
	"maps"
	"strings"
	"testing"
)

func TestFit(t *testing.T) {
	good := map[string]string{"run_id": "a", "master_replid2": "b", "maxmemory": "0"}
	for _, tt := range []struct {
		name   string
		fields map[string]string
		want   string // part of the error, or empty if no error is wanted
	}{
		{"a single server", map[string]string{"redis_mode": "standalone"}, ""},
		{"a server of a cluster", map[string]string{"redis_mode": "cluster"}, ""},
		{"an old server", map[string]string{"master_replid2": ""}, "Redis 7 or later"},
		{"a server that evicts keys", map[string]string{"maxmemory": "1", "maxmemory_policy": "allkeys-lru"}, "noeviction"},
	} {
		fields := maps.Clone(good)
		maps.Copy(fields, tt.fields)
		err := checkFit(fields)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: checkFit = %v, want an error with %q (empty: want nil)", tt.name, err, tt.want)
		}
	}
}
