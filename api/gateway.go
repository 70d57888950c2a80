package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

const (
	// maxBodyBytes bounds a request's body. The largest result is 4 KiB of
	// metadata, 3 KiB of attributes and 0.5 KiB of ids, which escapes may make
	// six times as long.
	maxBodyBytes = 64 << 10
	// maxBatchBytes bounds the body of a batch or a lookup, and every message
	// over gRPC.
	maxBatchBytes = 16 << 20
	// bodyTimeout is how long a client may take to send a request.
	bodyTimeout = 30 * time.Second
)

// gateway is the REST side: it makes calls of requests. What it refuses it
// refuses by way of the interceptors, see admission.
type gateway struct {
	*runtime.ServeMux
	guard  *guard
	routes map[string]*route // by HTTP method and path pattern
}

// route is one REST form of a method.
type route struct {
	method protoreflect.MethodDescriptor
	// body is the message that the body is, nil if there is none; all is set if
	// it is the whole request.
	body protoreflect.MessageType
	all  bool
	// query are the fields that may be query parameters.
	query map[string]protoreflect.FieldDescriptor
}

func newGateway(ctx context.Context, conn *localConn, g *guard) (*gateway, error) {
	gw := &gateway{guard: g, routes: map[string]*route{}}
	gw.ServeMux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, jsonMarshaler{}),
		runtime.WithMarshalerOption(eventStream, eventMarshaler{}),
		runtime.WithErrorHandler(gw.writeError),
		runtime.WithRoutingErrorHandler(gw.writeRoutingError),
		runtime.WithMiddlewares(gw.admit),
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptReserved),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithForwardResponseOption(setStatus),
		runtime.WithDisableChunkedEncoding(), // net/http knows when to
	)
	if err := errors.Join(
		pb.RegisterLeaderboardServiceHandlerClient(ctx, gw.ServeMux, pb.NewLeaderboardServiceClient(conn)),
		pb.RegisterAdminServiceHandlerClient(ctx, gw.ServeMux, pb.NewAdminServiceClient(conn)),
	); err != nil {
		return nil, err
	}
	for _, file := range apiFiles {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				rule, _ := proto.GetExtension(methods.Get(j).Options(), annotations.E_Http).(*annotations.HttpRule)
				if err := gw.addRoutes(methods.Get(j), rule); err != nil {
					return nil, err
				}
			}
		}
	}
	return gw, nil
}

func (gw *gateway) addRoutes(method protoreflect.MethodDescriptor, rule *annotations.HttpRule) error {
	for _, binding := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		verb, path := verbAndPath(binding)
		input := method.Input()
		r := &route{method: method, query: map[string]protoreflect.FieldDescriptor{}}
		if body := binding.GetBody(); body != "" {
			md := input
			if r.all = body == "*"; !r.all {
				md = input.Fields().ByName(protoreflect.Name(body)).Message()
			}
			var err error
			if r.body, err = protoregistry.GlobalTypes.FindMessageByName(md.FullName()); err != nil {
				return err
			}
		}
		for i := range input.Fields().Len() {
			fd := input.Fields().Get(i)
			if fd.Message() == nil && !fd.IsList() && !strings.Contains(path, "{"+string(fd.Name())+"}") {
				r.query[string(fd.Name())] = fd
			}
		}
		gw.routes[verb+" "+pattern(path)] = r
	}
	return nil
}

func verbAndPath(rule *annotations.HttpRule) (verb, path string) {
	switch p := rule.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		return http.MethodGet, p.Get
	case *annotations.HttpRule_Post:
		return http.MethodPost, p.Post
	case *annotations.HttpRule_Patch:
		return http.MethodPatch, p.Patch
	case *annotations.HttpRule_Delete:
		return http.MethodDelete, p.Delete
	}
	return "", ""
}

// pattern is the path pattern of a template as the gateway prints it.
func pattern(template string) string { return strings.ReplaceAll(template, "}", "=*}") }

