// Package official checks a running service from outside, on real results
// whose ranks are known: those that the organisers of a race, a championship and
// an olympiad published, and those that follow from the results by definition.
//
// It speaks the public REST API and nothing else. What it expects it counts by
// itself, from the results, with sort and addition; it imports no package of
// the service. So it says the same about every form of the service: a
// [Deployment] names one, and how results get into it.
package official
