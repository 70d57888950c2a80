package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// Int returns a pointer to n, for fields such as Points.
func Int(n int64) *int64 { return &n }

// Prepare returns r with a random match_id and with achieved_at, the present, where r has none. With a
// season and without achieved_at, the server takes the time of the stored result, so Prepare sets none. Submits
// prepare each result. A caller that may submit a result again later, such as after a restart, stores the
// prepared result first.
func Prepare(r ResultInput) ResultInput { return prepare(r, time.Now()) }

func prepare(r ResultInput, now time.Time) ResultInput {
	if r.MatchID == "" {
		r.MatchID = rand.Text()
	}
	if r.AchievedAt.IsZero() && r.Season == "" {
		r.AchievedAt = now
	}
	r.AchievedAt = r.AchievedAt.UTC().Truncate(time.Microsecond) // as servers store it
	return r
}

// encodeResult refuses texts that JSON cannot hold, which json.Marshal would change.
func encodeResult(r ResultInput) (json.RawMessage, error) {
	texts := []string{r.UserID, r.MatchID, r.BoardID, r.Season}
	for name, value := range r.Attributes {
		texts = append(texts, name, value)
	}
	if text := strings.Join(texts, ""); !utf8.ValidString(text) {
		return nil, fmt.Errorf("client: the result of user %q has a text that is not UTF-8", r.UserID)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("client: the result of user %q: %w", r.UserID, err)
	}
	return data, nil
}

// Submit submits one result. The answer has the user's score and rank. If the board's rules reject the
// result, the error is an [*Error] with an Outcome.
func (b BoardClient) Submit(ctx context.Context, r ResultInput, q *SubmitScoreQuery) (*SubmitScoreResponse, error) {
	data, err := encodeResult(prepare(r, b.c.now()))
	if err != nil {
		return nil, err
	}
	return call[SubmitScoreResponse](ctx, b.c, request{method: http.MethodPost, path: b.path + "/scores", query: q, body: data, safe: true}, b.err)
}

// WaitApplied waits until a result whose status is ACCEPTED is applied, and returns its state. A status REJECTED
// is not an error. WaitApplied gives up after RetryFor.
func (b BoardClient) WaitApplied(ctx context.Context, accepted *SubmitScoreResponse) (res *GetResultResponse, err error) {
	q := &GetResultQuery{Season: accepted.Season, Revision: &accepted.Revision}
	err = b.c.retry(ctx, func(err error) (time.Duration, bool) {
		var e *Error
		return 0, errors.As(err, &e) && e.Reason == ErrorReasonResultNotFound
	}, func() error {
		res, err = b.Result(ctx, accepted.UserID, accepted.MatchID, q)
		return err
	})
	return res, err
}

// Bounds of one batch. overhead is for what surrounds the results.
const (
	batchResults = 5000
	batchBytes   = 16 << 20
	batchValues  = 500_000
	overhead     = 100
)

// BatchOptions are optional parameters of a batch.
type BatchOptions struct {
	// IncludeLinked, IncludePreviousRank and NoWait are as in SubmitScoreQuery.
	IncludeLinked       bool `json:"include_linked,omitempty"`
	IncludePreviousRank bool `json:"include_previous_rank,omitempty"`
	NoWait              bool `json:"no_wait,omitempty"`
}

// SubmitBatch submits any number of results, in requests within the limits of the server, and again those
// that have FAILED. It returns an outcome for each result, in the same order. Rejected results have
// the status REJECTED and are no error. If a request fails, SubmitBatch returns the error with the outcomes of
// the results before it.
func (b BoardClient) SubmitBatch(ctx context.Context, results []ResultInput, o BatchOptions) ([]Outcome, error) {
	if b.err != nil {
		return nil, b.err
	}
	return b.c.submitBatch(ctx, b.path+"/scores:batch", results, o)
}

// SubmitBatch submits results of any boards. Each result needs its BoardID. Otherwise it is as
// [BoardClient.SubmitBatch].
func (c *Client) SubmitBatch(ctx context.Context, results []ResultInput, o BatchOptions) ([]Outcome, error) {
	return c.submitBatch(ctx, "/v1/results:batch", results, o)
}

func (c *Client) submitBatch(ctx context.Context, path string, results []ResultInput, o BatchOptions) ([]Outcome, error) {
	encoded, now := make([]json.RawMessage, len(results)), c.now()
	for i, r := range results {
		var err error
		if encoded[i], err = encodeResult(prepare(r, now)); err != nil {
			return nil, err
		}
	}
	outcomes := make([]Outcome, 0, len(results))
	for len(outcomes) < len(encoded) {
		first := len(outcomes)
		n := batchLen(encoded[first:])
		part, err := c.submitPart(ctx, path, encoded[first:first+n], o)
		if err != nil {
			return outcomes, fmt.Errorf("results %d to %d: %w", first, first+n-1, err)
		}
		outcomes = append(outcomes, part...)
	}
	return outcomes, nil
}

// batchLen returns how many of the results fit into one request, at least 1.
func batchLen(results []json.RawMessage) int {
	bytes, values := overhead, overhead
	for i, r := range results {
		bytes, values = bytes+len(r)+1, values+valuesIn(r)
		if i > 0 && (i == batchResults || bytes > batchBytes || values > batchValues) {
			return i
		}
	}
	return len(results)
}

// valuesIn returns at least the number of JSON values in data: each follows a bracket or a comma.
func valuesIn(data []byte) int {
	return 1 + bytes.Count(data, []byte{','}) + bytes.Count(data, []byte{'{'}) + bytes.Count(data, []byte{'['})
}

// submitPart submits the results of one request, and again those that have failed, until RetryFor is over.
func (c *Client) submitPart(ctx context.Context, path string, results []json.RawMessage, o BatchOptions) ([]Outcome, error) {
	outcomes, pending := make([]Outcome, len(results)), make([]int, len(results))
	for i := range pending {
		pending[i] = i
	}
	for b := c.newBackoff(); ; {
		send := make([]json.RawMessage, len(pending))
		for i, at := range pending {
			send[i] = results[at]
		}
		res, err := call[BatchSubmitScoresResponse](ctx, c, request{method: http.MethodPost, path: path, safe: true, body: struct {
			Results []json.RawMessage `json:"results"`
			BatchOptions
		}{send, o}}, nil)
		if err != nil {
			return nil, err
		}
		if len(res.Outcomes) != len(send) {
			return nil, fmt.Errorf("client: the server answered with %d outcomes for %d results", len(res.Outcomes), len(send))
		}
		var failed []int
		for i, at := range pending {
			if outcomes[at] = res.Outcomes[i]; outcomes[at].Status == OutcomeStatusFailed {
				failed = append(failed, at)
			}
		}
		if pending = failed; len(failed) == 0 || !b.wait(ctx, 0) {
			return outcomes, nil
		}
	}
}
