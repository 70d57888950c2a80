package leaderboard

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"iter"
	"time"
)

// View describes the ladder at the moment of an answer.
type View struct {
	Size int64 // the number of standings
	// Unranked is how many of the standings have no rank. An Index does not set it.
	Unranked int64
	// AsOf is the time of the season's last change that the answer includes: see changedAt
	// in [Index].Update.
	AsOf time.Time
}

// Ranked returns the number of standings with a rank.
func (v *View) Ranked() int64 { return v.Size - v.Unranked }

// Ranker answers questions about ranks. Every answer is exact and shows the ladder at one
// moment. But the parts of a large answer may show successive moments: of more than 16 keys
// and positions together, 26 buckets, 32 users or 1,000 standings. If a ladder has no
// standings, the answer is empty and the error is nil.
//
// The parameter methods lists the ranks that the answer must have; an empty list means all.
// Ordinal ranks are always set. Other ranks that are not listed have no meaning.
//
// All methods are safe for concurrent use. A method that cannot answer now, for example
// before the season is loaded, returns [ErrRankUnavailable]. If methods is empty or contains [Dense],
// and the season is stored on several shards (see [Board].Shards), a method may return
// [ErrMethodUnavailable].
type Ranker interface {
	// Standings returns the standings of users, in the order given. For a user without a
	// standing, Ranks is zero and Key is empty.
	Standings(ctx context.Context, l Ladder, users []UserID, methods ...Method) ([]Standing, View, error)
	// Page returns up to n standings, beginning at a position from 1.
	Page(ctx context.Context, l Ladder, position int64, n int, methods ...Method) ([]Standing, View, error)
	// PageAfter returns up to n standings that follow a sort key, which need not be in the
	// ladder.
	PageAfter(ctx context.Context, l Ladder, after SortKey, n int, methods ...Method) ([]Standing, View, error)
	// Around returns a user's standing with up to above standings before it and up to below
	// standings after it. It returns [ErrEntryNotFound] if the user has no standing.
	Around(ctx context.Context, l Ladder, user UserID, above, below int, methods ...Method) (Neighborhood, View, error)
	// Count returns, for each key, the number of standings better than the key. A key
	// may also be a prefix of a rank key: see [Board.ScorePrefix]. If methods are given
	// without [Dense], [Counts].Distinct has no meaning.
	Count(ctx context.Context, l Ladder, keys []RankKey, methods ...Method) ([]Counts, View, error)
	// Survey answers q.
	Survey(ctx context.Context, l Ladder, q SurveyQuery, methods ...Method) (Survey, View, error)
}

// SurveyByPages answers q by calls of r.Count and r.Page.
func SurveyByPages(ctx context.Context, r Ranker, l Ladder, q SurveyQuery, methods ...Method) (Survey, View, error) {
	counts, v, err := r.Count(ctx, l, q.Keys, methods...)
	if err != nil {
		return Survey{}, v, err
	}
	s := Survey{Positions: make([]RankKey, len(q.Positions)), Percents: make([]RankKey, len(q.Percents)), Counts: counts}
	read := map[int64]RankKey{}
	readKey := func(key *RankKey, position int64) error {
		known, ok := read[position]
		if *key = known; ok || position < 1 {
			return nil
		}
		page, _, err := r.Page(ctx, l, position, 1, Ordinal)
		if err == nil && len(page) > 0 {
			*key = page[0].Key
		}
		read[position] = *key
		return err
	}
	for i, position := range q.Positions {
		if err := readKey(&s.Positions[i], position); err != nil {
			return Survey{}, v, err
		}
	}
	for i, percent := range q.Percents {
		if err := readKey(&s.Percents[i], PercentPosition(v.Ranked(), percent)); err != nil {
			return Survey{}, v, err
		}
	}
	if q.Buckets == 0 {
		return s, v, nil
	}
	var best, worst RankKey
	if err := errors.Join(readKey(&best, 1), readKey(&worst, v.Ranked())); err != nil || best == "" || worst == "" {
		return s, v, err
	}
	before, countView, err := r.Count(ctx, l, q.BucketEdges(best, worst), Competition)
	if err == nil {
		s.Buckets = q.BucketCounts(before, countView.Ranked())
	}
	return s, v, err
}

// LogPosition is a position in one partition of the log of results.
type LogPosition struct {
	// Partition identifies the partition. If the topic is deleted and created again,
	// Partition has another value.
	Partition string
	// From is the offset of the first message whose Updates (see [Index]) the caller has made
	// or repeated.
	From int64
	// Offset is the offset after the last of these messages, or -1 if the position is
	// unknown.
	Offset int64
}

// LogSession identifies a session of the consumer group that reads the log.
type LogSession struct {
	// Generation is the generation of the Kafka consumer group. It grows with each rebalance.
	Generation int64
	// Partitions is the number of all partitions of the log.
	Partitions int
}

