package ranking

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/sony/gobreaker/v2"
	"golang.org/x/sync/singleflight"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/coalesce"
)

const (
	indexTimeout  = 5 * time.Second
	indexCooldown = time.Second
	// probeTimeout is the longest time for a probe, a cheap read that shows whether the index
	// answers. A read without an answer for this time causes a probe.
	probeTimeout = 250 * time.Millisecond
	// loadTimeout is how long readers wait for a season, counted from the start of its load.
	// Afterwards, they get answers without ranks.
	loadTimeout = 5 * time.Second
	// usersAge is how long a season counts as having users after a read found a user.
	usersAge = 10 * time.Second
	maxUsed  = 1 << 14
)

// rankIndex is the index with a timeout and a circuit breaker for reads. It also loads
// seasons.
//
// An index that is silent, such as a Redis server that hangs, must not delay every answer. If
// a read has no answer after probeTimeout, one probe finds out whether the index is silent or
// only the read takes long. If the probe has no answer after probeTimeout either, the circuit
// breaker opens, and all waiting reads return. Further reads fail immediately. After
// indexCooldown, one reader at a time makes a probe.
type rankIndex struct {
	leaderboard.Index
	store leaderboard.Store
	tasks *tasks
	now   func() time.Time
	log   *slog.Logger

	breaker    *gobreaker.CircuitBreaker[struct{}]
	probes     singleflight.Group
	silence    silence
	loads      singleflight.Group
	loadStarts sync.Map // SeasonKey to time.Time
	fills      *fills

	missed missed
	sealed sealedSeasons

	used     *lru.Cache[leaderboard.SeasonKey, time.Time] // when a read of the store found a user
	findings coalesce.Group[leaderboard.SeasonKey, *bool]
}

var _ leaderboard.Index = (*rankIndex)(nil)

func newRankIndex(index leaderboard.Index, store leaderboard.Store, tasks *tasks, now func() time.Time, log *slog.Logger) *rankIndex {
	x := &rankIndex{Index: index, store: store, tasks: tasks, now: now, log: log, breaker: newBreaker(), fills: newFills(now, log)}
	x.used, _ = lru.New[leaderboard.SeasonKey, time.Time](maxUsed)
	x.findings.Call = x.findUsers
	return x
}

var (
	errSilent = errors.New("no answer in time")
	// errUnreachable means that a read failed before its timeout, because the client of the
	// index cannot reach the server.
	errUnreachable = errors.New("the index cannot answer")
)

// maxUnreachable is the number of errors errUnreachable that open the circuit breaker. Before
// each error, a reader waits for the client's retries.
const maxUnreachable = 10

// The circuit breaker opens after one errSilent, or after maxUnreachable errors errUnreachable
// without a success between them. Errors of a context and [leaderboard.ErrRankUnavailable]
// count neither as failure nor as success: an index that lacks an update returns
// ErrRankUnavailable without a request to its server.
func newBreaker() *gobreaker.CircuitBreaker[struct{}] {
	var silent atomic.Bool
	return gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:   1,
		Timeout:       indexCooldown,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return silent.Load() || c.ConsecutiveFailures >= maxUnreachable },
		OnStateChange: func(string, gobreaker.State, gobreaker.State) { silent.Store(false) },
		IsSuccessful: func(err error) bool {
			if errors.Is(err, errSilent) {
				silent.Store(true)
			}
			return !errors.Is(err, errSilent) && !errors.Is(err, errUnreachable)
		},
		IsExcluded: func(err error) bool {
			return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, leaderboard.ErrRankUnavailable)
		},
	})
}

var errBreakerOpen = fmt.Errorf("ranking: earlier reads of the index got no answer: %w", leaderboard.ErrRankUnavailable)

func (x *rankIndex) isSilent() bool { return x.breaker.State() == gobreaker.StateOpen }

// silence wakes the readers that wait for the index when a probe finds the index silent.
type silence struct {
	mu      sync.Mutex
	waiting chan struct{} // closed by wake; nil if no reader waits
}

func (s *silence) found() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting = make(chan struct{})
	}
	return s.waiting
}

func (s *silence) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting != nil {
		close(s.waiting)
		s.waiting = nil
	}
}

