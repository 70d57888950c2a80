package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
	"github.com/rs/cors"
)

const anyOrigin = "*"

var (
	// callPaths begin the paths of calls, and crossOriginPaths those that pages of other origins may read.
	callPaths        = append([]string{"/v1/"}, rpcPrefixes...)
	crossOriginPaths = append([]string{"/openapi"}, callPaths...)
)

// newCORS returns the CORS rules for pages of the given origins. The rules allow no cookies: a page
// sends its key in the Authorization header.
func newCORS(origins []string) *cors.Cors {
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete},
		AllowedHeaders: []string{"Authorization", "Cache-Control", "Content-Type", "Last-Event-ID", "Traceparent", "Tracestate", "X-Request-Id",
			"Connect-Protocol-Version", "Connect-Timeout-Ms", "Grpc-Timeout", "X-Grpc-Web", "X-User-Agent"},
		ExposedHeaders: []string{"Retry-After", "X-Request-Id", "Grpc-Status", "Grpc-Message", "Grpc-Status-Details-Bin"},
		MaxAge:         600,
	})
}

// newCrossOriginProtection returns a protection that rejects a browser's writes, except from pages
// of this server or of the given origins.
func newCrossOriginProtection(origins []string) (*http.CrossOriginProtection, error) {
	protection := http.NewCrossOriginProtection()
	for _, origin := range origins {
		if origin == anyOrigin {
			for _, path := range callPaths {
				protection.AddInsecureBypassPattern(path)
			}
			continue
		}
		if err := protection.AddTrustedOrigin(origin); err != nil {
			return nil, err
		}
	}
	return protection, nil
}

// setFraming allows only pages of the origins in ancestors to show an answer in a frame.
func setFraming(h http.Header, ancestors []string) {
	if len(ancestors) == 0 {
		h.Set("X-Frame-Options", "DENY")
	}
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors "+frameAncestors(ancestors))
}

func frameAncestors(ancestors []string) string {
	if len(ancestors) == 0 {
		return "'none'"
	}
	return strings.Join(ancestors, " ")
}

// minGzipBytes is the size from which answers are compressed: about 25 entries. To compress a shorter
// answer takes up to a third of the processor time of a read, and saves at most two packets.
const minGzipBytes = 4096

// newGzip compresses the answers of a handler. The handler must not stream. Its answers must not
// contain secrets: the compressed length reveals whether a secret contains text that an attacker
// chose.
func newGzip() func(http.Handler) http.HandlerFunc {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(minGzipBytes), gzhttp.CompressionLevel(gzip.BestSpeed))
	if err != nil {
		panic(err)
	}
	return wrap
}

// isPublicRead reports whether proxies may cache a successful answer to r that is not a stream.
func (s *Server) isPublicRead(r *http.Request) bool {
	return s.options.PublicRead && !s.options.Insecure && (r.Method == http.MethodGet || r.Method == http.MethodHead) && len(r.Header["Authorization"]) == 0
}

func cacheable(h http.Header) bool {
	streams := []string{eventStream, ndjson}
	return !slices.ContainsFunc(streams, func(t string) bool { return strings.HasPrefix(h.Get("Content-Type"), t) })
}
