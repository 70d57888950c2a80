package canonical

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
)

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

func (c *Client) useHTTP(base string, dial dialer) {
	transport := &http.Transport{
		DialContext: dial, DialTLSContext: dial, MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	c.close = func() error {
		transport.CloseIdleConnections()
		return nil
	}
	c.fetch = func(ctx context.Context, k Key) (*pb.GetCanonicalResultResponse, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+k.path(), nil)
		if err != nil {
			return nil, failure(Invalid, "%v", err)
		}
		req.Header.Set("Accept", "application/json")
		for name, value := range c.headers(k) {
			req.Header.Set(name, value)
		}
		res, err := client.Do(req)
		if err != nil {
			return nil, failure(Unavailable, "%v", err)
		}
		defer res.Body.Close()
		answer, err := c.read(res)
		_, _ = io.CopyN(io.Discard, res.Body, maxUnreadBytes) // the next request can use the connection only after the body
		return answer, err
	}
}

// maxUnreadBytes bounds what is read of a body that has no result.
const maxUnreadBytes = 16 << 10

func (c *Client) read(res *http.Response) (*pb.GetCanonicalResultResponse, error) {
	switch res.StatusCode {
	case http.StatusOK, http.StatusGone:
	case http.StatusNotFound:
		return nil, failure(NotFound, "the store does not have the result (404)")
	case http.StatusBadRequest, http.StatusConflict, http.StatusUnprocessableEntity:
		return nil, failure(Invalid, "the store refuses the request with the status %d: %s", res.StatusCode, beginning(res.Body))
	default:
		e := failure(Unavailable, "the store answers with the status %d: %s", res.StatusCode, beginning(res.Body))
		e.RetryAfter = retryAfter(res.Header.Get("Retry-After"), time.Now())
		return nil, e
	}
	// A page in HTML means that another server answers at this address, for all results.
	if kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, failure(Unavailable, "the answer has the content type %.100q, want application/json", res.Header.Get("Content-Type"))
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, MaxAnswerBytes+1))
	if err != nil {
		return nil, failure(Unavailable, "the answer does not end: %v", err)
	}
	if len(body) > MaxAnswerBytes {
		return nil, failure(Invalid, "the answer has more than %d bytes", MaxAnswerBytes)
	}
	answer, err := decode(body)
	if err != nil {
		return nil, failure(Invalid, "the answer is not a result: %v", err)
	}
	answer.Retracted = answer.Retracted || res.StatusCode == http.StatusGone
	return answer, nil
}

func decode(body []byte) (*pb.GetCanonicalResultResponse, error) {
	answer := &pb.GetCanonicalResultResponse{}
	if err := protojson.Unmarshal(body, answer); err != nil {
		return nil, err
	}
	if answer.GetResult() == nil {
		return nil, errors.New("it has no result")
	}
	return answer, protoconv.CheckNumbers(body)
}

// beginning returns the first bytes of a text, in quotes.
func beginning(r io.Reader) string {
	const most = 200
	text, _ := io.ReadAll(io.LimitReader(r, most))
	return strconv.QuoteToASCII(string(text))
}

// maxRetryAfter bounds how long a store can ask callers to wait.
const maxRetryAfter = time.Hour

// retryAfter returns the delay of a header Retry-After: seconds, or a date.
func retryAfter(text string, now time.Time) time.Duration {
	var delay time.Duration
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil {
		delay = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		delay = at.Sub(now)
	}
	return min(max(delay, 0), maxRetryAfter)
}
