// Package generated has the test that the committed code is what the protos say.
// It is a module of its own, so that what the compiler of protos needs never
// reaches the service's.
package generated
