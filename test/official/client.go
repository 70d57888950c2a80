package official

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Result is a match result as the API takes it.
type Result struct {
	User        string            `json:"user_id"`
	Match       string            `json:"match_id,omitempty"`
	Score       *int64            `json:"score,omitempty"`
	Points      *int64            `json:"points,omitempty"`
	TieBreakers []int64           `json:"tie_breakers,omitempty"`
	Revision    int64             `json:"revision,omitempty"`
	AchievedAt  time.Time         `json:"achieved_at,omitzero"`
	Attributes  map[string]string `json:"attributes,omitempty"`
}

// board is the part of a board's rules that the checks need.
type board struct {
	ID          string       `json:"board_id"`
	Title       string       `json:"title,omitempty"`
	Order       string       `json:"order"`
	Policy      string       `json:"policy"`
	HalfLife    string       `json:"half_life,omitempty"`
	TieBreakers []tieBreaker `json:"tie_breakers,omitempty"`
	Unit        string       `json:"unit,omitempty"`
	Decimals    int          `json:"decimals,omitempty"`
	Season      schedule     `json:"season"`
	Divisions   []string     `json:"divisions,omitempty"`
}

type tieBreaker struct {
	Name  string `json:"name"`
	Order string `json:"order"`
}

type schedule struct {
	Schedule string   `json:"schedule"`
	Windows  []window `json:"windows,omitempty"`
}

type window struct {
	ID    string    `json:"id"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// yearly is the schedule that makes each calendar year from first to last, in
// UTC, a season.
func yearly(first, last int) schedule {
	s := schedule{Schedule: "EXPLICIT"}
	for y := first; y <= last; y++ {
		s.Windows = append(s.Windows, window{
			ID:    strconv.Itoa(y),
			Start: time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC),
			End:   time.Date(y+1, 1, 1, 0, 0, 0, 0, time.UTC),
		})
	}
	return s
}

// Entry is a line of a ladder as the API shows it.
type Entry struct {
	User        string    `json:"user_id"`
	Score       int64     `json:"score"`
	Rank        *int64    `json:"rank"`
	AchievedAt  time.Time `json:"achieved_at"`
	TieBreakers []int64   `json:"tie_breakers"`
	Current     bool      `json:"is_current_user"`
	ListRank    *int64    `json:"list_rank"`
}

func (e *Entry) line() string {
	rank := "none"
	if e.Rank != nil {
		rank = strconv.FormatInt(*e.Rank, 10)
	}
	return fmt.Sprintf("{%q score %d %v rank %s at %s}", e.User, e.Score, e.TieBreakers, rank, e.AchievedAt.Format(time.RFC3339Nano))
}

// about is what every answer says of the ladder that it is about.
type about struct {
	Board    string `json:"board"`
	Season   string `json:"season"`
	Division string `json:"division"`
	Method   string `json:"method"`
	Total    int64  `json:"total"`
	Degraded bool   `json:"degraded"`
}

type page struct {
	about
	Entries []Entry  `json:"leaderboard"`
	Count   int      `json:"count"`
	Next    string   `json:"next_page_token"`
	Missing []string `json:"missing"`
}

type userPage struct {
	about
	Entry
	Neighbors    []Entry `json:"neighbors"`
	ClippedAbove bool    `json:"neighbors_clipped_above"`
	ClippedBelow bool    `json:"neighbors_clipped_below"`
	Percentile   float64 `json:"percentile"`
}

type statsPage struct {
	about
	Best      *int64 `json:"best_score"`
	Worst     *int64 `json:"worst_score"`
	Histogram []struct {
		Lower, Upper, Count int64
	} `json:"histogram"`
	Percentiles []struct {
		Percentile float64
		Score      int64
	} `json:"percentiles"`
	ScoreAtRank *int64 `json:"score_at_rank"`
	RankOfScore *int64 `json:"rank_of_score"`
}

// outcome is what became of a result, alone or in a batch.
type outcome struct {
	Success bool   `json:"success"`
	User    string `json:"user_id"`
	Match   string `json:"match_id"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Detail  string `json:"detail"`
	Score   *int64 `json:"new_score"`
	Rank    *int64 `json:"rank"`
	Season  string `json:"season"`
}

// query names a ladder and how to number it.
type query struct {
	board, season, division, method string
}

func (q query) values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{"season": q.season, "division": q.division, "method": q.method} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return v
}

func (q query) String() string {
	return fmt.Sprintf("board %s season %q division %q method %q", q.board, q.season, q.division, q.method)
}

// path returns the path of something of a board.
func (q query) path(parts ...string) string {
	return boardPath(q.board) + "/" + strings.Join(parts, "/")
}

func boardPath(id string) string { return "/v1/boards/" + escape(id) }

// escape makes an id one segment of a path, without a colon, which would begin
// a verb.
func escape(id string) string { return strings.ReplaceAll(url.PathEscape(id), ":", "%3A") }

