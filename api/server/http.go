package server

import (
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/open-leaderboard/leaderboard/api"
	"github.com/open-leaderboard/leaderboard/api/web"
)

// newProbes returns a mux with /healthz, /readyz and /metrics. ready returns nil if the
// process can serve, and an error that states the reason otherwise.
func newProbes(ready func() error, metrics prometheus.Gatherer) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			writeText(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
			return
		}
		writeText(w, http.StatusOK, "ready")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return mux
}

// NewProbeServer returns an HTTP server of /healthz, /readyz and /metrics, for a
// process that does not serve the API. ready returns nil if the process can do its
// work, and an error that states the reason otherwise.
func NewProbeServer(ready func() error, metrics prometheus.Gatherer, log *slog.Logger) *http.Server {
	probes := newProbes(ready, metrics)
	return newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		boundUnreadBody(w, r)
		probes.ServeHTTP(w, r)
	}), log)
}

const (
	maxHeaderBytes   = 32 << 10
	handshakeTimeout = 10 * time.Second // also bounds the time to receive a request's headers
	idleTimeout      = 2 * time.Minute
	// drainTimeout bounds how long the server waits for a body that it does not use.
	// Reading the rest of a short body keeps the connection for the next request.
	drainTimeout = 2 * time.Second
)

func newHTTPServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: handshakeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// boundUnreadBody makes net/http wait at most drainTimeout for the body of a request
// whose handler does not read the body. Without this bound, net/http waits for the
// whole body before it sends the answer. A handler that reads the body sets another
// deadline.
func boundUnreadBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		// The error is ignored: the ResponseWriters of tests have no deadlines.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTimeout))
	}
}

// newHandler returns the handler of all HTTP requests. It sets the security headers
// of every answer and leaves paths under /v1/ to gw.
func (s *Server) newHandler(gw *gateway) http.Handler {
	mux := newProbes(s.options.Ready, s.options.Metrics)
	mux.HandleFunc("GET /{$}", web.ServePage)
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(api.OpenAPI) // the client may have disconnected
	})

	// A web page of another origin must not make a browser on this machine submit
	// scores to a server without keys. If the page's own domain resolves to this
	// machine (DNS rebinding), the Host header still has that domain.
	crossOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &timeoutWriter{rw, http.NewResponseController(rw)}
		w.extend()
		boundUnreadBody(w, r)
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		if r.TLS != nil {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		if err := crossOrigin.Check(r); err != nil {
			writeText(w, http.StatusForbidden, err.Error())
			return
		}
		if s.options.Insecure && !isLoopbackName((&url.URL{Host: r.Host}).Hostname()) {
			writeText(w, http.StatusMisdirectedRequest, "a server without keys answers to localhost and 127.0.0.1 only, not to "+strconv.QuoteToASCII(r.Host)+"; use one of those names, or serve with keys")
			return
		}
		// An http.ServeMux would clean the path, but an id may be ".." or contain "//".
		if !strings.HasPrefix(r.URL.Path, "/v1/") {
			mux.ServeHTTP(w, r)
			return
		}
		gw.ServeHTTP(w, r.WithContext(peer.NewContext(r.Context(), httpPeer(r))))
	})
}

// isLoopbackName reports whether a host is localhost, a subdomain of localhost, or a
// loopback address.
func isLoopbackName(host string) bool {
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || net.ParseIP(host).IsLoopback()
}

// writeTimeout bounds each write of an answer. A timeout for the whole answer would
// end streams.
const writeTimeout = 30 * time.Second

type timeoutWriter struct {
	http.ResponseWriter
	*http.ResponseController
}

// extend restarts the write timeout. It ignores the error, because the
// ResponseWriters of tests have no deadlines.
func (w *timeoutWriter) extend() { _ = w.SetWriteDeadline(time.Now().Add(writeTimeout)) }

func (w *timeoutWriter) Write(p []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(p)
}

// Unwrap returns the wrapped writer. http.ResponseController calls it.
func (w *timeoutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// httpPeer returns the client of an HTTP request as a gRPC peer.
func httpPeer(r *http.Request) *peer.Peer {
	p := &peer.Peer{Addr: httpAddr(r.RemoteAddr)}
	if r.TLS != nil {
		p.AuthInfo = credentials.TLSInfo{State: *r.TLS}
	}
	return p
}

// httpAddr is a remote address in the form of net/http.
type httpAddr string

var _ net.Addr = httpAddr("")

func (httpAddr) Network() string  { return "tcp" }
func (a httpAddr) String() string { return string(a) }

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client may have disconnected
}
