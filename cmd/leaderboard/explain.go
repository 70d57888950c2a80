package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// callError is a failure while a server was used.
type callError struct {
	err    error
	server string
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// explain says what went wrong, and what to do.
func explain(err error) string {
	var call *callError
	if !errors.As(err, &call) {
		return err.Error()
	}
	var coded interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &coded) {
		if errors.Is(err, context.Canceled) {
			return "interrupted"
		}
		return err.Error()
	}
	s := coded.GRPCStatus()
	message := s.Message()
	switch s.Code() {
	case codes.Unavailable:
		return unavailable(message, call.server)
	case codes.Unauthenticated:
		return fmt.Sprintf("the server %s wants a valid key; set LEADERBOARD_KEY to one (make one with leaderboard key create)", call.server)
	case codes.PermissionDenied:
		return message + "; use a key that has it (make one with leaderboard key create --scope)"
	case codes.ResourceExhausted:
		if wait := retryDelay(s); wait > 0 && !strings.Contains(message, "try again") {
			return fmt.Sprintf("%s; try again in %v", message, wait)
		}
		return message
	case codes.DeadlineExceeded:
		return fmt.Sprintf("the server %s did not answer in time; try again, with a longer --timeout if it is busy", call.server)
	case codes.Canceled:
		return "interrupted"
	case codes.Unimplemented:
		return fmt.Sprintf("the server %s cannot do this (%s); its version may be older than this command's, see leaderboard version", call.server, message)
	case codes.NotFound:
		return message + notFoundAdvice(s)
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return fmt.Sprintf("the server failed (%s); its log says why", message)
	}
	return message
}

// notFoundAdvice names the command that lists what there is.
func notFoundAdvice(s *status.Status) string {
	switch reason(s) {
	case "BOARD_NOT_FOUND":
		return "; leaderboard board list shows the boards there are"
	case "SEASON_NOT_FOUND":
		return "; leaderboard season list shows the seasons there are"
	case "ENTRY_NOT_FOUND":
		return "; leaderboard user shows where a user has scores"
	case "API_KEY_NOT_FOUND":
		return "; leaderboard key list shows the keys there are"
	}
	return ""
}

func unavailable(message, server string) string {
	switch {
	case strings.Contains(message, "first record does not look like a TLS handshake"):
		return fmt.Sprintf("the server %s speaks no TLS; give it a certificate, or use --plaintext if nobody listens on the way", server)
	case strings.Contains(message, "remote error: tls: certificate required"), strings.Contains(message, "remote error: tls: bad certificate"):
		return fmt.Sprintf("the server %s asks for a client certificate that it accepts; name one with --cert and --cert-key", server)
	case strings.Contains(message, "broken pipe"), strings.Contains(message, "connection reset by peer"):
		// Which is how a server that was shown no certificate may end it, too.
		return fmt.Sprintf("the server %s broke the connection; try again in a moment, or with --cert if it asks for a client certificate", server)
	case strings.Contains(message, "error reading server preface"), strings.Contains(message, "connection closed before server preface"):
		return fmt.Sprintf("the server at %s does not speak plain gRPC; use --tls, or check that the port is gRPC's and not HTTP's", server)
	case strings.Contains(message, "x509:"), strings.Contains(message, "tls:"):
		_, cause, _ := strings.Cut(message, "authentication handshake failed: ")
		return fmt.Sprintf("TLS with %s failed (%s); name its certificate authority with --ca, and a client certificate with --cert if it asks for one", server, strings.Trim(cause, `"`))
	case strings.Contains(message, "no such host"), strings.Contains(message, "produced zero addresses"), strings.Contains(message, "name resolver error"):
		return fmt.Sprintf("there is no host of that name in %s; check --server", server)
	case strings.Contains(message, "connection refused"), strings.Contains(message, "i/o timeout"), strings.Contains(message, "no route to host"):
		return fmt.Sprintf("no server answers at %s; is it running? start it with leaderboard serve, or name another with --server", server)
	}
	return fmt.Sprintf("the server %s is not available (%s); try again in a moment", server, message)
}

// reason is the word for programs in an error of the API.
func reason(s *status.Status) string {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// retryDelay is how long the server says to wait, or 0.
func retryDelay(s *status.Status) time.Duration {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}
