package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// silence is the time after which a stream without a line is broken. Servers send an event at least every
// 15 seconds.
const silence = 20 * time.Second

// Watch returns the top of a ranking now, and again after changes, until ctx is done. q may be nil. If the
// connection breaks, Watch reconnects and returns the top at that time. It ends with the first error
// that a new connection cannot cure, such as a 401 for a token that the option Token does not replace, or
// when RetryFor has passed without an event.
func (b BoardClient) Watch(ctx context.Context, q *WatchScoresQuery) iter.Seq2[*Leaderboard, error] {
	return func(yield func(*Leaderboard, error) bool) {
		if b.err != nil {
			yield(nil, b.err)
			return
		}
		target, _, _ := b.c.encode(request{path: b.path + "/watch", query: q})
		for delays := b.c.newBackoff(); ; {
			more := true
			err := b.c.stream(ctx, target, func(top *Leaderboard) bool {
				more = yield(top, nil)
				delays = b.c.newBackoff()
				return more
			})
			if !more {
				return
			}
			after, ok := retryDelay(err, true)
			if ctx.Err() != nil {
				err, ok = ctx.Err(), false
			}
			if !ok || !delays.wait(ctx, after) {
				yield(nil, err)
				return
			}
		}
	}
}

var errEnd = errors.New("the server ended the stream")

// stream calls handle for each event of one connection, until handle returns false. Otherwise it returns the
// error that ended the connection.
func (c *Client) stream(ctx context.Context, target string, handle func(*Leaderboard) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(silence, cancel)
	defer timer.Stop()
	res, err := c.open(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxAnswer)
	var event struct {
		name  string
		retry int
		data  []byte
	}
	for lines.Scan() {
		timer.Reset(silence)
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			event.name = string(value)
		case "retry":
			event.retry, _ = strconv.Atoi(string(value))
		case "data":
			event.data = append(event.data, value...)
		}
		if len(lines.Bytes()) > 0 {
			continue
		}
		if event.name != "" {
			return c.streamError(event.data, event.retry)
		}
		if len(event.data) > 0 {
			var top Leaderboard
			if err := json.Unmarshal(event.data, &top); err != nil {
				return fmt.Errorf("client: an event of %s is not a leaderboard: %w", target, err)
			}
			timer.Stop() // the caller may take longer than the server is silent
			if !handle(&top) {
				return nil
			}
			timer.Reset(silence)
		}
		event.name, event.retry, event.data = "", 0, event.data[:0]
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("client: %w", err)
	} else if err != nil {
		return &connectionError{err}
	}
	return &connectionError{fmt.Errorf("%w: %w", errEnd, io.ErrUnexpectedEOF)}
}

// streamError returns the error of the last event of a stream: reconnect or error. A token that has ended
// may be replaced in the next connection.
func (c *Client) streamError(data []byte, retry int) error {
	var b struct {
		Error body `json:"error"`
	}
	if err := json.Unmarshal(data, &b); err != nil {
		return &connectionError{err}
	}
	e := &Error{Status: statuses[b.Error.Code], RetryAfter: min(time.Duration(max(retry, 0))*time.Millisecond, longest)}
	e.read(b.Error)
	if e.Status == http.StatusUnauthorized && c.options.Token != nil {
		return &connectionError{e}
	}
	return e
}
