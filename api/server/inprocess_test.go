package server

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

type echo struct {
	pb.UnimplementedLeaderboardServiceServer
	pb.UnimplementedAdminServiceServer
	begun, ended chan struct{} // if not nil, closed when a watch begins and when it ends
}

func (echo) GetBoard(ctx context.Context, req *pb.GetBoardRequest) (*pb.GetBoardResponse, error) {
	if req.GetBoard() == "missing" {
		return nil, status.Error(codes.NotFound, "missing")
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if err := grpc.SetHeader(ctx, metadata.Pairs("seen", md.Get("sent")[0])); err != nil {
		return nil, err
	}
	if err := grpc.SetTrailer(ctx, metadata.Pairs("end", "yes")); err != nil {
		return nil, err
	}
	method, _ := grpc.Method(ctx)
	return &pb.GetBoardResponse{Board: &pb.Board{BoardId: req.GetBoard(), Title: method}}, nil
}

func (e echo) WatchScores(req *pb.WatchScoresRequest, stream pb.LeaderboardService_WatchScoresServer) error {
	if e.begun != nil {
		close(e.begun)
		defer close(e.ended)
	}
	m := &pb.WatchScoresResponse{}
	switch req.GetBoard() {
	case "missing":
		return status.Error(codes.NotFound, "missing")
	case "silent":
		<-stream.Context().Done()
		return stream.Context().Err()
	case "endless":
		for {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
	}
	for _, id := range []string{"1", "2", "3"} {
		m.EventId = id // the handler may change a message that it has sent
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	if req.GetBoard() == "breaks" {
		return status.Error(codes.Unavailable, "broken")
	}
	return nil
}

func connections(t *testing.T, serve func(grpc.ServiceRegistrar), unary []grpc.UnaryServerInterceptor, stream []grpc.StreamServerInterceptor) map[string]grpc.ClientConnInterface {
	local := newInProcessConn(&sync.WaitGroup{}, unary, stream)
	serve(local)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(stream...))
	serve(server)
	listener := bufconn.Listen(1 << 16)
	go server.Serve(listener)
	remote, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remote.Close(); server.Stop() })
	return map[string]grpc.ClientConnInterface{"in process": local, "remote": remote}
}

func TestInProcessCallsBehaveAsRemoteCalls(t *testing.T) {
	var order []string
	note := func(name string) grpc.UnaryServerInterceptor {
		return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			order = append(order, name+info.FullMethod)
			return next(ctx, req)
		}
	}
	noteStream := func(name string) grpc.StreamServerInterceptor {
		return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			order = append(order, name+info.FullMethod)
			return next(srv, ss)
		}
	}
	conns := connections(t, func(r grpc.ServiceRegistrar) { pb.RegisterLeaderboardServiceServer(r, &echo{}) },
		[]grpc.UnaryServerInterceptor{note("a"), note("b")}, []grpc.StreamServerInterceptor{noteStream("a"), noteStream("b")})
	for name, conn := range conns {
		t.Run(name, func(t *testing.T) {
			order = nil
			c := pb.NewLeaderboardServiceClient(conn)
			ctx := metadata.AppendToOutgoingContext(t.Context(), "sent", "yes")
			var header, trailer metadata.MD
			res, err := c.GetBoard(ctx, &pb.GetBoardRequest{Board: "b"}, grpc.Header(&header), grpc.Trailer(&trailer))
			if err != nil || res.GetBoard().GetBoardId() != "b" || res.GetBoard().GetTitle() != pb.LeaderboardService_GetBoard_FullMethodName {
				t.Errorf("GetBoard answers %v, %v; want board b with the method's name as its title", res, err)
			}
			if !slices.Equal(header.Get("seen"), []string{"yes"}) || !slices.Equal(trailer.Get("end"), []string{"yes"}) {
				t.Errorf("header %v, trailer %v; want seen: yes and end: yes", header, trailer)
			}
			if want := []string{"a" + pb.LeaderboardService_GetBoard_FullMethodName, "b" + pb.LeaderboardService_GetBoard_FullMethodName}; !slices.Equal(order, want) {
				t.Errorf("the interceptors ran in the order %v, want %v", order, want)
			}
			if _, err := c.GetBoard(ctx, &pb.GetBoardRequest{Board: "missing"}); status.Code(err) != codes.NotFound {
				t.Errorf("GetBoard of board \"missing\": %v, want NOT_FOUND", err)
			}
			if _, err := c.ListBoards(ctx, &pb.ListBoardsRequest{}); status.Code(err) != codes.Unimplemented {
				t.Errorf("call of a method that echo does not implement: %v, want UNIMPLEMENTED", err)
			}
			if err := conn.Invoke(ctx, "/nothing/Nothing", &pb.GetBoardRequest{}, &pb.GetBoardResponse{}); status.Code(err) != codes.Unimplemented {
				t.Errorf("call of an unknown service: %v, want UNIMPLEMENTED", err)
			}

			watch := func(board string) ([]string, error) {
				stream, err := c.WatchScores(ctx, &pb.WatchScoresRequest{Board: board})
				if err != nil {
					return nil, err
				}
				if _, err := stream.Header(); err != nil && status.Code(err) != codes.NotFound {
					return nil, err
				}
				var ids []string
				for {
					m, err := stream.Recv()
					if errors.Is(err, io.EOF) {
						return ids, nil
					}
					if err != nil {
						return ids, err
					}
					ids = append(ids, m.GetEventId())
				}
			}
			if ids, err := watch("b"); err != nil || !slices.Equal(ids, []string{"1", "2", "3"}) {
				t.Errorf("the stream of board \"b\" has the events %v, error %v; want 1, 2, 3 and nil", ids, err)
			}
			if ids, err := watch("breaks"); status.Code(err) != codes.Unavailable || len(ids) != 3 {
				t.Errorf("the stream of board \"breaks\" has the events %v, error %v; want three and UNAVAILABLE", ids, err)
			}
			if ids, err := watch("missing"); status.Code(err) != codes.NotFound || len(ids) != 0 {
				t.Errorf("the stream of board \"missing\" has the events %v, error %v; want none and NOT_FOUND", ids, err)
			}
		})
	}
}

