// Package web has the page that shows rankings in a browser.
package web

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
)

// html is the page. It loads nothing from other origins.
//
//go:embed index.html
var html string

// commonPolicy is the part of the Content-Security-Policy that all pages share.
const commonPolicy = "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"

// policy is the page's Content-Security-Policy without frame-ancestors. It allows only the
// page's own style and script, by their hashes, so that injected markup cannot run.
var policy = commonPolicy + "; style-src " + hashOf("style") + "; script-src " + hashOf("script")

// hashOf returns the hash of an element's content, in the policy's syntax. The page has the element
// once.
func hashOf(element string) string {
	_, rest, _ := strings.Cut(html, "<"+element+">")
	content, _, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Page returns a handler that writes the page. frameAncestors has the origins that may show
// the page in a frame.
func Page(frameAncestors string) http.Handler {
	policy := policy + "; frame-ancestors " + frameAncestors
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(html)) // the client may have disconnected
	})
}
