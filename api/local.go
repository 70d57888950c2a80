package api

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// localConn is a client connection to services in the same process, for the
// REST gateway. Its calls pass the interceptors that calls over the network
// pass, but no frames, no encoding and no sockets. Values of the caller's
// context, such as the peer, reach the service.
type localConn struct {
	unary   grpc.UnaryServerInterceptor
	stream  grpc.StreamServerInterceptor
	unaries map[string]localUnary
	streams map[string]localStreamer
}

type localUnary struct {
	impl any
	desc grpc.MethodDesc
}

type localStreamer struct {
	impl any
	desc grpc.StreamDesc
}

var (
	_ grpc.ClientConnInterface = (*localConn)(nil)
	_ grpc.ServiceRegistrar    = (*localConn)(nil)
)

// newLocalConn returns a connection whose calls pass the interceptors, the first
// outermost.
func newLocalConn(unary []grpc.UnaryServerInterceptor, stream []grpc.StreamServerInterceptor) *localConn {
	return &localConn{
		unaries: map[string]localUnary{},
		streams: map[string]localStreamer{},
		unary: func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			for _, intercept := range slices.Backward(unary) {
				next := handler
				handler = func(ctx context.Context, req any) (any, error) { return intercept(ctx, req, info, next) }
			}
			return handler(ctx, req)
		},
		stream: func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			for _, intercept := range slices.Backward(stream) {
				next := handler
				handler = func(srv any, ss grpc.ServerStream) error { return intercept(srv, ss, info, next) }
			}
			return handler(srv, ss)
		},
	}
}

func (c *localConn) RegisterService(desc *grpc.ServiceDesc, impl any) {
	for _, m := range desc.Methods {
		c.unaries["/"+desc.ServiceName+"/"+m.MethodName] = localUnary{impl, m}
	}
	for _, s := range desc.Streams {
		c.streams["/"+desc.ServiceName+"/"+s.StreamName] = localStreamer{impl, s}
	}
}

// incoming makes of a client's context the one that a server sees.
func incoming(ctx context.Context, t grpc.ServerTransportStream) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	ctx = metadata.NewIncomingContext(metadata.NewOutgoingContext(ctx, nil), md)
	return grpc.NewContextWithServerTransportStream(ctx, t)
}

func (c *localConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	m, ok := c.unaries[method]
	if !ok {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	t := &localTransport{method: method}
	decode := func(req any) error { return copyMessage(req, args) }
	answer, err := m.desc.Handler(m.impl, incoming(ctx, t), decode, c.unary)
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr, _ = t.sentSoFar()
		case grpc.TrailerCallOption:
			_, *o.TrailerAddr = t.sentSoFar()
		}
	}
	if err != nil {
		return asStatus(err)
	}
	return copyMessage(reply, answer)
}

// asStatus makes of a handler's error what the network would.
func asStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}

// copyMessage makes dst what src is. What they hold they share: once a message
// has been passed on, neither side may change what is inside it.
func copyMessage(dst, src any) error {
	d, ok1 := dst.(proto.Message)
	s, ok2 := src.(proto.Message)
	if !ok1 || !ok2 || d.ProtoReflect().Descriptor() != s.ProtoReflect().Descriptor() {
		return status.Error(codes.Internal, fmt.Sprintf("api: cannot copy %T to %T", src, dst))
	}
	proto.Reset(d)
	s.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		d.ProtoReflect().Set(fd, v)
		return true
	})
	return nil
}

// NewStream begins a call whose server, not client, streams.
func (c *localConn) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	m, ok := c.streams[method]
	if !ok || m.desc.ClientStreams {
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	s := &localStream{
		requests: make(chan any, 1),
		wants:    make(chan any),
		filled:   make(chan error),
		started:  make(chan struct{}),
		done:     make(chan struct{}),
		client:   ctx,
	}
	s.transport = localTransport{method: method, sent: sync.OnceFunc(func() { close(s.started) })}
	s.server = incoming(ctx, &s.transport)
	go func() {
		defer close(s.done)
		info := &grpc.StreamServerInfo{FullMethod: method, IsServerStream: true}
		s.err = asStatus(c.stream(m.impl, (*localServerStream)(s), info, m.desc.Handler))
	}()
	return (*localClientStream)(s), nil
}

// localStream is one call. The server's SendMsg waits for the client's RecvMsg
// and fills its message, so that nothing is queued.
type localStream struct {
	client, server context.Context
	transport      localTransport
	requests       chan any
	wants          chan any      // messages to fill
	filled         chan error    // an answer to each
	started        chan struct{} // closed with the first header or message
	done           chan struct{} // closed when the handler has returned err
	err            error
}

type localClientStream localStream

func (s *localClientStream) Context() context.Context { return s.client }
func (s *localClientStream) CloseSend() error         { return nil }

func (s *localClientStream) Trailer() metadata.MD {
	_, trailer := s.transport.sentSoFar()
	return trailer
}

// Header waits until the handler has begun to answer. If it failed before, that
// is the error.
func (s *localClientStream) Header() (metadata.MD, error) {
	select {
	case <-s.started:
		header, _ := s.transport.sentSoFar()
		return header, nil
	case <-s.done:
		header, _ := s.transport.sentSoFar()
		return header, s.err
	case <-s.client.Done():
		return nil, status.FromContextError(s.client.Err()).Err()
	}
}

func (s *localClientStream) SendMsg(m any) error {
	select {
	case s.requests <- m:
		return nil
	case <-s.done:
		// RecvMsg has the error. As in gRPC itself, a stream of one request says
		// nothing of it here: the generated code would take it for its own.
		return nil
	}
}

func (s *localClientStream) RecvMsg(m any) error {
	select {
	case s.wants <- m:
		return <-s.filled
	case <-s.done:
		if s.err != nil {
			return s.err
		}
		return io.EOF
	case <-s.client.Done():
		return status.FromContextError(s.client.Err()).Err()
	}
}

type localServerStream localStream

func (s *localServerStream) Context() context.Context        { return s.server }
func (s *localServerStream) SetHeader(md metadata.MD) error  { return s.transport.SetHeader(md) }
func (s *localServerStream) SendHeader(md metadata.MD) error { return s.transport.SendHeader(md) }
func (s *localServerStream) SetTrailer(md metadata.MD)       { _ = s.transport.SetTrailer(md) }

func (s *localServerStream) RecvMsg(m any) error {
	select {
	case req := <-s.requests:
		return copyMessage(m, req)
	case <-s.server.Done():
		return status.FromContextError(s.server.Err()).Err()
	}
}

func (s *localServerStream) SendMsg(m any) error {
	s.transport.sent()
	select {
	case dst := <-s.wants:
		err := copyMessage(dst, m)
		s.filled <- err
		return err
	case <-s.server.Done():
		return status.FromContextError(s.server.Err()).Err()
	}
}

// localTransport keeps the headers and trailers of a call.
type localTransport struct {
	method          string
	sent            func() // if not nil, told that the header is complete
	mu              sync.Mutex
	header, trailer metadata.MD
}

func (t *localTransport) Method() string { return t.method }

func (t *localTransport) sentSoFar() (header, trailer metadata.MD) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.header, t.trailer
}

func (t *localTransport) SetHeader(md metadata.MD) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.header = metadata.Join(t.header, md)
	return nil
}

func (t *localTransport) SendHeader(md metadata.MD) error {
	err := t.SetHeader(md)
	if t.sent != nil {
		t.sent()
	}
	return err
}

func (t *localTransport) SetTrailer(md metadata.MD) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trailer = metadata.Join(t.trailer, md)
	return nil
}
