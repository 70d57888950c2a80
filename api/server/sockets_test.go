package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/secret"
)

func (h *harness) onSockets() (rest, overGRPC string) {
	h.t.Helper()
	listeners := make([]net.Listener, 2)
	for i := range listeners {
		var err error
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			h.t.Fatal(err)
		}
	}
	h.options.ShutdownGrace = time.Second
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Serve(ctx, listeners[0], listeners[1]) }()
	h.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			h.t.Errorf("Serve returned %v, want nil", err)
		}
	})
	return listeners[0].Addr().String(), listeners[1].Addr().String()
}

func dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// If the server stored each name that callers ask for, callers could fill its memory.
func TestHealthKnowsAFixedSetOfServices(t *testing.T) {
	t.Parallel()
	var notReady atomic.Bool
	h := newHarness(t, Options{Ready: func() error {
		if notReady.Load() {
			return errors.New("starting")
		}
		return nil
	}})
	_, address := h.onSockets()
	client := healthpb.NewHealthClient(dial(t, address))
	check := func(service string) (healthpb.HealthCheckResponse_ServingStatus, codes.Code) {
		res, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		return res.GetStatus(), status.Code(err)
	}
	for _, service := range []string{"", "leaderboard.v1.LeaderboardService", "leaderboard.v1.AdminService"} {
		if got, code := check(service); got != healthpb.HealthCheckResponse_SERVING || code != codes.OK {
			t.Errorf("Check(%q) = %v, %v; want SERVING", service, got, code)
		}
	}
	for _, service := range []string{"made-up", "leaderboard.v1", "grpc.health.v1.Health"} {
		if got, code := check(service); code != codes.NotFound {
			t.Errorf("Check(%q) = %v, %v; want NotFound", service, got, code)
		}
		stream, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.NotFound {
			t.Errorf("Watch(%q): %v, want NotFound", service, err)
		}
	}
	list, err := client.List(t.Context(), &healthpb.HealthListRequest{})
	if err != nil || len(list.GetStatuses()) != 3 {
		t.Errorf("List = %v, %v; want 3 services", list, err)
	}
	watch, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := watch.Recv(); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("Watch of a ready server sent %v, %v; want SERVING", got, err)
	}
	for _, want := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_NOT_SERVING, healthpb.HealthCheckResponse_SERVING} {
		notReady.Store(want == healthpb.HealthCheckResponse_NOT_SERVING)
		if got, err := watch.Recv(); err != nil || got.GetStatus() != want {
			t.Errorf("Watch after a change of the readiness sent %v, %v; want %v", got, err, want)
		}
	}
}

func TestHealthWatchersAreLimited(t *testing.T) {
	h := newHarness(t, Options{MaxPeerStreams: 1})
	_, address := h.onSockets()
	client := healthpb.NewHealthClient(dial(t, address))
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		watch, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = watch.Recv()
		}
		if status.Code(err) != want {
			t.Errorf("Watch %d from one address: %v, want %v", i+1, err, want)
		}
	}
}

func TestReflectionMessagesAreBounded(t *testing.T) {
	h := newHarness(t, Options{})
	_, address := h.onSockets()
	client := reflectionpb.NewServerReflectionClient(dial(t, address))
	for size, want := range map[int]codes.Code{maxBodyBytes: codes.OK, maxBodyBytes + 1: codes.OutOfRange} {
		req := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
		req.Host = strings.Repeat("h", size-proto.Size(req)-4) // Host adds a tag of 1 byte and a length of 3 bytes
		if got := proto.Size(req); got != size {
			t.Fatalf("the message has %d bytes, want %d", got, size)
		}
		stream, err := client.ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(req) // Recv returns the error
		if _, err := stream.Recv(); status.Code(err) != want {
			t.Errorf("a reflection message of %d bytes: %v, want %v", size, err, want)
		}
	}
}

func TestHealthFollowsReadiness(t *testing.T) {
	h := newHarness(t, Options{Ready: func() error { return context.DeadlineExceeded }})
	_, address := h.onSockets()
	client := healthpb.NewHealthClient(dial(t, address))
	res, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || res.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("Check before the server is ready = %v, %v; want NOT_SERVING", res, err)
	}
	list, err := client.List(t.Context(), &healthpb.HealthListRequest{})
	if err != nil || len(list.GetStatuses()) != 3 {
		t.Errorf("List before the server is ready = %v, %v; want 3 services", list, err)
	}
	for service, s := range list.GetStatuses() {
		if s.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Errorf("List before the server is ready: service %q is %v, want NOT_SERVING", service, s.GetStatus())
		}
	}
}

