package server

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/restjson"
)

type body struct {
	bytes.Reader
	message proto.Message // nil if the route has no body or the request is refused
}

func (*body) Close() error { return nil }

func (rt *route) read(w http.ResponseWriter, r *http.Request, params map[string]string) (*body, error) {
	query, err := rt.checkQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	r.Form = query // the generated code reads the parameters from here
	if rt.body == nil {
		return &body{}, discardBody(w, r)
	}
	data, err := readBody(w, r, rt.maxBytes)
	if err != nil {
		return nil, err
	}
	b := &body{message: rt.body.New().Interface()}
	b.Reset(data)
	if err := restjson.Decode(data, b.message); err != nil {
		return nil, err
	}
	return b, rt.checkBody(b.message.ProtoReflect(), query, params)
}

var errBodyEndedEarly = &leaderboard.FieldError{Field: restjson.BodyField, Problem: "ended early; send it again"}

// discardBody reads the body of a request whose route uses no body. It must run before admit
// removes the read deadline. Otherwise, net/http would later wait for the body without a limit.
func discardBody(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBodyBytes)); err != nil {
		return &leaderboard.FieldError{Field: restjson.BodyField, Problem: "must be empty, because this route uses no body"}
	}
	return nil
}

// checkQuery parses the query. Every parameter must be known and valid. Only lists may be given several
// times, and division: its values become the parameter divisions.
func (rt *route) checkQuery(raw string) (url.Values, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, &leaderboard.FieldError{Field: "query", Problem: "is not a valid query string: percent-encode all characters except letters and digits"}
	}
	for name, texts := range values {
		fd := rt.query[name]
		switch {
		case fd == nil:
			return nil, &leaderboard.FieldError{Field: cmp.Or(name, `""`), Problem: "is not a parameter of this request; " + rt.parameters()}
		case len(texts) > 1 && !fd.IsList() && (name != "division" || rt.divisions == nil):
			return nil, &leaderboard.FieldError{Field: name, Problem: "is given twice"}
		}
		for _, value := range texts {
			if problem := queryProblem(fd, value); problem != "" {
				return nil, &leaderboard.FieldError{Field: name, Problem: problem}
			}
		}
	}
	if divisions := values["division"]; len(divisions) > 1 {
		values["divisions"] = divisions
		values.Del("division")
	}
	return values, nil
}

// queryProblem returns the reason why value is invalid for the field fd, or "".
func queryProblem(fd protoreflect.FieldDescriptor, value string) string {
	switch fd.Kind() {
	case protoreflect.StringKind:
		switch {
		case !utf8.ValidString(value):
			return "is not valid UTF-8"
		case value == "" && (fd.Name() == "board" || fd.IsList()): // such as ?board=$BOARD in a script without this variable
			return "is empty; name a board, or leave the parameter out"
		}
	case protoreflect.BoolKind:
		if value != "true" && value != "false" {
			return "must be true or false"
		}
	case protoreflect.DoubleKind:
		return restjson.NumberProblem(fd, value)
	default:
		if _, err := strconv.ParseInt(value, 10, 64); err != nil { // 1e3 is an integer in JSON, but not in a query
			return fmt.Sprintf("%.40q is not an integer", value)
		}
		return restjson.NumberProblem(fd, value)
	}
	return ""
}

// newRequest returns the message of a call. The query and the body were checked: see checkQuery and
// checkBody.
func (rt *route) newRequest(body proto.Message, query url.Values, params map[string]string) (proto.Message, error) {
	request := body
	if !rt.all || body == nil {
		request = rt.request.New().Interface()
		if body != nil {
			request.ProtoReflect().Set(rt.bodyField, protoreflect.ValueOfMessage(body.ProtoReflect()))
		}
	}
	for name, values := range query {
		for _, value := range values {
			if err := setField(request, name, value); err != nil {
				return nil, err
			}
		}
	}
	for name, value := range params {
		if err := setField(request, name, value); err != nil {
			return nil, err
		}
	}
	return request, nil
}

func setField(m proto.Message, name, value string) error {
	if err := runtime.PopulateFieldFromPath(m, name, value); err != nil {
		return &leaderboard.FieldError{Field: name, Problem: "is not valid"}
	}
	return nil
}

func (rt *route) parameters() string {
	if len(rt.query) == 0 {
		return "it has no parameters"
	}
	return "the known parameters are " + strings.Join(slices.Sorted(maps.Keys(rt.query)), ", ")
}

// checkBody compares the body with the path and the query. A field in the path and in the body must
// have equal values. No field may be in the query and in the body.
func (rt *route) checkBody(m protoreflect.Message, query url.Values, params map[string]string) error {
	fields := m.Descriptor().Fields()
	for param, value := range params {
		fd := fields.ByName(protoreflect.Name(param[strings.LastIndexByte(param, '.')+1:]))
		if fd != nil && m.Has(fd) && m.Get(fd).String() != value {
			return &leaderboard.FieldError{Field: string(fd.Name()), Problem: "differs from the value in the path"}
		}
	}
	if !rt.all {
		return nil
	}
	for name := range query {
		fd := rt.query[name]
		if name == "divisions" {
			fd = rt.divisions
		}
		if m.Has(fd) {
			return &leaderboard.FieldError{Field: name, Problem: "is given in the body and in the query"}
		}
	}
	return nil
}
