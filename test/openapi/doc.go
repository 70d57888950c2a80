// Package openapi tests openapi.json with the tools of integrators: linters, generators of clients, and
// a generator of requests. The tools need Node and Python, and are installed at their pinned versions
// into the user's cache.
package openapi