func TestHealthAndReflectionPassTheGuard(t *testing.T) {
	h := newHarness(t, Options{Limits: auth.Limits{PerPeer: auth.Rate{PerSecond: 0.001, Burst: 4}}})
	_, address := h.onSockets()
	conn := dial(t, address)
	client := healthpb.NewHealthClient(conn)
	invalidKey := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer invalid")
	if _, err := client.Check(invalidKey, &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("Check with an invalid key: %v, want UNAUTHENTICATED", err)
	}
	large := &healthpb.HealthCheckRequest{Service: string(make([]byte, maxBodyBytes+1))}
	if _, err := client.Check(t.Context(), large); status.Code(err) != codes.OutOfRange {
		t.Errorf("Check with a message of more than 64 KiB: %v, want OUT_OF_RANGE", err)
	}
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("Check within the rate: %v, want nil", err)
	}
	reflect := func() error {
		stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
		if err != nil {
			return err
		}
		_ = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		_, err = stream.Recv()
		return err
	}
	if err := reflect(); err != nil {
		t.Errorf("reflection within the rate: %v, want nil", err)
	}
	if err := reflect(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("reflection over the rate: %v, want RESOURCE_EXHAUSTED", err)
	}
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("Check over the rate: %v, want RESOURCE_EXHAUSTED", err)
	}
}

func TestReflectionCanBeSwitchedOff(t *testing.T) {
	h := newHarness(t, Options{NoReflection: true})
	_, address := h.onSockets()
	stream, err := reflectionpb.NewServerReflectionClient(dial(t, address)).ServerReflectionInfo(t.Context())
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("reflection with NoReflection: %v, want UNIMPLEMENTED", err)
	}
}

// exchange returns the raw answers to a request, and the time until the server closed the
// connection.
func exchange(t testing.TB, address, request string) (string, time.Duration) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	_ = conn.SetDeadline(began.Add(time.Minute))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%.60q: the connection is still open after a minute, want it closed", request)
	}
	return string(got), time.Since(began)
}

func TestAnnouncedBodiesAreNotWaitedFor(t *testing.T) {
	h := newHarness(t, Options{ReceiveTimeout: time.Second})
	rest, _ := h.onSockets()
	probes := NewProbeServer(false, func() error { return nil }, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	admin := NewAdminServer(false, func() error { return nil }, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	var addresses []string
	for _, server := range []*http.Server{probes, admin} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go server.Serve(l)
		t.Cleanup(func() { server.Close() })
		addresses = append(addresses, l.Addr().String())
	}
	key := "Authorization: Bearer " + h.keys["admin"] + "\r\n"
	for _, tt := range []struct{ name, address, line, header, status string }{
		{"the health check", rest, "GET /healthz", "", "200"},
		{"the metrics", rest, "GET /metrics", "", "200"},
		{"an unknown path", rest, "GET /nowhere", "", "404"},
		{"a wrong method", rest, "POST /healthz", "", "405"},
		{"an unknown path of the API", rest, "POST /v1/nowhere", "", "404"},
		{"a call without a key", rest, "POST /v1/scores", "", "401"},
		{"a route without a body", rest, "GET /v1/scores", key, "400"},
		{"a watch", rest, "GET /v1/boards/default/watch", key, "400"},
		{"a body that does not arrive", rest, "POST /v1/scores", key, "408"},
		{"health of a consumer", addresses[0], "GET /healthz", "", "200"},
		{"metrics of a consumer", addresses[0], "GET /metrics", "", "200"},
		{"an unknown path of a consumer", addresses[0], "POST /nowhere", "", "404"},
		{"health at the admin address", addresses[1], "GET /healthz", "", "200"},
		{"metrics at the admin address", addresses[1], "GET /metrics", "", "200"},
		{"a profile at the admin address", addresses[1], "GET /debug/pprof/cmdline", "", "200"},
		{"an unknown path at the admin address", addresses[1], "POST /nowhere", "", "404"},
	} {
		for framing, header := range map[string]string{"a length": "Content-Length: 1000\r\n", "chunks": "Transfer-Encoding: chunked\r\n"} {
			t.Run(tt.name+" with "+framing, func(t *testing.T) {
				t.Parallel()
				got, took := exchange(t, tt.address, tt.line+" HTTP/1.1\r\nHost: localhost\r\n"+tt.header+header+"\r\n")
				if !strings.HasPrefix(got, "HTTP/1.1 "+tt.status) || took > 25*time.Second { // the default of ReceiveTimeout is 30 s
					t.Errorf("the server answered %.100q and closed the connection after %v, want status %s within seconds", got, took, tt.status)
				}
			})
		}
	}
}

func TestUnusedBodiesKeepTheConnectionUsable(t *testing.T) {
	h := newHarness(t, Options{})
	rest, _ := h.onSockets()
	got, _ := exchange(t, rest, strings.Repeat("GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 2)+
		"GET /v1/scores HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+h.keys["read"]+"\r\nContent-Length: 2\r\n\r\n{}"+
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	if n := strings.Count(got, "HTTP/1.1 200"); n != 4 {
		t.Errorf("%d of 4 requests on one connection were answered with 200, want 4: %q", n, got)
	}
}

type h2 struct {
	t testing.TB
	net.Conn
	*http2.Framer
	headers *hpack.Decoder
}

func dialH2(t testing.TB, address string) *h2 {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return newH2(t, conn)
}

func newH2(t testing.TB, conn net.Conn) *h2 {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
	c := &h2{t, conn, http2.NewFramer(conn, conn), hpack.NewDecoder(4096, nil)}
	_, err := io.WriteString(conn, http2.ClientPreface)
	if err := errors.Join(err, c.WriteSettings()); err != nil {
		t.Fatal(err)
	}
	return c
}

// open begins a gRPC call and announces a message of length bytes, but sends only 1,000 of them.
func (c *h2) open(stream uint32, method, authorization string, length uint32) {
	c.t.Helper()
	c.begin(stream, method, authorization)
	head := binary.BigEndian.AppendUint32([]byte{0}, length)
	if err := errors.Join(c.WriteData(stream, false, head), c.WriteData(stream, false, make([]byte, 1000))); err != nil {
		c.t.Fatal(err)
	}
}

func (c *h2) call(stream uint32, method, authorization string, m proto.Message) {
	c.t.Helper()
	c.begin(stream, method, authorization)
	data, err := proto.Marshal(m)
	if err != nil {
		c.t.Fatal(err)
	}
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data)))
	if err := c.WriteData(stream, true, append(head, data...)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *h2) begin(stream uint32, method, authorization string) {
	c.t.Helper()
	fields := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "localhost"}, {"content-type", "application/grpc"}, {"te", "trailers"}}
	if authorization != "" {
		fields = append(fields, [2]string{"authorization", "Bearer " + authorization})
	}
	c.writeHeaders(stream, fields)
}

