package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

func BenchmarkREST(b *testing.B) {
	h := newHarness(b, Options{})
	for i := range 10 {
		var body strings.Builder
		body.WriteString(`{"results":[`)
		for j := range 1000 {
			if j > 0 {
				body.WriteByte(',')
			}
			fmt.Fprintf(&body, `{"user_id":"user-%d","match_id":"m","points":%d}`, i*1000+j, i*j)
		}
		body.WriteString(`]}`)
		h.must("submit", "POST", "/v1/scores:batch", body.String())
	}
	n := 0
	for name, request := range map[string]func() *http.Request{
		"top10":     func() *http.Request { return httptest.NewRequest(http.MethodGet, "/v1/scores", nil) },
		"top1000":   func() *http.Request { return httptest.NewRequest(http.MethodGet, "/v1/scores?limit=1000", nil) },
		"neighbors": func() *http.Request { return httptest.NewRequest(http.MethodGet, "/v1/scores/user-5000", nil) },
		"submit": func() *http.Request {
			n++
			return httptest.NewRequest(http.MethodPost, "/v1/scores", strings.NewReader(fmt.Sprintf(`{"user_id":"user-%d","match_id":"b%d","points":1}`, n%10000, n)))
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req := request()
				req.Header.Set("Authorization", "Bearer "+h.keys["admin"])
				w := httptest.NewRecorder()
				if h.Handler().ServeHTTP(w, req); w.Code != http.StatusOK {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
			}
		})
	}
}

// BenchmarkWatchers measures the processor time and the pages sent in a second of watching. The
// gRPC clients are in this process too, so the time includes receiving messages, but not
// decoding them.
func BenchmarkWatchers(b *testing.B) {
	for _, form := range []string{"rest", "grpc"} {
		for _, n := range []int{1, 10_000} {
			for _, busy := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/watchers=%d/busy=%v", form, n, busy), func(b *testing.B) { benchmarkWatchers(b, form, n, busy) })
			}
		}
	}
}

func benchmarkWatchers(b *testing.B, form string, n int, busy bool) {
	h := newHarness(b, Options{MaxCallerWatchers: n, MaxStreams: uint32(n)})
	submitted := 0
	submit := func() {
		submitted++
		board, err := h.service.Board(b.Context(), leaderboard.DefaultBoard)
		if err == nil {
			_, err = h.service.Submit(b.Context(), &board, []leaderboard.MatchResult{{
				ResultKey: leaderboard.ResultKey{User: leaderboard.UserID(fmt.Sprint("u", submitted%100)), Match: leaderboard.MatchID(fmt.Sprint(submitted))}, Score: 1,
			}})
		}
		if err != nil {
			b.Error(err)
		}
	}
	for range 100 {
		submit()
	}
	var sent atomic.Int64
	ctx, cancel := context.WithCancel(b.Context())
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer cancel()
	watch := h.watchREST
	if form == "grpc" {
		watch = h.watchGRPC
	}
	for range n {
		watchers.Go(func() { watch(ctx, &sent) })
	}
	for sent.Load() < int64(n) {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(2 * time.Second) // until the work of the start has ended
	runtime.GC()
	pages, cpu := sent.Load(), processorTime(b)
	for b.Loop() {
		for second := time.After(time.Second); ; {
			select {
			case <-second:
			case <-time.After(10 * time.Millisecond):
				if busy {
					submit()
				}
				continue
			}
			break
		}
	}
	pages, cpu = sent.Load()-pages, processorTime(b)-cpu
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(cpu.Seconds()*1000/float64(b.N), "cpu-ms/s")
	b.ReportMetric(float64(pages)/float64(b.N), "pages/s")
	if busy {
		b.ReportMetric(float64(cpu.Microseconds())/float64(pages), "cpu-us/page")
	}
}

type countingWriter struct {
	header http.Header
	sent   *atomic.Int64
}

func (w countingWriter) Header() http.Header { return w.header }
func (w countingWriter) WriteHeader(int)     {}
func (w countingWriter) Flush()              { w.sent.Add(1) }

func (w countingWriter) Write(p []byte) (int, error) { return len(p), nil }

func (h *harness) watchREST(ctx context.Context, sent *atomic.Int64) {
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/boards/default/watch", nil)
	req.Header.Set("Authorization", "Bearer "+h.keys["read"])
	h.Handler().ServeHTTP(countingWriter{http.Header{}, sent}, req)
}

type discardCodec struct{ encoding.CodecV2 }

func (discardCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

func (h *harness) watchGRPC(ctx context.Context, sent *atomic.Int64) {
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+h.keys["read"])
	stream, err := h.client().WatchScores(ctx, &pb.WatchScoresRequest{Board: "default"}, grpc.ForceCodecV2(discardCodec{encoding.GetCodecV2("proto")}))
	for err == nil {
		if _, err = stream.Recv(); err == nil {
			sent.Add(1)
		}
	}
	if ctx.Err() == nil {
		h.t.Errorf("watch: %v", err)
	}
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
