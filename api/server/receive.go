package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

const (
	// anonymousReceiveTimeout bounds the time that a caller without a key takes to send a message.
	anonymousReceiveTimeout = 5 * time.Second
	// anonymousReceives bounds the messages that one address sends concurrently without a key,
	// because the server buffers them.
	anonymousReceives = 4
)

// startReceive returns the time that a caller may take to send a message or a body. A caller
// without a key first waits, for at most this time, for a slot of its address. The server must call
// release after it has received the message.
func (s *Server) startReceive(ctx context.Context, a *admission) (limit time.Duration, release func(), err error) {
	limit = s.options.ReceiveTimeout
	if !a.anonymous() || s.options.Insecure {
		return limit, func() {}, nil
	}
	limit = min(limit, s.anonymousTimeout)
	waitCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if release, err = s.anonymous.acquire(waitCtx, a.source, anonymousReceives); err != nil {
		return 0, nil, tooManyError(pb.Error_TOO_MANY_MESSAGES, "this address is sending too many messages without a key at the same time; try again later")
	}
	return limit, release, nil
}

// receive receives the message of a gRPC call within the time that startReceive allows. gRPC itself
// has no such timeout.
func (s *Server) receive(ctx context.Context, raw *rawMessage, recv func(any) error) error {
	limit, release, err := s.startReceive(ctx, admissionFrom(ctx))
	if err != nil {
		return err
	}
	var received rawMessage
	done := make(chan error, 1)
	go func() {
		defer release() // if receive times out, gRPC ends the call, so recv returns
		defer func() {
			if p := recover(); p != nil {
				done <- s.panicError(p)
			}
		}()
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
		return slowMessageError(limit)
	}
}

// receiveBody calls read, which reads the body of r within the time that startReceive allows. It ignores
// errors of the ResponseController, as boundUnreadBody does.
func (s *Server) receiveBody(a *admission, w http.ResponseWriter, r *http.Request, read func() error) error {
	connection := http.NewResponseController(w)
	// boundUnreadBody has set a read deadline. startReceive may wait until after this deadline. Over
	// HTTP/2, a deadline that passes closes the body.
	_ = connection.SetReadDeadline(time.Time{})
	limit, release, err := s.startReceive(r.Context(), a)
	if err != nil {
		boundUnreadBody(w, r)
		return err
	}
	defer release()
	_ = connection.SetReadDeadline(time.Now().Add(limit))
	if err = read(); errors.Is(err, os.ErrDeadlineExceeded) {
		err = slowMessageError(limit)
	}
	return err
}

// readBody returns a body of at most limit bytes.
func readBody(w http.ResponseWriter, r *http.Request, limit int) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, bodyTooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, err
	case err != nil:
		return nil, errBodyEndedEarly
	}
	return data, nil
}

func bodyTooLarge(limit int) error {
	return newStatus(codes.OutOfRange, fmt.Sprintf("the body is longer than the %d bytes that are allowed", limit), errorInfo(pb.Error_BODY_TOO_LARGE))
}

// slowMessageError is the error for a message or body that arrived too slowly. Over REST, the status is
// 408.
func slowMessageError(limit time.Duration) error {
	return newStatus(codes.DeadlineExceeded, fmt.Sprintf("the request did not arrive within %v; send it again", limit), errorInfo(pb.Error_MESSAGE_TIMEOUT))
}

// slots limits how many operations run concurrently for a key, such as an address.
type slots struct {
	mu    sync.Mutex
	byKey map[string]*slot
}

type slot struct {
	*semaphore.Weighted
	callers int // number of callers that wait for the semaphore or have acquired it
}

// acquire waits for one of the n slots of a key. If the error is nil, the caller must call release.
func (s *slots) acquire(ctx context.Context, key string, n int64) (release func(), err error) {
	s.mu.Lock()
	if s.byKey == nil {
		s.byKey = map[string]*slot{}
	}
	sl := s.byKey[key]
	if sl == nil {
		sl = &slot{Weighted: semaphore.NewWeighted(n)}
		s.byKey[key] = sl
	}
	sl.callers++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if sl.callers--; sl.callers == 0 {
			delete(s.byKey, key)
		}
	}
	if err := sl.Acquire(ctx, 1); err != nil {
		leave()
		return nil, err
	}
	return func() { sl.Release(1); leave() }, nil
}