func (c *h2) beginGet(stream uint32, path string) {
	c.t.Helper()
	c.writeHeaders(stream, [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", path}, {":authority", "localhost"}})
}

func (c *h2) writeHeaders(stream uint32, fields [][2]string) {
	c.t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range fields {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		c.t.Fatal(err)
	}
}

// grants returns how many bytes the server's WINDOW_UPDATE frames granted to each stream. The server
// must grant bytes to n streams.
func (c *h2) grants(n int) map[uint32]uint32 {
	c.t.Helper()
	granted := map[uint32]uint32{}
	for pinged := false; ; {
		if len(granted) == n && !pinged {
			time.Sleep(time.Second / 2) // a grant to a further stream would come within milliseconds
			if err := c.WritePing(false, [8]byte{1}); err != nil {
				c.t.Fatal(err)
			}
			pinged = true
		}
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatalf("the server granted bytes to %d streams, want %d: %v", len(granted), n, err)
		}
		switch f := f.(type) {
		case *http2.PingFrame:
			if f.IsAck() {
				return granted
			}
		case *http2.WindowUpdateFrame:
			if f.StreamID != 0 {
				granted[f.StreamID] += f.Increment
			}
		case *http2.HeadersFrame:
			c.t.Fatalf("stream %d ended while %d streams had grants", f.StreamID, len(granted))
		}
	}
}

func (c *h2) readEnds(n int) map[uint32]string {
	c.t.Helper()
	codes := map[uint32]string{}
	for len(codes) < n {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatalf("only %d of %d streams ended: %v", len(codes), n, err)
		}
		if f, ok := f.(*http2.HeadersFrame); ok {
			fields, err := c.headers.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				c.t.Fatal(err)
			}
			for _, field := range fields {
				if field.Name == "grpc-status" {
					codes[f.StreamID] = field.Value
				}
			}
		}
	}
	return codes
}

