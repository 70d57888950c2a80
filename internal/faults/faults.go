// Package faults puts servers that are down between a service and its store or
// index, for tests.
package faults

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Mode is how a server is.
type Mode int32

const (
	Fine    Mode = iota
	Refuses      // every call at once
	Hangs        // every call until its context is done, or the client gives up
)

// clientTimeout is when a client gives up waiting.
const clientTimeout = 20 * time.Second

// Switch says how a server is. The zero value is fine.
type Switch struct{ mode atomic.Int32 }

// Set makes the server be in a mode from now on.
func (s *Switch) Set(m Mode) { s.mode.Store(int32(m)) }

// check returns what a call meets: nil, or an error that wraps down.
func (s *Switch) check(ctx context.Context, call string, down error) error {
	switch Mode(s.mode.Load()) {
	case Refuses:
		return fmt.Errorf("faults: %s: %w", call, down)
	case Hangs:
		ctx, cancel := context.WithTimeout(ctx, clientTimeout)
		defer cancel()
		<-ctx.Done()
		return fmt.Errorf("faults: %s: %w: %w", call, down, ctx.Err())
	}
	return nil
}
