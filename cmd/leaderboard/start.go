package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/net/netutil"

	"github.com/open-leaderboard/leaderboard"
	apiserver "github.com/open-leaderboard/leaderboard/api/server"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// retryStart calls f until f returns nil or an error that a retry cannot correct. It gives up at
// s.startBy. Meanwhile, /readyz states the step.
func (s *server) retryStart(ctx context.Context, step string, f func() error) error {
	delays := backoff.NewExponentialBackOff()
	delays.MaxInterval = 10 * time.Second
	s.setStarting("starting: " + step)
	attempts := 0
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		attempts++
		err := f()
		if err != nil && !isTransient(err) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(delays), backoff.WithMaxElapsedTime(max(time.Until(s.startBy), 1)), backoff.WithNotify(func(err error, wait time.Duration) {
		s.setStarting(fmt.Sprintf("starting: %s: attempt %d failed; the log has the cause", step, attempts))
		s.log.WarnContext(ctx, "cannot start yet, retrying", "step", step, "err", err, "in", wait.Round(time.Millisecond), "until", s.startBy.Format(time.RFC3339))
	}))
	if isTransient(err) {
		return fmt.Errorf("%s: %w; gave up after %d attempts within start_timeout, %v", step, err, attempts, s.config.StartTimeout)
	}
	return err
}

// isTransient reports whether a retry may succeed without an operator.
func isTransient(err error) bool {
	unavailable := errors.Is(err, leaderboard.ErrUnavailable) || errors.Is(err, leaderboard.ErrRankUnavailable)
	return unavailable && !errors.Is(err, kafka.ErrRejected)
}

func (s *server) setStarting(state string) { s.starting.Store(&state) }

// serveStarting answers probes at the addresses of the probes, and other requests to the API with 503,
// until stop is called. The listeners stay open.
func (s *server) serveStarting() (stop func()) {
	var running sync.WaitGroup
	var servers []*http.Server
	serve := func(listener net.Listener, server *http.Server) {
		lent := &lentListener{TCPListener: listener.(*net.TCPListener)}
		limited := netutil.LimitListener(lent, s.config.Limits.Connections)
		servers = append(servers, server)
		running.Go(func() {
			defer func() { _ = lent.SetDeadline(time.Time{}) }()
			var err error
			if tls := s.certificates.Config(); tls != nil && listener == s.rest {
				server.TLSConfig = tls
				err = server.ServeTLS(limited, "", "")
			} else {
				err = server.Serve(limited)
			}
			if !errors.Is(err, http.ErrServerClosed) {
				s.log.Error("cannot answer probes while the server starts", "err", err)
			}
		})
	}
	if s.admin != nil {
		serve(s.admin, apiserver.NewAdminServer(s.config.Insecure, s.ready, s.metrics, s.log))
	}
	if s.rest != nil {
		serve(s.rest, apiserver.NewStartingServer(s.config.Insecure, s.admin == nil, s.ready, s.metrics, s.log))
	}
	s.log.Info("starting", "http", addressOf(s.rest), "grpc", addressOf(s.grpc), "admin", addressOf(s.admin))
	return func() {
		for _, server := range servers {
			_ = server.Close()
		}
		running.Wait()
	}
}

// lentListener is a listener whose Close ends Accept but keeps the socket open.
type lentListener struct{ *net.TCPListener }

func (l *lentListener) Close() error { return l.SetDeadline(time.Unix(1, 0)) }
