// Package faults simulates servers that are down. Its Store and Index wrap a real store and index,
// for fast tests of other packages. The tests of this package kill, pause, disconnect and upgrade
// real servers and processes under load, and compare the result with an independent recount.
package faults

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Mode is the state of a simulated server.
type Mode int32

// The modes of a simulated server.
const (
	Up     Mode = iota // every call reaches the wrapped store or index
	Refuse             // every call fails at once
	Hang               // every call blocks until its context is done or the client times out
)

// clientTimeout is how long a client waits for a server in mode Hang.
const clientTimeout = 20 * time.Second

// Switch holds the mode of a simulated server. The zero value is Up.
type Switch struct{ mode atomic.Int32 }

// Set changes the mode. The new mode applies to calls that start afterwards.
func (s *Switch) Set(m Mode) { s.mode.Store(int32(m)) }

// check returns an error that wraps cause if the call must fail. In mode Hang, it blocks first.
func (s *Switch) check(ctx context.Context, call string, cause error) error {
	switch Mode(s.mode.Load()) {
	case Refuse:
		return fmt.Errorf("faults: %s: %w", call, cause)
	case Hang:
		ctx, cancel := context.WithTimeout(ctx, clientTimeout)
		defer cancel()
		<-ctx.Done()
		return fmt.Errorf("faults: %s: %w: %w", call, cause, ctx.Err())
	}
	return nil
}
