package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
)

// stallingProxy forwards connections to a server. While it is stalled, it behaves like a server that hangs.
type stallingProxy struct {
	addr    string
	mu      sync.Mutex
	resumed chan struct{} // closed unless the proxy is stalled
}

func newStallingProxy(t *testing.T, server string) *stallingProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &stallingProxy{addr: listener.Addr().String(), resumed: make(chan struct{})}
	close(p.resumed)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.forward(t.Context(), client, server)
		}
	}()
	return p
}

func (p *stallingProxy) forward(ctx context.Context, client net.Conn, server string) {
	defer client.Close()
	conn, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(p.delayed(ctx, conn), client)
		conn.Close()
	}()
	_, _ = io.Copy(p.delayed(ctx, client), conn)
}

// delayed returns a writer that waits while the proxy is stalled.
func (p *stallingProxy) delayed(ctx context.Context, w io.Writer) io.Writer {
	return writerFunc(func(b []byte) (int, error) {
		p.mu.Lock()
		resumed := p.resumed
		p.mu.Unlock()
		select {
		case <-resumed:
			return w.Write(b)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func (p *stallingProxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resumed = make(chan struct{})
}

func (p *stallingProxy) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.resumed)
}

// scriptCalls is a hook that counts calls of scripts.
type scriptCalls struct{ n atomic.Int64 }

func (c *scriptCalls) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (c *scriptCalls) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			c.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c *scriptCalls) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// While a server hangs, only the first Update waits. All later Updates, of any season, fail
// without a call of a script. When the server answers again, the index repeats the failed
// Updates.
func TestOneUpdateWaitsForASilentServer(t *testing.T) {
	server := miniredis.RunT(t)
	proxy := newStallingProxy(t, server.Addr())
	o := options([]string{proxy.addr}, 1)
	o.UpdateTimeout = 3 * time.Second
	o.Redis.MaxRetries, o.Redis.ReadTimeout = -1, time.Second
	x, err := newIndex(o)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	o.Redis.Addrs = []string{server.Addr()}
	other, err := newIndex(o)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	const seasons = 50
	boards := make([]leaderboard.SeasonKey, seasons)
	update := func(i int, version uint64) error {
		e := entry("u", version, int64(version), "F")
		e.SeasonKey = boards[i]
		return x.Update(t.Context(), boards[i], epoch, []leaderboard.Entry{e})
	}
	for i := range boards {
		boards[i] = leaderboard.SeasonKey{Board: leaderboard.BoardID(fmt.Sprint("b", i)), Season: leaderboard.SeasonAll}
		must(t, x.Rebuild(t.Context(), testBoard, boards[i], epoch, sequence(nil)))
		must(t, update(i, 1))
	}
	proxy.stall()
	if err := update(0, 2); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Fatalf("Update on a server that hangs: %v, want ErrRankUnavailable", err)
	}
	calls := &scriptCalls{}
	x.client().AddHook(calls)
	for i := range boards {
		if err := update(i, 3); !errors.Is(err, leaderboard.ErrRankUnavailable) {
			t.Fatalf("Update on a server that hangs: %v, want ErrRankUnavailable", err)
		}
	}
	if n := calls.n.Load(); n != 0 {
		t.Errorf("%d Updates called scripts %d times on a server that hangs, want no call", seasons, n)
	}
	if x.Synced() {
		t.Error("Synced = true after failed Updates, want false")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if loaded, err := x.Loaded(ctx, boards[0]); loaded || err == nil {
		t.Errorf("after a failed Update, on a server that hangs: Loaded = %v, %v; want false and an error", loaded, err)
	}
	proxy.resume()
	eventually(t, "the index is synced", func(context.Context) error {
		if !x.Synced() {
			return errors.New("not synced")
		}
		return nil
	})
	missed := entry("u", 3, 3, "F")
	for _, key := range boards {
		got, _, err := other.Standings(t.Context(), leaderboard.Ladder{SeasonKey: key}, []leaderboard.UserID{"u"})
		if err != nil || got[0].Key != missed.Key {
			t.Errorf("season %v in another process: standings %+v, error %v; want the rank key %x of the repeated Update", key, got, err, missed.Key)
		}
	}
	if err := update(1, 4); err != nil {
		t.Errorf("Update after the server answers again: error %v, want nil", err)
	}
}

// A server that hangs again at each repetition of a failed Update loses nothing.
func TestAServerHangsAgainDuringRepetitions(t *testing.T) {
	server := miniredis.RunT(t)
	proxy := newStallingProxy(t, server.Addr())
	o := options([]string{proxy.addr}, 1)
	o.UpdateTimeout = 500 * time.Millisecond
	o.Redis.MaxRetries, o.Redis.ReadTimeout = -1, 500*time.Millisecond
	x, err := newIndex(o)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	must(t, x.Rebuild(t.Context(), testBoard, testSeason, epoch, sequence(nil)))
	proxy.stall()
	first := entry("u", 1, 1, "F")
	if err := x.Update(t.Context(), testSeason, epoch, []leaderboard.Entry{first}); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Fatalf("Update on a server that hangs: %v, want ErrRankUnavailable", err)
	}
	again := &stallAtScript{proxy: proxy}
	x.client().AddHook(again)
	for range maxRepeats {
		again.stalled.Store(false)
		proxy.resume()
		eventually(t, "the index repeats the Update", func(context.Context) error {
			if !again.stalled.Load() {
				return errors.New("no script was called")
			}
			return nil
		})
		eventually(t, "the repetition fails, and the gate closes", func(context.Context) error {
			if !x.gates.isClosed("") {
				return errors.New("the gate is open")
			}
			return nil
		})
	}
	proxy.resume()
	eventually(t, "the index is synced", func(context.Context) error {
		if !x.Synced() {
			return errors.New("not synced")
		}
		return nil
	})
	got, _, err := x.Standings(t.Context(), leaderboard.Ladder{SeasonKey: testSeason}, []leaderboard.UserID{"u"})
	if err != nil || got[0].Key != first.Key {
		t.Errorf("Standings after the server answers again: %+v, error %v; want the rank key %x of the repeated Update", got, err, first.Key)
	}
}

// stallAtScript is a hook that stalls a proxy at the first call of a script, and sets stalled.
type stallAtScript struct {
	proxy   *stallingProxy
	stalled atomic.Bool
}

func (s *stallAtScript) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (s *stallAtScript) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		s.check([]goredis.Cmder{cmd})
		return next(ctx, cmd)
	}
}

func (s *stallAtScript) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		s.check(cmds)
		return next(ctx, cmds)
	}
}

func (s *stallAtScript) check(cmds []goredis.Cmder) {
	for _, cmd := range cmds {
		if strings.HasPrefix(cmd.Name(), "eval") && s.stalled.CompareAndSwap(false, true) {
			s.proxy.stall()
		}
	}
}