func TestInProcessStreamEndsWithItsCaller(t *testing.T) {
	for _, board := range []string{"silent", "endless"} {
		service := &echo{begun: make(chan struct{}), ended: make(chan struct{})}
		local := newInProcessConn(&sync.WaitGroup{}, nil, nil)
		pb.RegisterLeaderboardServiceServer(local, service)
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := pb.NewLeaderboardServiceClient(local).WatchScores(ctx, &pb.WatchScoresRequest{Board: board})
		if err != nil {
			t.Fatal(err)
		}
		<-service.begun
		if board == "endless" {
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		<-service.ended
		if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
			t.Errorf("board %q: Recv after the cancellation: %v, want CANCELED", board, err)
		}
		if _, err := stream.Header(); board == "silent" && status.Code(err) != codes.Canceled {
			t.Errorf("board %q: Header after the cancellation: %v, want CANCELED", board, err)
		}
	}
}

// Caller and handler may change the fields of their own copies.
func TestInProcessCallsCopyMessages(t *testing.T) {
	local := newInProcessConn(&sync.WaitGroup{}, nil, nil)
	service := &recorder{}
	pb.RegisterAdminServiceServer(local, service)
	req := &pb.CreateKeyRequest{Name: "n", Scopes: []string{"read"}}
	res, err := pb.NewAdminServiceClient(local).CreateKey(t.Context(), req)
	if err != nil || res.GetSecret() != "s" {
		t.Fatalf("CreateKey answers %v, %v; want the secret s", res, err)
	}
	req.Name, res.Secret = "changed", "changed"
	if service.req.GetName() != "n" || service.req.GetScopes()[0] != "read" || service.res.GetSecret() != "s" {
		t.Errorf("after the caller changed its messages, the handler has %v and %v, want them unchanged", service.req, service.res)
	}
	if err := copyMessage(&pb.Key{}, &pb.Board{}); status.Code(err) != codes.Internal {
		t.Errorf("copyMessage between two types: %v, want INTERNAL", err)
	}
	if _, err := local.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/nothing/Nothing"); status.Code(err) != codes.Unimplemented {
		t.Errorf("NewStream of an unknown method: %v, want UNIMPLEMENTED", err)
	}
}

type recorder struct {
	pb.UnimplementedAdminServiceServer
	req *pb.CreateKeyRequest
	res *pb.CreateKeyResponse
}

func (k *recorder) CreateKey(_ context.Context, req *pb.CreateKeyRequest) (*pb.CreateKeyResponse, error) {
	k.req, k.res = req, &pb.CreateKeyResponse{Secret: "s"}
	return k.res, nil
}

func BenchmarkInProcessCall(b *testing.B) {
	conn := newInProcessConn(&sync.WaitGroup{}, nil, nil)
	pb.RegisterAdminServiceServer(conn, &recorder{})
	c := pb.NewAdminServiceClient(conn)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.CreateKey(b.Context(), &pb.CreateKeyRequest{Name: "n", Scopes: []string{"read"}}); err != nil {
			b.Fatal(err)
		}
	}
}
