package canonical

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

func (c *Client) useGRPC(address string, dial dialer) error {
	delays := backoff.DefaultConfig
	delays.MaxDelay = 10 * time.Second
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // dial performs the handshake
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) }),
		// After an outage, calls succeed again within the longest delay.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: delays}),
		// Servers accept pings every 5 minutes. The timeout also closes a connection whose peer has vanished.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 5 * time.Minute, Timeout: 20 * time.Second}),
	)
	if err != nil {
		return fmt.Errorf("canonical: %w", err)
	}
	client := pb.NewCanonicalResultServiceClient(conn)
	c.close = conn.Close
	c.fetch = func(ctx context.Context, k Key) (*pb.GetCanonicalResultResponse, error) {
		ctx = metadata.NewOutgoingContext(ctx, metadata.New(c.headers(k)))
		answer, err := client.GetCanonicalResult(ctx, &pb.GetCanonicalResultRequest{BoardId: string(k.Board), UserId: string(k.User), MatchId: string(k.Match)})
		if err != nil {
			return nil, fromStatus(status.Convert(err))
		}
		return answer, nil
	}
	return nil
}

func fromStatus(s *status.Status) *Error {
	switch s.Code() {
	case codes.NotFound:
		return failure(NotFound, "the store does not have the result (NOT_FOUND)")
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange, codes.DataLoss:
		return failure(Invalid, "the store refuses the request with the status %v: %.200q", s.Code(), s.Message())
	}
	e := failure(Unavailable, "the call ends with the status %v: %.500s", s.Code(), s.Message())
	for _, d := range s.Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok {
			e.RetryAfter = min(max(retry.GetRetryDelay().AsDuration(), 0), maxRetryAfter)
		}
	}
	return e
}
