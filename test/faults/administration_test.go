package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

func TestAdministrationOfTwoRegions(t *testing.T) {
	needs.Slow(t, "regions")
	s := seed.New(t)
	regions := newRegions(t, "--sweep-interval=5s")
	i := int(s % 2)
	a := &administration{t: t, seed: s, acting: regions[i], following: regions[1-i]}
	t.Run("seal", a.testSeal)
	t.Run("bans, erasures and deletions", a.testActs)
	t.Run("a data center is down", a.testDataCenterDown)
}

type administration struct {
	t                 *testing.T
	seed              uint64
	acting, following *region // administrators call the first region; their changes must reach the second
	sealed            *board  // has the sealed season "short" of fay, gus and hal
}

// One region seals a season while Redis of the other region hangs. After this Redis answers again,
// neither Redis has the season.
func (a *administration) testSeal(t *testing.T) {
	a.t = t
	start := time.Now().UTC().Truncate(time.Second)
	end := start.Add(20 * time.Second)
	window := func(id string, start, end time.Time) object {
		return object{"id": id, "start": start.Format(time.RFC3339), "end": end.Format(time.RFC3339)}
	}
	b := a.board("seal", object{"schedule": "EXPLICIT", "grace": "0s", "windows": []object{window("short", start, end), window("long", end, end.Add(24*time.Hour))}})
	a.sealed = b
	for i, user := range []string{"fay", "gus", "hal"} {
		a.call(a.acting.node, http.MethodPost, "/v1/boards/"+b.id+"/scores",
			object{"user_id": user, "match_id": "m", "points": 5 - i, "achieved_at": start.Format(time.RFC3339)}, http.StatusOK)
	}
	a.want(b, "short", "1 fay 5", "2 gus 4", "3 hal 3")
	for _, r := range a.regions() {
		if n := a.keys(r, b, "short"); n == 0 {
			t.Errorf("Redis of region %s has no key of the open season", r.name)
		}
	}
	must(t, a.following.redis.Pause())
	deployment.Eventually(t, func(ctx context.Context) error {
		var answer struct {
			Data struct {
				Sealed bool `json:"sealed"`
			} `json:"data"`
		}
		status, err := a.acting.node.Call(ctx, http.MethodGet, "/v1/boards/"+b.id+"/scores?season=short", nil, &answer)
		if err == nil && !answer.Data.Sealed {
			err = fmt.Errorf("status %d; the season is not sealed", status)
		}
		return err
	})
	sealed := time.Now()
	const swept = "leaderboard_sweep_last_success_timestamp_seconds"
	deployment.Eventually(t, func(ctx context.Context) error { // the other region finds the seal while its Redis hangs
		last, err := a.following.node.Metric(ctx, swept)
		if err == nil && last < float64(sealed.Unix()+15) {
			err = fmt.Errorf("the last sweep of region %s ended %.0f seconds after the seal, want at least 15", a.following.name, last-float64(sealed.Unix()))
		}
		return err
	})
	must(t, a.following.redis.Resume())
	for _, r := range a.regions() {
		deployment.Eventually(t, func(context.Context) error {
			if n := a.keys(r, b, "short"); n > 0 {
				return fmt.Errorf("Redis of region %s has %d keys of the sealed season, want none", r.name, n)
			}
			return nil
		})
	}
	a.want(b, "short", "1 fay 5", "2 gus 4", "3 hal 3")
}

func (a *administration) keys(r *region, b *board, season string) int {
	a.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: r.redis.Addr})
	defer func() { _ = client.Close() }()
	keys, err := client.Keys(a.t.Context(), "*{"+b.id+"/"+season+"/*").Result()
	must(a.t, err)
	return len(keys)
}

