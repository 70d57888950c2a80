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

// addProbes adds /healthz, /readyz and /metrics to mux. ready must return nil if the
// process can serve, and otherwise an error with the reason.
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

// NewProbeServer returns an HTTP server of /healthz, /readyz and /metrics, for a
// process that does not serve the API. ready must return nil if the process can do its
// work, and otherwise an error with the reason.
func NewProbeServer(ready func() error, metrics prometheus.Gatherer, log *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	addProbes(mux, ready, metrics)
	return newBodilessServer(mux, log)
}

// NewAdminServer returns an HTTP server of /healthz, /readyz, /metrics and /debug/pprof.
// The server requires no key, so the caller must let only operators reach its listener.
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

// newBodilessServer returns a server for a mux whose handlers read no request bodies.
func newBodilessServer(mux *http.ServeMux, log *slog.Logger) *http.Server {
	return newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		boundUnreadBody(w, r)
		mux.ServeHTTP(w, r)
	}), log)
}

const (
	maxHeaderBytes   = 32 << 10
	handshakeTimeout = 10 * time.Second // also bounds the time to receive a request's headers
	idleTimeout      = 2 * time.Minute
	// drainTimeout bounds how long the server waits for a body that no handler reads.
	// After the body has arrived, the connection can be used for the next request.
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

// boundUnreadBody bounds the time to receive a request's body to drainTimeout. If a
// handler does not read the body, net/http reads it before it sends the answer; without
// the bound, a slow client could delay the answer forever. Handlers that read the body set
// another deadline.
func boundUnreadBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		// The error is ignored, because the ResponseWriters of tests have no deadlines.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTimeout))
	}
}

// newMux returns the handler of requests for paths outside /v1/.
func (s *Server) newMux() http.Handler {
	mux := http.NewServeMux()
	if !s.options.SeparateProbes {
		addProbes(mux, s.options.Ready, s.options.Metrics)
	}
	gzip := newGzip()
	mux.Handle("GET /{$}", gzip(web.Page(frameAncestors(s.options.FrameAncestors))))
	mux.Handle("GET /openapi.json", gzip(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(api.OpenAPI) // the client may have disconnected
	})))
	return mux
}

// setHeaders sets the headers of the answer to r that do not depend on its content.
func (s *Server) setHeaders(h http.Header, r *http.Request) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	setFraming(h, s.options.FrameAncestors)
	h.Set("Cache-Control", "no-store")
	if s.draining.Load() {
		h.Set("Connection", "close") // over HTTP/2, net/http sends GOAWAY
	}
	if r.TLS != nil {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// newHandler returns the handler of all HTTP requests. The handler sets the security
// headers of every answer, and passes requests for paths under /v1/ to gw.
func (s *Server) newHandler(gw *gateway) (http.Handler, error) {
	// A web page can make a browser on this machine send requests. An insecure server
	// must not accept these requests. crossOrigin refuses requests from pages of other
	// origins. By DNS rebinding, a page can have the server's origin; then the Host
	// header still has the page's domain.
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
		// http.ServeMux cleans paths, but a path under /v1/ may have an id such as ".." or
		// "a//b".
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

// isLoopbackName reports whether a host is localhost, a subdomain of localhost, or a
// loopback address.
func isLoopbackName(host string) bool {
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || net.ParseIP(host).IsLoopback()
}

// writeTimeout bounds each write of an answer. A timeout for the whole answer would
// end streams.
const writeTimeout = 30 * time.Second

// answerWriter is a ResponseWriter that restarts the write timeout at each write, and
// sets the Cache-Control of answers that may be cached.
type answerWriter struct {
	http.ResponseWriter
	*http.ResponseController
	// cacheControl replaces the header Cache-Control of an answer with status 200, unless
	// cacheControl is empty or the answer is a stream.
	cacheControl string
	wroteHeader  bool
}

// extendDeadline restarts the write timeout. It ignores the error, because the
// ResponseWriters of tests have no deadlines.
func (w *answerWriter) extendDeadline() { _ = w.SetWriteDeadline(time.Now().Add(writeTimeout)) }

// WriteHeader writes the status and the header.
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

// Unwrap returns the wrapped writer. http.ResponseController calls it.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// httpPeer returns the client of an HTTP request as a gRPC peer.
func (s *Server) httpPeer(r *http.Request) *peer.Peer {
	p := &peer.Peer{Addr: s.client(httpAddr(r.RemoteAddr), r.Header[forwardedFor])}
	if r.TLS != nil {
		p.AuthInfo = credentials.TLSInfo{State: *r.TLS}
	}
	return p
}

// httpAddr is the address of a client, in the form of http.Request.RemoteAddr.
type httpAddr string

var _ net.Addr = httpAddr("")

func (httpAddr) Network() string  { return "tcp" }
func (a httpAddr) String() string { return string(a) }

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client may have disconnected
}
