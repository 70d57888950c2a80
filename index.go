package leaderboard

import (
	"context"
	"iter"
	"time"
)

// View describes the ladder at the moment of an answer of a [Ranker].
type View struct {
	// Size is the number of standings in the ladder.
	Size int64
	// AsOf is the time of the season's last change that the answer includes: the greatest changedAt of
	// the last Rebuild and of the Updates after it.
	AsOf time.Time
}

// Counts are the numbers of standings in a ladder that rank strictly better than a rank
// key.
type Counts struct {
	Standings int64 // users
	Distinct  int64 // different rank keys among these users
}

// Neighborhood is a user's standing among its neighbors.
type Neighborhood struct {
	// Standings are consecutive standings of a ladder.
	Standings []Standing
	// Of is the index of the user's standing in Standings.
	Of int
	// NotWorse is the number of standings of the whole ladder whose rank key is equal to the user's
	// rank key or better.
	NotWorse int64
}

// SurveyQuery is a question about a ladder as a whole.
type SurveyQuery struct {
	// Positions are positions in the ladder, counted from 1.
	Positions []int64
	// Percents select positions by a share of the ladder, from 0 to 100. In a ladder of n
	// standings, percent p selects the position n-⌊n×p/100⌋, but at least 1. The standing at this
	// position is better than about p percent of the standings.
	Percents []float64
	// Keys are rank keys, or prefixes of rank keys: see [Ranker].Count.
	Keys []RankKey
}

// PercentPosition returns the position that percent selects in a ladder of the given size:
// see [SurveyQuery].Percents.
func PercentPosition(size int64, percent float64) int64 {
	return max(size-int64(float64(size)*percent/100), 1)
}

// Survey is the answer to a [SurveyQuery], in the query's order. The rank key of a
// position that the ladder does not have is empty.
type Survey struct {
	Positions, Percents []RankKey
	Counts              []Counts
}

// Ranker answers questions about ranks. Every answer is exact and shows the ladder at one moment.
// An answer about more than 16 keys and positions, 32 users or 1,000 standings may consist of
// parts. Each part then shows a later moment than the part before it. If a ladder has no standings,
// the answer is empty and the error is nil.
//
// Parameter methods names the ranking methods whose ranks the caller uses. If the caller passes no
// methods, it uses all ranks. The answer has the ranks by these methods, and always the ordinal
// ranks. Other ranks in the answer have no meaning.
//
// All functions of a Ranker are safe for concurrent use. If a function cannot answer now, for
// example before the season is loaded, it returns [ErrRankUnavailable].
type Ranker interface {
	// Standings returns the standings of users, in the order given. For a user
	// without a standing in the ladder, Ranks is zero and Key is empty.
	Standings(ctx context.Context, l Ladder, users []UserID, methods ...Method) ([]Standing, View, error)
	// Page returns up to n standings, beginning at a position. Positions count from 1.
	Page(ctx context.Context, l Ladder, position int64, n int, methods ...Method) ([]Standing, View, error)
	// PageAfter returns up to n standings that follow a sort key. The ladder does not
	// need to contain a standing with that key.
	PageAfter(ctx context.Context, l Ladder, after SortKey, n int, methods ...Method) ([]Standing, View, error)
	// Around returns a user's standing with its neighbors. Parameters above and below are the numbers
	// of standings before and after the user's standing. Near an end of the ladder, the answer has
	// fewer standings. Around returns [ErrEntryNotFound] if the user has no standing in the ladder.
	Around(ctx context.Context, l Ladder, user UserID, above, below int, methods ...Method) (Neighborhood, View, error)
	// Count returns, for each given key, the number of standings that rank strictly better. A key may
	// also be a prefix of a rank key: see [Board.ScorePrefix]. If methods are given, but not [Dense],
	// then [Counts].Distinct has no meaning.
	Count(ctx context.Context, l Ladder, keys []RankKey, methods ...Method) ([]Counts, View, error)
	// Survey returns the rank keys at the positions and percents of q, and the counts that Count
	// returns for the keys of q.
	Survey(ctx context.Context, l Ladder, q SurveyQuery, methods ...Method) (Survey, View, error)
}

// SurveyByPages answers q like [Ranker].Survey. It calls r.Count once, and r.Page once for each
// position and each percent.
func SurveyByPages(ctx context.Context, r Ranker, l Ladder, q SurveyQuery, methods ...Method) (Survey, View, error) {
	counts, v, err := r.Count(ctx, l, q.Keys, methods...)
	if err != nil {
		return Survey{}, v, err
	}
	s := Survey{Positions: make([]RankKey, len(q.Positions)), Percents: make([]RankKey, len(q.Percents)), Counts: counts}
	readKey := func(key *RankKey, position int64) error {
		if position < 1 {
			return nil
		}
		page, _, err := r.Page(ctx, l, position, 1, Ordinal)
		if err == nil && len(page) > 0 {
			*key = page[0].Key
		}
		return err
	}
	for i, position := range q.Positions {
		if err := readKey(&s.Positions[i], position); err != nil {
			return Survey{}, v, err
		}
	}
	for i, percent := range q.Percents {
		if err := readKey(&s.Percents[i], PercentPosition(v.Size, percent)); err != nil {
			return Survey{}, v, err
		}
	}
	return s, v, nil
}

