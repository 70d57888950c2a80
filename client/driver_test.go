package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"testing"
	"time"
)

// With LEADERBOARD_CLIENT_DRIVER=1, the test binary makes the calls that the suite of test/clients sends it: a
// JSON object per line.
func TestMain(m *testing.M) {
	if os.Getenv("LEADERBOARD_CLIENT_DRIVER") == "" {
		os.Exit(m.Run())
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var d driver
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			panic(err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(d.run()); err != nil {
			panic(err)
		}
	}
}

type driver struct {
	Op, URL, Key string
	Tokens       []string
	Args         struct {
		Board, User, Match, ID string
		Result                 ResultInput
		Results                []ResultInput
		Query, Body            json.RawMessage
		Take                   int
	}
}

type answer struct {
	Value any     `json:"value,omitempty"`
	Error any     `json:"error,omitempty"`
	Waits []int64 `json:"waits"`
}

func (d driver) run() (a answer) {
	o := Options{Key: d.Key}
	if d.Tokens != nil {
		o.Token = func(context.Context, string) (string, error) {
			token := d.Tokens[0]
			if len(d.Tokens) > 1 {
				d.Tokens = d.Tokens[1:]
			}
			return token, nil
		}
	}
	c, err := New(d.URL, o)
	if err != nil {
		panic(err)
	}
	a.Waits = []int64{}
	now := time.Now()
	c.now = func() time.Time { return now }
	c.sleep = func(ctx context.Context, wait time.Duration) error {
		now = now.Add(wait)
		a.Waits = append(a.Waits, wait.Milliseconds())
		return ctx.Err()
	}
	a.Value, err = d.call(context.Background(), c)
	var e *Error
	if errors.As(err, &e) {
		a.Error = map[string]any{"status": e.Status, "reason": e.Reason, "message": err.Error(), "fields": e.Fields, "outcome": e.Outcome,
			"result": e.Result, "retry_after": int(e.RetryAfter.Seconds()), "request_id": e.RequestID != ""}
	} else if err != nil {
		a.Error = map[string]any{"message": err.Error()}
	}
	return a
}

func query[T any](data json.RawMessage) *T {
	var q T
	if data != nil && json.Unmarshal(data, &q) != nil {
		panic("query " + string(data))
	}
	return &q
}

func list[T any](sequence iter.Seq2[T, error], most int) ([]T, error) {
	values := []T{}
	for v, err := range sequence {
		if err != nil {
			return values, err
		}
		if values = append(values, v); len(values) == most {
			break
		}
	}
	return values, nil
}

func (d driver) call(ctx context.Context, c *Client) (any, error) {
	a, b := d.Args, c.Board(d.Args.Board)
	switch d.Op {
	case "submit":
		return b.Submit(ctx, a.Result, query[SubmitScoreQuery](a.Query))
	case "submitBatch":
		return b.SubmitBatch(ctx, a.Results, *query[BatchOptions](a.Query))
	case "submitResults":
		return c.SubmitBatch(ctx, a.Results, *query[BatchOptions](a.Query))
	case "waitApplied":
		return b.WaitApplied(ctx, &SubmitScoreResponse{UserID: a.User, MatchID: a.Match})
	case "top":
		return b.Top(ctx, query[ListScoresQuery](a.Query))
	case "entries":
		return list(b.Entries(ctx, query[ListScoresQuery](a.Query)), a.Take)
	case "search":
		return list(b.Search(ctx, *query[SearchUsersQuery](a.Query)), a.Take)
	case "seasons":
		return list(b.Seasons(ctx), a.Take)
	case "results":
		return list(b.Results(ctx, a.User, query[ListUserResultsQuery](a.Query)), a.Take)
	case "watch":
		return list(b.Watch(ctx, query[WatchScoresQuery](a.Query)), a.Take)
	case "user":
		return b.User(ctx, a.User, query[GetUserScoreQuery](a.Query))
	case "lookup":
		return b.Lookup(ctx, *query[LookupScoresRequest](a.Body))
	case "stats":
		return b.Stats(ctx, query[GetStatsQuery](a.Query))
	case "season":
		return b.Season(ctx, a.ID, query[GetSeasonQuery](a.Query))
	case "result":
		return b.Result(ctx, a.User, a.Match, query[GetResultQuery](a.Query))
	case "correct":
		return b.Correct(ctx, a.User, a.Match, *query[CorrectResultRequest](a.Body))
	case "retract":
		return b.Retract(ctx, a.User, a.Match, *query[RetractResultRequest](a.Body))
	case "boards":
		return c.Boards(ctx)
	case "board":
		return b.Get(ctx)
	case "userScores":
		return c.UserScores(ctx, a.User, query[ListUserScoresQuery](a.Query))
	case "profile":
		return c.Profile(ctx, a.User)
	case "putProfile":
		return c.PutProfile(ctx, a.User, *query[ProfileInput](a.Body), nil)
	case "call":
		var out map[string]any
		err := c.Call(ctx, "POST", a.ID, a.Body, &out)
		return out, err
	}
	panic("no call " + d.Op)
}
