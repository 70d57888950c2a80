package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
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
	method  string // full name
	streams bool
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
		r := &route{
			method: fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name()), streams: method.IsStreamingServer(),
			query: map[string]protoreflect.FieldDescriptor{},
		}
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
// wrong with it. Of a caller who may not call now, it reads no body.
func (gw *gateway) admit(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		matched, _ := runtime.HTTPPattern(r.Context())
		rt := gw.routes[r.Method+" "+matched.String()]
		a := gw.guard.admit(r.Context(), r.Header["Authorization"], rt.method)
		// Not every ResponseWriter has deadlines; a server's has.
		connection := http.NewResponseController(w)
		_ = connection.SetReadDeadline(time.Now().Add(bodyTimeout))
		b := &body{}
		if a.refusal == nil {
			b, a.refusal = rt.read(w, r, params)
			a.refusal = toStatus(a.refusal)
		}
		if a.refusal != nil {
			// The generated code would refuse the rest in its own words.
			b, r.URL.RawQuery = &body{}, ""
		} else {
			_ = connection.SetReadDeadline(time.Time{}) // which would end a stream
		}
		r.Body = b
		r.Header.Set("Content-Type", "application/json") // curl -d says that it is a form
		r.Header.Del("Accept")
		if rt.streams {
			w.Header().Set("Content-Type", ndjson) // of a stream without messages
		}
		if rt.method == pb.LeaderboardService_WatchScores_FullMethodName {
			r.Header.Set("Accept", eventStream)
			w.Header().Set("X-Accel-Buffering", "no") // proxies such as nginx would hold events back
		}
		next(w, r.WithContext(context.WithValue(r.Context(), admissionKey{}, a)), params)
	}
}
