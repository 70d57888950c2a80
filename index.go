package leaderboard

import (
	"context"
	"iter"
	"time"
)

// View says what an answer of a [Ranker] was read from.
type View struct {
	// Size is the number of standings in the ladder.
	Size int64
	// AsOf is the time of the last change of the scope that the answer includes:
	// the greatest that the last Rebuild, or an Update since, was given.
	AsOf time.Time
}

// Counts says how many standings of a ladder lie strictly before a rank key.
type Counts struct {
	Standings int64 // users
	Distinct  int64 // different rank keys among them
}

// Ranker answers about ranks. A ladder that nobody stands in is empty, not an
// error. Every answer is exact and of one moment. Methods are safe for
// concurrent use. They return [ErrRankUnavailable] while the answer cannot be
// had, as before the scope is loaded.
type Ranker interface {
	// Standings returns the standings of users, in the order given; a user who
	// does not stand in the ladder has zero Ranks and an empty Key.
	Standings(ctx context.Context, l Ladder, users []UserID) ([]Standing, View, error)
	// Page returns up to n standings from a position on, from 1.
	Page(ctx context.Context, l Ladder, position int64, n int) ([]Standing, View, error)
	// PageAfter returns up to n standings that follow a sort key, whether or not
	// a standing has that key.
	PageAfter(ctx context.Context, l Ladder, after SortKey, n int) ([]Standing, View, error)
	// Around returns a user's standing with up to above before it and below
	// after it: fewer at an end of the ladder, where the window is clipped. It
	// returns [ErrEntryNotFound] if the user does not stand in the ladder.
	Around(ctx context.Context, l Ladder, user UserID, above, below int) ([]Standing, View, error)
	// Count returns, for each given key, what lies strictly before it. A key may
	// be the beginning of a rank key, as of [Board.ScorePrefix].
	Count(ctx context.Context, l Ladder, keys []RankKey) ([]Counts, View, error)
}

// Index is a rank index: it holds standings, can be lost at any time and
// rebuilt from a [Store]. Every implementation passes cachetest.Run.
type Index interface {
	Ranker

	// Update moves users to where their entries say, in the overall ladder and
	// in that of each of the entry's divisions, and removes them from where they
	// stood before; an entry that is not ranked stands nowhere. An entry whose
	// Version is not greater than the one the index knows of its user changes
	// nothing, so updates may be repeated and come in any order. at is the time
	// of the change. Entries are of one scope and already durable in the store.
	// When Update returns, reads see it. While the scope is not loaded there is
	// nothing to update: the Rebuild that loads it will read the entries.
	Update(ctx context.Context, s Scope, at time.Time, entries []Entry) error
	// Rebuild fills a scope anew from entries, ranked or not, in any order; in the
	// overall standing order it is fastest. entries is read once Rebuild has begun
	// to take note of Updates. Until Rebuild returns, reads go on seeing what was
	// there before; then they see the new standings whole, with every Update made
	// meanwhile. b gives the layout of keys. If entries yields an error, or ctx is
	// done, the scope stays as it was, and the error is returned. Rebuilds of one
	// scope follow one another. One that a Drop overtakes loads nothing and
	// returns [ErrRankUnavailable].
	Rebuild(ctx context.Context, b *Board, s Scope, at time.Time, entries iter.Seq2[Entry, error]) error
	// Settled says whether every Update so far was made, or the scope that lacks
	// it is known to be unavailable to all who ask, be it in another process. Who
	// could bring a result again waits for it before he lets go of the result:
	// a process that ends before leaves an index that does not know what it lacks.
	Settled() bool
	// Loaded says whether a scope has been filled by Rebuild since it was lost or dropped.
	Loaded(ctx context.Context, s Scope) (bool, error)
	// Drop forgets a scope.
	Drop(ctx context.Context, s Scope) error
	// Close releases what the index holds. Nothing may be called after it.
	Close() error
}