// Code 16 is UNAUTHENTICATED, and code 4 is DEADLINE_EXCEEDED.
func TestMessagesHaveADeadline(t *testing.T) {
	base := newHarness(t, Options{Timeout: time.Hour, ReceiveTimeout: time.Hour})
	_, address := base.onSockets()
	c := dialH2(t, address)
	c.open(1, pb.LeaderboardService_SubmitScore_FullMethodName, "invalid", 15<<20)
	if got := c.readEnds(1); got[1] != "16" {
		t.Errorf("a call with an invalid key ended with %v, want 16", got)
	}
	h := newHarness(t, Options{Timeout: time.Hour, ReceiveTimeout: time.Second})
	_, address = h.onSockets()
	c = dialH2(t, address)
	began := time.Now()
	stream := uint32(1)
	var methods []string
	for method := range doors {
		stream += 2
		c.open(stream, method, h.keys["admin"], 15<<20)
		methods = append(methods, method)
	}
	for s, code := range c.readEnds(len(methods)) {
		if code != "4" {
			t.Errorf("%s without its message ended with code %s, want 4", methods[(s-3)/2], code)
		}
	}
	if took := time.Since(began); took > 25*time.Second { // the default of ReceiveTimeout is 30 s
		t.Errorf("the calls ended after %v, want about 1 s", took)
	}
}

func TestMessagesWithoutAKeyAreBounded(t *testing.T) {
	t.Parallel()
	h := newHarness(t, Options{Timeout: time.Hour, ReceiveTimeout: time.Hour})
	h.anonymousTimeout = time.Hour
	_, address := h.onSockets()
	c := dialH2(t, address)
	const calls, announced, window = 10, 15 << 20, 64 << 10
	for i := range uint32(calls) {
		c.open(2*i+1, "/grpc.health.v1.Health/Check", "", announced)
	}
	h.waitForAnonymous(calls)
	// Each stream has an initial window of bytes. gRPC grants further bytes only to the 4 streams
	// whose message the server receives: the announced bytes, and at most one window more.
	granted := c.grants(4)
	if len(granted) != 4 {
		t.Errorf("the server receives %d messages, want 4: it granted %v", len(granted), granted)
	}
	total := calls * window
	for _, n := range granted {
		total += int(n)
	}
	if limit := 4*announced + (calls+4)*window; total > limit {
		t.Errorf("the server receives up to %d bytes, want at most %d", total, limit)
	}
	c.Close()
	h.waitForAnonymous(0)
	if _, err := healthpb.NewHealthClient(dial(t, address)).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("Check after the calls have ended: %v, want nil", err)
	}
}

// A late message ends its call with DEADLINE_EXCEEDED (4). Each address has four slots, for
// concurrent messages without a key. A call that waits too long for a slot ends with
// RESOURCE_EXHAUSTED (8).
func TestMessagesWithoutAKeyHaveADeadline(t *testing.T) {
	t.Parallel()
	h := newHarness(t, Options{Timeout: time.Hour, ReceiveTimeout: time.Hour})
	if h.anonymousTimeout != 5*time.Second {
		t.Errorf("anonymousTimeout is %v, want 5 s", h.anonymousTimeout)
	}
	h.anonymousTimeout = time.Second
	_, address := h.onSockets()
	c := dialH2(t, address)
	for i := range uint32(4) {
		c.open(2*i+1, "/grpc.health.v1.Health/Check", "", 15<<20)
	}
	for stream, code := range c.readEnds(4) {
		if code != "4" {
			t.Errorf("stream %d ended with code %s, want 4", stream, code)
		}
	}
	h.waitForAnonymous(0)
	free := h.holdAnonymous()
	defer free()
	c.open(9, "/grpc.health.v1.Health/Check", "", 15<<20)
	if got := c.readEnds(1); got[9] != "8" {
		t.Errorf("a call while all four slots are taken ended with %v, want 8", got)
	}
}

func TestAShortReceiveTimeoutBoundsEveryCaller(t *testing.T) {
	t.Parallel()
	h := newHarness(t, Options{Timeout: time.Hour, ReceiveTimeout: time.Second})
	h.anonymousTimeout = time.Hour
	_, address := h.onSockets()
	c := dialH2(t, address)
	c.open(1, "/grpc.health.v1.Health/Check", "", 15<<20)
	if got := c.readEnds(1); got[1] != "4" {
		t.Errorf("a call without its message ended with %v, want 4", got)
	}
}

// lookup is a request without a key. Tests omit the last byte to send an incomplete body.
const lookup = "POST /v1/scores:lookup HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 18\r\n\r\n" + `{"user_ids":["u"]}`

