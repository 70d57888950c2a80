package server

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"text/tabwriter"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// The rights of all methods in one place, for reviewers: a change of a door changes this file.
func TestDoors(t *testing.T) {
	idempotency := map[string]string{}
	eachMethod(func(method string, md protoreflect.MethodDescriptor) {
		idempotency[method] = md.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel().String()
	})
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "method\tscope\treach\tmax_bytes\tidempotency_level")
	for _, method := range slices.Sorted(maps.Keys(doors)) {
		d := doors[method]
		fmt.Fprintf(w, "%s\t%s\t%v\t%d\t%v\n", method, cmp.Or(d.scope.String(), "public"), d.reach, d.maxBytes, cmp.Or(idempotency[method], "-"))
	}
	w.Flush()
	const golden = "testdata/doors.txt"
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(out.Bytes(), want) {
		t.Errorf("doors:\n%s\nwant %s, %v:\n%s\nIf the change is intended, run the test with -update.", &out, golden, err, want)
	}
}

func TestUnknownMethodsAreClosed(t *testing.T) {
	if d := doorOf("/leaderboard.v1.LeaderboardService/None"); d.scope.String() != "nobody" || d.reach.String() != "EVERY_BOARD" {
		t.Errorf("the door of an unknown method has the scope %s and the reach %v, want nobody and EVERY_BOARD", d.scope, d.reach)
	}
}
