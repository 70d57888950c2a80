package server

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// gateway turns REST requests into gRPC calls on an in-process connection. If a request is invalid,
// the gateway still makes the call, with the error in the call's admission (see scope.go). The
// interceptors return this error.
//
// The gateway makes calls with one answer itself, because the generated code costs twice as much. That code
// makes streams, and the calls of PATCH with a field mask, which it computes.
type gateway struct {
	*runtime.ServeMux
	api    *Server
	conn   *inProcessConn
	routes map[string]*route // by HTTP method and path pattern
	gzip   func(http.Handler) http.HandlerFunc
}

type route struct {
	*door
	path    string // template, such as /v1/boards/{board}
	request protoreflect.MessageType
	// body is the type of the message in the HTTP body, or nil. The message is the whole request if
	// all is set, or else the bodyField of the request.
	body      protoreflect.MessageType
	all       bool
	bodyField protoreflect.FieldDescriptor
	// answerField, unless it is nil, is the field of the answer that the HTTP body of the answer has.
	answerField protoreflect.FieldDescriptor
	// query maps query parameters to fields.
	query map[string]protoreflect.FieldDescriptor
	// divisions is the field for several parameters named division, or nil.
	divisions protoreflect.FieldDescriptor
}

func newGateway(ctx context.Context, conn *inProcessConn, s *Server) (*gateway, error) {
	gw := &gateway{api: s, conn: conn, routes: map[string]*route{}, gzip: newGzip()}
	middlewares := []runtime.Middleware{gw.admit}
	if tracer := s.options.TracerProvider; tracer != nil {
		middlewares = append([]runtime.Middleware{gw.traceMiddleware(tracer)}, middlewares...)
	}
	gw.ServeMux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, jsonMarshaler{}),
		runtime.WithMarshalerOption(eventStream, eventMarshaler{}),
		runtime.WithErrorHandler(gw.writeError),
		runtime.WithRoutingErrorHandler(gw.writeRoutingError),
		runtime.WithMiddlewares(middlewares...),
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptReserved),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithForwardResponseRewriter(rewriteShared),
		runtime.WithDisableChunkedEncoding(), // net/http chooses the encoding
	)
	if err := errors.Join(
		// The ServeMux tries the patterns of the last service first.
		pb.RegisterAdminServiceHandlerClient(ctx, gw.ServeMux, pb.NewAdminServiceClient(conn)),
		pb.RegisterLeaderboardServiceHandlerClient(ctx, gw.ServeMux, pb.NewLeaderboardServiceClient(conn)),
	); err != nil {
		return nil, err
	}
	for _, d := range doors {
		if err := gw.addRoutes(d); err != nil {
			return nil, err
		}
	}
	return gw, nil
}

