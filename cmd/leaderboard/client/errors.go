package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/open-leaderboard/leaderboard/internal/cli"
)

type callError struct {
	err    error
	server string
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// WrapError adds the server's address to err, for [ErrorText]. It returns nil for nil.
func (c *Client) WrapError(err error) error {
	if err == nil {
		return nil
	}
	return &callError{err, c.Server}
}

// ErrorText returns what went wrong and what to do next, for errors of [Client.WrapError]. The
// caller must escape the text with [cli.EscapeLines].
func ErrorText(err error) string {
	var call *callError
	if !errors.As(err, &call) {
		return err.Error()
	}
	var withStatus interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &withStatus) {
		if errors.Is(err, context.Canceled) {
			return "interrupted"
		}
		return err.Error()
	}
	return cli.Escape(statusText(err, withStatus.GRPCStatus(), call.server))
}

func statusText(err error, s *status.Status, server string) string {
	message := s.Message()
	switch s.Code() {
	case codes.Unavailable:
		return unavailableText(message, server)
	case codes.Unauthenticated:
		return fmt.Sprintf("the server %s requires a valid key; put a key into LEADERBOARD_KEY, or store it with `leaderboard context add` (`leaderboard key create` creates keys)", server)
	case codes.FailedPrecondition:
		if reason(s) == "LAST_ADMIN_KEY" {
			return "this is the last admin key: create another admin key first (`leaderboard key create --scope admin`), or use --force; a server that starts without an admin key creates one"
		}
		return message
	case codes.PermissionDenied:
		if reason(s) == "BOARD_DENIED" {
			return message
		}
		return message + "; use a key with this scope (`leaderboard key create --scope` creates such a key)"
	case codes.ResourceExhausted:
		if wait := retryDelay(err); wait > 0 && !strings.Contains(message, "try again") {
			return fmt.Sprintf("%s; try again in %v", message, wait)
		}
		return message
	case codes.DeadlineExceeded:
		return fmt.Sprintf("the server %s did not answer in time; try again, with a longer --timeout if the server is busy", server)
	case codes.Canceled:
		return "interrupted"
	case codes.Unimplemented:
		return fmt.Sprintf("the server %s does not support this call (%s); the server may be older than this command: compare its version with the output of `leaderboard version`", server, message)
	case codes.NotFound:
		return message + notFoundAdvice(s)
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return fmt.Sprintf("the server failed (%s); see its log for the cause", message)
	}
	return message
}

func notFoundAdvice(s *status.Status) string {
	switch reason(s) {
	case "BOARD_NOT_FOUND":
		return "; `leaderboard board list` shows the existing boards"
	case "SEASON_NOT_FOUND":
		return "; `leaderboard season list` shows the existing seasons"
	case "ENTRY_NOT_FOUND":
		return "; `leaderboard user` shows the boards where a user has scores"
	case "API_KEY_NOT_FOUND":
		return "; `leaderboard key list` shows the existing keys"
	}
	return ""
}

func unavailableText(message, server string) string {
	switch {
	case strings.Contains(message, "first record does not look like a TLS handshake"):
		return fmt.Sprintf("the server %s does not use TLS; configure a certificate on the server, or use --plaintext if the network is trusted", server)
	case strings.Contains(message, "remote error: tls: certificate required"), strings.Contains(message, "remote error: tls: bad certificate"):
		return fmt.Sprintf("the server %s requires a client certificate; name a certificate that the server accepts with --cert and --cert-key", server)
	case strings.Contains(message, "broken pipe"), strings.Contains(message, "connection reset by peer"):
		// A TLS server may close the connection while the client writes. The message then has no TLS
		// alert.
		return fmt.Sprintf("the server %s closed the connection; use --tls if the server requires TLS, or --cert if it requires a client certificate; otherwise try again", server)
	case strings.Contains(message, "error reading server preface"), strings.Contains(message, "connection closed before server preface"):
		return fmt.Sprintf("the server at %s does not answer gRPC without TLS; use --tls, or check that the port is gRPC's and not HTTP's", server)
	case strings.Contains(message, "x509:"), strings.Contains(message, "tls:"):
		_, cause, _ := strings.Cut(message, "authentication handshake failed: ")
		return fmt.Sprintf("TLS with %s failed (%s); name the server's certificate authority with --ca, and a client certificate with --cert if the server requires one", server, strings.Trim(cause, `"`))
	case strings.Contains(message, "no such host"), strings.Contains(message, "produced zero addresses"), strings.Contains(message, "name resolver error"):
		return fmt.Sprintf("the host of %s is unknown; check --server", server)
	case strings.Contains(message, "connection refused"), strings.Contains(message, "i/o timeout"), strings.Contains(message, "no route to host"):
		return fmt.Sprintf("no server answers at %s; start it with leaderboard serve, or name another server with --server", server)
	}
	return fmt.Sprintf("the server %s is unavailable (%s); try again later", server, message)
}

func reason(s *status.Status) string {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}