// While the server receives four bodies without a key from one address, a fifth body waits.
func TestBodiesWithoutAKeyAreBounded(t *testing.T) {
	t.Parallel()
	h := newHarness(t, Options{PublicRead: true, Timeout: time.Hour, ReceiveTimeout: time.Hour})
	h.anonymousTimeout = time.Hour
	rest, _ := h.onSockets()
	var conns []net.Conn
	for range anonymousReceives {
		conn, err := net.Dial("tcp", rest)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, lookup[:len(lookup)-1]); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	h.waitForAnonymous(anonymousReceives)
	fifth := make(chan string, 1)
	go func() {
		answer, _ := exchange(t, rest, lookup)
		fifth <- answer
	}()
	h.waitForAnonymous(anonymousReceives + 1)
	select {
	case answer := <-fifth:
		t.Errorf("the fifth body was answered with %.60q while the server was receiving four", answer)
		return
	case <-time.After(200 * time.Millisecond): // an answer would come within milliseconds
	}
	conns[0].Close()
	if answer := <-fifth; !strings.HasPrefix(answer, "HTTP/1.1 200") {
		t.Errorf("the fifth body was answered with %.60q after one of four ended, want 200", answer)
	}
	for _, conn := range conns[1:] {
		conn.Close()
	}
	h.waitForAnonymous(0)
}

func TestBodiesWithoutAKeyHaveADeadline(t *testing.T) {
	t.Parallel()
	h := newHarness(t, Options{PublicRead: true, Timeout: time.Hour, ReceiveTimeout: time.Hour})
	rest, _ := h.onSockets()
	answer, took := exchange(t, rest, lookup[:len(lookup)-1])
	if !strings.HasPrefix(answer, "HTTP/1.1 408") || took < 4*time.Second {
		t.Errorf("after %v, the server answered %.60q and closed the connection, want 408 after about 5 s", took, answer)
	}
	h.waitForAnonymous(0)
	if a := h.do("", "POST", "/v1/scores:lookup", `{"user_ids":["u"]}`); a.status != http.StatusOK {
		t.Errorf("a lookup after the connection has ended: %d %s, want 200", a.status, a.raw)
	}
}

// holdAnonymous takes all slots of 127.0.0.1.
func (h *harness) holdAnonymous() (free func()) {
	h.t.Helper()
	var releases []func()
	for range anonymousReceives {
		release, err := h.anonymous.acquire(h.t.Context(), "127.0.0.1", anonymousReceives)
		if err != nil {
			h.t.Fatal(err)
		}
		releases = append(releases, release)
	}
	return func() {
		for _, release := range releases {
			release()
		}
	}
}

func (h *harness) waitForAnonymous(n int) {
	h.t.Helper()
	waitFor(h.t, fmt.Sprintf("%d calls without a key to have a slot or wait for one", n), func() bool {
		h.anonymous.mu.Lock()
		defer h.anonymous.mu.Unlock()
		callers := 0
		for _, slot := range h.anonymous.byKey {
			callers += slot.callers
		}
		return callers == n
	})
}

func TestAFifthBodyWithoutAKeyIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t, Options{PublicRead: true})
	h.anonymousTimeout = 100 * time.Millisecond
	defer h.holdAnonymous()()
	a := h.do("", "POST", "/v1/scores:lookup", `{"user_ids":["u"]}`)
	if a.status != http.StatusTooManyRequests || a.reason() != "TOO_MANY_MESSAGES" || a.header.Get("Retry-After") != "1" {
		t.Errorf("a fifth body without a key: %d, Retry-After %q, %s; want 429, 1 and TOO_MANY_MESSAGES", a.status, a.header.Get("Retry-After"), a.raw)
	}
	if a := h.do("read", "POST", "/v1/scores:lookup", `{"user_ids":["u"]}`); a.status != http.StatusOK {
		t.Errorf("a body with a key: %d %s, want 200", a.status, a.raw)
	}
	if a := h.do("", "GET", "/v1/scores", nil); a.status != http.StatusOK {
		t.Errorf("a call without a body: %d %s, want 200", a.status, a.raw)
	}
}

// drainTimeout bounds bodies that no handler reads. It must not end a body that waits for a slot.
func TestABodyMayWaitForASlot(t *testing.T) {
	t.Parallel()
	h := newHarness(t, Options{PublicRead: true, Timeout: time.Hour})
	h.anonymousTimeout = time.Hour
	server := httptest.NewUnstartedServer(h.Handler())
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	free := h.holdAnonymous()
	status := make(chan string, 1)
	go func() {
		res, err := server.Client().Post(server.URL+"/v1/scores:lookup", "", strings.NewReader(`{"user_ids":["u"]}`))
		if err != nil {
			status <- err.Error()
			return
		}
		res.Body.Close()
		status <- res.Proto + " " + res.Status
	}()
	h.waitForAnonymous(anonymousReceives + 1)
	select {
	case got := <-status:
		t.Errorf("the call ended with %s while it waited for a slot", got)
	case <-time.After(drainTimeout + 200*time.Millisecond):
		free()
		if got := <-status; got != "HTTP/2.0 200 OK" {
			t.Errorf("a lookup that waited for a slot: %s, want HTTP/2.0 200 OK", got)
		}
	}
}

