package server

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
)

// rpcPrefixes are the paths of the services that answer over Connect and gRPC-Web.
var rpcPrefixes = []string{
	"/" + pb.LeaderboardService_ServiceDesc.ServiceName + "/", "/" + pb.AdminService_ServiceDesc.ServiceName + "/", "/" + healthpb.Health_ServiceDesc.ServiceName + "/",
}

// rpcHandler serves one method over the protocols Connect and gRPC-Web. Like the gateway, it admits a
// call before it reads the message, and makes the call on the in-process connection. A refusal is in the
// call's admission. The library connect writes the answer and the error in the form of the protocol.
type rpcHandler struct {
	*door
	api     *Server
	conn    *inProcessConn
	request protoreflect.MessageType
	tracer  trace.Tracer // may be nil
	answer  http.Handler
}

// newRPCHandlers returns the handlers of all methods of conn, by path.
func (s *Server) newRPCHandlers(conn *inProcessConn) (map[string]*rpcHandler, error) {
	handlers, gzip := map[string]*rpcHandler{}, newGzip()
	for path, d := range doors {
		_, unary := conn.unaries[path]
		if _, stream := conn.streams[path]; !unary && !stream {
			continue
		}
		request, err := protoregistry.GlobalTypes.FindMessageByName(d.input.FullName())
		if err != nil {
			return nil, err
		}
		h := &rpcHandler{door: d, api: s, conn: conn, request: request}
		if s.options.TracerProvider != nil && d.hasSpans() {
			h.tracer = newTracer(s.options.TracerProvider)
		}
		options := connect.WithHandlerOptions(connect.WithCodec(rpcCodec("proto")), connect.WithCodec(rpcCodec("json")), connect.WithCompression("gzip", nil, nil))
		switch {
		case d.streams:
			h.answer = connect.NewServerStreamHandler(path, h.stream, options)
		case d.scope == auth.Read: // as in the gateway, other answers may contain secrets
			h.answer = gzip(connect.NewUnaryHandler(path, h.unary, options))
		default:
			h.answer = connect.NewUnaryHandler(path, h.unary, options)
		}
		handlers[path] = h
	}
	return handlers, nil
}

// rpcForm is the form of a request: its protocol and its encoding.
type rpcForm struct {
	unary, stream bool // the kinds of methods that have this form
	json          bool
	framed        bool // a message follows frameBytes bytes, as in gRPC
	text          bool // in base64
}

// rpcForms are the forms, by content type. The first two are Connect for calls with one answer, the next
// two are Connect for streams.
var rpcForms = map[string]rpcForm{
	"application/proto":               {unary: true},
	"application/json":                {unary: true, json: true},
	"application/connect+proto":       {stream: true, framed: true},
	"application/connect+json":        {stream: true, framed: true, json: true},
	"application/grpc-web":            {unary: true, stream: true, framed: true},
	"application/grpc-web+proto":      {unary: true, stream: true, framed: true},
	"application/grpc-web+json":       {unary: true, stream: true, framed: true, json: true},
	"application/grpc-web-text":       {unary: true, stream: true, framed: true, text: true},
	"application/grpc-web-text+proto": {unary: true, stream: true, framed: true, text: true},
}

// formOf returns the form that the content type of a request names, or the query of a GET. It leaves a
// content type that the library knows.
func (h *rpcHandler) formOf(r *http.Request, query url.Values) (rpcForm, error) {
	given := r.Header.Get("Content-Type")
	if r.Method == http.MethodGet {
		given = "application/" + query.Get("encoding")
	}
	base, _, _ := mime.ParseMediaType(given)
	f := rpcForms[base]
	if h.streams && !f.stream || !h.streams && !f.unary || r.Method == http.MethodGet && f.framed {
		return f, &leaderboard.FieldError{Field: "Content-Type", Problem: fmt.Sprintf("%.40q is unknown; %s are known here", given, strings.Join(h.contentTypes(), ", "))}
	}
	r.Header.Set("Content-Type", strings.Replace(base, "-text", "", 1))
	return f, nil
}

func (h *rpcHandler) contentTypes() []string {
	var types []string
	for name, f := range rpcForms {
		if h.streams && f.stream || !h.streams && f.unary {
			types = append(types, name)
		}
	}
	slices.Sort(types)
	return types
}

// rpcMessage is the key of the request's message in a context.
type rpcMessage struct{}

