package api

import (
	_ "embed"
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
)

// openAPI describes the REST API.
//
//go:embed openapi.json
var openAPI []byte

// HandleProbes routes what those who watch over a process ask it: whether it
// lives, whether it is ready, and its metrics.
func HandleProbes(mux *http.ServeMux, ready func() error, metrics prometheus.Gatherer) {
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

// newHandler routes what is not REST, and adds to all what browsers need to know.
func (s *Server) newHandler(gw *gateway) http.Handler {
	mux := http.NewServeMux()
	HandleProbes(mux, s.options.Ready, s.options.Metrics)
	mux.HandleFunc("GET /{$}", page)
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openAPI) // the client may be gone
	})

	// A page of another origin may not make a browser on this machine submit
	// scores to a server that asks for no keys. Host tells this server's page from
	// one whose own name was made to resolve to this machine.
	crossOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &patientWriter{rw, http.NewResponseController(rw)}
		w.extend()
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
			writeText(w, http.StatusMisdirectedRequest, "a server without keys is for this machine: ask localhost or 127.0.0.1, not "+strconv.QuoteToASCII(r.Host))
			return
		}
		// Not by the mux, which would clean paths: an id may be ".." or hold "//".
		if !strings.HasPrefix(r.URL.Path, "/v1/") {
			mux.ServeHTTP(w, r)
			return
		}
		gw.ServeHTTP(w, r.WithContext(peer.NewContext(r.Context(), httpPeer(r))))
	})
}

// isLoopbackName says whether a host is this machine's name for itself, or its
// loopback address.
func isLoopbackName(host string) bool {
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || net.ParseIP(host).IsLoopback()
}

// writeTimeout is how long a client may take to read a piece of an answer. A
// timeout of the whole answer would end streams.
const writeTimeout = 30 * time.Second

type patientWriter struct {
	http.ResponseWriter
	*http.ResponseController
}

// extend begins the time for the next piece. Not every ResponseWriter has
// deadlines; a server's has.
func (w *patientWriter) extend() { _ = w.SetWriteDeadline(time.Now().Add(writeTimeout)) }

func (w *patientWriter) Write(p []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// httpPeer is the client of an HTTP request as gRPC has it.
func httpPeer(r *http.Request) *peer.Peer {
	p := &peer.Peer{Addr: httpAddr(r.RemoteAddr)}
	if r.TLS != nil {
		p.AuthInfo = credentials.TLSInfo{State: *r.TLS}
	}
	return p
}

// httpAddr is an address as net/http has it.
type httpAddr string

var _ net.Addr = httpAddr("")

func (httpAddr) Network() string  { return "tcp" }
func (a httpAddr) String() string { return string(a) }

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client may be gone
}
