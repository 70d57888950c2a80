package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// recheckInterval is how often the server checks the credentials of a running stream.
const recheckInterval = 2 * time.Second

// prepareStream returns a context for the handler of a stream. The context is canceled
//
//   - when the context of the stream is done;
//   - when the server stops;
//   - soon after the caller's credentials expire or are revoked;
//   - soon after the board becomes private, if the caller has no credentials.
//
// board may be empty. The handler must send messages with the function send, and must call stop at
// its end. send returns when the context is done. stream.Send may wait without limit for the client.
func prepareStream[M any](s *Server, stream grpc.ServerStreamingServer[M], board leaderboard.BoardID) (ctx context.Context, send func(*M) error, stop context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(stream.Context())
	stopAfterFunc := context.AfterFunc(s.stopping, func() { cancel(errStopping) })
	if a := admissionFrom(ctx); !a.anonymous() || board != "" && a != nil && !s.options.Insecure {
		go s.recheck(ctx, a, board, cancel)
	}
	send = func(m *M) error { return s.sendUntil(ctx, func() error { return stream.Send(m) }) }
	return ctx, send, func() { stopAfterFunc(); cancel(nil) }
}

// sendUntil returns the error of send. If ctx is done first, it returns the error of ctx.
func (s *Server) sendUntil(ctx context.Context, send func() error) error {
	if err := ctx.Err(); err != nil {
		return err // an earlier call of send may still run
	}
	sent := make(chan error)
	go s.sendTo(ctx, send, sent)
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sendTo calls send, and passes the error to the channel sent unless ctx is done first. It recovers
// a panic of send. send returns at the latest when the gRPC call has ended.
func (s *Server) sendTo(ctx context.Context, send func() error, sent chan<- error) {
	pass := func(err error) bool {
		select {
		case sent <- err:
			return true
		case <-ctx.Done():
			return false
		}
	}
	defer func() {
		if p := recover(); p != nil {
			if err := s.panicError(p); !pass(err) {
				s.options.Log.ErrorContext(ctx, "panic after the end of a stream", "err", err)
			}
		}
	}()
	pass(send())
}

// recheck calls cancel when the caller's credentials have ended, or when the board of a caller
// without credentials has become private.
func (s *Server) recheck(ctx context.Context, a *admission, board leaderboard.BoardID, cancel context.CancelCauseFunc) {
	defer func() {
		if p := recover(); p != nil {
			cancel(s.panicError(p)) // without recheck, nothing checks the credentials
		}
	}()
	ticker := time.NewTicker(recheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if a.anonymous() {
			if _, err := s.publicBoard(ctx, board); errors.Is(err, leaderboard.ErrBoardNotFound) {
				cancel(err)
				return
			}
		} else if s.guard.Recheck(ctx, a.caller) != nil {
			cancel(errCredentialsEnded)
			return
		}
	}
}

var (
	errStopping         = errors.New("server: stopping")
	errCredentialsEnded = newStatus(codes.Unauthenticated, "the key or token of this stream expired or was revoked; call again with a valid one", errorInfo(pb.Error_UNAUTHENTICATED))
)

// streamError returns the error for the caller: the cause if the server canceled the stream, and
// otherwise err.
func streamError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errStopping):
		return reconnectStatus(pb.Error_SERVER_STOPPING, "the server is stopping; reconnect to reach another server")
	case errors.Is(cause, errExpired):
		return reconnectStatus(pb.Error_STREAM_EXPIRED, "a stream without a key has a limited lifetime; reconnect, or use a key")
	}
	for _, serverCause := range []error{errCredentialsEnded, leaderboard.ErrBoardNotFound, errPanic} {
		if errors.Is(cause, serverCause) {
			return cause
		}
	}
	return err
}

// reconnectStatus returns the error of a stream that the server ends. Its random delay keeps clients
// from reconnecting all at once.
func reconnectStatus(reason pb.Error_Reason, message string) error {
	delay := 500*time.Millisecond + rand.N(1500*time.Millisecond)
	return newStatus(codes.Unavailable, message, errorInfo(reason), &errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
}

// WatchScores sends the top of a ranking now and after each change.
func (s *Server) WatchScores(req *pb.WatchScoresRequest, stream pb.LeaderboardService_WatchScoresServer) error {
	q, err := toQuery(stream.Context(), req)
	if err != nil {
		return err
	}
	ctx, _, stop := prepareStream(s, stream, q.Board)
	defer stop()
	err = s.service.Watch(ctx, ranking.PageQuery{Query: q, Limit: orDefault(req.Limit, defaultLimit)}, func(page *ranking.WatchedPage) error {
		m := page.Form(encodeOnce)
		return s.sendUntil(ctx, func() error { return stream.SendMsg(m) })
	})
	return streamError(ctx, err)
}

// sharedMessage is a message for many streams. It is encoded once for all streams over gRPC, and once
// for all streams over REST. Streams over Connect and gRPC-Web use the encodings protobuf and json.
type sharedMessage struct {
	*pb.WatchScoresResponse
	protobuf func() ([]byte, error)
	json     func() ([]byte, error)
	event    func() ([]byte, error) // a server-sent event without its final newlines
}

func encodeOnce(page *ranking.Page) any {
	m := &pb.WatchScoresResponse{EventId: eventID(page), Data: fromPage(&page.About, page.Lines)}
	return &sharedMessage{
		WatchScoresResponse: m,
		protobuf:            sync.OnceValues(func() ([]byte, error) { return proto.Marshal(m) }),
		json:                sync.OnceValues(func() ([]byte, error) { return restjson.Append(nil, m) }),
		event: sync.OnceValues(func() ([]byte, error) {
			return restjson.Append(fmt.Appendf(nil, "id: %s\ndata: ", m.EventId), m.Data)
		}),
	}
}

// eventID returns the id of an event: the time of the last change, in microseconds.
func eventID(page *ranking.Page) string {
	if page.AsOf.IsZero() {
		return "0"
	}
	return strconv.FormatInt(page.AsOf.UnixMicro(), 10)
}