func TestHeadersAreBounded(t *testing.T) {
	h := newHarness(t, Options{})
	rest, address := h.onSockets()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-long", strings.Repeat("x", maxHeaderBytes))
	if _, err := healthpb.NewHealthClient(dial(t, address)).Check(ctx, &healthpb.HealthCheckRequest{}); err == nil {
		t.Error("a gRPC call with headers of more than 32 KiB succeeds, want an error")
	}
	got, _ := exchange(t, rest, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: "+strings.Repeat("x", maxHeaderBytes+4096)+"\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 431") {
		t.Errorf("a REST request with headers of 36 KiB: %.60q, want status 431", got)
	}
	// The gRPC client above sends no headers over the server's limit. The client c does.
	c := dialH2(t, address)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/grpc.health.v1.Health/Check"}, {":authority", "localhost"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"x-long", strings.Repeat("x", maxHeaderBytes)}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Next(16 << 10)})
	if err := errors.Join(err, c.WriteContinuation(1, true, block.Bytes()), c.WriteData(1, true, make([]byte, 5))); err != nil {
		t.Fatal(err)
	}
	if stream, code := c.readReset(); stream != 1 {
		t.Errorf("stream %d ended with %v, want an end of stream 1, which has long headers", stream, code)
	}
}

func (c *h2) readReset() (stream uint32, code http2.ErrCode) {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatalf("no stream was reset: %v", err)
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			return f.StreamID, f.ErrCode
		case *http2.HeadersFrame:
			c.t.Fatalf("stream %d was answered, want it reset", f.StreamID)
		}
	}
}

func TestSilentConnectionsEnd(t *testing.T) {
	h := newHarness(t, Options{HandshakeTimeout: time.Second, IdleTimeout: time.Second})
	rest, overGRPC := h.onSockets()
	const request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
	for _, tt := range []struct{ name, address, text, want string }{
		{"no bytes over REST", rest, "", ""},
		{"a part of the headers", rest, request, ""},
		{"no second request", rest, request + "\r\n", "HTTP/1.1 200"},
		{"no bytes over gRPC", overGRPC, "", ""},
		{"no call over gRPC", overGRPC, emptyHello, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, took := exchangeWithin(t, tt.address, tt.text)
			if !strings.HasPrefix(got, tt.want) || took < time.Second/2 || took >= handshakeTimeout {
				t.Errorf("the server answered %.60q and closed the connection after %v, want %q and about 1 s", got, took, tt.want)
			}
		})
	}
}

// exchangeWithin repeats exchange if the machine was slow.
func exchangeWithin(t testing.TB, address, request string) (got string, took time.Duration) {
	t.Helper()
	for range 4 {
		if got, took = exchange(t, address, request); took < handshakeTimeout {
			break
		}
	}
	return got, took
}

func TestStreamsAreBounded(t *testing.T) {
	h := newHarness(t, Options{MaxStreams: 2})
	_, address := h.onSockets()
	c := dialH2(t, address)
	for stream := uint32(1); stream <= 5; stream += 2 {
		c.open(stream, pb.LeaderboardService_SubmitScore_FullMethodName, h.keys["admin"], 1<<20)
	}
	if stream, code := c.readReset(); stream != 5 || code != http2.ErrCodeRefusedStream {
		t.Errorf("stream %d ended with %v, want stream 5 with REFUSED_STREAM", stream, code)
	}
}

func tlsHarness(t *testing.T, o Options) (h *harness, rest, overGRPC string) {
	t.Helper()
	ca := newAuthority(t, "ca")
	cert, key := ca.issue(t, 2)
	var err error
	if o.TLS, err = (TLS{CertFile: cert, KeyFile: key}).config(); err != nil {
		t.Fatal(err)
	}
	h = newHarness(t, o)
	rest, overGRPC = h.onSockets()
	return h, rest, overGRPC
}

