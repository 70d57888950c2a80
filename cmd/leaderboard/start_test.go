package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

func TestStartWaitsForServers(t *testing.T) {
	needs.Race(t)
	const cause = "cql: swap: Operation timed out"
	down := fmt.Errorf("%s: %w", cause, leaderboard.ErrUnavailable)
	permanent := errors.New("the tables are older than the program")
	for _, tt := range []struct {
		name     string
		errs     []error // of the calls, the last one for all further calls
		attempts int     // 0 means as many as fit into start_timeout
		want     error
	}{
		{"no failure", []error{nil}, 1, nil},
		{"a cold server", []error{down, down, fmt.Errorf("x: %w", leaderboard.ErrRankUnavailable), nil}, 4, nil},
		{"a permanent failure", []error{down, permanent}, 2, permanent},
		{"rejected credentials", []error{fmt.Errorf("x: %w", kafka.ErrRejected)}, 1, kafka.ErrRejected},
		{"a server that never answers", []error{down}, 0, leaderboard.ErrUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := config.Default()
				log := &output{}
				s := &server{config: &c, log: slog.New(slog.NewTextHandler(log, nil)), startBy: time.Now().Add(c.StartTimeout)}
				begin, calls := time.Now(), 0
				err := s.retryStart(t.Context(), "connect to Cassandra", func() error {
					if got := s.ready(); got == nil || !strings.HasPrefix(got.Error(), "starting: connect to Cassandra") {
						t.Errorf("before attempt %d, ready returns %v, want the step", calls+1, got)
					}
					if got := s.ready(); calls > 0 && !strings.Contains(got.Error(), fmt.Sprintf("attempt %d", calls)) {
						t.Errorf("before attempt %d, ready returns %v, want the attempt", calls+1, got)
					}
					err := tt.errs[min(calls, len(tt.errs)-1)]
					calls++
					return err
				})
				if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
					t.Errorf("the error is %v, want %v", err, tt.want)
				}
				took := time.Since(begin)
				if tt.attempts != 0 && calls != tt.attempts {
					t.Errorf("%d attempts, want %d", calls, tt.attempts)
				}
				if tt.attempts == 0 && (calls < 20 || took > c.StartTimeout || took < c.StartTimeout-30*time.Second || !strings.Contains(err.Error(), "start_timeout")) {
					t.Errorf("%d attempts in %v: %v; want at least 20 in about %v, and the name of the setting", calls, took, err, c.StartTimeout)
				}
				if got := strings.Count(log.String(), "cannot start yet, retrying"); got < calls-1 || got > calls {
					t.Errorf("%d warnings of %d attempts: %s", got, calls, log)
				}
				if calls > 1 && !strings.Contains(log.String(), cause) {
					t.Errorf("the log is %s, want the cause %q", log, cause)
				}
			})
		})
	}
}

// While Cassandra does not answer, a server answers probes, and calls with 503. A signal ends it.
func TestServerAnswersWhileItStarts(t *testing.T) {
	needs.Race(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close() // so that connections to its address are refused
	arguments := []string{"serve", "--insecure", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--cassandra-hosts", closed.Addr().String(),
		"--cassandra-data-center", "dc1", "--redis-addresses", closed.Addr().String(), "--kafka-brokers", closed.Addr().String()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := &output{}
	exited := make(chan int, 1)
	var once sync.Once
	wait := func() (code int) { once.Do(func() { code = <-exited }); return code }
	go func() {
		exited <- run(ctx, &cli.App{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: log}, arguments)
	}()
	defer wait()
	defer cancel()
	eventually(t, "a retry", func() bool {
		_, found := findLogEntry(log.String(), "cannot start yet, retrying")
		return found
	})
	entry, _ := findLogEntry(log.String(), "starting")
	url := "http://" + entry["http"].(string)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 200, "/v1/scores": 503, "/": 503, "/v1/boards//x": 503} {
		res, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %s %.200s, want %d", path, res.Status, body, want)
		}
		if path == "/readyz" && !strings.Contains(string(body), "starting: connect to Cassandra") {
			t.Errorf("/readyz is %q, want the step", body)
		}
		if strings.HasPrefix(path, "/v1/") && (res.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "UNAVAILABLE")) {
			t.Errorf("%s: Retry-After %q, %s; want a time and UNAVAILABLE", path, res.Header.Get("Retry-After"), body)
		}
	}
	cancel()
	if code := wait(); code != exitOK {
		t.Errorf("the server exited with %d after a signal, want 0: %s", code, log)
	}
	command(t, "", nil, append(arguments, "--start-timeout", "1s")...).mustFail(t, exitFailure, []string{"connect to Cassandra", "start_timeout"}, arguments)
}
