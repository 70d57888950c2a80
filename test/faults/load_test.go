package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// load is a stream of results and reads. It sends results to API nodes and, as a game server may,
// directly to Kafka, until they are acknowledged.
type load struct {
	t      *testing.T
	ledger *ledger
	apis   []*deployment.Client

	ending chan struct{} // closed when the ledger must generate no more results
	end    func()        // closes the channel ending
	done   sync.WaitGroup

	mu           sync.Mutex
	calls        []call
	acknowledged int
	accepted     int             // acknowledged before they were applied
	wrong        []string        // see note
	applied      map[match]int64 // the highest revision that an answer reported as applied
}

type call struct {
	start time.Time
	took  time.Duration
	err   error
}

const pace = 100 * time.Millisecond

// startLoad returns a load that runs until [load.stop].
func startLoad(t *testing.T, d *deployment.Deployment, ledger *ledger, apis ...*deployment.Client) *load {
	t.Helper()
	l := &load{t: t, ledger: ledger, apis: apis, ending: make(chan struct{}), applied: map[match]int64{}}
	l.end = sync.OnceFunc(func() { close(l.ending) })
	log := newResultWriter(t, d.Kafka)
	topic := d.TopicPrefix + "match-results"
	for _, api := range apis {
		for range 4 {
			l.send(func(ctx context.Context, r *result) error { return l.submit(ctx, api, r) })
		}
		l.read(func(ctx context.Context) error { return l.readPage(ctx, api) })
		l.read(func(ctx context.Context) error { return l.readResult(ctx, api) })
	}
	for range 2 {
		l.send(func(ctx context.Context, r *result) error { return log.send(ctx, topic, r) })
	}
	return l
}

// send starts a goroutine that calls f with results of the ledger. It repeats each call until f
// succeeds.
func (l *load) send(f func(context.Context, *result) error) {
	l.done.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		ending := false
		for {
			var r *result
			if ending = ending || l.isEnding(); ending {
				if r = l.ledger.unsent(); r == nil {
					return
				}
			} else {
				r = l.ledger.next()
			}
			for l.try(true, func(ctx context.Context) error { return f(ctx, r) }) != nil {
				if !l.wait(tick) {
					return
				}
			}
			if !l.wait(tick) {
				return
			}
		}
	})
}

func (l *load) read(f func(context.Context) error) {
	l.done.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for !l.isEnding() && l.wait(tick) {
			_ = l.try(false, f)
		}
	})
}

func (l *load) isEnding() bool {
	select {
	case <-l.ending:
		return true
	default:
		return false
	}
}

func (l *load) wait(tick *time.Ticker) bool {
	select {
	case <-tick.C:
		return true
	case <-l.t.Context().Done():
		return false
	}
}

// try calls f once and records the call. If write is true, f sends a result of the ledger.
func (l *load) try(write bool, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	c := call{start: time.Now()}
	c.err = f(ctx)
	c.took = time.Since(c.start)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
	if write && c.err == nil {
		l.acknowledged++
	}
	return c.err
}

type outcome struct {
	Status  string `json:"status"`
	Rank    *int64 `json:"rank"`
	Message string `json:"message"`
}

func (l *load) submit(ctx context.Context, api *deployment.Client, r *result) error {
	path := "/v1/boards/" + r.board.id + "/scores"
	var body any = r.json()
	if r.retracted {
		path = "/v1/boards/" + r.board.id + "/results/" + r.user + "/" + r.id + ":retract"
		body = map[string]any{"revision": r.revision, "season": "all"}
	}
	var o outcome
	status, err := api.Call(ctx, http.MethodPost, path, body, &o)
	if err != nil {
		return err
	}
	if o.Rank != nil && *o.Rank < 1 {
		l.note("submit match %s of %s: the rank is %d, want at least 1", r.id, r.user, *o.Rank)
	}
	switch {
	case status == http.StatusAccepted:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.accepted++
	case status/100 != 2:
		return fmt.Errorf("submit: status %d, %s", status, o.Message)
	case o.Status == "APPLIED" || o.Status == "DUPLICATE" || o.Status == "SUPERSEDED":
		l.noteApplied(r)
	default:
		l.note("submit match %s of %s: unexpected status %q in the answer", r.id, r.user, o.Status)
	}
	return nil
}

// Every later read must see this revision or a later one.
func (l *load) noteApplied(r *result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if got, ok := l.applied[r.match]; !ok || got < r.revision {
		l.applied[r.match] = r.revision
	}
}

func (l *load) anyApplied() (m match, revision int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m, revision := range l.applied { // in random order
		return m, revision, true
	}
	return match{}, 0, false
}

// note records an answer that is wrong even while servers fail.
func (l *load) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

func (l *load) readPage(ctx context.Context, api *deployment.Client) error {
	b := l.ledger.boards[time.Now().UnixNano()%int64(len(l.ledger.boards))]
	p, err := readPage(ctx, api, b, "")
	if err != nil {
		return err
	}
	if problem := p.problem(b); problem != "" {
		l.note("board %s: %s: %v", b.id, problem, p)
	}
	return nil
}

