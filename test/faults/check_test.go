package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// check waits until every ladder that the nodes return equals the recount. No acknowledged result
// may be missing, and "leaderboard verify" must find no difference.
func check(t *testing.T, l *ledger, nodes ...*deployment.Node) {
	t.Helper()
	for _, n := range nodes {
		deployment.Eventually(t, func(ctx context.Context) error { return equalsRecount(ctx, n, l, false) })
		checkLost(t, n, l)
		verify(t, n, l)
	}
}

// If degraded is true, the answers must have no ranks.
func equalsRecount(ctx context.Context, n *deployment.Node, l *ledger, degraded bool) error {
	for _, b := range l.boards {
		for _, team := range b.ladders() {
			want := l.recount(b, team)
			got, err := readPage(ctx, n.Client, b, team)
			if err != nil {
				return err
			}
			if got.Degraded != degraded {
				return fmt.Errorf("board %s: the answer's degraded field is %v, want %v", b.id, got.Degraded, degraded)
			}
			if degraded {
				for i := range want {
					want[i].Rank = nil
				}
			}
			if diff := cmp.Diff(text(want), text(got.Standings)); diff != "" {
				return fmt.Errorf("board %s, team %q (-recount +answer):\n%s", b.id, team, diff)
			}
		}
	}
	return nil
}

func text(list []standing) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.String()
	}
	return out
}

func checkLost(t *testing.T, n *deployment.Node, l *ledger) {
	t.Helper()
	work := make(chan match)
	lost := 0
	var mu sync.Mutex
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for m := range work {
				got, err := readResult(t.Context(), n.Client, m)
				mu.Lock()
				if want := l.last[m].revision; err != nil || got != want {
					lost++
					t.Errorf("match %s of %s: revision %d, error %v; want the acknowledged revision %d", m.id, m.user, got, err, want)
				}
				mu.Unlock()
			}
		})
	}
	for m := range l.last {
		work <- m
	}
	close(work)
	readers.Wait()
	t.Logf("read the results of %d matches from %s: %d lost", len(l.last), n.Addr, lost)
}

func verify(t *testing.T, n *deployment.Node, l *ledger) {
	t.Helper()
	for _, b := range l.boards {
		var out string
		var code int
		deployment.Eventually(t, func(context.Context) error {
			if out, code = runVerify(t, n, b); strings.Contains(out, "try again") { // Redis was slow
				return errors.New(out)
			}
			return nil
		})
		if code != 0 || !strings.Contains(out, ": 0 differences, 0 repaired") {
			t.Errorf("verify exited with %d, want 0 and no differences; it printed:\n%s", code, out)
		}
	}
}

func runVerify(t *testing.T, n *deployment.Node, b *board, flags ...string) (string, int) {
	t.Helper()
	out, err := n.Command(t, append([]string{"verify", "--board", b.id}, flags...)...).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return string(out), exit.ExitCode()
	case err != nil:
		t.Fatal(err)
	}
	return string(out), 0
}

// readResult returns -1 if no result exists.
func readResult(ctx context.Context, api *deployment.Client, m match) (int64, error) {
	var answer struct {
		Revision int64  `json:"revision"`
		Message  string `json:"message"`
	}
	status, err := api.Call(ctx, http.MethodGet, "/v1/boards/"+m.board.id+"/results/"+m.user+"/"+m.id+"?season=all", nil, &answer)
	switch {
	case err != nil:
		return 0, err
	case status == http.StatusNotFound:
		return -1, nil
	case status != http.StatusOK:
		return 0, fmt.Errorf("read a result: status %d, %s", status, answer.Message)
	}
	return answer.Revision, nil
}

type page struct {
	Standings []standing `json:"leaderboard"`
	Degraded  bool       `json:"degraded"`
}

func readPage(ctx context.Context, api *deployment.Client, b *board, team string) (page, error) {
	query := url.Values{"season": {"all"}, "limit": {"1000"}}
	if team != "" {
		query.Set("division", "team:"+team)
	}
	var answer struct {
		Data    page   `json:"data"`
		Message string `json:"message"`
	}
	status, err := api.Call(ctx, http.MethodGet, "/v1/boards/"+b.id+"/scores?"+query.Encode(), nil, &answer)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("read a board: status %d, %s", status, answer.Message)
	}
	return answer.Data, err
}
