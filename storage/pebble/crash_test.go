package pebble

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
	"github.com/open-leaderboard/leaderboard/test/needs"
	testseed "github.com/open-leaderboard/leaderboard/test/seed"
)

func runSeeds(t *testing.T, n int, test func(t *testing.T, rng *rand.Rand)) {
	first := testseed.New(t)
	for i := range n {
		n := first + uint64(i)
		if !t.Run(fmt.Sprint(i), func(t *testing.T) { test(t, rand.New(rand.NewPCG(n, 0))) }) {
			t.Fatalf("run %d failed; repeat it with: %s=%d go test -run '^%s$/^0$'", i, testseed.Variable, n, t.Name())
		}
	}
}

// A history has the results that a test sent, and those that the store acknowledged.
type history struct {
	mu    sync.Mutex
	sent  map[leaderboard.ResultKey][]leaderboard.MatchResult
	acked map[leaderboard.ResultKey]int64 // the highest acknowledged revision
	last  []leaderboard.MatchResult       // the last sent batch; Apply may still run
}

func newHistory() *history {
	return &history{sent: map[leaderboard.ResultKey][]leaderboard.MatchResult{}, acked: map[leaderboard.ResultKey]int64{}}
}

func (h *history) send(results []leaderboard.MatchResult) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range results {
		h.sent[r.ResultKey] = append(h.sent[r.ResultKey], r)
	}
	h.last = results
}

func (h *history) inFlight() []leaderboard.MatchResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

func (h *history) ack(results []leaderboard.MatchResult, outcomes []leaderboard.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, r := range results {
		if outcomes[i].Err == nil {
			if highest, ok := h.acked[r.ResultKey]; !ok || r.Revision > highest {
				h.acked[r.ResultKey] = r.Revision
			}
		}
	}
}

func (h *history) acknowledged() map[leaderboard.ResultKey]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.acked)
}

// load applies random batches until Apply returns an error, and returns this error. Calls with
// different writers create different matches.
func (h *history) load(ctx context.Context, s *testStore, rng *rand.Rand, writer int, onApplied func()) error {
	var before []leaderboard.MatchResult
	for n := 0; ; n++ {
		var batch []leaderboard.MatchResult
		for range 1 + rng.IntN(5)*rng.IntN(10) {
			user := leaderboard.UserID(fmt.Sprint("u", rng.IntN(20)))
			r := testResult(user, leaderboard.MatchID(fmt.Sprint(writer, "-", n, "-", len(batch))), 0, leaderboard.Score(rng.IntN(1000)))
			if len(before) > 0 && rng.IntN(4) == 0 {
				old := before[rng.IntN(len(before))]
				r = testResult(old.User, old.Match, old.Revision+int64(rng.IntN(2)), leaderboard.Score(rng.IntN(1000)))
				if r.Revision == old.Revision {
					r = old
				}
			}
			batch = append(batch, r)
		}
		before = append(before, batch...)
		if again := h.inFlight(); len(again) > 0 && rng.IntN(3) == 0 {
			batch = again // duplicates, perhaps while another writer applies this batch
		}
		h.send(batch)
		report, err := s.Apply(ctx, testBoard(), batch)
		if err != nil {
			return err
		}
		h.ack(batch, report.Outcomes)
		onApplied()
	}
}

// For each key of acked, the store must have the acknowledged or a later revision. All stored
// results must have been sent.
func (h *history) verify(t *testing.T, s *testStore, acked map[leaderboard.ResultKey]int64) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, revision := range acked {
		rec, err := s.Result(t.Context(), key)
		if err != nil || rec.Result == nil || rec.Result.Revision < revision {
			t.Fatalf("revision %d of %v was acknowledged, but the store has %+v, error %v; want this revision or a later one", revision, key, rec.Result, err)
		}
	}
	users := 0
	for user, err := range s.Users(t.Context(), testSeason) {
		if err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		for r, err := range s.Results(t.Context(), testSeason, user) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			if !slices.ContainsFunc(h.sent[r.ResultKey], func(o leaderboard.MatchResult) bool { return equalResults(&o, &r) }) {
				t.Fatalf("the store holds the result %+v, which was never sent; want only sent results", r)
			}
		}
		e, err := s.Entry(t.Context(), testSeason, user)
		if err != nil || e.Results != n {
			t.Fatalf("user %q: the entry counts %d results, want %d; error %v", user, e.Results, n, err)
		}
		users++
	}
	checkLadders(t, s, users)
}