// If a probe finds the index silent, readIndex cancels the context of read. Errors:
// errBreakerOpen.
func readIndex[T any](ctx context.Context, x *rankIndex, key leaderboard.SeasonKey, read func(context.Context) (T, leaderboard.View, error)) (answer T, ladderView leaderboard.View, err error) {
	timeout := indexTimeout
	if x.breaker.State() == gobreaker.StateHalfOpen {
		timeout = probeTimeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if timeout > probeTimeout {
		defer x.watch(key, cancel)()
	}
	_, breakerErr := x.breaker.Execute(func() (struct{}, error) {
		answer, ladderView, err = read(limited)
		switch {
		case limited.Err() == nil && errors.Is(err, errUnreachable):
			return struct{}{}, errUnreachable
		case err != nil && limited.Err() == nil && errors.Is(err, leaderboard.ErrRankUnavailable):
			return struct{}{}, leaderboard.ErrRankUnavailable
		case err == nil || limited.Err() == nil:
			return struct{}{}, nil
		case ctx.Err() != nil:
			return struct{}{}, ctx.Err()
		}
		err = fmt.Errorf("ranking: no answer of the index: %w: %w", leaderboard.ErrRankUnavailable, err)
		return struct{}{}, errSilent
	})
	if errors.Is(breakerErr, gobreaker.ErrOpenState) || errors.Is(breakerErr, gobreaker.ErrTooManyRequests) {
		return answer, ladderView, errBreakerOpen
	}
	return answer, ladderView, err
}

// watch probes the index after probeTimeout. If any probe finds the index silent before stop
// is called, watch calls found.
func (x *rankIndex) watch(key leaderboard.SeasonKey, found func()) (stop func()) {
	stopped := make(chan struct{})
	timer := time.AfterFunc(probeTimeout, func() {
		woken := x.silence.found()
		_, _, _ = x.probes.Do("", func() (any, error) {
			x.probe(key)
			return nil, nil
		})
		select {
		case <-woken:
			found()
		case <-stopped:
		}
	})
	return func() {
		timer.Stop()
		close(stopped)
	}
}

func (x *rankIndex) probe(key leaderboard.SeasonKey) {
	x.tasks.running.Add(1)
	defer x.tasks.running.Done()
	ctx, cancel := context.WithTimeout(x.tasks.ctx, probeTimeout)
	defer cancel()
	if _, err := x.Index.Loaded(ctx, key); err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return
	}
	_, _ = x.breaker.Execute(func() (struct{}, error) { return struct{}{}, errSilent })
	x.silence.wake()
}

func (x *rankIndex) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return readIndex(ctx, x, l.SeasonKey, func(ctx context.Context) ([]leaderboard.Standing, leaderboard.View, error) {
		return x.Index.Standings(ctx, l, users, methods...)
	})
}

func (x *rankIndex) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return readIndex(ctx, x, l.SeasonKey, func(ctx context.Context) ([]leaderboard.Standing, leaderboard.View, error) {
		return x.Index.Page(ctx, l, position, n, methods...)
	})
}

func (x *rankIndex) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return readIndex(ctx, x, l.SeasonKey, func(ctx context.Context) ([]leaderboard.Standing, leaderboard.View, error) {
		return x.Index.PageAfter(ctx, l, after, n, methods...)
	})
}

func (x *rankIndex) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int, methods ...leaderboard.Method) (leaderboard.Neighborhood, leaderboard.View, error) {
	return readIndex(ctx, x, l.SeasonKey, func(ctx context.Context) (leaderboard.Neighborhood, leaderboard.View, error) {
		return x.Index.Around(ctx, l, user, above, below, methods...)
	})
}

func (x *rankIndex) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey, methods ...leaderboard.Method) ([]leaderboard.Counts, leaderboard.View, error) {
	return readIndex(ctx, x, l.SeasonKey, func(ctx context.Context) ([]leaderboard.Counts, leaderboard.View, error) {
		return x.Index.Count(ctx, l, keys, methods...)
	})
}

func (x *rankIndex) Survey(ctx context.Context, l leaderboard.Ladder, q leaderboard.SurveyQuery, methods ...leaderboard.Method) (leaderboard.Survey, leaderboard.View, error) {
	return readIndex(ctx, x, l.SeasonKey, func(ctx context.Context) (leaderboard.Survey, leaderboard.View, error) {
		return x.Index.Survey(ctx, l, q, methods...)
	})
}

