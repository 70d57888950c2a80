// Package storage is the contract between package engine and a database. A backend stores values,
// and knows nothing about boards, users or ranks.
//
// Keys and values belong to lists, which need not be created. The caller chooses the names of
// lists.
package storage

import (
	"context"
	"iter"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Backend is a database. Its methods are safe for concurrent use, stop when ctx is done, and never
// log. A write that returns nil is durable. Any method may return [leaderboard.ErrUnavailable]. A
// write may take effect despite this error.
type Backend interface {
	Registers
	Rows

	// The rules behind the following methods are still in the backends. Of the acts in the audit
	// log, Erase removes nothing.
	leaderboard.BoardStore
	leaderboard.ResultStore
	leaderboard.MatchStore
	leaderboard.EntryStore
	leaderboard.UserStore
	leaderboard.SeasonStore
	leaderboard.RankChangeStore
	// ErasedAt returns the time of the last erasure of a user, or zero.
	ErasedAt(ctx context.Context, user leaderboard.UserID) (time.Time, error)

	// Close releases resources. No method may be called after Close.
	Close() error
}

// Register is a value that only Swap changes.
type Register struct {
	Key   string
	Tag   []byte // finds the register; nil for none
	Value []byte // not empty
	// After TTL, the register no longer exists. Zero means that the register does not expire.
	// Either all registers of a list expire or none. An embedded backend need not keep
	// registers that expire after Close.
	TTL time.Duration
}

// Registers keeps registers.
type Registers interface {
	// Register returns the value of a register, or nil if the register does not exist. The
	// returned value is durable: a caller that finds the value it would write is done.
	Register(ctx context.Context, list, key string) ([]byte, error)
	// Registers returns the keys and values of a list that does not expire, ordered by key. If tag is not
	// nil, Registers returns only those with the tag, and may include a register whose tag has
	// just changed.
	Registers(ctx context.Context, list string, tag []byte) ([]Register, error)
	// Swap replaces a register whose value is old, and reports whether it did. If old is nil, the
	// register must not exist. If r.Value is nil, Swap removes the register, which must not be
	// one that expires. Of several concurrent calls for one old value, at most one returns true.
	//
	// Swap may have replaced the register despite [leaderboard.ErrUnavailable]. A caller that
	// repeats its change finds out: Swap then returns false, and Register the caller's own value.
	Swap(ctx context.Context, list string, old []byte, r Register) (bool, error)
}

// Row is a key of a list, and its value.
type Row struct {
	Key   []byte // not empty
	Value []byte // not empty; nil removes the row
}

// RowWrite is a write of one row.
type RowWrite struct {
	List string
	Row
	// Version decides between the writes of one key: the greatest version wins. Of two writes
	// with one version, a removal wins, and otherwise the greater value. So the order and the
	// repetition of writes do not matter.
	Version int64
}

// Rows keeps rows.
type Rows interface {
	// WriteRows writes rows in the given order. A backend that can makes all writes visible
	// together. Otherwise, consecutive writes of one list usually become visible together.
	WriteRows(ctx context.Context, writes ...RowWrite) error
	// Rows yields the rows of a list whose keys are greater than after, ordered by key. It yields
	// at most one error, as its last element.
	Rows(ctx context.Context, list string, after []byte) iter.Seq2[Row, error]
}
