// Package web has the pages that show rankings in a browser. Their sources are in the folder web of the repository.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

// dist has the generated pages. They load nothing from other origins, except pictures of users.
//
//go:embed dist
var dist embed.FS

const (
	// commonPolicy is the part of the Content-Security-Policy that all pages share.
	commonPolicy = "default-src 'none'; connect-src 'self'; style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'none'"
	pagePolicy   = commonPolicy + "; img-src 'self' https:; frame-ancestors "
	// adminPolicy is that of the page for administrators: no picture of a user loads, no page frames it,
	// and only Lit makes HTML of text, from its own templates.
	adminPolicy = commonPolicy + "; img-src 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html"
)

// file is a generated file as the server sends it.
type file struct {
	data, compressed []byte
	contentType, tag string
}

var contentTypes = map[string]string{
	".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".json": "application/json", ".svg": "image/svg+xml", ".txt": "text/plain",
}

// files has the generated files by their paths on the server.
var files = sync.OnceValue(func() map[string]file {
	all := map[string]file{}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		var compressed bytes.Buffer
		z, _ := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
		_, _ = z.Write(data) // a buffer accepts everything
		_ = z.Close()
		name = "/web" + strings.TrimPrefix(name, "dist")
		all[pathOf(name)] = file{data, compressed.Bytes(), contentTypes[path.Ext(name)] + "; charset=utf-8", fmt.Sprintf("%x", sha256.Sum256(data))[:20]}
		return nil
	})
	if err != nil {
		panic(err) // the files are in the program
	}
	return all
})

// pathOf returns the path of a generated file on the server. Pages, and the script for other sites, have short ones.
func pathOf(name string) string {
	switch name {
	case "/web/index.html":
		return "/{$}"
	case "/web/embed.js":
		return "/embed.js"
	}
	if page, found := strings.CutSuffix(name, ".html"); found {
		return strings.TrimPrefix(page, "/web")
	}
	return name
}

// Handlers returns the handlers of the pages and their files by the pattern of their path. frameAncestors has the
// origins that may show the pages in a frame, except the page for administrators.
func Handlers(frameAncestors string) map[string]http.Handler {
	handlers := map[string]http.Handler{}
	for pattern, f := range files() {
		policy := pagePolicy + frameAncestors
		if pattern == "/admin" {
			policy = adminPolicy
		}
		handlers[pattern] = f.handler(policy)
	}
	for _, path := range docsPaths {
		handlers[path] = docsHandler(frameAncestors)
	}
	return handlers
}

func (f file) handler(policy string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", f.contentType)
		if strings.HasPrefix(f.contentType, "text/html") {
			h.Set("Content-Security-Policy", policy)
			if policy == adminPolicy {
				h.Set("X-Frame-Options", "DENY")
				h.Set("X-Robots-Tag", "noindex, nofollow")
				h.Set("Cache-Control", "no-store")
			}
		} else {
			// The script and the texts of the embedded element are for pages of all origins.
			h.Set("Access-Control-Allow-Origin", "*")
			h.Set("Cache-Control", "no-cache")
			h.Set("ETag", `W/"`+f.tag+`"`)
			if strings.Contains(r.Header.Get("If-None-Match"), f.tag) {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
		h.Set("Vary", "Accept-Encoding")
		data := f.data
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			data = f.compressed
		}
		_, _ = w.Write(data) // the client may have disconnected
	})
}