// client talks to a service over REST.
type client struct {
	base string
	key  string
	http *http.Client
}

// statusError is an answer that is no success.
type statusError struct {
	code       int
	method     string
	path, body string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s: status %d: %s", e.method, e.path, e.code, e.body)
}

// raw sends a request and returns the body of an answer that is a success, and
// else a *statusError.
func (c *client) raw(ctx context.Context, method, path string, values url.Values, body any) ([]byte, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(b)
	}
	if len(values) > 0 {
		path += "?" + values.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, in)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, &statusError{resp.StatusCode, method, path, string(out)}
	}
	return out, nil
}

// call is raw with the answer's body decoded into answer. The API's integers
// are JSON numbers: a string in place of one is an error here.
func (c *client) call(ctx context.Context, method, path string, values url.Values, body, answer any) error {
	out, err := c.raw(ctx, method, path, values, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("%s %s: %w in %.200s", method, path, err, out)
	}
	return nil
}

// data is call for answers in the envelope of status and data.
func (c *client) data(ctx context.Context, method, path string, values url.Values, body, data any) error {
	envelope := struct {
		Status string `json:"status"`
		Data   any    `json:"data"`
	}{Data: data}
	if err := c.call(ctx, method, path, values, body, &envelope); err != nil {
		return err
	}
	if envelope.Status != "success" {
		return fmt.Errorf("%s %s: status %q, want success", method, path, envelope.Status)
	}
	return nil
}

// checkAbout returns an error unless an answer is about what was asked for.
func (q query) check(a about) error {
	want := q
	if want.method == "" {
		want.method = "competition"
	}
	if want.season == "" {
		want.season = a.Season // the current one
	}
	if got := (query{a.Board, a.Season, a.Division, a.Method}); got != want || a.Degraded {
		return fmt.Errorf("the answer is about %v, degraded %t, asked was %v", got, a.Degraded, q)
	}
	return nil
}

// list returns all entries of a ladder, read page by page, and the number of
// entrants.
func (c *client) list(ctx context.Context, q query, limit int) ([]Entry, int64, error) {
	var all []Entry
	for token := ""; ; {
		values := q.values()
		values.Set("limit", strconv.Itoa(limit))
		if token != "" {
			values.Set("page_token", token)
		}
		var p page
		if err := c.data(ctx, http.MethodGet, q.path("scores"), values, nil, &p); err != nil {
			return nil, 0, err
		}
		if err := q.check(p.about); err != nil {
			return nil, 0, err
		}
		all = append(all, p.Entries...)
		switch {
		case p.Count != len(p.Entries):
			return nil, 0, fmt.Errorf("%v: count is %d of %d entries", q, p.Count, len(p.Entries))
		case p.Next == "" && int64(len(all)) != p.Total:
			return nil, 0, fmt.Errorf("%v: %d entries on all pages, total is %d", q, len(all), p.Total)
		case p.Next == "":
			return all, p.Total, nil
		case len(p.Entries) != limit:
			return nil, 0, fmt.Errorf("%v: a page of %d before the last has %d entries", q, limit, len(p.Entries))
		}
		token = p.Next
	}
}

// user returns a user's entry.
func (c *client) user(ctx context.Context, q query, user string, neighbors int) (userPage, error) {
	values := q.values()
	values.Set("neighbors", strconv.Itoa(neighbors))
	var p userPage
	if err := c.data(ctx, http.MethodGet, q.path("scores", escape(user)), values, nil, &p); err != nil {
		return userPage{}, err
	}
	return p, q.check(p.about)
}

// lookup returns the entries of some users.
func (c *client) lookup(ctx context.Context, q query, users []string) (page, error) {
	body := map[string]any{"user_ids": users}
	for name, value := range q.values() {
		body[name] = value[0]
	}
	var p page
	if err := c.data(ctx, http.MethodPost, q.path("scores:lookup"), nil, body, &p); err != nil {
		return page{}, err
	}
	return p, q.check(p.about)
}

// stats returns figures of a ladder.
func (c *client) stats(ctx context.Context, q query, more url.Values) (statsPage, error) {
	values := q.values()
	for name, value := range more {
		values[name] = value
	}
	var p statsPage
	if err := c.data(ctx, http.MethodGet, q.path("stats"), values, nil, &p); err != nil {
		return statsPage{}, err
	}
	return p, q.check(p.about)
}

// createBoard makes a board with an id of its own, and removes it after the test.
func (c *client) createBoard(t *testing.T, b board) string {
	t.Helper()
	b.ID = "official-" + b.ID + "-" + rand.Text()[:8]
	if _, err := c.raw(t.Context(), http.MethodPost, "/v1/boards", nil, b); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if _, err := c.raw(ctx, http.MethodDelete, boardPath(b.ID), nil, nil); err != nil {
			t.Error(err)
		}
	})
	return b.ID
}
