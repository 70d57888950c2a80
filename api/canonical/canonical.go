// Package canonical fetches match results from a game's own store, over HTTP or gRPC.
package canonical

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/certs"
)

// Key names a result.
type Key struct {
	Board leaderboard.BoardID
	User  leaderboard.UserID
	Match leaderboard.MatchID
}

// path returns the path of the result below the address of the store. It escapes "." and "..", because
// servers may resolve them as parts of a path.
func (k Key) path() string {
	escape := func(id string) string {
		if id == "." || id == ".." {
			return strings.ReplaceAll(id, ".", "%2E")
		}
		return url.PathEscape(id)
	}
	return "/boards/" + escape(string(k.Board)) + "/users/" + escape(string(k.User)) + "/matches/" + escape(string(k.Match))
}

// Problem is the kind of an [Error].
type Problem string

const (
	// NotFound means that the store does not have the result, perhaps not yet.
	NotFound Problem = "not_found"
	// Unavailable means that a later call may succeed, and calls for other results fail too.
	Unavailable Problem = "unavailable"
	// Invalid means that the store refuses the request, or that its answer is not a valid result.
	Invalid Problem = "invalid"
)

// Error is a failure to fetch a result.
type Error struct {
	Problem Problem
	Detail  string
	// RetryAfter is how long the store asks callers to wait, or 0.
	RetryAfter time.Duration
}

func (e *Error) Error() string { return "canonical: " + e.Detail }

func failure(p Problem, format string, args ...any) *Error {
	return &Error{Problem: p, Detail: fmt.Sprintf(format, args...)}
}

// Options are the settings of a [Client].
type Options struct {
	// URL is the address of the store: http or https, with or without a port and a path, or grpc or grpcs
	// with a port.
	URL *url.URL
	// Keys sign the requests as in Standard Webhooks. A request has a signature with each of them, so
	// that a store can replace its key. Without keys, requests are not signed.
	Keys [][]byte
	// TLS is for https and grpcs.
	TLS certs.Client
	// Timeout bounds a call, with connecting and reading the answer.
	Timeout time.Duration
}

// Client fetches results. It is safe for concurrent use.
type Client struct {
	keys    [][]byte
	timeout time.Duration
	fetch   func(ctx context.Context, k Key) (*pb.GetCanonicalResultResponse, error)
	close   func() error
}

// MaxAnswerBytes bounds the size of an answer.
const MaxAnswerBytes = 256 << 10

// New returns a client. It does not connect. Errors: an unknown scheme, unreadable files.
func New(o Options) (*Client, error) {
	c := &Client{keys: o.Keys, timeout: o.Timeout}
	dial := (&net.Dialer{Timeout: o.Timeout}).DialContext
	if o.URL.Scheme == "https" || o.URL.Scheme == "grpcs" {
		if o.URL.Scheme == "grpcs" {
			o.TLS.Protocols = []string{"h2"}
		}
		handshake, err := o.TLS.Handshake()
		if err != nil {
			return nil, err
		}
		dial = handshake.Dial(o.Timeout)
	}
	switch o.URL.Scheme {
	case "http", "https":
		c.useHTTP(strings.TrimSuffix(o.URL.String(), "/"), dial)
		return c, nil
	case "grpc", "grpcs":
		return c, c.useGRPC(o.URL.Host, dial)
	}
	return nil, fmt.Errorf("canonical: unknown scheme %q", o.URL.Scheme)
}

// Close closes the connections.
func (c *Client) Close() error { return c.close() }

// Fetch returns the present revision of a result, which names the board, user and match of k. The caller
// must check the result's other values. Its error is an [*Error].
func (c *Client) Fetch(ctx context.Context, k Key) (*pb.GetCanonicalResultResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	answer, err := c.fetch(ctx, k)
	if err != nil {
		return nil, err
	}
	if n := proto.Size(answer); n > MaxAnswerBytes {
		return nil, failure(Invalid, "the answer has %d bytes, at most %d are allowed", n, MaxAnswerBytes)
	}
	return answer, check(k, answer)
}

// check returns an error unless a is about k, and says when the result was achieved. Otherwise two
// fetches of one revision could differ.
func check(k Key, a *pb.GetCanonicalResultResponse) error {
	r := a.GetResult()
	for _, f := range []struct{ field, got, want string }{
		{"board_id", a.GetBoardId(), string(k.Board)},
		{"result.user_id", r.GetUserId(), string(k.User)},
		{"result.match_id", r.GetMatchId(), string(k.Match)},
		{"result.board_id", r.GetBoardId(), ""},
		{"result.season", r.GetSeason(), ""},
	} {
		if f.got != f.want {
			return failure(Invalid, "%s of the answer is %.128q, want %q", f.field, f.got, f.want)
		}
	}
	switch {
	case a.GetSeason() != "" && !a.GetRetracted():
		return failure(Invalid, "season of the answer is set, which is for retractions only")
	case r.GetAchievedAt() == nil && !a.GetRetracted():
		return failure(Invalid, "result.achieved_at of the answer is missing")
	case r.GetAchievedAt() == nil && a.GetSeason() == "":
		return failure(Invalid, "result.achieved_at and season of the answer are missing: a retraction needs one of them")
	case a.GetRetracted() && r.GetRevision() == 0:
		return failure(Invalid, "result.revision of the answer is 0: a retraction needs a higher revision than the retracted result")
	}
	return nil
}
