package server

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
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

func addProbes(mux *http.ServeMux, ready func() error, metrics prometheus.Gatherer) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			writeText(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
			return
		}
		writeText(w, http.StatusOK, "ready")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
}

// NewProbeServer returns an HTTP server of /healthz, /readyz and /metrics. ready returns nil if the
// process can do its work.
func NewProbeServer(ready func() error, metrics prometheus.Gatherer, log *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	addProbes(mux, ready, metrics)
	return newBodilessServer(mux, log)
}

// NewAdminServer returns an HTTP server of /healthz, /readyz, /metrics and /debug/pprof. It
// requires no key, so only operators may reach its listener.
func NewAdminServer(ready func() error, metrics prometheus.Gatherer, log *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	addProbes(mux, ready, metrics)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return newBodilessServer(mux, log)
}

func newBodilessServer(mux *http.ServeMux, log *slog.Logger) *http.Server {
	return newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		boundUnreadBody(w, r)
		mux.ServeHTTP(w, r)
	}), log)
}

const (
	maxHeaderBytes   = 32 << 10
	handshakeTimeout = 10 * time.Second // see Options.HandshakeTimeout
	idleTimeout      = 2 * time.Minute
	// drainTimeout bounds the wait for a body that no handler reads.
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

// boundUnreadBody lets a request's body take at most drainTimeout. net/http reads the unread body
// before it answers, so a slow client could otherwise delay the answer. The error is ignored,
// because the ResponseWriters of tests have no deadlines.
func boundUnreadBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTimeout))
	}
}

func (s *Server) newMux() http.Handler {
	mux := http.NewServeMux()
	if !s.options.SeparateProbes {
		addProbes(mux, s.options.Ready, s.options.Metrics)
	}
	gzip := newGzip()
	mux.Handle("GET /{$}", gzip(web.Page(frameAncestors(s.options.FrameAncestors))))
	mux.Handle("GET /openapi.json", gzip(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(api.OpenAPI)
	})))
	return mux
}

func (s *Server) setHeaders(h http.Header, r *http.Request) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	setFraming(h, s.options.FrameAncestors)
	h.Set("Cache-Control", "no-store")
	if s.draining.Load() {
		h.Set("Connection", "close")
	}
	if r.TLS != nil {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

func (s *Server) newHandler(gw *gateway) (http.Handler, error) {
	// A web page can make a browser on this machine send requests to an insecure server.
	// crossOrigin refuses writes from pages of other origins. With DNS rebinding, a page has the
	// server's origin. The check of the Host header refuses these requests, because the header
	// still has the page's domain.
	crossOrigin, err := newCrossOriginProtection(s.options.CORSOrigins)
	if err != nil {
		return nil, err
	}
	mux := s.newMux()
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &answerWriter{ResponseWriter: rw, ResponseController: http.NewResponseController(rw)}
		w.extendDeadline()
		boundUnreadBody(w, r)
		s.setHeaders(w.Header(), r)
		if err := crossOrigin.Check(r); err != nil {
			writeText(w, http.StatusForbidden, err.Error())
			return
		}
		if s.options.Insecure && !isLoopbackName((&url.URL{Host: r.Host}).Hostname()) {
			writeText(w, http.StatusMisdirectedRequest, "an insecure server answers only to localhost and loopback addresses, not to "+strconv.QuoteToASCII(r.Host)+"; use http://localhost, or start the server without --insecure")
			return
		}
		// http.ServeMux removes ".." and "//", but a path under /v1/ may have an id such as "a//b".
		if !strings.HasPrefix(r.URL.Path, "/v1/") {
			mux.ServeHTTP(w, r)
			return
		}
		if s.isPublicRead(r) {
			w.cacheControl = s.options.PublicCacheControl
		}
		gw.ServeHTTP(w, r.WithContext(peer.NewContext(r.Context(), s.httpPeer(r))))
	})
	if len(s.options.CORSOrigins) == 0 {
		return handler, nil
	}
	withCORS := newCORS(s.options.CORSOrigins).Handler(handler)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") || r.URL.Path == "/openapi.json" {
			withCORS.ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	}), nil
}

func isLoopbackName(host string) bool {
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || net.ParseIP(host).IsLoopback()
}

// writeTimeout bounds each write, to the second. A timeout for the whole answer would end streams.
const writeTimeout = 30 * time.Second

// answerWriter extends the write deadline, and sets Cache-Control.
type answerWriter struct {
	http.ResponseWriter
	*http.ResponseController
	// cacheControl, if not empty, is the Cache-Control of an answer with status 200. Streams do not
	// use it.
	cacheControl string
	wroteHeader  bool
	extendedAt   time.Time // see extendDeadline
}

// extendDeadline sets the deadline of the next write, unless it was set less than a second ago. The error
// is ignored, as in boundUnreadBody.
func (w *answerWriter) extendDeadline() {
	if now := time.Now(); now.Sub(w.extendedAt) >= time.Second {
		w.extendedAt = now
		_ = w.SetWriteDeadline(now.Add(writeTimeout))
	}
}

func (w *answerWriter) WriteHeader(status int) {
	h := w.Header()
	if status == http.StatusOK && w.cacheControl != "" && !w.wroteHeader && cacheable(h) {
		h.Set("Cache-Control", w.cacheControl)
		h.Add("Vary", "Authorization")
	}
	w.wroteHeader = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(p []byte) (int, error) {
	w.extendDeadline()
	if !w.wroteHeader {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (s *Server) httpPeer(r *http.Request) *peer.Peer {
	p := &peer.Peer{Addr: s.client(httpAddr(r.RemoteAddr), r.Header[forwardedFor])}
	if r.TLS != nil {
		p.AuthInfo = credentials.TLSInfo{State: *r.TLS}
	}
	return p
}

type httpAddr string

var _ net.Addr = httpAddr("")

func (httpAddr) Network() string  { return "tcp" }
func (a httpAddr) String() string { return string(a) }

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}
