package leaderboard

import (
	"encoding/binary"
	"fmt"
	"iter"
	"time"
)

// RankKey is a score followed by its tie-breakers, as bytes. Of two rank keys of one board,
// the smaller ranks better. All rank keys of a board have the same length. The RankKey of a
// user without a standing is empty.
type RankKey string

// SortKey is a rank key, then achieved_at, then the user id. The standings of a ladder are
// ordered by sort key, the smallest first.
type SortKey string

const columnBytes = 8

// appendColumn appends v to dst. The better of two values has the smaller bytes.
func appendColumn(dst []byte, order Order, v int64) []byte {
	u := biased(v)
	if order == HigherFirst {
		u = ^u
	}
	return binary.BigEndian.AppendUint64(dst, u)
}

func columnValue(order Order, b string) int64 {
	u := binary.BigEndian.Uint64([]byte(b))
	if order == HigherFirst {
		u = ^u
	}
	return unbiased(u)
}

func (b *Board) rankKey(t Tally) RankKey {
	key := b.arithmetic().appendScore(make([]byte, 0, b.RankKeyBytes()), b, t)
	for i, tb := range b.TieBreakers {
		key = appendColumn(key, tb.Order, valueAt(t.ties, i))
	}
	return RankKey(key)
}

// RankKeyBytes returns the length of b's rank keys in bytes.
func (b *Board) RankKeyBytes() int {
	return b.arithmetic().scoreBytes() + columnBytes*len(b.TieBreakers)
}

// ScorePrefix returns the first bytes of all rank keys with the score s. A smaller rank key
// ranks better than every standing with this score.
//
// On decay boards, s is a rounded score at the time t. A rank key is smaller than the result
// if, and only if, ScoreOf returns a better score than s for it at t. Other boards ignore t.
func (b *Board) ScorePrefix(s Score, t time.Time) RankKey {
	return b.arithmetic().scorePrefix(b, s, t.UnixMicro())
}

// ScoreBounds returns the bounds of the rank keys with the score s. Rank keys below first have a
// better score. Rank keys from beyond on have a worse score. On decay boards, they have exact scores
// at the time t, as of [Board.ExactScoreOf]. Other boards ignore t.
func (b *Board) ScoreBounds(s Score, t time.Time) (first, beyond RankKey) {
	return b.arithmetic().scoreBounds(b, s, t.UnixMicro())
}

// ScoreOf returns the score in k, a rank key of b. On decay boards it is the score at the
// time t, rounded to an integer. Other boards ignore t.
func (b *Board) ScoreOf(k RankKey, t time.Time) Score {
	return b.arithmetic().scoreOf(b, k, t.UnixMicro())
}

// ExactScoreOf returns the score in k at the time t on a decay board, without rounding, as a decimal
// number such as 99.5 or 3.2e-41. Of two rank keys with different scores, the results differ, unless the
// difference is below 2^-158 of the score. On other boards it returns "".
func (b *Board) ExactScoreOf(k RankKey, t time.Time) string {
	return b.arithmetic().exactScoreOf(b, k, t.UnixMicro())
}

// Gap returns the least number of points by which the score in from must improve to be at least as good as
// the score in to: at least 1 if to has a better score, otherwise 0. If from is empty, the score is 0. On decay
// boards, the scores are those at the time t.
func (b *Board) Gap(from, to RankKey, t time.Time) Score {
	p := b.arithmetic()
	if from == "" {
		from = RankKey(p.appendScore(nil, b, Tally{}))
	}
	if from[:p.scoreBytes()] <= to[:p.scoreBytes()] {
		return 0
	}
	if b.Order == LowerFirst {
		from, to = to, from
	}
	return p.gap(b, from, to, t.UnixMicro())
}

// TieBreakersOf returns the tie-breakers in k, a rank key of b.
func (b *Board) TieBreakersOf(k RankKey) []int64 {
	if len(b.TieBreakers) == 0 {
		return nil
	}
	values := make([]int64, len(b.TieBreakers))
	columns := string(k[b.arithmetic().scoreBytes():])
	for i, tb := range b.TieBreakers {
		values[i] = columnValue(tb.Order, columns[i*columnBytes:][:columnBytes])
	}
	return values
}

// MakeSortKey returns the sort key of a standing.
func MakeSortKey(k RankKey, achievedAt time.Time, user UserID) SortKey {
	b := make([]byte, 0, len(k)+columnBytes+len(user))
	b = append(b, k...)
	b = binary.BigEndian.AppendUint64(b, biased(achievedAt.UnixMicro()))
	return SortKey(append(b, user...))
}