func (h *rpcHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = r.WithContext(r.Context())
	if r.Method == http.MethodHead {
		r.Method = http.MethodGet // net/http drops the body of the answer
	}
	if get := h.readOnly && !h.streams; r.Method != http.MethodPost && !(get && r.Method == http.MethodGet) {
		allowed := []string{http.MethodPost}
		if get {
			allowed = append(allowed, http.MethodGet)
		}
		writeMethodNotAllowed(w, r, allowed)
		return
	}
	query := r.URL.Query()
	form, err := h.formOf(r, query)
	if err != nil {
		w.Header().Set("Accept-Post", strings.Join(h.contentTypes(), ", "))
		writeErrorBody(w, http.StatusUnsupportedMediaType, toStatus(err))
		return
	}
	if h.tracer != nil {
		var span trace.Span
		r, span = startSpan(h.tracer, r, h.door, h.method)
		defer span.End()
	}
	a := h.api.admit(r.Context(), r.Header["Authorization"], h.door)
	a.request = requestID(r.Header.Values(requestIDHeader))
	w.Header().Set(requestIDHeader, a.request)
	m := h.request.New().Interface()
	if a.refusal == nil {
		a.refusal = toStatus(h.read(a, form, query, w, r, m))
	}
	if ctx := r.Context(); a.refusal != nil {
		r = r.WithContext(context.WithoutCancel(ctx)) // see gateway.admit
	} else {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a read deadline would end streams
	}
	// The library reads an empty message, and answer and stream use m.
	r.Method, r.Body, r.ContentLength = http.MethodPost, http.NoBody, 0
	if form.framed {
		r.Body = io.NopCloser(strings.NewReader("\x00\x00\x00\x00\x00"))
	}
	for _, name := range compressionHeaders {
		r.Header.Del(name) // read has refused the message
	}
	if h.streams {
		w.Header().Set("X-Accel-Buffering", "no") // see gateway.admit
	}
	writer := &rpcWriter{ResponseWriter: w, text: form.text, stream: h.streams}
	defer writer.end()
	ctx := context.WithValue(context.WithValue(r.Context(), admissionKey{}, a), rpcMessage{}, m)
	h.answer.ServeHTTP(writer, r.WithContext(ctx))
}

// compressionHeaders name the compression of a message, in one of the protocols.
var compressionHeaders = []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"}

// read reads and decodes the message of a request.
func (h *rpcHandler) read(a *admission, form rpcForm, query url.Values, w http.ResponseWriter, r *http.Request, m proto.Message) error {
	compression := query.Get("compression")
	for _, name := range compressionHeaders {
		compression += r.Header.Get(name)
	}
	if compression != "" && compression != "identity" {
		return newStatus(codes.Unimplemented, "compressed messages are not supported; send the message without compression", errorInfo(pb.Error_UNSUPPORTED))
	}
	var data []byte
	var err error
	if r.Method == http.MethodGet {
		if data, err = queryMessage(query); err == nil {
			err = discardBody(w, r)
		}
	} else {
		err = h.api.receiveBody(a, w, r, func() error {
			data, err = h.readBody(form, w, r)
			return err
		})
	}
	switch {
	case err != nil:
		return err
	case !form.json:
		return decodeMessage(h.door, data, m)
	case len(data) > h.maxBytes:
		return bodyTooLarge(h.maxBytes)
	}
	return restjson.Decode(data, m)
}

// frameBytes is the size of the flags and the length before a message.
const frameBytes = 5

func (h *rpcHandler) readBody(form rpcForm, w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := h.maxBytes
	if form.framed {
		limit += frameBytes
	}
	if form.text {
		limit = base64.StdEncoding.EncodedLen(limit)
	}
	data, err := readBody(w, r, limit)
	if form.text && err == nil {
		if data, err = base64.StdEncoding.DecodeString(string(data)); err != nil {
			return nil, &leaderboard.FieldError{Field: restjson.BodyField, Problem: "is not valid base64, which the content type announces"}
		}
	}
	if err != nil || !form.framed {
		return data, err
	}
	if len(data) < frameBytes || data[0] != 0 || uint64(binary.BigEndian.Uint32(data[1:])) != uint64(len(data)-frameBytes) {
		return nil, &leaderboard.FieldError{Field: restjson.BodyField, Problem: "is not one message without compression after a byte 0 and four bytes with the message's length"}
	}
	return data[frameBytes:], nil
}

