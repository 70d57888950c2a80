package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzhttp"
	"github.com/rs/cors"
)

// anyOrigin is the CORS origin that allows the web pages of every origin.
const anyOrigin = "*"

// newCORS returns the CORS rules for web pages of the given origins. The rules allow no
// cookies: a page must send a key in the Authorization header.
func newCORS(origins []string) *cors.Cors {
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete},
		AllowedHeaders: []string{"Authorization", "Content-Type", "Last-Event-ID", "X-Request-Id"},
		ExposedHeaders: []string{"Retry-After", "X-Request-Id"},
		MaxAge:         600,
	})
}

// newCrossOriginProtection returns a check that refuses writes which a browser sends for
// a web page of another origin. The check accepts the writes of the given origins.
func newCrossOriginProtection(origins []string) (*http.CrossOriginProtection, error) {
	protection := http.NewCrossOriginProtection()
	for _, origin := range origins {
		if origin == anyOrigin {
			protection.AddInsecureBypassPattern("/v1/")
			continue
		}
		if err := protection.AddTrustedOrigin(origin); err != nil {
			return nil, err
		}
	}
	return protection, nil
}

// setFraming sets the headers that control which pages may show an answer in a frame.
// Parameter ancestors has the origins of these pages. If it is empty, no page may show the
// answer.
func setFraming(h http.Header, ancestors []string) {
	if len(ancestors) == 0 {
		h.Set("X-Frame-Options", "DENY")
	}
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors "+frameAncestors(ancestors))
}

// frameAncestors returns the value of the directive frame-ancestors in the header
// Content-Security-Policy.
func frameAncestors(ancestors []string) string {
	if len(ancestors) == 0 {
		return "'none'"
	}
	return strings.Join(ancestors, " ")
}

// minGzipBytes is the size of the smallest answer that is compressed. A shorter answer
// fits in one network packet even if it is not compressed.
const minGzipBytes = 1400

// newGzip returns a function that compresses the answers of a handler for clients that accept gzip.
// The handler must not stream. Its answers must not contain secrets: the length of a compressed
// answer reveals whether a secret resembles other text in the answer.
func newGzip() func(http.Handler) http.HandlerFunc {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(minGzipBytes))
	if err != nil {
		panic(err) // the options are constant
	}
	return wrap
}

// isPublicRead reports whether proxies may cache the answer to r and serve it to everyone.
// The answer must also be a success, and not a stream.
func (s *Server) isPublicRead(r *http.Request) bool {
	return s.options.PublicRead && !s.options.Insecure && r.Method == http.MethodGet && len(r.Header["Authorization"]) == 0
}

// cacheable reports whether the content type in h is that of a single answer, not of a
// stream.
func cacheable(h http.Header) bool {
	streams := []string{eventStream, ndjson}
	return !slices.ContainsFunc(streams, func(t string) bool { return strings.HasPrefix(h.Get("Content-Type"), t) })
}
