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

// newCORS returns the rules for web pages of other origins. Browsers send no credentials
// of their own: a page must know a key.
func newCORS(origins []string) *cors.Cors {
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete},
		AllowedHeaders: []string{"Authorization", "Content-Type", "Last-Event-ID", "X-Request-Id"},
		ExposedHeaders: []string{"Retry-After", "X-Request-Id"},
		MaxAge:         600,
	})
}

// newCrossOriginProtection returns the check that refuses writes that a web page of
// another origin makes a browser send.
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

// setFraming sets the headers that allow the pages of some origins, or none, to show
// an answer in a frame.
func setFraming(h http.Header, ancestors []string) {
	if len(ancestors) == 0 {
		h.Set("X-Frame-Options", "DENY")
	}
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors "+frameAncestors(ancestors))
}

// frameAncestors returns the value of frame-ancestors in a Content-Security-Policy.
func frameAncestors(ancestors []string) string {
	if len(ancestors) == 0 {
		return "'none'"
	}
	return strings.Join(ancestors, " ")
}

// minGzipBytes is the size from which an answer is compressed. A shorter one fits in a
// packet anyway.
const minGzipBytes = 1400

// newGzip returns a function that compresses the answers of a handler for clients that
// accept gzip. The handler must not stream. It must not answer with secrets either,
// because the length of a compressed answer tells how much a secret resembles the text
// beside it.
func newGzip() func(http.Handler) http.HandlerFunc {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(minGzipBytes))
	if err != nil {
		panic(err) // the options are constant
	}
	return wrap
}

// publicRead reports whether the answer to r may be cached for everyone, provided that
// it is a success and no stream.
func (s *Server) publicRead(r *http.Request) bool {
	return s.options.PublicRead && !s.options.Insecure && r.Method == http.MethodGet && len(r.Header["Authorization"]) == 0
}

// cacheable reports whether the content type is that of an answer with an end.
func cacheable(h http.Header) bool {
	streams := []string{eventStream, ndjson}
	return !slices.ContainsFunc(streams, func(t string) bool { return strings.HasPrefix(h.Get("Content-Type"), t) })
}