// ServeHTTP serves what is under /v1/.
func (gw *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The gateway unescapes path segments after splitting the path, but only of
	// a raw path; without one it would unescape the unescaped path once more.
	u := *r.URL
	u.RawPath = u.EscapedPath()
	r = r.WithContext(r.Context())
	r.URL = &u
	gw.ServeMux.ServeHTTP(w, r)
}

// admit reads a request before the generated code does, and passes on what is
// wrong with it. Of a caller who may not call anyway, it reads no body.
func (gw *gateway) admit(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		matched, _ := runtime.HTTPPattern(r.Context())
		rt := gw.routes[r.Method+" "+matched.String()]
		a := &admission{}
		a.caller, a.authErr = gw.guard.authenticate(r.Context(), r.Header["Authorization"])
		method := fmt.Sprintf("/%s/%s", rt.method.Parent().FullName(), rt.method.Name())
		b := &body{}
		if a.authErr == nil && a.caller.scope >= needs[method] {
			b, a.refusal = rt.read(w, r, params)
		}
		if a.refusal = toStatus(a.refusal); a.refusal != nil {
			b = &body{}
		}
		if a.refusal != nil || a.authErr != nil {
			r.URL.RawQuery = "" // or the generated code would refuse it in its own words
		}
		r.Body = b
		r.Header.Set("Content-Type", "application/json") // curl -d says that it is a form
		r.Header.Del("Accept")
		if rt.method.IsStreamingServer() {
			w.Header().Set("Content-Type", ndjson) // of a stream without messages
		}
		if method == pb.LeaderboardService_WatchScores_FullMethodName {
			r.Header.Set("Accept", eventStream)
			w.Header().Set("X-Accel-Buffering", "no") // proxies such as nginx would hold events back
		}
		next(w, r.WithContext(context.WithValue(r.Context(), admissionKey{}, a)), params)
	}
}

// body is the body of a request that has been read: the message that it is, nil
// if it was empty or refused, and its bytes.
type body struct {
	bytes.Reader
	message proto.Message
}

func (*body) Close() error { return nil }

// read checks the query and reads the body of a request.
func (rt *route) read(w http.ResponseWriter, r *http.Request, params map[string]string) (*body, error) {
	query, err := rt.checkQuery(r.URL.RawQuery)
	if err != nil || rt.body == nil {
		return &body{}, err
	}
	limit := int64(maxBodyBytes)
	switch rt.body.Descriptor().Name() {
	case "BatchSubmitScoresRequest", "LookupScoresRequest":
		limit = maxBatchBytes
	}
	// Not every ResponseWriter has deadlines; a server's has.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, newStatus(codes.OutOfRange, fmt.Sprintf("the body is longer than %d bytes", limit), errorInfo("BODY_TOO_LARGE"))
	}
	if err != nil {
		return nil, &leaderboard.FieldError{Field: bodyField, Problem: "ended early"}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	b := &body{message: rt.body.New().Interface()}
	b.Reset(data)
	if err := DecodeJSON(data, b.message); err != nil {
		return nil, err
	}
	return b, rt.checkBody(b.message.ProtoReflect(), query, params)
}

// checkQuery returns the query parameters if they are known, given once, and of
// the right kind.
func (rt *route) checkQuery(raw string) (url.Values, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, &leaderboard.FieldError{Field: "query", Problem: "is not a valid query string: percent-encode what is not a letter or digit"}
	}
	for name, given := range values {
		fd := rt.query[name]
		switch {
		case fd == nil:
			return nil, &leaderboard.FieldError{Field: name, Problem: "is no parameter of this request; " + rt.parameters()}
		case len(given) > 1:
			return nil, &leaderboard.FieldError{Field: name, Problem: "is given twice"}
		}
		if problem := queryProblem(fd, given[0]); problem != "" {
			return nil, &leaderboard.FieldError{Field: name, Problem: problem}
		}
	}
	return values, nil
}