func TestStreamsAreBoundedOverREST(t *testing.T) {
	h, rest, _ := tlsHarness(t, Options{MaxStreams: 2})
	conn, err := tls.Dial("tcp", rest, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := newH2(t, conn)
	for stream := uint32(1); stream <= 5; stream += 2 {
		c.begin(stream, "/v1/scores", h.keys["admin"])
	}
	if stream, code := c.readReset(); stream != 5 || code != http2.ErrCodeRefusedStream {
		t.Errorf("stream %d ended with %v, want stream 5 with REFUSED_STREAM", stream, code)
	}
}

// Otherwise, the process could close its store while the handler reads it.
func TestShutdownWaitsForCallsOfClosedConnections(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	var finished atomic.Bool
	ready := sync.OnceValue(func() error {
		close(began)
		<-release
		finished.Store(true)
		return nil
	})
	ca := newAuthority(t, "ca")
	cert, key := ca.issue(t, 2)
	config, err := (TLS{CertFile: cert, KeyFile: key}).config()
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, Options{TLS: config, Ready: ready, ShutdownGrace: time.Minute})
	rest, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	overGRPC, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Serve(ctx, rest, overGRPC) }()
	conn, err := tls.Dial("tcp", rest.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	newH2(t, conn).beginGet(1, "/readyz")
	<-began
	conn.Close()
	cancel()
	select {
	case err := <-done:
		t.Errorf("Serve returned %v while a call was running", err)
		close(release)
	case <-time.After(time.Second / 2): // an early return takes milliseconds
		close(release)
		if err := <-done; err != nil || !finished.Load() {
			t.Errorf("Serve returned %v, and the call had finished: %v; want nil and true", err, finished.Load())
		}
	}
}

func TestHandshakesHaveADeadline(t *testing.T) {
	t.Parallel()
	_, rest, overGRPC := tlsHarness(t, Options{HandshakeTimeout: time.Second})
	half := "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("r", 100) // a part of the 512 bytes that the header announces
	for name, address := range map[string]string{"REST": rest, "gRPC": overGRPC} {
		if got, took := exchangeWithin(t, address, half); took < time.Second/2 || took >= handshakeTimeout {
			t.Errorf("%s: half a ClientHello was answered with %.60q, and the connection closed after %v; want about 1 s", name, got, took)
		}
	}
}

// emptyHello opens an HTTP/2 connection without a call.
const emptyHello = http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

func TestConnectionsAreBounded(t *testing.T) {
	h := newHarness(t, Options{MaxConnections: 2})
	rest, overGRPC := h.onSockets()
	for address, request := range map[string]string{rest: "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", overGRPC: emptyHello} {
		var conns []net.Conn
		for range 3 {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conns = append(conns, conn)
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
		}
		answered := func(c net.Conn, wait time.Duration) bool {
			_ = c.SetReadDeadline(time.Now().Add(wait))
			n, _ := c.Read(make([]byte, 1))
			return n > 0
		}
		if !answered(conns[0], time.Minute) || !answered(conns[1], time.Minute) || answered(conns[2], 200*time.Millisecond) {
			t.Errorf("%.10q on three connections: want answers on the first and the second, and none on the third", request)
		}
		conns[0].Close()
		if !answered(conns[2], time.Minute) {
			t.Errorf("%.10q: no answer on the third connection after the first was closed, want an answer", request)
		}
	}
}

