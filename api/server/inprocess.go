package server

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

// inProcessConn is a client connection to services in the same process, for REST, Connect and gRPC-Web. Its
// calls pass the same interceptors as calls over the network. A handler's context has the values of
// the caller's context, such as the peer.
type inProcessConn struct {
	running *sync.WaitGroup // has the handlers of streams
	unary   grpc.UnaryServerInterceptor
	stream  grpc.StreamServerInterceptor
	unaries map[string]unaryMethod
	streams map[string]streamMethod
}

// localKey marks the contexts of calls of the process itself.
type localKey struct{}

type localConn struct{ *inProcessConn }

func (c localConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.inProcessConn.Invoke(context.WithValue(ctx, localKey{}, true), method, args, reply, opts...)
}

func (c localConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.inProcessConn.NewStream(context.WithValue(ctx, localKey{}, true), desc, method, opts...)
}

// Local returns a connection for work of the process itself. Its calls need no key: the caller is
// [leaderboard.SystemActor], with the admin scope. The caller must not change messages that it receives.
func (s *Server) Local() grpc.ClientConnInterface { return localConn{s.local} }

type unaryMethod struct {
	impl any
	desc grpc.MethodDesc
}

type streamMethod struct {
	impl any
	desc grpc.StreamDesc
}

var (
	_ grpc.ClientConnInterface = (*inProcessConn)(nil)
	_ grpc.ServiceRegistrar    = (*inProcessConn)(nil)
)

func newInProcessConn(running *sync.WaitGroup, unary []grpc.UnaryServerInterceptor, stream []grpc.StreamServerInterceptor) *inProcessConn {
	return &inProcessConn{
		running: running,
		unaries: map[string]unaryMethod{},
		streams: map[string]streamMethod{},
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

func (c *inProcessConn) RegisterService(desc *grpc.ServiceDesc, impl any) {
	for _, m := range desc.Methods {
		c.unaries["/"+desc.ServiceName+"/"+m.MethodName] = unaryMethod{impl, m}
	}
	for _, s := range desc.Streams {
		c.streams["/"+desc.ServiceName+"/"+s.StreamName] = streamMethod{impl, s}
	}
}

// incomingContext returns the handler's context. Its incoming metadata is the client's outgoing
// metadata.
func incomingContext(ctx context.Context, t grpc.ServerTransportStream) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	ctx = metadata.NewIncomingContext(metadata.NewOutgoingContext(ctx, nil), md)
	return grpc.NewContextWithServerTransportStream(ctx, t)
}

func (c *inProcessConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	m, ok := c.unaries[method]
	if !ok {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	t := &callTransport{method: method}
	decode, intercept := func(req any) error { return copyMessage(req, args) }, c.unary
	out, owned := reply.(*rpcAnswer)
	if owned { // its callers make a message for each call
		decode = func(any) error { return nil }
		intercept = func(ctx context.Context, _ any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			return c.unary(ctx, args, info, handler)
		}
	}
	answer, err := m.desc.Handler(m.impl, incomingContext(ctx, t), decode, intercept)
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr, _ = t.headerAndTrailer()
		case grpc.TrailerCallOption:
			_, *o.TrailerAddr = t.headerAndTrailer()
		}
	}
	if err != nil {
		return asStatus(err)
	}
	a := admissionFrom(ctx)
	if owned {
		*out = rpcAnswer{answer.(proto.Message), a.encode}
		return nil
	}
	if a != nil && a.encode != nil { // the gateway does not read the answer
		return nil
	}
	return copyMessage(reply, answer)
}

// asStatus converts the error of a handler to a status, as gRPC does over the network.
func asStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}

// copyMessage sets dst to a shallow copy of src. The lists, maps and messages inside are shared and
// must not be changed.
func copyMessage(dst, src any) error {
	d, ok1 := dst.(proto.Message)
	s, ok2 := src.(proto.Message)
	if !ok1 || !ok2 || d.ProtoReflect().Descriptor() != s.ProtoReflect().Descriptor() {
		return status.Error(codes.Internal, fmt.Sprintf("server: cannot copy %T to %T", src, dst))
	}
	proto.Reset(d)
	s.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		d.ProtoReflect().Set(fd, v)
		return true
	})
	return nil
}