func queryProblem(fd protoreflect.FieldDescriptor, value string) string {
	switch fd.Kind() {
	case protoreflect.StringKind:
		if !utf8.ValidString(value) {
			return "is not valid UTF-8"
		}
	case protoreflect.BoolKind:
		if value != "true" && value != "false" {
			return "must be true or false"
		}
	default:
		if _, err := strconv.ParseInt(value, 10, 64); err != nil { // 1e3 is for JSON only
			return fmt.Sprintf("%.40q is not an integer", value)
		}
		return integerProblem(fd, value)
	}
	return ""
}

func (rt *route) parameters() string {
	if len(rt.query) == 0 {
		return "it has none"
	}
	return "known are " + strings.Join(slices.Sorted(maps.Keys(rt.query)), ", ")
}

// checkBody sees to it that what a body says twice, in itself and in path or
// query, it says once: the query's values are put into a body that is the whole
// request, and the path's must not differ.
func (rt *route) checkBody(m protoreflect.Message, query url.Values, params map[string]string) error {
	fields := m.Descriptor().Fields()
	for param, value := range params {
		fd := fields.ByName(protoreflect.Name(param[strings.LastIndexByte(param, '.')+1:]))
		if fd != nil && m.Has(fd) && m.Get(fd).String() != value {
			return &leaderboard.FieldError{Field: string(fd.Name()), Problem: "differs from the one in the path"}
		}
	}
	if !rt.all {
		return nil
	}
	for name, values := range query {
		if m.Has(rt.query[name]) {
			return &leaderboard.FieldError{Field: name, Problem: "is given in the body and in the query"}
		}
		if err := runtime.PopulateFieldFromPath(m.Interface(), name, values[0]); err != nil {
			return &leaderboard.FieldError{Field: name, Problem: "is not valid"}
		}
	}
	return nil
}

// setStatus makes 202 of an answer that the result is kept, but not applied yet.
func setStatus(_ context.Context, w http.ResponseWriter, m proto.Message) error {
	if r, ok := m.(interface{ GetStatus() pb.Outcome_Status }); ok && r.GetStatus() == pb.Outcome_ACCEPTED {
		w.WriteHeader(http.StatusAccepted)
	}
	return nil
}

// httpStatus is the HTTP status of a code.
func httpStatus(c codes.Code) int {
	switch c {
	case codes.FailedPrecondition:
		return http.StatusConflict // the request is well-formed: what is stored is against it
	case codes.OutOfRange:
		return http.StatusRequestEntityTooLarge
	default:
		return runtime.HTTPStatusFromCode(c)
	}
}

// errorMessage is the body of an error.
func errorMessage(s *spb.Status) *pb.Error {
	return &pb.Error{Code: s.GetCode(), Status: code.Code(s.GetCode()).String(), Message: s.GetMessage(), Details: s.GetDetails()}
}

func (gw *gateway) writeError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
	s := status.Convert(err)
	h := w.Header()
	if s.Code() == codes.Unauthenticated {
		h.Set("WWW-Authenticate", "Bearer")
	}
	for _, d := range s.Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok {
			h.Set("Retry-After", strconv.Itoa(int(math.Ceil(max(1, retry.RetryDelay.AsDuration().Seconds())))))
		}
	}
	writeErrorBody(w, httpStatus(s.Code()), s)
}

func writeErrorBody(w http.ResponseWriter, status int, s *status.Status) {
	b, err := AppendJSON(nil, errorMessage(s.Proto()))
	if err != nil { // a detail of a type that this binary does not know
		b, _ = AppendJSON(nil, &pb.Error{Code: int32(s.Code()), Status: code.Code(s.Code()).String(), Message: s.Message()})
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client may be gone
}

// writeRoutingError answers a request that is no call.
func (gw *gateway) writeRoutingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, httpStatus int) {
	if httpStatus != http.StatusMethodNotAllowed {
		writeErrorBody(w, http.StatusNotFound, status.New(codes.NotFound, "no such route: see /openapi.json"))
		return
	}
	var allowed []string
	for key := range gw.routes {
		verb, pattern, _ := strings.Cut(key, " ")
		if matches(pattern, r.URL.EscapedPath()) && !slices.Contains(allowed, verb) {
			allowed = append(allowed, verb)
		}
	}
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	writeErrorBody(w, httpStatus, status.New(codes.Unimplemented, fmt.Sprintf("%s is not for this route, but %s", r.Method, strings.Join(allowed, ", "))))
}