func (l *load) readResult(ctx context.Context, api *deployment.Client) error {
	m, revision, ok := l.anyApplied()
	if !ok {
		return nil
	}
	got, err := readResult(ctx, api, m)
	if err == nil && got < revision {
		l.note("match %s of %s: read revision %d after revision %d was applied", m.id, m.user, got, revision)
	}
	return err
}

// problem describes an error of the page, or returns "". The order and the ranks must be right, and
// no user may be listed twice. Only a degraded answer has no ranks.
func (p *page) problem(b *board) string {
	users := map[string]bool{}
	for i, s := range p.Standings {
		switch {
		case users[s.User]:
			return s.User + " is listed twice"
		case p.Degraded != (s.Rank == nil):
			return fmt.Sprintf("%v is in a page whose degraded field is %v", s, p.Degraded)
		}
		users[s.User] = true
		rank := int64(i + 1)
		if i > 0 {
			before := p.Standings[i-1]
			if s.Score != before.Score && (s.Score < before.Score) == b.lowerFirst {
				return fmt.Sprintf("%v is listed after %v, want before", s, before)
			}
			if s.Score == before.Score && before.Rank != nil {
				rank = *before.Rank
			}
		}
		if s.Rank != nil && *s.Rank != rank {
			return fmt.Sprintf("%v, want rank %d", s, rank)
		}
	}
	return ""
}

type figures struct {
	calls, errors, acknowledged, accepted int
	slowest                               time.Duration
}

func (l *load) figures() figures {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := figures{calls: len(l.calls), acknowledged: l.acknowledged, accepted: l.accepted}
	for _, c := range l.calls {
		if c.err != nil {
			f.errors++
		}
		f.slowest = max(f.slowest, c.took)
	}
	return f
}

func (f figures) String() string {
	return fmt.Sprintf("%d calls, %d errors (%.2f %%), slowest call %v; %d results acknowledged, %d of them before they were applied",
		f.calls, f.errors, f.percent(), f.slowest.Round(time.Millisecond), f.acknowledged, f.accepted)
}

func (f figures) percent() float64 { return 100 * float64(f.errors) / float64(max(f.calls, 1)) }

func (l *load) errors() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, c := range slices.Backward(l.calls) {
		if c.err != nil && len(errs) < 5 {
			errs = append(errs, c.err)
		}
	}
	return errs
}

// steadyCalls is the number of consecutive successful calls that show recovery from a fault.
const steadyCalls = 50

// waitForRecovery waits until [steadyCalls] consecutive calls after the fault have succeeded. It
// returns the time from the fault to the first of these calls.
func (l *load) waitForRecovery(t *testing.T, fault time.Time) time.Duration {
	t.Helper()
	var delay time.Duration
	deployment.Eventually(t, func(context.Context) error {
		calls := l.callsSince(fault)
		slices.SortFunc(calls, func(x, y call) int { return x.start.Compare(y.start) })
		streak := 0
		for i, c := range calls {
			if streak++; c.err != nil {
				streak = 0
			}
			if streak == steadyCalls {
				delay = calls[i-steadyCalls+1].start.Sub(fault)
				return nil
			}
		}
		return fmt.Errorf("among the %d calls since the fault, no %d consecutive calls succeeded", len(calls), steadyCalls)
	})
	return delay
}

func (l *load) callsSince(start time.Time) []call {
	l.mu.Lock()
	defer l.mu.Unlock()
	var calls []call
	for _, c := range slices.Backward(l.calls) { // l.calls is in the order of the calls' ends, to within a second
		if c.start.Add(c.took + time.Second).Before(start) {
			break
		}
		if !c.start.Before(start) {
			calls = append(calls, c)
		}
	}
	return calls
}

func (l *load) waitForMore(t *testing.T, n int) {
	t.Helper()
	want := l.figures().acknowledged + n
	deployment.Eventually(t, func(context.Context) error {
		if got := l.figures().acknowledged; got < want {
			return fmt.Errorf("%d results are acknowledged, want %d", got, want)
		}
		return nil
	})
}

const stopTimeout = 2 * time.Minute

// stop ends the load, and waits up to [stopTimeout] until every result is acknowledged. If other
// loads share the ledger, call their function end first: otherwise this load must also send results
// that they still generate.
func (l *load) stop() {
	l.t.Helper()
	l.end()
	stopped := make(chan struct{})
	go func() {
		l.done.Wait()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(stopTimeout):
		l.t.Fatalf("some results are still not acknowledged %v after the end of the load: %v; the last errors: %v", stopTimeout, l.figures(), l.errors())
	}
	for _, w := range l.wrong {
		l.t.Error(w)
	}
	f := l.figures()
	l.t.Logf("%v; %v", f, l.ledger)
	for _, err := range l.errors() {
		l.t.Logf("call failed: %v", err)
	}
}
