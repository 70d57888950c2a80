// Package official checks a running service with real results. It compares the service's ranks with
// official ranks, and with a recount from the results.
//
// The checks use only the public REST API and no package of the service. So they apply to every
// form of the service: a [Deployment] with its address, and a [Feeder] that sends results to it.
package official