// Doubt states that the index may lack the last Updates of a season. If a server of the season was
// restarted or replaced, reads of the season return [ErrRankUnavailable] until [Index].Confirm removes
// the doubt.
type Doubt struct {
	SeasonKey
	// Server identifies the servers that have the season's shards now.
	Server string
	// Confirmed means that this process has confirmed the season on these servers, and has
	// made all later Updates on them. If the process has received partitions since then, it
	// must still confirm these partitions.
	Confirmed bool
	// Positions are the recorded positions of the caller's partitions. The season has all
	// Updates of messages before each Offset.
	Positions []LogPosition
}

// UserHash returns the first 8 bytes of the SHA-256 of a user id. UserHash must not change,
// because stored data depends on it.
func UserHash(user UserID) uint64 {
	sum := sha256.Sum256([]byte(user))
	return binary.BigEndian.Uint64(sum[:8])
}

// Part is a share of all users: those whose [UserHash] modulo Of is Index. The zero Part
// contains all users.
type Part struct {
	Index int // 0 to Of-1
	Of    int // the number of parts; 0 means 1
}

// Contains reports whether a user belongs to the part.
func (p Part) Contains(user UserID) bool {
	return p.Of <= 1 || UserHash(user)%uint64(p.Of) == uint64(p.Index)
}

// Index contains standings, and can be rebuilt from a [Store]. Every implementation passes
// cachetest.Run.
type Index interface {
	Ranker

	// Update gives the user of each entry a standing with the entry's sort key, in the
	// overall ladder and in the ladders of the entry's divisions. It removes the user's
	// earlier standings. A user whose entry is not ranked has no standing. Update ignores an
	// entry whose Version is not greater than the user's version in the index. Updates may
	// therefore be repeated, and may arrive in any order.
	//
	// The entries must be of season s and already durable in the store. changedAt is the
	// time of the change. Reads that begin after Update returns see the change. If the
	// season is not loaded, Update does nothing. Update may ignore a division that the
	// board of the last Rebuild did not have.
	Update(ctx context.Context, s SeasonKey, changedAt time.Time, entries []Entry) error
	// Rebuild replaces all standings of a season of board b by those of entries. The entries
	// may come in any order, and some may not be ranked. No user has two entries. Rebuild is
	// fastest if the entries are in the standing order of the overall ladder. Rebuild begins
	// to record Updates before it reads the first entry.
	//
	// Until Rebuild returns, reads see the old standings. Later reads see the new standings
	// and the effect of every Update made during the Rebuild. If entries yields an error,
	// or if ctx is done, Rebuild returns that error and does not change the season.
	// Concurrent Rebuilds of one season run one after another. If Drop is called during a
	// Rebuild, the Rebuild loads nothing and returns [ErrRankUnavailable].
	Rebuild(ctx context.Context, b *Board, s SeasonKey, changedAt time.Time, entries iter.Seq2[Entry, error]) error
	// Restore loads a season like Rebuild, but keeps the standings that the index has not
	// lost. If the season is loaded, Restore may do nothing. Restore calls scan for each
	// [Part] whose standings are lost, or once for all users. scan must return the entries
	// of exactly the users of the Part.
	Restore(ctx context.Context, b *Board, s SeasonKey, changedAt time.Time, scan func(Part) iter.Seq2[Entry, error]) error
	// Synced reports whether the index has the effect of every Update so far. Without
	// arguments, it checks all seasons. It ignores Updates of seasons that every process
	// treats as not loaded. After a crash, a consumer repeats the Updates of results whose
	// offsets it has not committed. So it must not commit an offset before Synced returns true.
	Synced(seasons ...SeasonKey) bool
	// Invalidate states that a season lacks an Update that another process could not make.
	// Until a Rebuild, this process treats the season as not loaded. As soon as the index is
	// available, the other processes that share it also treat the season as not loaded.
	Invalidate(s SeasonKey)
	// Advance records that each loaded season has all Updates of the messages before each Offset in
	// positions. It returns the seasons that may have lost Updates since earlier positions were
	// recorded, or may lack Updates between the recorded Offset and the caller's From. Advance records
	// nothing for these seasons. If the parameter all is false, Advance checks seasons without Updates
	// only from time to time.
	Advance(ctx context.Context, positions []LogPosition, all bool) ([]Doubt, error)
	// Confirm states that the caller has repeated the Updates of a season in doubt,
	// beginning at d.Positions, and that the season now has all Updates of the messages
	// before the parameter positions. The doubt ends when all members of the session have
	// confirmed their partitions. If the index loaded the season for other [Board.Rules], or
	// for an earlier board with the same id, Confirm drops the season. If the season is no
	// longer on the servers of d, Confirm does nothing.
	Confirm(ctx context.Context, b *Board, d Doubt, positions []LogPosition, session LogSession) error
	// Loaded reports whether a Rebuild has loaded a season, and the season has been neither
	// lost nor dropped since then.
	Loaded(ctx context.Context, s SeasonKey) (bool, error)
	// Fits reports whether the last call of Loaded found the season in a form that fits the settings
	// of b, such as [Board].Shards. After a Rebuild, the season fits.
	Fits(b *Board, s SeasonKey) bool
	Drop(ctx context.Context, s SeasonKey) error
	// Close releases resources. No method may be called after Close.
	Close() error
}
