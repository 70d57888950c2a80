package api

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
)

// The page is one file without outside references; its style and script are
// allowed by their hashes, so that nothing injected could run.
//
//go:embed web/index.html
var pageHTML string

var pagePolicy = "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" +
	"; style-src " + hashOf("style") + "; script-src " + hashOf("script")

// hashOf is the CSP source of the page's one element of a name.
func hashOf(element string) string {
	_, rest, _ := strings.Cut(pageHTML, "<"+element+">")
	content, _, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Security-Policy", pagePolicy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(pageHTML)) // the client may be gone
}