// queryMessage returns the message in the query of a GET.
func queryMessage(query url.Values) ([]byte, error) {
	text := query.Get("message")
	if !query.Has("message") {
		return nil, &leaderboard.FieldError{Field: "message", Problem: "is missing in the query"}
	}
	if query.Get("base64") != "1" {
		return []byte(text), nil
	}
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return nil, &leaderboard.FieldError{Field: "message", Problem: "is not valid base64 for URLs"}
	}
	return data, nil
}

func (h *rpcHandler) unary(ctx context.Context, _ *connect.Request[rpcAnswer]) (*connect.Response[rpcAnswer], error) {
	answer := &rpcAnswer{}
	if err := h.conn.Invoke(ctx, h.method, ctx.Value(rpcMessage{}), answer); err != nil {
		return nil, connectError(err)
	}
	return connect.NewResponse(answer), nil
}

func (h *rpcHandler) stream(ctx context.Context, _ *connect.Request[rpcAnswer], out *connect.ServerStream[rpcAnswer]) error {
	s, err := h.conn.NewStream(ctx, nil, h.method)
	if err == nil {
		err = s.SendMsg(ctx.Value(rpcMessage{}))
	}
	for err == nil {
		answer := &rpcAnswer{}
		if err = s.RecvMsg(answer); err == nil {
			err = out.Send(answer)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return connectError(err)
}

// connectError converts a status, with its details, to the error of the library.
func connectError(err error) error {
	s := status.Convert(err)
	e := connect.NewError(connect.Code(s.Code()), errors.New(s.Message()))
	for _, d := range s.Proto().GetDetails() {
		if detail, err := connect.NewErrorDetail(d); err == nil { // an Any is always valid
			e.AddDetail(detail)
		}
	}
	setErrorHeaders(e.Meta(), s)
	return e
}

// rpcAnswer is the answer of a method, or one message of a stream. The in-process connection fills it.
type rpcAnswer struct {
	message proto.Message
	json    func() ([]byte, error) // see admission.encode; may be nil
}

// rpcCodec encodes answers as proto or json. It appends to the library's buffers, because the library
// writes into the buffers again, and many calls share the encoding of an answer.
type rpcCodec string

func (c rpcCodec) Name() string                  { return string(c) }
func (rpcCodec) Unmarshal([]byte, any) error     { return nil }
func (c rpcCodec) Marshal(v any) ([]byte, error) { return c.MarshalAppend(nil, v) }

func (c rpcCodec) MarshalAppend(dst []byte, v any) ([]byte, error) {
	answer, ok := v.(*rpcAnswer)
	if !ok { // the status of an error
		answer = &rpcAnswer{message: v.(proto.Message)}
	}
	shared, _ := answer.message.(*sharedMessage)
	encoded := answer.json
	switch {
	case shared != nil && c == "json":
		encoded = shared.json
	case shared != nil:
		encoded = shared.protobuf
	case c != "json":
		return proto.MarshalOptions{}.MarshalAppend(dst, answer.message)
	case encoded == nil:
		return restjson.Append(dst, answer.message)
	}
	b, err := encoded()
	return append(dst, b...), err
}

// rpcWriter has the method Flush that the library needs, and encodes gRPC-Web as text if text is set. The
// text is padded where the server flushes.
type rpcWriter struct {
	http.ResponseWriter
	text, stream bool
	wroteHeader  bool
	encoder      io.WriteCloser
}

func (w *rpcWriter) WriteHeader(status int) {
	if h := w.Header(); w.text {
		h.Set("Content-Type", strings.Replace(h.Get("Content-Type"), "grpc-web", "grpc-web-text", 1))
	}
	w.wroteHeader = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *rpcWriter) Write(p []byte) (int, error) {
	if !w.wroteHeader {
		w.WriteHeader(http.StatusOK)
	}
	if !w.text {
		return w.ResponseWriter.Write(p)
	}
	if w.encoder == nil {
		w.encoder = base64.NewEncoder(base64.StdEncoding, w.ResponseWriter)
	}
	return w.encoder.Write(p)
}

// Flush flushes streams only: a flush would keep other answers from being compressed.
func (w *rpcWriter) Flush() {
	w.end()
	if w.stream {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
	}
}

// end writes the header, if nothing did, and the last characters of a text. A failed write fails again
// in the next one.
func (w *rpcWriter) end() {
	if !w.wroteHeader {
		w.WriteHeader(http.StatusOK)
	}
	if w.encoder != nil {
		_ = w.encoder.Close()
		w.encoder = nil
	}
}