func (a *administration) testActs(t *testing.T) {
	a.t = t
	b := a.openBoard("acts")
	a.submit(b, "ann", 9)
	a.submit(b, "bob", 8)
	a.submit(b, "cyd", 7)
	a.want(b, "all", "1 ann 9", "2 bob 8", "3 cyd 7")
	a.act("/v1/users/ann:ban", object{"reason": "test"})
	a.want(b, "all", "1 bob 8", "2 cyd 7")
	a.act("/v1/users/ann:unban", object{"reason": "test"})
	a.want(b, "all", "1 ann 9", "2 bob 8", "3 cyd 7")
	a.act("/v1/users/bob:ban", object{"board": b.id, "reason": "test"})
	a.act("/v1/users/cyd:erase", object{})
	a.want(b, "all", "1 ann 9")
	a.call(a.acting.node, http.MethodDelete, "/v1/boards/"+b.id, nil, http.StatusOK)
	settings := sumBoard()
	settings["board_id"] = b.id
	a.call(a.acting.node, http.MethodPost, "/v1/boards", settings, http.StatusOK)
	a.submit(b, "dan", 1)
	a.want(b, "all", "1 dan 1")
}

// One region's Cassandra data center is down. This region answers submits with 202 or 503, and
// reads with ranks. The other region bans and erases users, but answers 503 to a new board and to
// the erasure of a user of a sealed season. After the data center returns, both regions have all
// changes.
func (a *administration) testDataCenterDown(t *testing.T) {
	a.t = t
	cut := a.following
	l := newLedger(t, a.acting.node, "cut", a.seed)
	cut.waitForBoards(t, l)
	b := a.openBoard("down")
	for user, points := range map[string]int64{"fay": 9, "bob": 8, "dan": 7, "gus": 6, "ida": 5} {
		a.submit(b, user, points)
	}
	before := []string{"1 fay 9", "2 bob 8", "3 dan 7", "4 gus 6", "5 ida 5"}
	a.want(b, "all", before...)
	here, there := startLoad(t, a.acting.Deployment, l, a.acting.node.Client), startLoad(t, cut.Deployment, l, cut.node.Client)
	here.waitForMore(t, 100)
	there.waitForMore(t, 100)

	must(t, cut.cassandra.Kill())
	begun, atFault := time.Now(), there.figures()
	const submits = 20
	refused := a.submitWithoutStore(b, submits)
	a.wantIn(cut, b, "all", before...)
	a.act("/v1/users/fay:ban", object{"reason": "test"})
	a.act("/v1/users/bob:ban", object{"board": b.id, "reason": "test"})
	a.act("/v1/users/bob:unban", object{"board": b.id, "reason": "test"})
	a.act("/v1/users/ida:erase", object{})
	a.call(a.acting.node, http.MethodPost, "/v1/users/gus:erase", object{}, http.StatusServiceUnavailable)
	settings := sumBoard()
	settings["board_id"] = b.id + "-2"
	a.call(a.acting.node, http.MethodPost, "/v1/boards", settings, http.StatusServiceUnavailable)
	if len(refused) == 0 { // a result that got 503 may be applied or not
		a.wantIn(a.acting, b, "all", fmt.Sprintf("1 eve %d", submits), "2 bob 8", "3 dan 7")
	}
	here.waitForMore(t, 100)
	delay := here.waitForRecovery(t, begun)
	during := there.figures()
	t.Logf("region %s was without its data center for %v: %d calls, %d errors, %d results acknowledged, %d of them before they were applied; region %s: %d consecutive calls succeeded, the first started after %v",
		cut.name, time.Since(begun).Round(time.Second), during.calls-atFault.calls, during.errors-atFault.errors,
		during.acknowledged-atFault.acknowledged, during.accepted-atFault.accepted, a.acting.name, steadyCalls, delay.Round(time.Millisecond))

	must(t, cut.cassandra.Start(t.Context()))
	delay = there.waitForRecovery(t, time.Now())
	t.Logf("the data center of region %s is back: %d consecutive calls succeeded, the first started after %v", cut.name, steadyCalls, delay.Round(time.Millisecond))
	for _, n := range refused {
		a.call(cut.node, http.MethodPost, "/v1/boards/"+b.id+"/scores", resultOfEve(n), http.StatusOK)
	}
	a.want(b, "all", fmt.Sprintf("1 eve %d", submits), "2 bob 8", "3 dan 7")
	a.want(a.sealed, "short", "1 hal 3")
	a.call(a.acting.node, http.MethodPost, "/v1/boards", settings, http.StatusOK)
	there.end()
	here.stop()
	there.stop()
	cut.waitForReplication(t)
	check(t, l, a.acting.node, cut.node)
}

