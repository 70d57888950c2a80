package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"google.golang.org/grpc"

	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// anonymousLifetime is the longest lifetime of a stream without a key. Each stream has a random lifetime
// from half of it, so that clients do not reconnect all at once.
const anonymousLifetime = time.Hour

var errExpired = errors.New("server: the lifetime of the stream has ended")

// streamPool counts concurrent streams, by key or address.
type streamPool struct {
	mu       sync.Mutex
	total    int
	bySource map[string]int
}

// add counts a stream until done is called. It returns an error if the pool has most streams, or
// mostOfSource streams of the source.
func (p *streamPool) add(source string, most, mostOfSource int) (done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.total >= most:
		return nil, tooManyError(pb.Error_TOO_MANY_WATCHERS, fmt.Sprintf("the server already has %d streams like this one; try again later", p.total))
	case p.bySource[source] >= mostOfSource:
		return nil, tooManyError(pb.Error_TOO_MANY_WATCHERS, fmt.Sprintf("this key, or this address, already has %d streams; end some of them first", p.bySource[source]))
	}
	if p.bySource == nil {
		p.bySource = map[string]int{}
	}
	p.total++
	p.bySource[source]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.total--
		if p.bySource[source]--; p.bySource[source] == 0 {
			delete(p.bySource, source)
		}
	}, nil
}

func (p *streamPool) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

// limitStream counts a stream in the pool of its caller, and ends a stream without a key after its
// lifetime. Streams of administrators, such as exports, are not limited.
func (s *Server) limitStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	scope, a := doorOf(info.FullMethod).scope, admissionFrom(ss.Context())
	if scope == auth.Admin {
		return next(srv, ss)
	}
	pool, most, mostOfSource := &s.watches, s.options.MaxWatchers, s.options.MaxCallerWatchers
	open := a.anonymous() && !s.options.Insecure
	switch {
	case open:
		pool, most, mostOfSource = &s.anonymousStreams, s.options.MaxAnonymousStreams, s.options.MaxPeerStreams
	case s.options.Insecure:
		mostOfSource = most
	case scope == auth.Public:
		pool = &s.probes
	}
	done, err := pool.add(a.source, most, mostOfSource)
	if err != nil {
		return err
	}
	defer done()
	if !open {
		return next(srv, ss)
	}
	ctx, cancel := context.WithTimeoutCause(ss.Context(), s.anonymousLifetime/2+rand.N(s.anonymousLifetime/2), errExpired)
	defer cancel()
	limited := middleware.WrapServerStream(ss)
	limited.WrappedContext = ctx
	return streamError(ctx, next(srv, limited))
}
