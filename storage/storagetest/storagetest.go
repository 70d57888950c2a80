// Package storagetest holds the contract of [leaderboard.Store] as tests, and
// random histories that compare a store with a naive model.
package storagetest

// Limits says which sentences of the contract a store does not keep. There is
// none so far that any store may break: one that has to gets a field here, with
// the reason beside it, and its tests skip by that field alone.
type Limits struct{}
