package main

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

func TestBallastRaisesTheHeapGoal(t *testing.T) {
	for _, tt := range []struct {
		gogc string
		want bool
	}{{"", true}, {"50", false}} {
		t.Run("GOGC="+tt.gogc, func(t *testing.T) {
			t.Setenv("GOGC", tt.gogc)
			before := heapGoal()
			ballast := newBallast()
			rise := heapGoal() - before // other tests of the process leave objects behind
			runtime.KeepAlive(ballast)
			if (rise >= ballastBytes) != tt.want {
				t.Errorf("the collector lets the heap grow by %d bytes more; want at least %d: %v", rise, ballastBytes, tt.want)
			}
		})
	}
}

// heapGoal returns the size to which the collector lets the heap grow.
func heapGoal() int64 {
	for range 2 { // the first collection may be about to end
		runtime.GC()
	}
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(goal)
	return int64(goal[0].Value.Uint64())
}
