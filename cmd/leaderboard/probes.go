package main

import (
	"errors"
	"fmt"
	"net/http"

	"golang.org/x/net/netutil"

	apiserver "github.com/open-leaderboard/leaderboard/api/server"
)

// serveProbes answers probes, and more at the admin address, unless the API's own
// listener answers them. It calls fail if the listener fails. The caller must call stop,
// which closes the listener. The probes thus answer until the server has stopped.
func (s *server) serveProbes(fail func(error)) (stop func()) {
	var server *http.Server
	listener := s.admin
	switch {
	case s.admin != nil:
		server = apiserver.NewAdminServer(s.ready, s.metrics, s.log)
	case s.api == nil:
		server, listener = apiserver.NewProbeServer(s.ready, s.metrics, s.log), s.rest
	default:
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(netutil.LimitListener(listener, s.config.Limits.Connections)); !errors.Is(err, http.ErrServerClosed) {
			fail(fmt.Errorf("server: %w", err))
		}
	}()
	return func() {
		_ = server.Close() // closes the listener
		<-done
		s.admin = nil
		if s.api == nil {
			s.rest = nil
		}
	}
}

// probesURL returns the URL of the probes, as seen from this machine.
func (s *server) probesURL() string {
	if s.admin != nil {
		return "http://" + reachable(s.admin.Addr().String())
	}
	return s.url()
}
