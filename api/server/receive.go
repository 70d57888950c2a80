package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
)

const (
	// anonymousReceiveTimeout bounds the time that a caller without a key takes to send
	// a message or a body.
	anonymousReceiveTimeout = 5 * time.Second
	// anonymousReceives bounds how many messages and bodies of callers without a key the
	// server receives concurrently from one address. The bound is needed because the
	// server buffers a whole message before it can check the message. A message has up to
	// maxBatchBytes over gRPC, and a body without a key up to maxLookupBytes.
	anonymousReceives = 4
)

// startReceive returns the time that a caller may take to send a message or a body. A
// caller without a key first waits for one of the slots of its address, at most for the
// same time. The server must call release once it has received the message.
func (s *Server) startReceive(ctx context.Context, a *admission) (limit time.Duration, release func(), err error) {
	limit = s.options.ReceiveTimeout
	if !a.anonymous() || s.options.Insecure {
		return limit, func() {}, nil
	}
	limit = min(limit, anonymousReceiveTimeout)
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if release, err = s.anonymous.acquire(waiting, a.source, anonymousReceives); err != nil {
		return 0, nil, tooMany("TOO_MANY_MESSAGES", "this address is sending too many messages without a key at the same time; try again later")
	}
	return limit, release, nil
}

// receive receives the message of a gRPC call that the guard has admitted. It returns an
// error if the message does not arrive in time; gRPC itself has no such timeout.
func (s *Server) receive(ctx context.Context, raw *rawMessage, recv func(any) error) error {
	limit, release, err := s.startReceive(ctx, admissionFrom(ctx))
	if err != nil {
		return err
	}
	var received rawMessage
	done := make(chan error, 1)
	go func() {
		defer release() // if receive returns earlier, gRPC ends the call, and then recv returns
		done <- recv(&received)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		*raw = received
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return newStatus(codes.DeadlineExceeded, fmt.Sprintf("the message did not arrive within %v; send it again", limit), errorInfo("TIMEOUT"))
	}
}

// slots limits how many operations with the same key run concurrently. The zero value is
// ready for use.
type slots struct {
	mu    sync.Mutex
	byKey map[string]*slot
}

type slot struct {
	*semaphore.Weighted
	users int // the number of callers that wait for the semaphore or have acquired it
}

// acquire waits for one of the n slots of a key. It returns an error if ctx is done.
// Otherwise the caller must call release.
func (s *slots) acquire(ctx context.Context, key string, n int64) (release func(), err error) {
	s.mu.Lock()
	if s.byKey == nil {
		s.byKey = map[string]*slot{}
	}
	one := s.byKey[key]
	if one == nil {
		one = &slot{Weighted: semaphore.NewWeighted(n)}
		s.byKey[key] = one
	}
	one.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(s.byKey, key)
		}
	}
	if err := one.Acquire(ctx, 1); err != nil {
		leave()
		return nil, err
	}
	return func() { one.Release(1); leave() }, nil
}