func (a *administration) submitWithoutStore(b *board, n int) (refused []int) {
	a.t.Helper()
	answers := map[string]int{}
	for i := range n {
		ctx, cancel := context.WithTimeout(a.t.Context(), time.Minute)
		var o outcome
		status, err := a.following.node.Call(ctx, http.MethodPost, "/v1/boards/"+b.id+"/scores", resultOfEve(i), &o)
		cancel()
		switch {
		case err != nil || status != http.StatusAccepted && status != http.StatusServiceUnavailable || o.Rank != nil:
			a.t.Errorf("a submit without the data center: status %d, with a rank: %t, error %v; want 202 or 503, without a rank", status, o.Rank != nil, err)
		case status == http.StatusServiceUnavailable:
			refused = append(refused, i)
		}
		answers[fmt.Sprint(status, " ", o.Status)]++
	}
	a.t.Logf("region %s answered %d submits without its data center: %v", a.following.name, n, answers)
	return refused
}

func resultOfEve(n int) object {
	return object{"user_id": "eve", "match_id": fmt.Sprint("cut-", n), "points": 1}
}

func (a *administration) regions() []*region { return []*region{a.acting, a.following} }

func sumBoard() object {
	return object{"policy": "SUM", "order": "HIGHER_FIRST", "season": object{"schedule": "NONE"}}
}

func (a *administration) openBoard(name string) *board {
	a.t.Helper()
	return a.board(name, object{"schedule": "NONE"})
}

func (a *administration) board(name string, season object) *board {
	a.t.Helper()
	b := &board{policy: "SUM", id: a.acting.node.Board(a.t, name, object{"policy": "SUM", "order": "HIGHER_FIRST", "season": season})}
	a.call(a.following.node, http.MethodGet, "/v1/boards/"+b.id, nil, http.StatusOK)
	return b
}

func (a *administration) call(n *deployment.Node, method, path string, body any, want int) {
	a.t.Helper()
	deployment.Eventually(a.t, func(ctx context.Context) error {
		var answer struct {
			Message string `json:"message"`
		}
		status, err := n.Call(ctx, method, path, body, &answer)
		if err == nil && status != want {
			err = fmt.Errorf("%s %s: status %d, %s; want %d", method, path, status, answer.Message, want)
		}
		return err
	})
}

func (a *administration) act(path string, body object) {
	a.t.Helper()
	a.call(a.acting.node, http.MethodPost, path, body, http.StatusOK)
}

func (a *administration) submit(b *board, user string, points int64) {
	a.t.Helper()
	a.call(a.acting.node, http.MethodPost, "/v1/boards/"+b.id+"/scores", object{"user_id": user, "match_id": "m", "points": points}, http.StatusOK)
}

func (a *administration) want(b *board, season string, lines ...string) {
	a.t.Helper()
	for _, r := range a.regions() {
		a.wantIn(r, b, season, lines...)
	}
}

func (a *administration) wantIn(r *region, b *board, season string, lines ...string) {
	a.t.Helper()
	deployment.Eventually(a.t, func(ctx context.Context) error {
		var answer struct {
			Data    page   `json:"data"`
			Message string `json:"message"`
		}
		status, err := r.node.Call(ctx, http.MethodGet, "/v1/boards/"+b.id+"/scores?season="+season, nil, &answer)
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("region %s: status %d, %s, error %v", r.name, status, answer.Message, err)
		}
		got := []string{}
		for _, s := range answer.Data.Standings {
			if s.Rank == nil {
				return fmt.Errorf("region %s: %s has no rank", r.name, s.User)
			}
			got = append(got, fmt.Sprintf("%d %s %d", *s.Rank, s.User, s.Score))
		}
		if !slices.Equal(got, lines) {
			return fmt.Errorf("region %s: season %s of board %s has %q, want %q", r.name, season, b.id, got, lines)
		}
		return nil
	})
}
