// Package official checks a running service from outside, with real results. It compares
// the service's ranks with the ranks that organizers of competitions published, and with a
// recount from the results.
//
// The checks use only the public REST API. The recount sorts and adds, and imports no
// package of the service. The same checks therefore apply to every form of the service: a
// [Deployment] holds the service's address, and a [Feeder] that sends results to the
// service.
package official
