package server

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
)

// isAccepted reports whether a result in the answer is durable but not applied yet.
func isAccepted(answer proto.Message) bool {
	type outcome interface{ GetStatus() pb.Outcome_Status }
	switch m := answer.(type) {
	case outcome:
		return m.GetStatus() == pb.Outcome_ACCEPTED
	case interface{ GetOutcomes() []*pb.Outcome }:
		return slices.ContainsFunc(m.GetOutcomes(), func(o *pb.Outcome) bool { return o.GetStatus() == pb.Outcome_ACCEPTED })
	}
	return false
}

func httpStatus(c codes.Code) int {
	switch c {
	case codes.FailedPrecondition:
		return http.StatusConflict // the request is valid but conflicts with the stored state
	case codes.OutOfRange:
		return http.StatusRequestEntityTooLarge
	default:
		return runtime.HTTPStatusFromCode(c)
	}
}

func errorMessage(s *spb.Status) *pb.Error {
	return &pb.Error{Code: s.GetCode(), Status: code.Code(s.GetCode()).String(), Message: s.GetMessage(), Details: s.GetDetails()}
}

func (gw *gateway) writeError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
	writeError(w, err)
}

func writeError(w http.ResponseWriter, err error) {
	s := status.Convert(err)
	setErrorHeaders(w.Header(), s)
	writeErrorBody(w, restStatus(s), err)
}

func setErrorHeaders(h http.Header, s *status.Status) {
	if s.Code() == codes.Unauthenticated {
		h.Set("WWW-Authenticate", "Bearer")
	}
	for _, d := range s.Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok {
			h.Set("Retry-After", strconv.Itoa(int(math.Ceil(max(1, retry.RetryDelay.AsDuration().Seconds())))))
		}
	}
}

func restStatus(s *status.Status) int {
	if s.Code() == codes.DeadlineExceeded && reasonOf(s.Err()) == pb.Error_MESSAGE_TIMEOUT.String() {
		return http.StatusRequestTimeout
	}
	return httpStatus(s.Code())
}

// writeErrorBody writes err, which must be a status, as JSON.
func writeErrorBody(w http.ResponseWriter, httpStatus int, statusErr error) {
	s := status.Convert(statusErr)
	b, err := appendLine(errorMessage(s.Proto()))
	if err != nil { // a detail of an unknown type: answer without details
		b, _ = appendLine(&pb.Error{Code: int32(s.Code()), Status: code.Code(s.Code()).String(), Message: s.Message()})
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(httpStatus)
	_, _ = w.Write(b)
}

func (gw *gateway) writeRoutingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, httpStatus int) {
	path := r.URL.EscapedPath()
	if httpStatus != http.StatusMethodNotAllowed {
		err := errNoRoute
		if name := gw.emptyParameter(path); name != "" {
			err = newStatus(codes.NotFound, fmt.Sprintf("the %s in the path is empty; an id has at least one character", name), errorInfo(pb.Error_EMPTY_ID))
		}
		writeErrorBody(w, http.StatusNotFound, err)
		return
	}
	var allowed []string
	for key := range gw.routes {
		verb, pattern, _ := strings.Cut(key, " ")
		if _, ok := match(pattern, path); ok && !slices.Contains(allowed, verb) {
			allowed = append(allowed, verb)
		}
	}
	writeMethodNotAllowed(w, r, allowed)
}

var errNoRoute = newStatus(codes.NotFound, "no such route; /openapi.json lists the routes", errorInfo(pb.Error_NO_SUCH_ROUTE))

func writeMethodNotAllowed(w http.ResponseWriter, r *http.Request, allowed []string) {
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	slices.Sort(allowed)
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	message := clip(fmt.Sprintf("%s is not allowed on this route; the allowed methods are %s", r.Method, list))
	writeErrorBody(w, http.StatusMethodNotAllowed, newStatus(codes.Unimplemented, message, errorInfo(pb.Error_METHOD_NOT_ALLOWED)))
}

// emptyParameter returns the name of the first parameter that is empty in path, or "".
func (gw *gateway) emptyParameter(path string) string {
	for _, key := range slices.Sorted(maps.Keys(gw.routes)) {
		_, pattern, _ := strings.Cut(key, " ")
		values, ok := match(pattern, path)
		if !ok {
			continue
		}
		for i, segment := range strings.Split(pattern, "/") {
			if strings.HasPrefix(segment, "{") && values[i] == "" {
				name, _, _ := strings.Cut(segment[1:], "=")
				return name[strings.LastIndexByte(name, '.')+1:]
			}
		}
	}
	return ""
}

