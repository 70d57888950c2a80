package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/open-leaderboard/leaderboard/api"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
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

// addFallback answers requests that no other pattern of mux matches. All other patterns are for GET.
func addFallback(mux *http.ServeMux) {
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		get := r.Clone(r.Context())
		get.Method = http.MethodGet
		if _, pattern := mux.Handler(get); pattern == "/" {
			writeErrorBody(w, http.StatusNotFound, errNoRoute)
			return
		}
		writeMethodNotAllowed(w, r, []string{http.MethodGet})
	})
}

// NewProbeServer returns an HTTP server of /healthz, /readyz and /metrics. ready returns nil if the
// process can do its work. The server of an insecure process refuses web pages of other origins, and
// hosts other than loopback.
func NewProbeServer(insecure bool, ready func() error, metrics prometheus.Gatherer, log *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	addProbes(mux, ready, metrics)
	addFallback(mux)
	return newBodilessServer(insecure, mux, log)
}

// NewAdminServer returns the server that [NewProbeServer] returns, with /debug/pprof. It requires no
// key, so only operators may reach its listener.
func NewAdminServer(insecure bool, ready func() error, metrics prometheus.Gatherer, log *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	addProbes(mux, ready, metrics)
	for path, handler := range map[string]http.HandlerFunc{
		"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
	} {
		mux.HandleFunc("GET /debug/pprof/"+path, func(w http.ResponseWriter, r *http.Request) {
			if err := checkProfileTime(r); err != nil {
				writeErrorBody(w, http.StatusBadRequest, newStatus(codes.InvalidArgument, err.Error(), errorInfo(pb.Error_INVALID_ARGUMENT)))
				return
			}
			handler(w, r)
		})
	}
	addFallback(mux)
	return newBodilessServer(insecure, mux, log)
}

// maxProfileSeconds bounds the time of a profile, which slows the process down.
const maxProfileSeconds = 60

func checkProfileTime(r *http.Request) error {
	text := r.FormValue("seconds")
	if text == "" {
		return nil
	}
	if seconds, err := strconv.ParseFloat(text, 64); err != nil || !(seconds > 0 && seconds <= maxProfileSeconds) {
		return fmt.Errorf("seconds: %s is not a number from 1 to %d", strconv.QuoteToASCII(text), maxProfileSeconds)
	}
	return nil
}

// NewStartingServer returns an HTTP server for the address of an API that is starting. It answers probes,
// if probes is set, and all other requests with 503.
func NewStartingServer(insecure, probes bool, ready func() error, metrics prometheus.Gatherer, log *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	if probes {
		addProbes(mux, ready, metrics)
	}
	return newBodilessServer(insecure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		writeError(w, newStatus(codes.Unavailable, "the server is starting; try again soon",
			errorInfo(pb.Error_UNAVAILABLE), &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)}))
	}), log)
}

func newBodilessServer(insecure bool, handler http.Handler, log *slog.Logger) *http.Server {
	return newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		boundUnreadBody(w, r)
		if insecure && !checkInsecure(w, r) {
			return
		}
		handler.ServeHTTP(w, r)
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
	for pattern, handler := range web.Handlers(frameAncestors(s.options.FrameAncestors)) {
		mux.Handle("GET "+pattern, handler)
	}
	for path, document := range map[string][]byte{"/openapi.json": api.OpenAPI, "/openapi-v2.json": api.OpenAPIv2} {
		mux.Handle("GET "+path, gzip(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(document)
		})))
	}
	addFallback(mux)
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

func (s *Server) newHandler(gw *gateway, rpcs map[string]*rpcHandler) (http.Handler, error) {
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
		s.running.Add(1)
		defer s.running.Done()
		w := &answerWriter{ResponseWriter: rw, ResponseController: http.NewResponseController(rw)}
		w.extendDeadline()
		boundUnreadBody(w, r)
		s.setHeaders(w.Header(), r)
		if err := crossOrigin.Check(r); err != nil {
			writeErrorBody(w, http.StatusForbidden, newStatus(codes.PermissionDenied, err.Error(), errorInfo(pb.Error_CROSS_ORIGIN)))
			return
		}
		if s.options.Insecure && !checkHost(w, r) {
			return
		}
		r = r.WithContext(peer.NewContext(r.Context(), s.httpPeer(r)))
		// http.ServeMux removes ".." and "//", but a path under /v1/ may have an id such as "a//b".
		rpc := rpcs[r.URL.Path]
		if rpc == nil && !strings.HasPrefix(r.URL.Path, "/v1/") {
			if !isProbe(r) {
				if a := s.admit(r.Context(), r.Header["Authorization"], &door{scope: auth.Public}); a.refusal != nil {
					writeError(w, toStatus(a.refusal))
					return
				}
			}
			mux.ServeHTTP(w, r)
			return
		}
		if s.isPublicRead(r) {
			w.cacheControl = s.options.PublicCacheControl
		}
		if rpc != nil {
			rpc.ServeHTTP(w, r)
			return
		}
		gw.ServeHTTP(w, r)
	})
	if len(s.options.CORSOrigins) == 0 {
		return handler, nil
	}
	withCORS := newCORS(s.options.CORSOrigins).Handler(handler)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.ContainsFunc(crossOriginPaths, func(p string) bool { return strings.HasPrefix(r.URL.Path, p) }) {
			withCORS.ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	}), nil
}

// isProbe reports whether r is a probe. Probes count towards no rate: an orchestrator restarts servers
// whose probes fail.
func isProbe(r *http.Request) bool { return r.URL.Path == "/healthz" || r.URL.Path == "/readyz" }

// checkHost answers a request for a host that is not loopback, which DNS rebinding may have sent, and
// returns false.
func checkHost(w http.ResponseWriter, r *http.Request) bool {
	if isLoopbackName((&url.URL{Host: r.Host}).Hostname()) {
		return true
	}
	message := "an insecure server answers only to localhost and loopback addresses, not to " + strconv.QuoteToASCII(r.Host) +
		"; use http://localhost, or start the server without --insecure"
	writeErrorBody(w, http.StatusMisdirectedRequest, newStatus(codes.PermissionDenied, clip(message), errorInfo(pb.Error_HOST_DENIED)))
	return false
}

// checkInsecure answers a request that a web page of another origin may have sent, and returns false.
// Such a page cannot read the answer, but a profile slows the process down. Browsers state the origin of
// a GET in Sec-Fetch-Site only.
func checkInsecure(w http.ResponseWriter, r *http.Request) bool {
	if !checkHost(w, r) {
		return false
	}
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	if (site == "" || site == "none" || site == "same-origin") && (origin == "" || origin == "http://"+r.Host) {
		return true
	}
	writeErrorBody(w, http.StatusForbidden, newStatus(codes.PermissionDenied,
		"a web page of another origin sent this request; open the address itself, or start the server without --insecure", errorInfo(pb.Error_CROSS_ORIGIN)))
	return false
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