// LogPosition is a position in one partition of the log of results.
type LogPosition struct {
	// Partition names the partition and the present life of its topic. No other partition ever
	// has the same name.
	Partition string
	// Offset is the offset of a message. -1 means that the position is unknown.
	Offset int64
}

// LogSession identifies the processes that read the log together, each some partitions.
type LogSession struct {
	// Generation is that of the consumer group in Kafka. It grows each time the partitions are
	// distributed again.
	Generation int64
	// Partitions is the number of all partitions of the log.
	Partitions int
}

// Doubt states that a season in an index may have lost its last Updates, because another server has
// the season now, or the server has restarted. Until the doubt is removed by [Index].Confirm, reads of
// the season return [ErrRankUnavailable].
type Doubt struct {
	SeasonKey
	// Server identifies the server that has the season now.
	Server string
	// Confirmed is true if this process has already confirmed the season on this server, and all of
	// its Updates since then were made there. It must still confirm partitions that it has
	// received since then.
	Confirmed bool
	// Positions are the recorded positions of the partitions that the caller has passed to
	// Advance. The season lacks no Update of a message before them.
	Positions []LogPosition
}

// Index is a rank index. It contains standings. If it is lost, it can be rebuilt from a
// [Store]. Every implementation passes cachetest.Run.
type Index interface {
	Ranker

	// Update moves the user of each entry to a place in the overall ladder and in the ladders of the
	// entry's divisions. The entry's sort key determines this place. Update removes the user from all
	// earlier places. A user whose entry is not ranked has no place. If an entry's Version is not
	// greater than the version that the index has for the user, Update ignores the entry. Updates may
	// therefore be repeated, and may arrive in any order.
	//
	// The entries must be of season s and already durable in the store. Parameter changedAt
	// is the time of the change. Reads that begin after Update returns see the change. If
	// the season is not loaded, Update does nothing: the Rebuild that loads the season
	// will read the entries from the store. Update may ignore a division that the board of
	// the last Rebuild did not have.
	Update(ctx context.Context, s SeasonKey, changedAt time.Time, entries []Entry) error
	// Rebuild replaces all standings of a season of board b by the standings of entries. The entries
	// may come in any order, and some may not be ranked. No user has two entries. Rebuild is fastest if
	// the entries come in the standing order of the overall ladder. Rebuild starts to record Updates
	// before it reads the first entry.
	//
	// Until Rebuild returns, reads see the old standings. Later reads see the new standings and the
	// effect of every Update made during the Rebuild. If entries yields an error, or if ctx is done,
	// Rebuild returns that error and does not change the season. Concurrent Rebuilds of one season run
	// one after another. If Drop is called while a Rebuild runs, the Rebuild loads nothing and returns
	// [ErrRankUnavailable].
	Rebuild(ctx context.Context, b *Board, s SeasonKey, changedAt time.Time, entries iter.Seq2[Entry, error]) error
	// Restore loads a season, as Rebuild does, if the season is not loaded. If it is loaded, Restore may
	// do nothing. Restore keeps the standings that the index has not lost: it calls scan for the parts of the users whose standings are lost, which may
	// be all users. Function scan must return the entries of the users of the part, and no others.
	Restore(ctx context.Context, b *Board, s SeasonKey, changedAt time.Time, scan func(Part) iter.Seq2[Entry, error]) error
	// Synced reports whether the effect of every Update of the given seasons so far is in the index.
	// Without arguments, Synced considers all seasons. It ignores Updates of seasons that every
	// process treats as not loaded. If a caller can repeat an Update, it must stay able to repeat the
	// Update until Synced returns true, even if its process ends. Otherwise the index may lack the
	// effect of the Update for ever.
	Synced(seasons ...SeasonKey) bool
	// Invalidate tells the index that a season lacks an Update, which another process could not
	// make. After Invalidate, this process treats the season as not loaded until a Rebuild. If
	// processes share the index, the others do so as soon as the index is available.
	Invalidate(s SeasonKey)
	// Advance records how far the index is in the log of results. The caller states that the index
	// lacks no Update of a message before these positions, except in seasons that are not loaded.
	// Advance returns the seasons that may have lost Updates since earlier positions were
	// recorded. It records nothing for these seasons.
	Advance(ctx context.Context, positions []LogPosition) ([]Doubt, error)
	// Confirm states that the caller has repeated the Updates of a season in doubt, from the
	// positions of d on, and that the season now lacks no Update of a message before the given
	// positions. Parameter b is the season's board. After all members of session have confirmed their
	// partitions, the season is no longer in doubt. If the index has loaded the season by other rules of
	// the board, Confirm drops the season. If the server has changed again, Confirm does nothing.
	Confirm(ctx context.Context, b *Board, d Doubt, positions []LogPosition, session LogSession) error
	// Loaded reports whether the index contains a season: a Rebuild has loaded the season, and since
	// then the season was neither lost nor dropped.
	Loaded(ctx context.Context, s SeasonKey) (bool, error)
	// Drop removes a season from the index.
	Drop(ctx context.Context, s SeasonKey) error
	// Close releases the index's resources. No method may be called after Close.
	Close() error
}
