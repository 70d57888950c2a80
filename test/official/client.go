package official

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Result is a match result in the JSON form of the API.
type Result struct {
	User        string            `json:"user_id"`
	Match       string            `json:"match_id,omitempty"`
	Score       *int64            `json:"score,omitempty"`
	Points      *int64            `json:"points,omitempty"`
	TieBreakers []int64           `json:"tie_breakers,omitempty"`
	Revision    int64             `json:"revision,omitempty"`
	AchievedAt  time.Time         `json:"achieved_at,omitzero"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	Status      string            `json:"status,omitempty"`
}

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
	Attributes  []string     `json:"attributes,omitempty"`
	Matches     bool         `json:"matches,omitempty"`
	Source      *source      `json:"source,omitempty"`
	Retention   string       `json:"retention,omitempty"`
	Ties        string       `json:"ties,omitempty"`
	Statuses    []string     `json:"statuses,omitempty"`
}

type source struct {
	Board string            `json:"board_id"`
	Match map[string]string `json:"match,omitempty"`
}

type tieBreaker struct {
	Name  string `json:"name"`
	Order string `json:"order"`
}

type schedule struct {
	Schedule string   `json:"schedule"`
	Windows  []window `json:"windows,omitempty"`
	TimeZone string   `json:"time_zone,omitempty"`
	Days     int      `json:"days,omitempty"`
}

type window struct {
	ID    string    `json:"id"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

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

type entry struct {
	User        string    `json:"user_id"`
	Score       int64     `json:"score"`
	Rank        *int64    `json:"rank"`
	AchievedAt  time.Time `json:"achieved_at"`
	TieBreakers []int64   `json:"tie_breakers"`
	Current     bool      `json:"is_current_user"`
	ListRank    *int64    `json:"list_rank"`
	Status      string    `json:"status"`
}

func (e *entry) line() string {
	rank := "none"
	if e.Rank != nil {
		rank = strconv.FormatInt(*e.Rank, 10)
	}
	return fmt.Sprintf("{%q score %d %v rank %s at %s}", e.User, e.Score, e.TieBreakers, rank, e.AchievedAt.Format(time.RFC3339Nano))
}

type ladderInfo struct {
	Board    string `json:"board"`
	Season   string `json:"season"`
	Division string `json:"division"`
	Method   string `json:"method"`
	Total    int64  `json:"total"`
	Unranked int64  `json:"unranked"`
	Degraded bool   `json:"degraded"`
	Filling  bool   `json:"filling"`
}

type page struct {
	ladderInfo
	Entries []entry  `json:"leaderboard"`
	Count   int      `json:"count"`
	Next    string   `json:"next_page_token"`
	Missing []string `json:"missing"`
}

type userPage struct {
	ladderInfo
	entry
	Neighbors    []entry `json:"neighbors"`
	ClippedAbove bool    `json:"neighbors_clipped_above"`
	ClippedBelow bool    `json:"neighbors_clipped_below"`
	Percentile   float64 `json:"percentile"`
}

type statsPage struct {
	ladderInfo
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

// Empty fields of a query mean the API's defaults.
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
	if names, values, _ := strings.Cut(q.division, ":"); strings.Contains(names, "+") {
		v["division"] = crossed(names, values)
	}
	return v
}

// crossed splits a crossed division into one attribute:value for each attribute. The last attribute
// is first, because the service must accept any order. crossed unescapes only \+.
func crossed(names, values string) (parts []string) {
	const escaped = "\x00"
	split := strings.Split(strings.ReplaceAll(values, `\+`, escaped), "+")
	for i, name := range strings.Split(names, "+") {
		parts = append(parts, name+":"+strings.ReplaceAll(split[i], escaped, "+"))
	}
	slices.Reverse(parts)
	return parts
}

func (q query) String() string {
	return fmt.Sprintf("board %s season %q division %q method %q", q.board, q.season, q.division, q.method)
}

func (q query) path(parts ...string) string {
	return boardPath(q.board) + "/" + strings.Join(parts, "/")
}

func boardPath(id string) string { return "/v1/boards/" + escape(id) }

// escape returns an id as one path segment. It escapes colons, because a colon starts a verb such
// as ":void".
func escape(id string) string { return strings.ReplaceAll(url.PathEscape(id), ":", "%3A") }

type client struct {
	base string
	key  string
	http *http.Client
}

type statusError struct {
	code       int
	method     string
	path, body string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s: status %d: %s", e.method, e.path, e.code, e.body)
}

// send returns the body of the answer, or a *statusError.
func (c *client) send(ctx context.Context, method, path string, values url.Values, body any) ([]byte, error) {
	var input io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		input = bytes.NewReader(b)
	}
	if len(values) > 0 {
		path += "?" + values.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, input)
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

// call decodes the answer's JSON into answer. The API's integers must be JSON numbers: a string is
// an error.
func (c *client) call(ctx context.Context, method, path string, values url.Values, body, answer any) error {
	out, err := c.send(ctx, method, path, values, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("%s %s: %w in %.200s", method, path, err, out)
	}
	return nil
}

func (c *client) callData(ctx context.Context, method, path string, values url.Values, body, data any) error {
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

func (q query) check(a ladderInfo) error {
	want := q
	if want.method == "" {
		want.method = "competition"
	}
	if want.season == "" {
		want.season = a.Season // the current season
	}
	if got := (query{a.Board, a.Season, a.Division, a.Method}); got != want || a.Degraded || a.Filling {
		return fmt.Errorf("the answer is about %v, degraded %t, filling %t; want %v, neither degraded nor filling", got, a.Degraded, a.Filling, q)
	}
	return nil
}

func (c *client) list(ctx context.Context, q query) ([]entry, error) {
	const limit = 1000 // the API's largest page
	var all []entry
	for token := ""; ; {
		values := q.values()
		values.Set("limit", strconv.Itoa(limit))
		if token != "" {
			values.Set("page_token", token)
		}
		var p page
		if err := c.callData(ctx, http.MethodGet, q.path("scores"), values, nil, &p); err != nil {
			return nil, err
		}
		if err := q.check(p.ladderInfo); err != nil {
			return nil, err
		}
		all = append(all, p.Entries...)
		switch {
		case p.Count != len(p.Entries):
			return nil, fmt.Errorf("%v: count is %d and the page has %d entries, want equal numbers", q, p.Count, len(p.Entries))
		case p.Next == "" && int64(len(all)) != p.Total:
			return nil, fmt.Errorf("%v: total is %d and all pages have %d entries, want equal numbers", q, p.Total, len(all))
		case p.Next == "":
			return all, nil
		case len(p.Entries) != limit:
			return nil, fmt.Errorf("%v: a page before the last has %d entries, want %d", q, len(p.Entries), limit)
		}
		token = p.Next
	}
}

func (c *client) user(ctx context.Context, q query, user string, neighbors int) (userPage, error) {
	values := q.values()
	values.Set("neighbors", strconv.Itoa(neighbors))
	var p userPage
	if err := c.callData(ctx, http.MethodGet, q.path("scores", escape(user)), values, nil, &p); err != nil {
		return userPage{}, err
	}
	return p, q.check(p.ladderInfo)
}

func (c *client) lookup(ctx context.Context, q query, users []string) (page, error) {
	body := map[string]any{"user_ids": users}
	for name, value := range q.values() {
		if body[name] = value[0]; len(value) > 1 {
			body["divisions"] = value[1:]
		}
	}
	var p page
	if err := c.callData(ctx, http.MethodPost, q.path("scores:lookup"), nil, body, &p); err != nil {
		return page{}, err
	}
	return p, q.check(p.ladderInfo)
}

func (c *client) stats(ctx context.Context, q query, extra url.Values) (statsPage, error) {
	values := q.values()
	for name, value := range extra {
		values[name] = value
	}
	var p statsPage
	if err := c.callData(ctx, http.MethodGet, q.path("stats"), values, nil, &p); err != nil {
		return statsPage{}, err
	}
	return p, q.check(p.ladderInfo)
}

// createBoard returns the board's unique id.
func (c *client) createBoard(t *testing.T, b board) string {
	t.Helper()
	b.ID = "official-" + b.ID + "-" + rand.Text()[:8]
	if _, err := c.send(t.Context(), http.MethodPost, "/v1/boards", nil, b); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.deleteBoard(context.WithoutCancel(t.Context()), b.ID); err != nil {
			t.Error(err)
		}
	})
	return b.ID
}

