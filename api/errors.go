package api

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
)

// errorDomain is the domain of every ErrorInfo.
const errorDomain = "leaderboard"

// codeOf gives each error of the root its code and its reason for programs; the
// first that matches counts. Those told are told in full, for what they say was
// written for callers; of the others the caller is told the bare error, and what
// to do about it where that is not plain; the log is told the rest.
var codeOf = []struct {
	err    error
	code   codes.Code
	reason string
	told   bool
	advice string
}{
	// What is stored wrongly may wrap any of the others.
	{leaderboard.ErrFormat, codes.Internal, "FORMAT", false, ""},
	{leaderboard.ErrInvalid, codes.InvalidArgument, "INVALID_ARGUMENT", true, ""},
	{leaderboard.ErrBoardNotFound, codes.NotFound, "BOARD_NOT_FOUND", false, ""},
	{leaderboard.ErrBoardExists, codes.AlreadyExists, "BOARD_EXISTS", false, "; choose another board_id, or change by PATCH what may change"},
	{leaderboard.ErrSeasonNotFound, codes.NotFound, "SEASON_NOT_FOUND", true, ""},
	{leaderboard.ErrEntryNotFound, codes.NotFound, "ENTRY_NOT_FOUND", false, ""},
	{leaderboard.ErrResultNotFound, codes.NotFound, "RESULT_NOT_FOUND", false, "; check user_id and match_id, and the season, which is the current one if absent"},
	{leaderboard.ErrAPIKeyNotFound, codes.NotFound, "API_KEY_NOT_FOUND", false, ""},
	{leaderboard.ErrSeasonOpen, codes.FailedPrecondition, "SEASON_OPEN", true, ""},
	{leaderboard.ErrNotSealed, codes.FailedPrecondition, "NOT_SEALED", true, ""},
	{leaderboard.ErrRankUnavailable, codes.Unavailable, "RANK_UNAVAILABLE", false, "; try again soon: scores are told meanwhile, by lists from the top and by user"},
	{leaderboard.ErrUnavailable, codes.Unavailable, "UNAVAILABLE", false, "; try again: a result sent again counts once"},
	{errors.ErrUnsupported, codes.Unimplemented, "UNSUPPORTED", true, ""},
	{context.DeadlineExceeded, codes.DeadlineExceeded, "TIMEOUT", false, ""},
	{context.Canceled, codes.Canceled, "CANCELED", false, ""},
}

// retryAfter is when a caller may try again what is unavailable.
const retryAfter = time.Second

// packagePrefix is what "pkg: " wrapping put before an error.
var packagePrefix = regexp.MustCompile(`^([a-z]+: )+`)

// toStatus makes of an error what the caller is told. Errors of this package
// that are statuses already pass; so do nil and what wraps nothing that is known,
// the latter as INTERNAL.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return err
	}
	for _, row := range codeOf {
		if !errors.Is(err, row.err) {
			continue
		}
		message := row.err.Error() + row.advice
		details := []protoadapt.MessageV1{errorInfo(row.reason)}
		switch fields := fieldErrors(err); {
		case len(fields) > 0 && row.code == codes.InvalidArgument:
			var bad *errdetails.BadRequest
			message, bad = violations(fields)
			details = append(details, bad)
		case row.told:
			message = clip(packagePrefix.ReplaceAllString(err.Error(), ""))
		}
		if row.code == codes.Unavailable {
			details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
		}
		return newStatus(row.code, message, details...)
	}
	return newStatus(codes.Internal, "internal error", errorInfo("INTERNAL"))
}

// violations tells of every field, in words and for programs.
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

// Over gRPC an error is sent in headers, which proxies bound, but what it quotes
// of a request may be long.
const (
	maxViolations = 20
	maxTextBytes  = 512
)

// clip cuts a text that is too long.
func clip(s string) string {
	if len(s) > maxTextBytes {
		return strings.ToValidUTF8(s[:maxTextBytes], "") + "…"
	}
	return s
}

// messageOf is what a caller is told of an error, in words.
func messageOf(err error) string { return status.Convert(toStatus(err)).Message() }

func errorInfo(reason string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Reason: reason, Domain: errorDomain}
}

func newStatus(code codes.Code, message string, details ...protoadapt.MessageV1) error {
	s, err := status.New(code, strings.ToValidUTF8(message, "\uFFFD")).WithDetails(details...)
	if err != nil {
		return status.Error(codes.Internal, "internal error")
	}
	return s.Err()
}

// fieldErrors returns every FieldError in the tree of err.
func fieldErrors(err error) []*leaderboard.FieldError {
	if f, ok := err.(*leaderboard.FieldError); ok {
		return []*leaderboard.FieldError{f}
	}
	switch err := err.(type) {
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
