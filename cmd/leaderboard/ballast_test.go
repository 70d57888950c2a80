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
			ballast := newBallast()
			runtime.GC()
			goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
			metrics.Read(goal)
			runtime.KeepAlive(ballast)
			if got := goal[0].Value.Uint64(); (got >= 2*ballastBytes) != tt.want {
				t.Errorf("the collector lets the heap grow to %d bytes; want at least %d: %v", got, 2*ballastBytes, tt.want)
			}
		})
	}
}
