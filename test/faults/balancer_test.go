package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// balancer sends each call to an API node whose /readyz answers 200. If the node does not answer
// the call, balancer sends the call to another node. This is safe, because a submit that arrives
// twice counts once.
type balancer struct {
	client    *deployment.Client
	nodes     []*upstream
	calls     atomic.Uint64
	moved     atomic.Int64 // calls that were sent to another node
	transport http.Transport
}

type upstream struct {
	host  string
	ready atomic.Bool
}

func newBalancer(t *testing.T, nodes ...*deployment.Node) *balancer {
	t.Helper()
	b := &balancer{}
	b.transport.MaxIdleConnsPerHost = 50
	t.Cleanup(b.transport.CloseIdleConnections)
	var probes sync.WaitGroup
	t.Cleanup(probes.Wait) // t.Context() ends the probes before cleanup functions run
	for _, n := range nodes {
		u := &upstream{host: n.Addr}
		u.ready.Store(true)
		b.nodes = append(b.nodes, u)
		probe := *n.Client // a copy, because a restart of the node writes to n.Client
		probes.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for t.Context().Err() == nil {
				u.ready.Store(probe.Ready(t.Context()) == nil)
				<-tick.C
			}
		})
	}
	s := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme = "http" }, Transport: b})
	t.Cleanup(s.Close)
	b.client = &deployment.Client{URL: s.URL, Key: nodes[0].Key}
	return b
}

func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	first := int(b.calls.Add(1) % uint64(len(b.nodes)))
	errs := []error{errors.New("no ready node answered")}
	for _, u := range slices.Concat(b.nodes[first:], b.nodes[:first]) {
		if !u.ready.Load() {
			continue
		}
		if len(errs) > 1 {
			b.moved.Add(1)
		}
		call := r.Clone(r.Context())
		call.URL.Host = u.host
		if r.Body != nil {
			call.Body = io.NopCloser(bytes.NewReader(body))
		}
		resp, err := b.transport.RoundTrip(call)
		if err == nil {
			return resp, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", u.host, err))
	}
	return nil, errors.Join(errs...)
}
