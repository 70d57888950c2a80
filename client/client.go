// Package client submits results to a leaderboard server, and reads and watches its rankings. It uses the REST API
// and the standard library only.
//
// A call is retried until it succeeds, until an attempt fails with an error that a retry cannot cure, or
// until [Options].RetryFor has passed. Each submitted result has a match_id and an achieved_at before the
// first attempt, so a retry is the same result and counts once. All methods are safe for concurrent use.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Options configure a [Client].
type Options struct {
	// Key is an API key or a JSON web token. If both Key and Token are zero, calls have no credentials.
	Key string
	// Token returns a JSON web token. The client calls it before the first call, with an empty text, and
	// again with each token that the server rejects. If Token returns the rejected token again, the call
	// fails. Calls of Token do not overlap.
	Token func(ctx context.Context, rejected string) (string, error)
	// HTTP sends the requests, by default http.DefaultClient. The client follows no redirects.
	HTTP *http.Client
	// Timeout bounds each attempt, by default 30 seconds. It does not apply to Watch.
	Timeout time.Duration
	// RetryFor bounds the time from the first attempt to the last, by default 2 minutes. In Watch, it
	// bounds the time without an event. A negative value disables retries.
	RetryFor time.Duration
}

// A Client calls one server.
type Client struct {
	base    string
	options Options
	http    http.Client
	now     func() time.Time
	sleep   func(context.Context, time.Duration) error

	mu    sync.Mutex
	token string
	known bool // token is set
}

// New returns a client of the server at an address such as https://scores.example.org.
func New(address string, o Options) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("client: the address %q is not an http or https URL without a query", address)
	}
	o.Timeout, o.RetryFor = cmp.Or(o.Timeout, 30*time.Second), cmp.Or(o.RetryFor, 2*time.Minute)
	c := &Client{base: strings.TrimSuffix(address, "/"), options: o, now: time.Now, sleep: sleep, token: o.Key, known: o.Token == nil}
	if o.HTTP != nil {
		c.http = *o.HTTP
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Call calls a route for which the client has no method, such as POST /v1/users/ann:ban. The path may have
// a query. body is encoded as JSON unless it is nil, and the answer is decoded into out unless it is nil.
// After a broken connection, only GET is retried.
func (c *Client) Call(ctx context.Context, method, path string, body, out any) error {
	return c.call(ctx, request{method: method, path: path, body: body, safe: method == http.MethodGet}, out)
}

type request struct {
	method, path string
	query        any // a struct with tags of JSON, or nil
	body         any
	safe         bool // a second attempt has no further effect
}

func (c *Client) call(ctx context.Context, r request, out any) error {
	target, data, err := c.encode(r)
	if err != nil {
		return err
	}
	var answer []byte
	err = c.retry(ctx, func(err error) (time.Duration, bool) { return retryDelay(err, r.safe) }, func() error {
		ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
		defer cancel()
		res, err := c.open(ctx, r.method, target, data)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		answer, err = readAll(res.Body)
		return err
	})
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("client: the answer to %s %s is not that of a leaderboard server: %w", r.method, r.path, err)
	}
	return nil
}

func (c *Client) encode(r request) (target string, data []byte, err error) {
	if r.body != nil {
		if data, err = json.Marshal(r.body); err != nil {
			return "", nil, fmt.Errorf("client: %s %s: %w", r.method, r.path, err)
		}
	}
	target = c.base + r.path
	if q := queryOf(r.query); len(q) > 0 {
		target += "?" + q.Encode()
	}
	return target, data, nil
}

// queryOf returns the fields of a struct, as JSON has them, as parameters.
func queryOf(query any) url.Values {
	data, _ := json.Marshal(query) // texts, numbers, booleans and lists of texts
	fields := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	_ = d.Decode(&fields)
	q := url.Values{}
	for name, value := range fields {
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, v := range list {
			q.Add(name, fmt.Sprint(v))
		}
	}
	return q
}

// maxAnswer bounds the bytes of an answer, and of an event of a stream.
const maxAnswer = 64 << 20

func readAll(body io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	if err != nil {
		return nil, &connectionError{err}
	}
	if len(data) > maxAnswer {
		return nil, fmt.Errorf("client: the answer has more than %d bytes", maxAnswer)
	}
	return data, nil
}

// A connectionError is an error of the network. Whether the call had an effect is unknown.
type connectionError struct{ err error }

func (e *connectionError) Error() string { return "client: " + e.err.Error() }
func (e *connectionError) Unwrap() error { return e.err }

// open makes one attempt, or two if the server rejects the token. Its error has the answer of the server.
func (c *Client) open(ctx context.Context, method, target string, data []byte) (*http.Response, error) {
	token, err := c.credentials(ctx, "")
	for err == nil {
		var res *http.Response
		if res, err = c.send(ctx, method, target, data, token); err != nil || res.StatusCode/100 == 2 {
			return res, err
		}
		answer, _ := readAll(res.Body)
		_ = res.Body.Close()
		refused := newError(res, answer, c.now())
		if res.StatusCode != http.StatusUnauthorized || token == "" {
			return nil, refused
		}
		rejected := token
		if token, err = c.credentials(ctx, rejected); err == nil && token == rejected {
			return nil, refused
		}
	}
	return nil, err
}

func (c *Client) send(ctx context.Context, method, target string, data []byte, token string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if data != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, &connectionError{err}
	}
	return res, nil
}

// credentials returns the token of the next attempt. rejected is the token that the server has rejected.
func (c *Client) credentials(ctx context.Context, rejected string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.options.Token != nil && (!c.known || rejected != "" && c.token == rejected) {
		token, err := c.options.Token(ctx, rejected)
		if err != nil {
			return "", fmt.Errorf("client: token: %w", err)
		}
		c.token, c.known = token, true
	}
	return c.token, nil
}

// retry calls attempt until it succeeds, or until its error allows no retry before the end of RetryFor.
func (c *Client) retry(ctx context.Context, delay func(error) (time.Duration, bool), attempt func() error) error {
	b := c.newBackoff()
	for {
		err := attempt()
		if err == nil {
			return nil
		}
		if after, ok := delay(err); !ok || ctx.Err() != nil || !b.wait(ctx, after) {
			return err
		}
	}
}

// retryDelay returns the delay that the server demands before a retry, or false if no retry can help.
func retryDelay(err error, safe bool) (time.Duration, bool) {
	var connection *connectionError
	if errors.As(err, &connection) {
		return 0, safe
	}
	var e *Error
	if !errors.As(err, &e) {
		return 0, false
	}
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return e.RetryAfter, true
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return e.RetryAfter, safe
	}
	return 0, false
}

const (
	firstDelay = 100 * time.Millisecond
	lastDelay  = 5 * time.Second
)

// backoff waits between attempts, longer each time.
type backoff struct {
	c    *Client
	next time.Duration
	end  time.Time
}

func (c *Client) newBackoff() *backoff {
	return &backoff{c: c, next: firstDelay, end: c.now().Add(c.options.RetryFor)}
}

// wait waits for the delay that the server demands, and a random one. It returns false if the delay
// would be over after the end, or if ctx is done.
func (b *backoff) wait(ctx context.Context, after time.Duration) bool {
	d := max(after, 0) + b.next/2 + rand.N(b.next/2)
	b.next = min(2*b.next, lastDelay)
	if b.c.now().Add(d).After(b.end) {
		return false
	}
	return b.c.sleep(ctx, d) == nil
}