// match returns the segments of path, without the suffix of the pattern such as ":end".
func match(pattern, path string) (values []string, ok bool) {
	pattern, suffix, hasSuffix := strings.Cut(pattern, ":")
	if hasSuffix {
		if path, ok = strings.CutSuffix(path, ":"+suffix); !ok {
			return nil, false
		}
	}
	values = strings.Split(path, "/")
	return values, slices.EqualFunc(strings.Split(pattern, "/"), values, func(segment, value string) bool {
		return segment == value || strings.HasPrefix(segment, "{")
	})
}

const ndjson = "application/x-ndjson"

// jsonMarshaler encodes and decodes JSON for the gateway. In a stream, each message has its own
// line.
type jsonMarshaler struct{}

var _ runtime.StreamContentType = jsonMarshaler{}

func (jsonMarshaler) ContentType(any) string       { return "application/json" }
func (jsonMarshaler) StreamContentType(any) string { return ndjson }
func (jsonMarshaler) Delimiter() []byte            { return []byte{'\n'} }

func (jsonMarshaler) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case *httpbody.HttpBody: // of rewriteShared
		return v.GetData(), nil
	case proto.Message:
		return appendLine(v)
	case map[string]any: // the gateway's wrapper of a message in a stream
		if m, ok := v["result"].(proto.Message); ok {
			return restjson.Append(nil, m)
		}
	case map[string]proto.Message: // the gateway's wrapper of an error that ends a stream
		if s, ok := v["error"].(*spb.Status); ok {
			b, err := restjson.Append([]byte(`{"error":`), errorMessage(s))
			return append(b, '}'), err
		}
	}
	return nil, fmt.Errorf("server: no JSON for %T", v)
}

// appendLine returns the JSON of an answer, which ends with a newline for readers in a terminal.
func appendLine(m proto.Message) ([]byte, error) {
	b, err := restjson.Append(nil, m)
	return append(b, '\n'), err
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

// NewDecoder returns a decoder of the body of a PATCH with a field mask. Decode accepts a message or a pointer to a message.
func (jsonMarshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		data, err := io.ReadAll(r)
		if err != nil || len(data) == 0 {
			return cmp.Or(err, io.EOF) // io.EOF means an empty body to the gateway
		}
		m, ok := v.(proto.Message)
		if !ok {
			p := reflect.ValueOf(v).Elem()
			p.Set(reflect.New(p.Type().Elem()))
			m = p.Interface().(proto.Message)
		}
		return restjson.Decode(data, m)
	})
}

const eventStream = "text/event-stream"

type eventMarshaler struct{ jsonMarshaler }

func (eventMarshaler) ContentType(any) string       { return eventStream }
func (eventMarshaler) StreamContentType(any) string { return eventStream }
func (eventMarshaler) Delimiter() []byte            { return []byte("\n\n") }

// rewriteShared returns the encoding of an answer that several calls share. The gateway writes this
// encoding unchanged. rewriteShared returns other answers as they are.
func rewriteShared(ctx context.Context, m proto.Message) (any, error) {
	a := admissionFrom(ctx)
	if a == nil || a.encode == nil {
		return m, nil
	}
	data, err := a.encode()
	return &httpbody.HttpBody{Data: data}, err
}

func (e eventMarshaler) Marshal(v any) ([]byte, error) {
	b, err := e.jsonMarshaler.Marshal(v)
	return append([]byte(errorEvent(v)+"data: "), b...), err
}

// errorEvent returns the first lines of the event that ends a stream with an error. If the client is to
// reconnect, the lines state the delay in milliseconds.
func errorEvent(v any) string {
	wrapped, _ := v.(map[string]proto.Message)
	s, _ := wrapped["error"].(*spb.Status)
	reconnect, delay := false, time.Duration(0)
	for _, d := range status.FromProto(s).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reconnect = d.GetReason() == pb.Error_SERVER_STOPPING.String() || d.GetReason() == pb.Error_STREAM_EXPIRED.String()
		case *errdetails.RetryInfo:
			delay = d.GetRetryDelay().AsDuration()
		}
	}
	if !reconnect {
		return "event: error\n"
	}
	return fmt.Sprintf("event: reconnect\nretry: %d\n", delay.Milliseconds())
}
