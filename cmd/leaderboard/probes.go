package main

import (
	"errors"
	"fmt"
	"net/http"

	"golang.org/x/net/netutil"

	apiserver "github.com/open-leaderboard/leaderboard/api/server"
)

// serveProbes answers probes at the admin address, or at the http address of a process without the
// role api. Otherwise the API answers them. The caller must call stop after the API has stopped.
func (s *server) serveProbes(onError func(error)) (stop func()) {
	var server *http.Server
	listener := s.admin
	switch {
	case s.admin != nil:
		server = apiserver.NewAdminServer(s.config.Insecure, s.ready, s.metrics, s.log)
	case s.api == nil:
		server, listener = apiserver.NewProbeServer(s.config.Insecure, s.ready, s.metrics, s.log), s.rest
	default:
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(netutil.LimitListener(listener, s.config.Limits.Connections)); !errors.Is(err, http.ErrServerClosed) {
			onError(fmt.Errorf("server: %w", err))
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

func (s *server) probesURL() string {
	if s.admin != nil {
		return "http://" + reachableAddress(s.admin.Addr().String())
	}
	return s.url()
}
