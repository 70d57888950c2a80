package server

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

const errorDomain = "leaderboard"

// codeOf maps errors to gRPC codes and reasons. The first row that matches applies. If verbatim is
// set, the caller receives the whole text of the error. Otherwise, the caller receives the text of
// the row's err, and the server logs the cause. Both texts end with the advice.
//
// No row may have the reason SEASON_OPEN, which old documentation listed.
var codeOf = []struct {
	err      error
	code     codes.Code
	reason   pb.Error_Reason
	verbatim bool
	advice   string
}{
	// ErrFormat comes first, because an error about stored bytes may also wrap ErrInvalid.
	{leaderboard.ErrFormat, codes.Internal, pb.Error_FORMAT, false, ""},
	{leaderboard.ErrInvalid, codes.InvalidArgument, pb.Error_INVALID_ARGUMENT, true, ""},
	{leaderboard.ErrBoardNotFound, codes.NotFound, pb.Error_BOARD_NOT_FOUND, false, ""},
	{leaderboard.ErrBoardExists, codes.AlreadyExists, pb.Error_BOARD_EXISTS, true, "; choose another board_id, or change the mutable fields with PATCH"},
	{leaderboard.ErrSeasonNotFound, codes.NotFound, pb.Error_SEASON_NOT_FOUND, true, ""},
	{leaderboard.ErrEntryNotFound, codes.NotFound, pb.Error_ENTRY_NOT_FOUND, true, ""},
	{leaderboard.ErrResultNotFound, codes.NotFound, pb.Error_RESULT_NOT_FOUND, false, "; check user_id, match_id and season"},
	{leaderboard.ErrMatchNotFound, codes.NotFound, pb.Error_MATCH_NOT_FOUND, true, ""},
	{leaderboard.ErrMatchesFilling, codes.FailedPrecondition, pb.Error_MATCHES_FILLING, false, "; wait until the board's field filling is absent"},
	{leaderboard.ErrAPIKeyNotFound, codes.NotFound, pb.Error_API_KEY_NOT_FOUND, false, ""},
	{leaderboard.ErrProfileNotFound, codes.NotFound, pb.Error_PROFILE_NOT_FOUND, false, ""},
	{leaderboard.ErrDeadLetterNotFound, codes.NotFound, pb.Error_DEAD_LETTER_NOT_FOUND, true, ""},
	{leaderboard.ErrErased, codes.FailedPrecondition, pb.Error_USER_ERASED, false, " at the time of the call or later; try again, if the user is a new one"},
	{leaderboard.ErrNotSealed, codes.FailedPrecondition, pb.Error_NOT_SEALED, true, ""},
	{auth.ErrUnauthenticated, codes.Unauthenticated, pb.Error_UNAUTHENTICATED, false, ""},
	{leaderboard.ErrRankUnavailable, codes.Unavailable, pb.Error_RANK_UNAVAILABLE, false, "; try again soon: scores without ranks remain available, from the top and by user"},
	{leaderboard.ErrMethodUnavailable, codes.InvalidArgument, pb.Error_METHOD_UNAVAILABLE, false, "; use method=competition or method=ordinal, or set the board's shards to 1"},
	{leaderboard.ErrUnavailable, codes.Unavailable, pb.Error_UNAVAILABLE, false, "; try again: a result that is sent twice counts once"},
	{errors.ErrUnsupported, codes.Unimplemented, pb.Error_UNSUPPORTED, true, ""},
	{context.DeadlineExceeded, codes.DeadlineExceeded, pb.Error_TIMEOUT, false, ""},
	{context.Canceled, codes.Canceled, pb.Error_CANCELED, false, ""},
}

// retryAfter is the suggested delay before a retry, except after a rate limit.
const retryAfter = time.Second

var packagePrefix = regexp.MustCompile(`^([a-z]+: )+`)

// toStatus returns the status that the caller receives for err. An unknown error becomes INTERNAL.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return err
	}
	var scope *auth.ScopeError
	if errors.As(err, &scope) {
		return newStatus(codes.PermissionDenied, scope.Error(), errorInfo(pb.Error_SCOPE_REQUIRED))
	}
	var board *auth.BoardError
	if errors.As(err, &board) {
		return newStatus(codes.PermissionDenied, clip(board.Error()), errorInfo(pb.Error_BOARD_DENIED))
	}
	var rate *auth.RateError
	if errors.As(err, &rate) {
		return newStatus(codes.ResourceExhausted, rate.Error(), errorInfo(pb.Error_RATE_LIMITED), &errdetails.RetryInfo{RetryDelay: durationpb.New(rate.Wait)})
	}
	for _, row := range codeOf {
		if !errors.Is(err, row.err) {
			continue
		}
		message := row.err.Error() + row.advice
		if row.code == codes.DeadlineExceeded {
			message = "the call took longer than the server allows"
		}
		details := []protoadapt.MessageV1{errorInfo(row.reason)}
		switch fields := fieldErrors(err); {
		case len(fields) > 0 && row.code == codes.InvalidArgument:
			var bad *errdetails.BadRequest
			message, bad = violations(fields)
			details = append(details, bad)
		case row.verbatim:
			message = clip(packagePrefix.ReplaceAllString(err.Error(), "")) + row.advice
		}
		if row.code == codes.Unavailable {
			details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
		}
		return newStatus(row.code, message, details...)
	}
	return newStatus(codes.Internal, "internal error", errorInfo(pb.Error_INTERNAL))
}

func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

func tooManyError(reason pb.Error_Reason, message string) error {
	return newStatus(codes.ResourceExhausted, message, errorInfo(reason), &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
}

func violations(fields []*leaderboard.FieldError) (string, *errdetails.BadRequest) {
	bad := &errdetails.BadRequest{}
	var texts []string
	for _, f := range fields[:min(len(fields), maxViolations)] {
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: clip(f.Field), Description: clip(f.Problem)})
		texts = append(texts, clip(f.Error()))
	}
	if more := len(fields) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; "), bad
}

// gRPC sends the text of an error in headers, and proxies limit headers.
const (
	maxViolations = 20
	maxTextBytes  = 512
)

func clip(s string) string {
	if len(s) > maxTextBytes {
		return strings.ToValidUTF8(s[:maxTextBytes], "") + "…"
	}
	return s
}

func messageOf(err error) string { return status.Convert(toStatus(err)).Message() }

func errorInfo(reason pb.Error_Reason) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Reason: reason.String(), Domain: errorDomain}
}

func newStatus(code codes.Code, message string, details ...protoadapt.MessageV1) error {
	s, err := status.New(code, strings.ToValidUTF8(message, "\uFFFD")).WithDetails(details...)
	if err != nil {
		return status.Error(codes.Internal, "internal error")
	}
	return s.Err()
}

func fieldErrors(err error) []*leaderboard.FieldError {
	// errors.As finds only the first of several joined errors.
	if f, ok := err.(*leaderboard.FieldError); ok { //nolint:errorlint // see above
		return []*leaderboard.FieldError{f}
	}
	switch err := err.(type) { //nolint:errorlint // see above
	case interface{ Unwrap() error }:
		return fieldErrors(err.Unwrap())
	case interface{ Unwrap() []error }:
		var all []*leaderboard.FieldError
		for _, e := range err.Unwrap() {
			all = append(all, fieldErrors(e)...)
		}
		return all
	}
	return nil
}
