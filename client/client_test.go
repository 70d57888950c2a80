package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A server answers requests in the process, so that synctest has the clock.
type server func(*http.Request) (*http.Response, error)

func (s server) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

func respond(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

func newClient(t *testing.T, o Options, s server) *Client {
	t.Helper()
	o.HTTP = &http.Client{Transport: s}
	c, err := New("http://scores.example/", o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAddresses(t *testing.T) {
	for _, address := range []string{"", "scores.example", "ftp://scores.example", "http://", "https://scores.example/?a=b", "http://a b/"} {
		if _, err := New(address, Options{}); err == nil {
			t.Errorf("New(%q): no error", address)
		}
	}
}

// countValues is the server's count: every value, nested ones included.
func countValues(v any) (n int) {
	n = 1
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			n += countValues(e)
		}
	case []any:
		for _, e := range v {
			n += countValues(e)
		}
	}
	return n
}

func TestBatchesAreWithinAllLimits(t *testing.T) {
	for name, metadata := range map[string]map[string]any{
		"results": nil,
		"bytes":   {"pad": strings.Repeat("é", 2000)},
		"values":  {"list": make([]any, 600)},
		"commas":  {"pad": strings.Repeat(",", 3000)},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			c := newClient(t, Options{}, func(r *http.Request) (*http.Response, error) {
				data, _ := io.ReadAll(r.Body)
				var body map[string]any
				if err := json.Unmarshal(data, &body); err != nil {
					return nil, err
				}
				n := len(body["results"].([]any))
				if requests++; n > 5000 || len(data) > 16<<20 || countValues(body) > 500_000 {
					t.Errorf("a request has %d results, %d bytes and %d values", n, len(data), countValues(body))
				}
				return respond(200, `{"outcomes":[`+strings.TrimSuffix(strings.Repeat(`{"status":"APPLIED"},`, n), ",")+`]}`), nil
			})
			outcomes, err := c.Board("b").SubmitBatch(t.Context(), make([]ResultInput, 5001), BatchOptions{})
			if metadata != nil {
				results := make([]ResultInput, 4500)
				for i := range results {
					results[i] = ResultInput{UserID: "ann", Metadata: metadata}
				}
				outcomes, err = c.Board("b").SubmitBatch(t.Context(), results, BatchOptions{})
			}
			if want := 5001 - 501*min(len(metadata), 1); err != nil || len(outcomes) != want || requests < 2 {
				t.Errorf("%d outcomes after %d requests, error %v; want %d outcomes, several requests", len(outcomes), requests, err, want)
			}
		})
	}
}

func TestInputsThatJSONCannotHold(t *testing.T) {
	c := newClient(t, Options{}, func(r *http.Request) (*http.Response, error) {
		t.Errorf("the client sent %s %s", r.Method, r.URL)
		return nil, io.ErrClosedPipe
	})
	for name, r := range map[string]ResultInput{
		"UTF-8 of an id":        {UserID: "a\xff"},
		"UTF-8 of an attribute": {UserID: "ann", Attributes: map[string]string{"club": "\xc3"}},
		"NaN":                   {UserID: "ann", Metadata: map[string]any{"speed": math.NaN()}},
		"a channel":             {UserID: "ann", Metadata: map[string]any{"c": make(chan int)}},
		"a year":                {UserID: "ann", AchievedAt: time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.Board("b").Submit(t.Context(), r, nil); err == nil || !strings.Contains(err.Error(), r.UserID[:1]) {
				t.Errorf("Submit: %v, want an error with the user", err)
			}
			if _, err := c.Board("b").SubmitBatch(t.Context(), []ResultInput{{UserID: "bob"}, r}, BatchOptions{}); err == nil {
				t.Error("SubmitBatch: no error")
			}
		})
	}
}

func TestAttemptsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies []string
		c := newClient(t, Options{Timeout: time.Second}, func(r *http.Request) (*http.Response, error) {
			data, _ := io.ReadAll(r.Body)
			if bodies = append(bodies, string(data)); len(bodies) == 1 {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return respond(200, `{"success":true}`), nil
		})
		res, err := c.Board("b").Submit(t.Context(), ResultInput{UserID: "ann"}, nil)
		if err != nil || !res.Success || len(bodies) != 2 || bodies[0] != bodies[1] {
			t.Errorf("%+v %v after %q, want success after two equal requests", res, err, bodies)
		}
	})
}

func TestCanceledCallsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		attempts := 0
		c := newClient(t, Options{}, func(*http.Request) (*http.Response, error) {
			attempts++
			return nil, errors.New("refused")
		})
		if _, err := c.Board("b").Top(ctx, nil); err == nil || attempts < 2 {
			t.Errorf("%d attempts, error %v; want some, and the last error", attempts, err)
		}
	})
}

func TestNoRetries(t *testing.T) {
	attempts := 0
	c := newClient(t, Options{RetryFor: -1}, func(*http.Request) (*http.Response, error) {
		attempts++
		return respond(503, ""), nil
	})
	if _, err := c.Board("b").Top(t.Context(), nil); err == nil || attempts != 1 {
		t.Errorf("%d attempts, error %v; want one attempt", attempts, err)
	}
}

// Calls at the same time share one new token.
func TestCallsShareATokenCallback(t *testing.T) {
	var asked atomic.Int32
	c := newClient(t, Options{Token: func(_ context.Context, rejected string) (string, error) {
		return fmt.Sprint("token-", asked.Add(1)), nil
	}}, func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Authorization") != "Bearer token-2" {
			return respond(401, `{"code":16,"message":"expired","details":[]}`), nil
		}
		return respond(200, `{"data":{"count":1}}`), nil
	})
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if top, err := c.Board("b").Top(t.Context(), nil); err != nil || top.Count != 1 {
				t.Errorf("%+v %v", top, err)
			}
		})
	}
	if group.Wait(); asked.Load() != 2 {
		t.Errorf("the callback was called %d times, want 2", asked.Load())
	}
}

func TestTokenCallbackFails(t *testing.T) {
	broken := errors.New("no identity provider")
	c := newClient(t, Options{Token: func(context.Context, string) (string, error) { return "", broken }}, nil)
	if _, err := c.Board("b").Top(t.Context(), nil); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the callback", err)
	}
}

// silent is a stream of one event, after which nothing arrives.
func silent(ctx context.Context, event string) *http.Response {
	r, w := io.Pipe()
	go func() {
		_, _ = io.WriteString(w, event)
		<-ctx.Done()
		_ = w.CloseWithError(ctx.Err())
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: r}
}

func TestSilentStreamsReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := 0
		c := newClient(t, Options{}, func(r *http.Request) (*http.Response, error) {
			connections++
			return silent(r.Context(), fmt.Sprintf("data: {\"count\":%d}\n\n", connections)), nil
		})
		start, counts := time.Now(), []int64{}
		for top, err := range c.Board("b").Watch(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // a slow caller is not a silent server
			if counts = append(counts, top.Count); len(counts) == 3 {
				break
			}
		}
		if took := time.Since(start); fmt.Sprint(counts) != "[1 2 3]" || took < 3*time.Minute+2*silence {
			t.Errorf("counts %v after %v, want one of each connection, with silence between", counts, took)
		}
	})
}

func TestCanceledWatchesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		c := newClient(t, Options{}, func(r *http.Request) (*http.Response, error) {
			return silent(r.Context(), "data: {\"count\":1}\n\n"), nil
		})
		var last error
		for _, err := range c.Board("b").Watch(ctx, nil) {
			last = err
		}
		if !errors.Is(last, context.DeadlineExceeded) {
			t.Errorf("error %v, want that of the context", last)
		}
	})
}

// Any stream gives leaderboards or one error, and no event without a line "data".
func FuzzStream(f *testing.F) {
	f.Add([]byte("id: 1\ndata: {\"count\":1}\n\n: c\n\nevent: reconnect\nretry: 5\ndata: {\"error\":{\"code\":14}}\n\n"))
	f.Add([]byte("data:{}\r\n\r\nretry: -99999999999999999999\nevent:x\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		c, err := New("http://scores.example", Options{HTTP: &http.Client{Transport: server(func(*http.Request) (*http.Response, error) {
			return respond(200, string(stream)), nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		events := 0
		err = c.stream(t.Context(), "http://scores.example", func(*Leaderboard) bool { events++; return true })
		if lines := bytes.Count(stream, []byte("data")); err == nil || events > lines {
			t.Errorf("%d events of %d lines, error %v", events, lines, err)
		}
		var e *Error
		if errors.As(err, &e) && (e.RetryAfter < 0 || e.RetryAfter > longest) {
			t.Errorf("delay %v", e.RetryAfter)
		}
	})
}