// On Cassandra, the service deletes a few seasons per second.
const deleteTimeout = 20 * time.Minute

// deleteBoard repeats a call that times out or gets 503. The repeated call continues the deletion,
// or answers 404 because the board is gone.
func (c *client) deleteBoard(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	for tries := 0; ; tries++ {
		_, err := c.send(ctx, http.MethodDelete, boardPath(id), nil, nil)
		var status *statusError
		if tries > 0 && errors.As(err, &status) && status.code == http.StatusNotFound {
			return nil
		}
		var timeout net.Error
		repeat := errors.As(err, &timeout) && timeout.Timeout() || errors.As(err, &status) && status.code == http.StatusServiceUnavailable
		if !repeat || ctx.Err() != nil {
			return err
		}
	}
}

// For two years of football, the fill of rolling windows copies results about 116,000 times.
const fillTimeout = 40 * time.Minute

func (c *client) waitFilled(t *testing.T, board string) {
	t.Helper()
	c.waitFilledWhile(t, board, func() {})
}

func (c *client) waitFilledWhile(t *testing.T, board string, poll func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fillTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var answer struct{ Filling bool }
		if err := c.call(ctx, http.MethodGet, boardPath(board), nil, nil, &answer); err != nil {
			t.Fatalf("waiting for the fill of board %s (timeout %v): %v", board, fillTimeout, err)
		}
		if !answer.Filling {
			return
		}
		poll()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
