package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

const (
	// maxBodyBytes bounds a request's body. The largest result is 4 KiB of
	// metadata, 3 KiB of attributes and 0.5 KiB of ids, which escapes may make
	// six times as long.
	maxBodyBytes = 64 << 10
	// maxBatchBytes bounds the body of a batch, and every message over gRPC: for
	// 5,000 results it is 3 KiB each.
	maxBatchBytes = 16 << 20
	// maxLookupBytes bounds the body of a lookup: 5,000 ids of 128 bytes, as
	// escapes, are 3.7 MiB.
	maxLookupBytes = 4 << 20
	// bodyTimeout is how long a client may take to send a request.
	bodyTimeout = 30 * time.Second
)

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
	switch rt.method {
	case pb.LeaderboardService_BatchSubmitScores_FullMethodName:
		limit = maxBatchBytes
	case pb.LeaderboardService_LookupScores_FullMethodName:
		limit = maxLookupBytes
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, newStatus(codes.OutOfRange, fmt.Sprintf("the body is longer than %d bytes", limit), errorInfo("BODY_TOO_LARGE"))
	}
	if err != nil {
		return nil, &leaderboard.FieldError{Field: bodyField, Problem: "ended early"}
	}
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