// NewStream begins a call with one request and a stream of answers.
func (c *inProcessConn) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	m, ok := c.streams[method]
	if !ok || m.desc.ClientStreams {
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	s := &callStream{
		requests: make(chan any, 1),
		targets:  make(chan any),
		filled:   make(chan error),
		started:  make(chan struct{}),
		done:     make(chan struct{}),
		client:   ctx,
	}
	s.transport = callTransport{method: method, sent: sync.OnceFunc(func() { close(s.started) })}
	s.server = incomingContext(ctx, &s.transport)
	c.running.Go(func() {
		defer close(s.done)
		info := &grpc.StreamServerInfo{FullMethod: method, IsServerStream: true}
		s.err = asStatus(c.stream(m.impl, (*serverStream)(s), info, m.desc.Handler))
	})
	return (*clientStream)(s), nil
}

// callStream is one streaming call. It queues no messages: the server's SendMsg waits for the
// client's RecvMsg.
type callStream struct {
	client, server context.Context
	transport      callTransport
	requests       chan any
	targets        chan any      // the client's empty messages, which SendMsg fills
	filled         chan error    // SendMsg's error, or nil, after filling a message
	started        chan struct{} // closed by the first header or message
	done           chan struct{} // closed after the handler has returned err
	err            error
}

type clientStream callStream

func (s *clientStream) Context() context.Context { return s.client }
func (s *clientStream) CloseSend() error         { return nil }

func (s *clientStream) Trailer() metadata.MD {
	_, trailer := s.transport.headerAndTrailer()
	return trailer
}

// Header waits until the handler sends a header or a message, or returns.
func (s *clientStream) Header() (metadata.MD, error) {
	select {
	case <-s.started:
		header, _ := s.transport.headerAndTrailer()
		return header, nil
	case <-s.done:
		header, _ := s.transport.headerAndTrailer()
		return header, s.err
	case <-s.client.Done():
		return nil, status.FromContextError(s.client.Err()).Err()
	}
}

func (s *clientStream) SendMsg(m any) error {
	select {
	case s.requests <- m:
		return nil
	case <-s.done:
		// RecvMsg returns the handler's error. After an error of SendMsg, the generated code would
		// not call RecvMsg.
		return nil
	}
}

func (s *clientStream) RecvMsg(m any) error {
	select {
	case s.targets <- m:
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

type serverStream callStream

func (s *serverStream) Context() context.Context        { return s.server }
func (s *serverStream) SetHeader(md metadata.MD) error  { return s.transport.SetHeader(md) }
func (s *serverStream) SendHeader(md metadata.MD) error { return s.transport.SendHeader(md) }
func (s *serverStream) SetTrailer(md metadata.MD)       { _ = s.transport.SetTrailer(md) }

func (s *serverStream) RecvMsg(m any) error {
	select {
	case req := <-s.requests:
		return copyMessage(m, req)
	case <-s.server.Done():
		return status.FromContextError(s.server.Err()).Err()
	}
}

func (s *serverStream) SendMsg(m any) error {
	s.transport.sent()
	select {
	case dst := <-s.targets:
		if out, ok := dst.(*rpcAnswer); ok {
			out.message = m.(proto.Message)
			s.filled <- nil
			return nil
		}
		if shared, ok := m.(*sharedMessage); ok {
			m = shared.WatchScoresResponse
			if a := admissionFrom(s.client); a != nil {
				a.encode = shared.event
			}
		}
		err := copyMessage(dst, m)
		s.filled <- err
		return err
	case <-s.server.Done():
		return status.FromContextError(s.server.Err()).Err()
	}
}

type callTransport struct {
	method          string
	sent            func() // called when the header or a message is sent; nil for a unary call
	mu              sync.Mutex
	header, trailer metadata.MD
}

func (t *callTransport) Method() string { return t.method }

func (t *callTransport) headerAndTrailer() (header, trailer metadata.MD) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.header, t.trailer
}

func (t *callTransport) SetHeader(md metadata.MD) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.header = metadata.Join(t.header, md)
	return nil
}

func (t *callTransport) SendHeader(md metadata.MD) error {
	err := t.SetHeader(md)
	if t.sent != nil {
		t.sent()
	}
	return err
}

func (t *callTransport) SetTrailer(md metadata.MD) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trailer = metadata.Join(t.trailer, md)
	return nil
}
