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
	// a message.
	anonymousReceiveTimeout = 5 * time.Second
	// anonymousReceives bounds the messages that the server receives concurrently from
	// one address without a key. gRPC buffers a whole message, of up to maxBatchBytes,
	// before the server can check it.
	anonymousReceives = 4
)

// receive receives the message of a call that the guard has admitted. It returns an
// error if the caller does not send the message in time. gRPC itself has no such limit.
func (s *Server) receive(ctx context.Context, raw *rawMessage, recv func(any) error) error {
	limit, release := s.options.ReceiveTimeout, func() {}
	if a := admissionFrom(ctx); a.anonymous() && !s.options.Insecure {
		limit = min(limit, anonymousReceiveTimeout)
		waiting, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		var err error
		if release, err = s.anonymous.acquire(waiting, a.source, anonymousReceives); err != nil {
			return tooMany("TOO_MANY_MESSAGES", "this address sends too many messages at once without a key; try again later")
		}
	}
	var received rawMessage
	done := make(chan error, 1)
	go func() {
		defer release() // if receive returns first, gRPC ends the call and recv returns
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

// slots limits concurrent work by key. The zero slots is ready for use.
type slots struct {
	mu    sync.Mutex
	byKey map[string]*slot
}

type slot struct {
	*semaphore.Weighted
	users int // callers that wait for the semaphore or hold it
}

// acquire waits for one of the n slots of a key. The caller must call release unless
// acquire returns an error.
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