// Split is the inverse of [MakeSortKey]. It returns [ErrFormat] if k is too short for
// rankKeyBytes, the length of the board's rank keys, or if its user id is invalid.
func (k SortKey) Split(rankKeyBytes int) (RankKey, time.Time, UserID, error) {
	if len(k) < rankKeyBytes+columnBytes {
		return "", time.Time{}, "", fmt.Errorf("leaderboard: sort key of %d bytes: %w", len(k), ErrFormat)
	}
	user := UserID(k[rankKeyBytes+columnBytes:])
	if err := user.Validate(); err != nil {
		return "", time.Time{}, "", fmt.Errorf("leaderboard: sort key: %w: %w", ErrFormat, err)
	}
	micros := unbiased(binary.BigEndian.Uint64([]byte(k[rankKeyBytes:][:columnBytes])))
	return RankKey(k[:rankKeyBytes]), time.UnixMicro(micros).UTC(), user, nil
}

// Entry is one user's score in one season, without ranks.
type Entry struct {
	SeasonKey
	User UserID
	// Key is empty if no result of the user counts.
	Key        RankKey
	AchievedAt time.Time
	// Match is the match of the deciding result. If Board.AddsUp is false, this is the
	// result whose score is the entry's score. If AddsUp is true, it is the last result
	// that changed the sum or a tie-breaker, or else the first result.
	Match     MatchID
	Metadata  string
	Divisions []Division
	Results   int64
	Hidden    bool // by a ban
	// Version grows with every change of the entry, and may grow without a change. Entries
	// of one season and user with equal versions are equal.
	Version uint64
}

// Ranked reports whether e has a place in its ladders.
func (e *Entry) Ranked() bool { return e.Key != "" && !e.Hidden }

// SortKey returns e's sort key.
func (e *Entry) SortKey() SortKey { return MakeSortKey(e.Key, e.AchievedAt, e.User) }

// Ranks are counted from 1. The ordinal rank is also the position in the ladder.
type Ranks struct{ Competition, Dense, Ordinal int64 }

// By returns the rank by method m.
func (r Ranks) By(m Method) int64 {
	switch m {
	case Dense:
		return r.Dense
	case Ordinal:
		return r.Ordinal
	default:
		return r.Competition
	}
}

// RankAmongOthers returns the competition rank of k among all users except one. rank is the
// rank of k among all users. own is the rank key of the excluded user, or empty.
func RankAmongOthers(rank int64, k, own RankKey) int64 {
	if own != "" && own < k {
		return rank - 1
	}
	return rank
}

// PersonalBest reports whether the result with the outcome o is better than all earlier
// results of its user in the season. ok is false if the policy is not Best, or if the Apply
// did not change the stored result.
func (b *Board) PersonalBest(o *Outcome) (best, ok bool) {
	return o.After != "" && (o.Before == "" || o.After < o.Before), b.arithmetic().keepsBest() && o.Changed()
}

// Standing is an entry's place in a ladder.
type Standing struct {
	User       UserID
	Key        RankKey
	AchievedAt time.Time
	Ranks      Ranks
}

// SortKey returns s's sort key.
func (s *Standing) SortKey() SortKey { return MakeSortKey(s.Key, s.AchievedAt, s.User) }

// RankAfter sets s.Ranks. previous must directly precede s in the ladder, or be the zero
// Standing if s is at the top.
func (s *Standing) RankAfter(previous *Standing) {
	s.Ranks.Ordinal = previous.Ranks.Ordinal + 1
	if previous.Ranks.Ordinal > 0 && previous.Key == s.Key {
		s.Ranks.Competition, s.Ranks.Dense = previous.Ranks.Competition, previous.Ranks.Dense
		return
	}
	s.Ranks.Competition, s.Ranks.Dense = s.Ranks.Ordinal, previous.Ranks.Dense+1
}

// AssignRanks yields the standings of entries, which must be in standing order from the
// top of the ladder. If entries yields an error, AssignRanks yields this error and stops.
func AssignRanks(entries iter.Seq2[Entry, error]) iter.Seq2[Standing, error] {
	return func(yield func(Standing, error) bool) {
		var previous Standing
		for e, err := range entries {
			if err != nil {
				yield(Standing{}, err)
				return
			}
			s := Standing{User: e.User, Key: e.Key, AchievedAt: e.AchievedAt}
			s.RankAfter(&previous)
			if !yield(s, nil) {
				return
			}
			previous = s
		}
	}
}
