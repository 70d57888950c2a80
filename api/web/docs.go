package web

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"net/http"
	"path"
	"strings"
)

//go:embed docs/index.html docs/start.js docs/*.gz
var docs embed.FS

const docsPolicy = commonPolicy + "; img-src data:; frame-ancestors "

// docsHandler returns a handler that writes the page /docs, which shows openapi.json, and the files below /docs/.
func docsHandler(frameAncestors string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Path[1:]
		if name == "docs" {
			name = "docs/index.html"
		}
		h := w.Header()
		h.Set("Content-Security-Policy", docsPolicy+frameAncestors)
		h.Set("Content-Type", map[string]string{".html": "text/html", ".js": "text/javascript", ".css": "text/css"}[path.Ext(name)]+"; charset=utf-8")
		if data, err := docs.ReadFile(name); err == nil {
			_, _ = w.Write(data)
			return
		}
		data, err := docs.ReadFile(name + ".gz")
		if err != nil { // not one of docsPaths
			w.WriteHeader(http.StatusNotFound)
			return
		}
		h.Set("Vary", "Accept-Encoding")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			_, _ = w.Write(data)
			return
		}
		if z, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
			_, _ = io.Copy(w, z) // the client may have disconnected
		}
	})
}

// docsPaths are the paths that docsHandler serves.
var docsPaths = []string{"/docs", "/docs/start.js", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"}