func TestCrashKeepsAcknowledgedResults(t *testing.T) {
	runSeeds(t, needs.More(t, 3), func(t *testing.T, rng *rand.Rand) {
		fs := vfs.NewCrashableMem()
		h := newHistory()
		s := mustOpen(t, "data", Options{FS: fs})
		if err := s.CreateBoard(t.Context(), *testBoard()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			ctx, stop := context.WithCancel(t.Context())
			enough := make(chan struct{})
			var once sync.Once
			var wg sync.WaitGroup
			for w := range 4 {
				remaining := 1 + rng.IntN(40)
				writerRNG := rand.New(rand.NewPCG(rng.Uint64(), 0))
				wg.Go(func() {
					err := h.load(ctx, s, writerRNG, w, func() {
						if remaining--; remaining == 0 {
							once.Do(func() { close(enough) })
						}
					})
					if !errors.Is(err, context.Canceled) {
						t.Errorf("Apply: error %v, want context.Canceled", err)
					}
				})
			}
			<-enough
			if rng.IntN(3) == 0 {
				// With a flush, the crash also affects Pebble's tables.
				if _, err := s.db.AsyncFlush(); err != nil {
					t.Fatal(err)
				}
			}
			acked := h.acknowledged()
			crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
			stop()
			wg.Wait()
			mustClose(t, s)

			fs = crashed
			s = mustOpen(t, "data", Options{FS: fs})
			h.verify(t, s, acked)
			h.acked = acked // the crash may have discarded results that were acknowledged later
		}
		mustClose(t, s)
	})
}