// The streams of an expired or revoked credential end within seconds on every node.
func TestStreamsEndWithTheirKey(t *testing.T) {
	t.Parallel()
	secretKey := []byte(strings.Repeat("s", 32))
	o := Options{JWT: auth.JWT{Algorithm: "HS256", Secret: secret.Text(secretKey), Issuer: "https://id.example", Audience: "leaderboard", Leeway: time.Second}}
	node := newHarness(t, o)
	other := serve(t, node.service, node.store, o)
	create := func(body string) (id, secret string) {
		res := node.must("admin", "POST", "/v1/keys", body)
		return get(res, "key", "key_id").(string), res["secret"].(string)
	}
	id, revoked := create(`{"name":"revoked","scopes":["read"]}`)
	_, valid := create(`{"name":"valid","scopes":["read"]}`)
	credentials := map[string]func(expires time.Time) string{
		"a revoked key": func(time.Time) string { return revoked },
		"an expired key": func(expires time.Time) string {
			_, key := create(`{"name":"expiring","scopes":["read"],"expires_at":"` + expires.UTC().Format(time.RFC3339Nano) + `"}`)
			return key
		},
		"an expired token": func(expires time.Time) string {
			return signJSON(t, secretKey, fmt.Sprintf(`{"iss":"https://id.example","aud":"leaderboard","sub":"u","exp":%d}`, expires.Unix()))
		},
	}
	type watcher struct {
		name string
		recv func() error
	}
	var watchers []watcher
	for name, h := range map[string]*harness{"the node": node, "another node": other} {
		h.keys["read"] = revoked
		events := h.watch("/v1/boards/default/watch")
		events.next()
		watchers = append(watchers, watcher{name + " over REST", func() error {
			if ev, ok := events.next(); !ok || get(ev.data, "error", "status") != "UNAUTHENTICATED" {
				return fmt.Errorf("the stream sent %v", ev)
			}
			return status.Error(codes.Unauthenticated, "")
		}})
		_, address := h.onSockets()
		client := pb.NewLeaderboardServiceClient(dial(t, address))
		for what, credential := range credentials {
			stream := h.watchBriefly(client, credential)
			watchers = append(watchers, watcher{name + ", " + what, func() error { _, err := stream.Recv(); return err }})
		}
	}
	node.keys["valid"] = valid
	continuing, err := node.client().WatchScores(node.as("valid"), &pb.WatchScoresRequest{Board: "default"})
	if err == nil {
		_, err = continuing.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	node.must("admin", "DELETE", "/v1/keys/"+id, nil)
	began := time.Now()
	for _, w := range watchers {
		if err := w.recv(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v, want Unauthenticated", w.name, err)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the streams ended %v after the revocation, want less than a minute", took)
	}
	node.must("submit", "POST", "/v1/scores", `{"user_id":"u","points":1}`)
	if _, err := continuing.Recv(); err != nil {
		t.Errorf("the stream of a valid key: %v, want it to continue", err)
	}
}

// watchBriefly opens a stream with a credential that expires in 3 s, or later on a slow machine.
func (h *harness) watchBriefly(client pb.LeaderboardServiceClient, credential func(expires time.Time) string) grpc.ServerStreamingClient[pb.WatchScoresResponse] {
	h.t.Helper()
	for life := 3 * time.Second; ; life *= 2 {
		h.keys["stream"] = credential(time.Now().Add(life))
		stream, err := client.WatchScores(h.as("stream"), &pb.WatchScoresRequest{Board: "default"})
		if err == nil {
			_, err = stream.Recv()
		}
		if err == nil {
			return stream
		}
		if status.Code(err) != codes.Unauthenticated || life > time.Minute {
			h.t.Fatal(err)
		}
	}
}

func TestUnreadStreamsEndWithTheirKey(t *testing.T) {
	t.Parallel()
	h := newHarness(t, Options{})
	_, address := h.onSockets()
	res := h.must("admin", "POST", "/v1/keys", `{"name":"silent","scopes":["admin"]}`)
	id, key := get(res, "key", "key_id").(string), res["secret"].(string)
	const largest = 1000 // the largest limit of a page
	var results []any
	for i := range largest {
		results = append(results, map[string]any{"user_id": fmt.Sprintf("%0128d", i), "match_id": "m", "points": 1})
	}
	h.must("submit", "POST", "/v1/scores:batch", map[string]any{"results": results})

	c := dialH2(t, address) // c grants the server 64 KiB and reads nothing
	limit := int32(largest)
	c.call(1, pb.LeaderboardService_WatchScores_FullMethodName, key, &pb.WatchScoresRequest{Board: "default", Limit: &limit})
	c.call(3, pb.AdminService_ExportResults_FullMethodName, key, &pb.ExportResultsRequest{Board: "default"})
	waiting := func() int {
		stacks := make([]byte, 16<<20)
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "transport.(*writeQuota).get")
	}
	points := 1
	waitFor(t, "both handlers to wait for the client", func() bool {
		points++ // WatchScores sends a page after each change
		h.must("submit", "POST", "/v1/scores", fmt.Sprintf(`{"user_id":"u","match_id":"m%d","points":%d}`, points, points))
		return waiting() >= 2
	})
	running := func() string {
		var lines []string
		for line := range strings.Lines(h.do("", "GET", "/metrics", nil).raw) {
			if strings.HasPrefix(line, "leaderboard_api_running_calls") && !strings.HasSuffix(line, " 0\n") {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "")
	}
	if got := running(); strings.Count(got, "\n") != 2 {
		t.Fatalf("the running calls are %q, want WatchScores and ExportResults", got)
	}
	h.must("admin", "DELETE", "/v1/keys/"+id, nil)
	waitFor(t, "the handlers to end", func() bool { return running() == "" })
	if n := h.watches.len(); n != 0 {
		t.Errorf("the server has %d watchers, want 0", n)
	}
}
