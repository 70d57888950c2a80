package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An Error is a refusal by the server. Statuses and reasons are in docs/api.md.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Reason is the API's reason. It is empty if a proxy answered.
	Reason ErrorReason
	// Message is for people.
	Message string
	// Fields are the invalid fields, with the problem of each.
	Fields []Field
	// Outcome describes a rejected result. It is nil for other errors. The server rejects the same result
	// again each time.
	Outcome *Outcome
	// Result is the result that counts if the reason is REVISION_CHANGED.
	Result *Result
	// RetryAfter is the delay that the server demands before a retry, or 0.
	RetryAfter time.Duration
	// RequestID names the call in the server's logs.
	RequestID string
}

// A Field is an invalid field of a request, such as results[3].score.
type Field struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("client: %d %s: %s", e.Status, cmp.Or(string(e.Reason), http.StatusText(e.Status)), e.Message)
}

// body is the body of an error.
type body struct {
	Code    int               `json:"code"`
	Message string            `json:"message"`
	Details []json.RawMessage `json:"details"`
}

// newError returns the error that an answer has. now is for dates in Retry-After.
func newError(res *http.Response, answer []byte, now time.Time) *Error {
	e := &Error{Status: res.StatusCode, RequestID: res.Header.Get("X-Request-Id"), RetryAfter: retryAfter(res.Header.Get("Retry-After"), now)}
	var b body
	if json.Unmarshal(answer, &b) != nil || b.Message == "" {
		e.Message = "the answer is not that of a leaderboard server"
		return e
	}
	e.read(b)
	return e
}

// statuses are the HTTP statuses of codes, for errors inside streams.
var statuses = map[int]int{3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 9: 409, 14: 503, 16: 401}

func (e *Error) read(b body) {
	e.Message = b.Message
	for _, detail := range b.Details {
		var d struct {
			Type       string      `json:"@type"`
			Reason     ErrorReason `json:"reason"`
			Violations []Field     `json:"field_violations"`
			Delay      string      `json:"retry_delay"`
		}
		if json.Unmarshal(detail, &d) != nil {
			continue
		}
		switch d.Type[strings.LastIndex(d.Type, ".")+1:] {
		case "ErrorInfo":
			e.Reason = d.Reason
		case "BadRequest":
			e.Fields = d.Violations
		case "RetryInfo":
			if delay, err := time.ParseDuration(d.Delay); err == nil {
				e.RetryAfter = max(e.RetryAfter, delay)
			}
		case "Outcome":
			e.Outcome = &Outcome{}
			_ = json.Unmarshal(detail, e.Outcome)
		case "Result":
			e.Result = &Result{}
			_ = json.Unmarshal(detail, e.Result)
		}
	}
}

// longest bounds the delays that a server can demand.
const longest = 24 * time.Hour

// retryAfter returns the delay of a header Retry-After: seconds, or a date.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil || errors.Is(err, strconv.ErrRange) {
		return min(time.Duration(seconds)*time.Second, longest)
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(date.Sub(now), 0), longest)
	}
	return 0
}