func TestCrashDuringAmendKeepsPreviousStandings(t *testing.T) {
	needs.NoRace(t, "under the detector, Pebble checks its invariants too, which takes long for 3,000 users")
	const n = 3000
	runSeeds(t, needs.More(t, 2), func(t *testing.T, rng *rand.Rand) {
		fs := vfs.NewCrashableMem()
		s := mustOpen(t, "data", Options{FS: fs})
		b := testBoard()
		if err := s.CreateBoard(t.Context(), *b); err != nil {
			t.Fatal(err)
		}
		apply := func(revision int64) {
			t.Helper()
			results := make([]leaderboard.MatchResult, n)
			for i := range results {
				results[i] = testResult(leaderboard.UserID(fmt.Sprint("u", i)), "m", revision, leaderboard.Score(revision))
			}
			if _, err := s.Apply(t.Context(), b, results); err != nil {
				t.Fatal(err)
			}
		}
		amend := func(day int) error {
			_, err := s.Amend(t.Context(), b, testSeason.Season, leaderboard.Amendment{At: testEpoch.AddDate(0, 0, day)}, nil)
			return err
		}
		apply(1)
		if _, err := s.Seal(t.Context(), b, testSeason.Season, testEpoch); err != nil {
			t.Fatal(err)
		}
		apply(2)
		done := make(chan error, 1)
		go func() { done <- amend(2) }()
		// Each syncVisible waits for writes to the disk. Meanwhile, the amendment can write batches.
		commits := rng.IntN(12)
		for range commits {
			if err := s.syncVisible(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		amended := false
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			amended = true
		default:
		}
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		if !amended {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, s)

		later := func() time.Time { return time.Now().AddDate(0, 0, 2) }
		s = mustOpen(t, "data", Options{FS: crashed, Now: later})
		standings, total, err := s.FinalStandings(t.Context(), leaderboard.Ladder{SeasonKey: testSeason}, 1, n+1)
		if err != nil || total != n || len(standings) != n {
			t.Fatalf("%d final standings, total %d, error %v; want %d for both", len(standings), total, err, n)
		}
		scores := map[leaderboard.Score]int{}
		for _, st := range standings {
			scores[b.ScoreOf(st.Key, testEpoch)]++
		}
		if len(scores) != 1 || amended && scores[2] != n {
			t.Fatalf("the final standings by score are %v, want a single score, which is 2 after a complete amendment; the amendment was complete before the crash: %v", scores, amended)
		}
		// An amendment on a later day removes the rows of the interrupted amendment.
		if err := amend(3); err != nil {
			t.Fatal(err)
		}
		rows := map[string]int{} // by the first part of the list's name
		if err := s.scan(t.Context(), []byte{kindRow}, []byte{kindRow + 1}, func(key, _ []byte) (bool, error) {
			d := codec.Decoder{Rest: key[1:]}
			name, _, _ := strings.Cut(d.Text(), "/")
			rows[name]++
			return true, nil
		}); err != nil {
			t.Fatal(err)
		}
		// Two ladders have n rows on pages, and places of both scores. A third ladder is empty.
		if d := cmp.Diff(map[string]int{"final page": 2 * n, "final places": 4 * n, "final directories": 3, "final generation": 1}, rows); d != "" {
			t.Fatalf("rows by list (-want +got):\n%s", d)
		}
		mustClose(t, s)
	})
}

// After a failed write, the store acknowledges no write. When it is opened again, it has every
// acknowledged result.
func TestFailedWriteStopsTheStore(t *testing.T) {
	runSeeds(t, needs.More(t, 8), func(t *testing.T, rng *rand.Rand) {
		mem := vfs.NewCrashableMem()
		permanent := rng.IntN(2) == 0
		successes := rng.IntN(60)
		var mu sync.Mutex
		armed, ops := false, 0
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			if !armed {
				return nil
			}
			if ops++; ops > successes && (permanent || ops == successes+1) {
				return errorfs.ErrInjected
			}
			return nil
		}))
		s := mustOpen(t, "data", Options{FS: fs})
		if err := s.CreateBoard(t.Context(), *testBoard()); err != nil {
			t.Fatal(err)
		}
		h := newHistory()
		mu.Lock()
		armed = true
		mu.Unlock()
		var wg sync.WaitGroup
		for w := range 4 {
			writerRNG := rand.New(rand.NewPCG(rng.Uint64(), 0))
			wg.Go(func() {
				n := 0
				err := h.load(t.Context(), s, writerRNG, w, func() {
					if n++; n%10 == 0 && w == 0 {
						// With a flush, writes to Pebble's tables can fail too.
						go func() {
							defer func() { _ = recover() }() // Pebble may panic after a failure.
							_, _ = s.db.AsyncFlush()
						}()
					}
				})
				if !errors.Is(err, leaderboard.ErrUnavailable) {
					t.Errorf("Apply: error %v, want ErrUnavailable", err)
				}
			})
		}
		wg.Wait()
		for name, err := range map[string]error{
			"Apply of a duplicate": func() error {
				for _, sent := range h.sent {
					_, err := s.Apply(t.Context(), testBoard(), sent[:1])
					return err
				}
				return errors.New("no result was sent")
			}(),
			"CreateBoard of an existing board": s.CreateBoard(t.Context(), *testBoard()),
			"SetBan":                           func() error { _, err := s.SetBan(t.Context(), leaderboard.Ban{User: "u", Banned: true}); return err }(),
			"Close":                            s.Close(),
		} {
			if !errors.Is(err, leaderboard.ErrUnavailable) {
				t.Errorf("%s after a failed write: error %v, want ErrUnavailable", name, err)
			}
		}
		acked := h.acknowledged()
		reopened := mustOpen(t, "data", Options{FS: mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})})
		h.verify(t, reopened, acked)
		mustClose(t, reopened)
		mu.Lock()
		armed = false // goroutines of the failed store may still write
		mu.Unlock()
	})
}

