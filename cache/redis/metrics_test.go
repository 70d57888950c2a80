package redis

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseInfo(t *testing.T) {
	const memory = "# Memory\r\nused_memory:1048576\r\nused_memory_human:1.00M\r\nmaxmemory:2097152\r\n# Stats\r\nevicted_keys:3\r\n"
	for name, tt := range map[string]struct {
		info string
		want serverState
	}{
		"without replicas": {memory + "# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_repl_offset:0\r\n",
			serverState{used: 1 << 20, limit: 2 << 20, evicted: 3}},
		"the replica furthest behind counts": {"slave0:ip=10.0.0.2,port=6379,state=online,offset=900,lag=0\r\n" +
			"slave1:ip=10.0.0.3,port=6379,state=online,offset=700,lag=1\r\nmaster_repl_offset:1000\r\n",
			serverState{replicas: 2, lag: 300}},
		"a replica may be read after the master": {"slave0:ip=10.0.0.2,port=6379,state=online,offset=1001,lag=0\r\nmaster_repl_offset:1000\r\n",
			serverState{replicas: 1}},
		"no numbers": {"used_memory:many\r\n\r\nslave_read_only:1\r\n", serverState{}},
	} {
		if diff := cmp.Diff(tt.want, parseInfo(tt.info), cmp.AllowUnexported(serverState{})); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

func TestStatesOfMastersAdd(t *testing.T) {
	sum := serverState{used: 1, limit: 10, keys: 1, evicted: 1, slow: 1, replicas: 1, lag: 5, masters: 1}
	sum.add(serverState{used: 2, limit: 10, keys: 2, evicted: 0, slow: 3, replicas: 1, lag: 3, masters: 1})
	want := serverState{used: 3, limit: 20, keys: 3, evicted: 1, slow: 4, replicas: 2, lag: 5, masters: 2}
	if sum != want {
		t.Errorf("the sum is %+v, want %+v", sum, want)
	}
}
