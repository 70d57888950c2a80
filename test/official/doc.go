// Package official checks a running service with real results. It compares the service's ranks with
// official ranks, and with a recount.
//
// The checks use only the public REST API and no package of the service. So they apply to both
// engines.
package official