func TestFailedFlushStopsTheStore(t *testing.T) {
	mem := vfs.NewMem()
	var toggle errorfs.Toggle
	toggle.Injector = errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".sst") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return errorfs.ErrInjected
		}
		return nil
	})
	s := mustOpen(t, "data", Options{FS: errorfs.Wrap(mem, &toggle)})
	if err := s.CreateBoard(t.Context(), *testBoard()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), testBoard(), []leaderboard.MatchResult{testResult("u", "m", 0, 1)}); err != nil {
		t.Fatal(err)
	}
	toggle.On()
	if _, err := s.db.AsyncFlush(); err != nil {
		t.Fatal(err)
	}
	<-s.failed
	toggle.Off()
	if _, err := s.Apply(t.Context(), testBoard(), []leaderboard.MatchResult{testResult("u", "n", 0, 1)}); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("Apply after the failure: error %v, want ErrUnavailable", err)
	}
	if e, err := s.Entry(t.Context(), testSeason, "u"); err != nil || e.Results != 1 {
		t.Errorf("Entry after the failure: %+v, error %v; want 1 result", e, err)
	}
}

const killDir = "LEADERBOARD_PEBBLE_KILL_DIR"

// TestKillChild runs in the process that TestKillKeepsAcknowledgedResults kills.
func TestKillChild(t *testing.T) {
	dir := os.Getenv(killDir)
	if dir == "" {
		return
	}
	s := mustOpen(t, dir, Options{})
	if err := s.CreateBoard(t.Context(), *testBoard()); err != nil {
		t.Fatal(err)
	}
	var out sync.Mutex
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				user := leaderboard.UserID(fmt.Sprint("u", (n+w)%5))
				match := leaderboard.MatchID(fmt.Sprint(os.Getpid(), "-", w, "-", n))
				if _, err := s.Apply(t.Context(), testBoard(), []leaderboard.MatchResult{testResult(user, match, 0, leaderboard.Score(n%100))}); err != nil {
					t.Errorf("Apply: %v", err)
					return
				}
				out.Lock()
				fmt.Printf("%s %s %d\n", user, match, n%100)
				out.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestKillKeepsAcknowledgedResults(t *testing.T) {
	dir := t.TempDir()
	h := newHistory()
	for round := range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillChild$")
		cmd.Env = append(os.Environ(), killDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			var user leaderboard.UserID
			var match leaderboard.MatchID
			var score leaderboard.Score
			if _, err := fmt.Sscanf(lines.Text(), "%s %s %d", &user, &match, &score); err != nil {
				continue // the kill interrupted this line
			}
			r := testResult(user, match, 0, score)
			h.send([]leaderboard.MatchResult{r})
			h.ack([]leaderboard.MatchResult{r}, make([]leaderboard.Outcome, 1))
			if n == 0 {
				_, err := Open(dir, Options{})
				if err == nil || !strings.Contains(err.Error(), "another process") {
					t.Errorf("Open of a directory in use: error %v, want an error about another process", err)
				}
			}
			if n == 50+round*100 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait()
	}
	acked := h.acknowledged()
	if len(acked) < 4*50 {
		t.Fatalf("%d results were acknowledged, want at least %d", len(acked), 4*50)
	}
	s := mustOpen(t, dir, Options{})
	for key, revision := range acked {
		rec, err := s.Result(t.Context(), key)
		if err != nil || rec.Result.Revision != revision || !equalResults(rec.Result, &h.sent[key][0]) {
			t.Fatalf("revision %d of %v was acknowledged, but the store has %+v, error %v; want the acknowledged result", revision, key, rec, err)
		}
	}
	n := 0
	for range s.Users(t.Context(), testSeason) {
		n++
	}
	checkLadders(t, s, n)
	mustClose(t, s)
}

func equalResults(r, o *leaderboard.MatchResult) bool {
	return r.ResultKey == o.ResultKey && r.Revision == o.Revision && r.Voids == o.Voids &&
		bytes.Equal(r.AppendPayload(nil), o.AppendPayload(nil))
}