// Concurrent callers of load share one fill, which continues after they stop waiting. If the
// fill takes longer than loadTimeout, load returns [leaderboard.ErrRankUnavailable].
func (x *rankIndex) load(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey) error {
	if x.isSilent() {
		return errBreakerOpen
	}
	errLoading := fmt.Errorf("ranking: the index of %s/%s is being filled: %w", key.Board, key.Season, leaderboard.ErrRankUnavailable)
	timeout := loadTimeout
	if start, ok := x.loadStarts.Load(key); ok {
		// Do not join a load that began more than loadTimeout ago. The load may take an hour,
		// and each caller would keep a goroutine until the load ends.
		if timeout -= time.Since(start.(time.Time)); timeout <= 0 {
			return errLoading
		}
	}
	done := make(chan error, 1)
	x.tasks.running.Go(func() {
		_, err, _ := x.loads.Do(fmt.Sprintf("%q/%q", key.Board, key.Season), func() (any, error) {
			x.loadStarts.Store(key, time.Now())
			defer x.loadStarts.Delete(key)
			loaded, _, err := readIndex(x.tasks.ctx, x, key, func(ctx context.Context) (bool, leaderboard.View, error) {
				loaded, err := x.Index.Loaded(ctx, key)
				if err != nil {
					err = fmt.Errorf("%w: %w", errUnreachable, err)
				}
				return loaded, leaderboard.View{}, err
			})
			if loaded || err != nil {
				return nil, err
			}
			return nil, x.restore(x.tasks.ctx, b, key, nil)
		})
		done <- err
	})
	silent := make(chan struct{})
	defer x.watch(key, func() { close(silent) })()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-silent:
		return errBreakerOpen
	case <-timer.C:
		return errLoading
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (x *rankIndex) restore(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, progress Progress) error {
	return x.fillBy(ctx, b, key, progress, x.Index.Restore)
}

func (x *rankIndex) fill(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, progress Progress) error {
	return x.fillBy(ctx, b, key, progress, x.rebuild)
}

func (x *rankIndex) rebuild(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, at time.Time, scan func(leaderboard.Part) iter.Seq2[leaderboard.Entry, error]) error {
	return x.Rebuild(ctx, b, key, at, scan(leaderboard.Part{}))
}

type fillFunc func(context.Context, *leaderboard.Board, leaderboard.SeasonKey, time.Time, func(leaderboard.Part) iter.Seq2[leaderboard.Entry, error]) error

// If the divisions have changed since b was read, fillBy then rebuilds the season.
func (x *rankIndex) fillBy(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, progress Progress, do fillFunc) error {
	for ; ; do = x.rebuild {
		if err := x.fillOnce(ctx, b, key, progress, do); err != nil {
			return err
		}
		stored, err := x.store.Board(ctx, key.Board)
		if errors.Is(err, leaderboard.ErrBoardNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if !stored.CreatedAt.Equal(b.CreatedAt) || stored.Rules() <= b.Rules() {
			return x.dropEmpty(ctx, key, x.tryDrop)
		}
		b = &stored
	}
}

// Seasons without users are not loaded, so that queries for them take no memory.
func (x *rankIndex) hasUsers(ctx context.Context, key leaderboard.SeasonKey) (bool, error) {
	return x.store.HasUsers(ctx, key)
}

// While the index is down, every read of a season calls recentlyHadUsers. So it caches the
// answer true for usersAge, and concurrent callers share one read of the store.
func (x *rankIndex) recentlyHadUsers(ctx context.Context, key leaderboard.SeasonKey) (bool, error) {
	if at, ok := x.used.Get(key); ok && time.Since(at) < usersAge {
		return true, nil
	}
	var found bool
	if err := x.findings.Do(ctx, key, &found); err != nil {
		return false, err // do not read found: if ctx is done, findUsers may still write it
	}
	return found, nil
}

func (x *rankIndex) findUsers(_ context.Context, key leaderboard.SeasonKey, callers []*bool) error {
	x.tasks.running.Add(1)
	defer x.tasks.running.Done()
	ctx, cancel := context.WithTimeout(x.tasks.ctx, storePageTimeout)
	defer cancel()
	now := time.Now()
	found, err := x.store.HasUsers(ctx, key)
	if err != nil {
		return fmt.Errorf("%w: %w", leaderboard.ErrUnavailable, err)
	}
	if found {
		x.used.Add(key, now)
	}
	for _, caller := range callers {
		*caller = found
	}
	return nil
}

// dropEmpty drops a season without users, after each load and each erasure. Some stores do not
// list such a season. FillDivisions would then not rebuild it, and the index would keep the old
// divisions. drop is tryDrop, or Drop if dropEmpty must fail while the index is unavailable.
func (x *rankIndex) dropEmpty(ctx context.Context, key leaderboard.SeasonKey, drop func(context.Context, leaderboard.SeasonKey) error) error {
	hasUsers, err := x.hasUsers(ctx, key)
	if err != nil || hasUsers {
		return err
	}
	return drop(ctx, key)
}

func (x *rankIndex) fillOnce(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, progress Progress, do fillFunc) error {
	f := x.fills.begin(key)
	defer x.fills.end(f)
	scan := func(part leaderboard.Part) iter.Seq2[leaderboard.Entry, error] {
		f.expect(part)
		return x.fills.observe(ctx, f, x.store.Scan(ctx, key, part), progress)
	}
	// The index must report the time of the last change, not of its load.
	changedAt, err := x.store.ChangedAt(ctx, key)
	if err != nil {
		return err
	}
	unknown := changedAt.IsZero()
	if unknown {
		changedAt = leaderboard.Truncate(x.now())
	}
	if err := do(ctx, b, key, changedAt, scan); err != nil {
		return fmt.Errorf("ranking: index of %s/%s: %w", key.Board, key.Season, err)
	}
	if at := f.scannedAt.Load(); unknown && at != nil {
		// An Update between changedAt and the begin of do changed nothing, but the entries of scan
		// include it. So the last change may be as late as this scan.
		if err := x.Index.Update(ctx, key, leaderboard.Truncate(*at), []leaderboard.Entry{}); err != nil && !errors.Is(err, leaderboard.ErrRankUnavailable) {
			return fmt.Errorf("ranking: index of %s/%s: %w", key.Board, key.Season, err)
		}
	}
	if f.whole {
		x.fills.sizes.Add(key, f.read.Load())
	}
	if progress != nil {
		progress(key, f.read.Load())
	}
	return nil
}

const missedInterval = 5 * time.Second

type missed struct {
	mu       sync.Mutex
	loggedAt time.Time
	count    int
}

// next counts a missed update. If a log line is due, next returns the count since the previous
// line, else 0.
func (m *missed) next(now time.Time) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	if now.Sub(m.loggedAt) < missedInterval {
		return 0
	}
	n, m.count, m.loggedAt = m.count, 0, now
	return n
}

// If the index is unavailable, tryUpdate returns nil: the index will be filled from the store.
// If entries do not fit the season (the length of rank keys differs), the season in the
// index belongs to a deleted board with the same id. tryUpdate then drops the season, and the
// next reader fills it.
func (x *rankIndex) tryUpdate(ctx context.Context, key leaderboard.SeasonKey, changedAt time.Time, entries []leaderboard.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	err := x.Index.Update(ctx, key, changedAt, entries)
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		if n := x.missed.next(time.Now()); n > 0 {
			x.log.WarnContext(ctx, "rank index not updated", "err", err, "updates", n)
		}
		return nil
	}
	if errors.Is(err, leaderboard.ErrFormat) {
		x.log.ErrorContext(ctx, "season of the rank index does not fit the entries of the board; the season is dropped and will be filled again",
			"board", key.Board, "season", key.Season, "err", err)
		if err := x.Index.Drop(ctx, key); err != nil {
			return fmt.Errorf("ranking: drop the index of %s/%s: %w: %w", key.Board, key.Season, leaderboard.ErrUnavailable, err)
		}
		return nil
	}
	return err
}

func (x *rankIndex) tryDrop(ctx context.Context, key leaderboard.SeasonKey) error {
	err := x.Index.Drop(ctx, key)
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		x.log.WarnContext(ctx, "season of the rank index not dropped", "err", err)
		return nil
	}
	return err
}
