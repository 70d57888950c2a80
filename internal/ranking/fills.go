package ranking

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/open-leaderboard/leaderboard"
)

const (
	fillLogInterval = 10 * time.Second
	fillStep        = 1024
	progressStep    = 100_000
	maxSizes        = 1 << 14
)

type fills struct {
	now func() time.Time
	log *slog.Logger

	mu      sync.Mutex
	running map[*seasonFill]struct{}
	sizes   *lru.Cache[leaderboard.SeasonKey, int64] // the number of users when the season was last found loaded

	users atomic.Int64 // the number of users that all fills have read, ended fills included
}

type seasonFill struct {
	key   leaderboard.SeasonKey
	start time.Time
	known int64        // the season's number of users, from sizes; 0 if unknown
	whole bool         // the fill reads all users of the season
	size  atomic.Int64 // the expected number of users that the fill reads; 0 if unknown
	read  atomic.Int64
	// scannedAt is the time when the index first asked for entries, or nil.
	scannedAt atomic.Pointer[time.Time]
}

func newFills(now func() time.Time, log *slog.Logger) *fills {
	f := &fills{now: now, log: log, running: map[*seasonFill]struct{}{}}
	f.sizes, _ = lru.New[leaderboard.SeasonKey, int64](maxSizes)
	return f
}

func (f *fills) begin(key leaderboard.SeasonKey) *seasonFill {
	s := &seasonFill{key: key, start: f.now()}
	s.known, _ = f.sizes.Get(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running[s] = struct{}{}
	return s
}

func (s *seasonFill) expect(part leaderboard.Part) {
	s.whole = part.Of <= 1
	s.size.Add(s.known / int64(max(part.Of, 1)))
}

func (f *fills) end(s *seasonFill) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, s)
}

// progress may be nil.
func (f *fills) observe(ctx context.Context, s *seasonFill, entries iter.Seq2[leaderboard.Entry, error], progress Progress) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		logged, now := s.start, f.now()
		s.scannedAt.CompareAndSwap(nil, &now)
		for e, err := range entries {
			if err != nil {
				yield(e, err)
				return
			}
			n := s.read.Add(1)
			f.users.Add(1)
			if n%fillStep == 0 {
				if now := f.now(); now.Sub(logged) >= fillLogInterval {
					logged = now
					f.log.InfoContext(ctx, "filling the rank index", "board", s.key.Board, "season", s.key.Season,
						"users", n, "expected", s.size.Load(), "remaining", s.remaining(now).Round(time.Second))
				}
			}
			if progress != nil && n%progressStep == 0 {
				progress(s.key, n)
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// remaining estimates the time until the fill ends. It returns 0 if it cannot.
func (s *seasonFill) remaining(now time.Time) time.Duration {
	read, size := s.read.Load(), s.size.Load()
	if read == 0 || size <= read {
		return 0
	}
	return time.Duration(float64(now.Sub(s.start)) / float64(read) * float64(size-read))
}

// Filling describes the running fills of the rank index in this process.
type Filling struct {
	Seasons int   // the number of fills
	Users   int64 // the users that these fills have read
	// Remaining is the estimated time until these fills end, or 0 if unknown. A process knows
	// a season's number of users only if it has found the season loaded before.
	Remaining time.Duration
}

// Filling describes the running fills.
func (s *Service) Filling() Filling { return s.index.fills.state() }

func (f *fills) state() (all Filling) {
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	unknown := false
	for s := range f.running {
		all.Seasons++
		all.Users += s.read.Load()
		remaining := s.remaining(now)
		unknown = unknown || remaining == 0
		all.Remaining = max(all.Remaining, remaining)
	}
	if unknown {
		all.Remaining = 0
	}
	return all
}

// String returns a text such as "1 season, 250000 users read, about 2m0s remain".
func (f Filling) String() string {
	text := fmt.Sprintf("%d seasons, %d users read", f.Seasons, f.Users)
	if f.Seasons == 1 {
		text = fmt.Sprintf("1 season, %d users read", f.Users)
	}
	if f.Remaining > 0 {
		text += fmt.Sprintf(", about %v remain", max(time.Second, f.Remaining.Round(time.Second)))
	}
	return text
}