func (gw *gateway) addRoutes(d *door) error {
	if d.http == nil {
		return nil
	}
	request, err := protoregistry.GlobalTypes.FindMessageByName(d.input.FullName())
	if err != nil {
		return err
	}
	for _, binding := range append([]*annotations.HttpRule{d.http}, d.http.GetAdditionalBindings()...) {
		verb, path := verbAndPath(binding)
		r := &route{door: d, path: path, request: request, query: map[string]protoreflect.FieldDescriptor{}, divisions: d.input.Fields().ByName("divisions")}
		if answer := binding.GetResponseBody(); answer != "" {
			r.answerField = d.output.Fields().ByName(protoreflect.Name(answer))
		}
		if body := binding.GetBody(); body != "" {
			md := d.input
			if r.all = body == "*"; !r.all {
				r.bodyField = d.input.Fields().ByName(protoreflect.Name(body))
				md = r.bodyField.Message()
			}
			if r.body, err = protoregistry.GlobalTypes.FindMessageByName(md.FullName()); err != nil {
				return err
			}
		}
		for i := range d.input.Fields().Len() {
			fd := d.input.Fields().Get(i)
			isParameter := !fd.IsList() || r.body == nil && fd != r.divisions
			if isParameter && fd.Message() == nil && !strings.Contains(path, "{"+string(fd.Name())+"}") {
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
	case *annotations.HttpRule_Put:
		return http.MethodPut, p.Put
	case *annotations.HttpRule_Patch:
		return http.MethodPatch, p.Patch
	case *annotations.HttpRule_Delete:
		return http.MethodDelete, p.Delete
	}
	return "", ""
}

// pattern converts a path template to the form of [runtime.HTTPPattern]: {board=*} for {board}.
func pattern(template string) string { return strings.ReplaceAll(template, "}", "=*}") }

func (gw *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// If RawPath is set, the ServeMux splits RawPath and then unescapes each segment. Otherwise,
	// the ServeMux splits Path, which is already unescaped, and unescapes each segment again.
	u := *r.URL
	u.RawPath = u.EscapedPath()
	r = r.WithContext(r.Context())
	r.URL = &u
	if r.Method == http.MethodHead {
		r.Method = http.MethodGet
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		w, r = &headWriter{w, cancel}, r.WithContext(ctx)
	}
	// The ServeMux would match an empty segment with a path parameter.
	if strings.Contains(u.RawPath, "//") || strings.HasSuffix(u.RawPath, "/") {
		gw.writeRoutingError(r.Context(), nil, nil, w, r, http.StatusNotFound)
		return
	}
	gw.ServeMux.ServeHTTP(w, r)
}

// headWriter ends the call of a HEAD request with the first byte of the answer, because a watch would not
// end by itself. net/http drops the bytes.
type headWriter struct {
	http.ResponseWriter
	end context.CancelFunc
}

func (w *headWriter) Write(p []byte) (int, error) {
	defer w.end()
	return w.ResponseWriter.Write(p)
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *headWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// routeFinder returns a function for the requests of one handler, which all have one route.
func (gw *gateway) routeFinder() func(*http.Request) *route {
	var found *route
	var once sync.Once
	return func(r *http.Request) *route {
		once.Do(func() {
			matched, _ := runtime.HTTPPattern(r.Context())
			found = gw.routes[r.Method+" "+matched.String()]
		})
		return found
	}
}

// admit runs before the generated code of the gateway. If the guard (auth.Guard) admits the request,
// admit reads and checks the body and the query.
func (gw *gateway) admit(next runtime.HandlerFunc) runtime.HandlerFunc {
	route := gw.routeFinder()
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		rt := route(r)
		a := gw.api.admit(r.Context(), r.Header["Authorization"], rt.door)
		a.request = requestID(r.Header.Values(requestIDHeader))
		w.Header().Set(requestIDHeader, a.request)
		connection := http.NewResponseController(w)
		b := &body{}
		if a.refusal == nil {
			b, a.refusal = gw.read(a, rt, w, r, params)
			a.refusal = toStatus(a.refusal)
		}
		if a.refusal != nil {
			// If the generated code received an invalid body or query, it would return its own error.
			b, r.Form = &body{}, url.Values{}
			// net/http cancels the context if reading the body fails, but the interceptors must
			// still log the call.
			r = r.WithContext(context.WithoutCancel(r.Context()))
		} else {
			_ = connection.SetReadDeadline(time.Time{}) // a read deadline would end streams
		}
		r.Body = b
		r.Header.Set("Content-Type", "application/json") // curl -d sends the content type of forms
		r.Header.Del("Accept")
		if rt.streams {
			w.Header().Set("Content-Type", ndjson) // for a stream that ends without a message
		}
		if rt.watch {
			r.Header.Set("Accept", eventStream)
			w.Header().Set("X-Accel-Buffering", "no") // without this header, nginx buffers events
		}
		r = r.WithContext(context.WithValue(r.Context(), admissionKey{}, a))
		next := next
		if hasMask := r.Method == http.MethodPatch && !rt.all; !rt.streams && !hasMask {
			next = func(w http.ResponseWriter, r *http.Request, params map[string]string) {
				gw.call(w, r, rt, b.message, params)
			}
		}
		if rt.streams || rt.scope != auth.Read { // in other scopes, answers may contain secrets, which compression would reveal
			next(w, r, params)
			return
		}
		gw.gzip(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next(w, r, params) })).ServeHTTP(w, r)
	}
}

// call makes a call with one answer, and writes the answer.
func (gw *gateway) call(w http.ResponseWriter, r *http.Request, rt *route, body proto.Message, params map[string]string) {
	answer := &rpcAnswer{}
	request, err := rt.newRequest(body, r.Form, params)
	if err = toStatus(err); err == nil {
		err = gw.conn.Invoke(r.Context(), rt.method, request, answer)
	}
	var data []byte
	switch {
	case err != nil:
	case answer.json != nil:
		data, err = answer.json()
	case rt.answerField != nil:
		data, err = appendLine(answer.message.ProtoReflect().Get(rt.answerField).Message().Interface())
	default:
		data, err = appendLine(answer.message)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if isAccepted(answer.message) {
		w.WriteHeader(http.StatusAccepted)
	}
	_, _ = w.Write(data)
}

// read checks the query, and reads the body.
func (gw *gateway) read(a *admission, rt *route, w http.ResponseWriter, r *http.Request, params map[string]string) (*body, error) {
	if rt.body == nil {
		return rt.read(w, r, params)
	}
	var b *body
	err := gw.api.receiveBody(a, w, r, func() (err error) {
		b, err = rt.read(w, r, params)
		return err
	})
	return b, err
}