// matches says whether a path is of a pattern such as /v1/users/{user_id=*}:ban.
func matches(pattern, path string) bool {
	pattern, verb, hasVerb := strings.Cut(pattern, ":")
	if hasVerb {
		var ok bool
		if path, ok = strings.CutSuffix(path, ":"+verb); !ok {
			return false
		}
	}
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	return slices.EqualFunc(want, have, func(w, h string) bool { return w == h || strings.HasPrefix(w, "{") })
}

const ndjson = "application/x-ndjson"

// jsonMarshaler is JSON for the gateway; the messages of a stream are lines.
type jsonMarshaler struct{}

var _ runtime.StreamContentType = jsonMarshaler{}

func (jsonMarshaler) ContentType(any) string       { return "application/json" }
func (jsonMarshaler) StreamContentType(any) string { return ndjson }
func (jsonMarshaler) Delimiter() []byte            { return []byte{'\n'} }

func (jsonMarshaler) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case proto.Message:
		return AppendJSON(nil, v)
	case map[string]any: // a message of a stream, as the gateway wraps it
		if m, ok := v["result"].(proto.Message); ok {
			return AppendJSON(nil, m)
		}
	case map[string]proto.Message: // an error that ends a stream
		if s, ok := v["error"].(*spb.Status); ok {
			b, err := AppendJSON([]byte(`{"error":`), errorMessage(s))
			return append(b, '}'), err
		}
	}
	return nil, fmt.Errorf("api: no JSON for %T", v)
}

func (m jsonMarshaler) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		b, err := m.Marshal(v)
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	})
}

func (m jsonMarshaler) Unmarshal(data []byte, v any) error {
	return m.NewDecoder(bytes.NewReader(data)).Decode(v)
}

// NewDecoder returns a decoder of bodies that admit has read, or, as a PATCH
// reads its body twice, of their bytes. v is a message, or a pointer to one.
func (jsonMarshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		if b, ok := r.(*body); ok {
			if b.message == nil {
				return io.EOF // the gateway takes it for an empty body
			}
			return assign(v, b.message)
		}
		data, err := io.ReadAll(r)
		if err != nil || len(data) == 0 {
			return cmp.Or(err, io.EOF)
		}
		m, ok := v.(proto.Message)
		if !ok {
			p := reflect.ValueOf(v).Elem()
			p.Set(reflect.New(p.Type().Elem()))
			m = p.Interface().(proto.Message)
		}
		return DecodeJSON(data, m)
	})
}

func assign(v any, m proto.Message) error {
	if dst, ok := v.(proto.Message); ok {
		return copyMessage(dst, m)
	}
	reflect.ValueOf(v).Elem().Set(reflect.ValueOf(m))
	return nil
}

const eventStream = "text/event-stream"

// eventMarshaler is server-sent events for the gateway.
type eventMarshaler struct{ jsonMarshaler }

func (eventMarshaler) ContentType(any) string       { return eventStream }
func (eventMarshaler) StreamContentType(any) string { return eventStream }
func (eventMarshaler) Delimiter() []byte            { return []byte("\n\n") }

func (e eventMarshaler) Marshal(v any) ([]byte, error) {
	if wrapped, ok := v.(map[string]any); ok {
		if m, ok := wrapped["result"].(*pb.WatchScoresResponse); ok {
			return AppendJSON(fmt.Appendf(nil, "id: %s\ndata: ", m.GetEventId()), m.GetData())
		}
	}
	b, err := e.jsonMarshaler.Marshal(v)
	return append([]byte("event: error\ndata: "), b...), err
}
