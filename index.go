package leaderboard

import (
	"context"
	"iter"
	"time"
)

// View describes the state of a ladder from which a [Ranker] answered.
type View struct {
	// Size is the number of standings in the ladder.
	Size int64
	// AsOf is the time of the season's last change that the answer includes: the
	// greatest time passed to the last Rebuild or to an Update since.
	AsOf time.Time
}

// Counts are the numbers of standings of a ladder strictly before a rank key.
type Counts struct {
	Standings int64 // users
	Distinct  int64 // distinct rank keys of these users
}

// Ranker answers questions about ranks. Every answer is exact and shows the
// ladder at one moment. For a ladder without standings the answer is empty, without
// an error. Methods are safe for concurrent use. They return [ErrRankUnavailable] if
// they cannot answer now, for example before the season is loaded.
type Ranker interface {
	// Standings returns the standings of users, in the order given. For a user
	// without a standing in the ladder, Ranks is zero and Key is empty.
	Standings(ctx context.Context, l Ladder, users []UserID) ([]Standing, View, error)
	// Page returns up to n standings, beginning at a position. Positions count from 1.
	Page(ctx context.Context, l Ladder, position int64, n int) ([]Standing, View, error)
	// PageAfter returns up to n standings that follow a sort key. The ladder need
	// not hold a standing with that key.
	PageAfter(ctx context.Context, l Ladder, after SortKey, n int) ([]Standing, View, error)
	// Around returns a user's standing with up to above standings before it and up
	// to below standings after it. An end of the ladder clips the window.
	// It returns [ErrEntryNotFound] if the user has no standing in the ladder.
	Around(ctx context.Context, l Ladder, user UserID, above, below int) ([]Standing, View, error)
	// Count returns, for each given key, the number of standings strictly before
	// it. A key may be a prefix of a rank key, such as [Board.ScorePrefix] returns.
	Count(ctx context.Context, l Ladder, keys []RankKey) ([]Counts, View, error)
}

// Index is a rank index. It holds standings, and it can be lost at any time and
// rebuilt from a [Store]. Every implementation passes cachetest.Run.
type Index interface {
	Ranker

	// Update moves users to the places that their entries give, in the overall
	// ladder and in the ladder of each of the entry's divisions. It removes them
	// from their earlier places. An entry that is not ranked stands in no ladder.
	// An entry changes nothing unless its Version is greater than the version that
	// the index knows for the user. So updates may be repeated, and may arrive in any
	// order.
	//
	// The entries must be of season s and already durable in the store. Parameter at
	// is the time of the change. Reads that begin after Update returns see the change.
	// While the season is not loaded, Update does nothing: the Rebuild that loads
	// the season will read the entries.
	Update(ctx context.Context, s SeasonKey, at time.Time, entries []Entry) error
	// Rebuild replaces all standings of a season of board b by the standings of
	// entries. The entries may come in any order, and some may not be ranked. Rebuild
	// is fastest if they come in the overall standing order. It starts to record
	// Updates before it reads entries.
	//
	// Until Rebuild returns, reads see the old standings. After it, they see all new
	// standings and the effect of every Update made during the Rebuild. If entries
	// yields an error, or if ctx is done, the season stays as it was and Rebuild
	// returns that error. Concurrent Rebuilds of one season run one after another. If
	// Drop is called while a Rebuild runs, the Rebuild loads nothing and returns
	// [ErrRankUnavailable].
	Rebuild(ctx context.Context, b *Board, s SeasonKey, at time.Time, entries iter.Seq2[Entry, error]) error
	// Synced reports whether every Update so far is in the index, or the season is
	// known to be unavailable to every process. Callers that can redeliver a result
	// must wait for Synced before they commit its offset: if they commit earlier and
	// their process ends, the index lacks an update that no process knows of.
	Synced() bool
	// Loaded reports whether the index holds a season: a Rebuild has loaded it, and
	// since then it was neither lost nor dropped.
	Loaded(ctx context.Context, s SeasonKey) (bool, error)
	// Drop removes a season from the index.
	Drop(ctx context.Context, s SeasonKey) error
	// Close releases the index's resources. No method may be called after Close.
	Close() error
}
