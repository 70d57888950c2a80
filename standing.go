package leaderboard

import (
	"encoding/binary"
	"fmt"
	"iter"
	"time"
)

// RankKey is a score and its tie-breakers as bytes, each in its board's order,
// made by [Board.RankKey]: of two rank keys of one board the smaller stands
// better, and equal ones share a rank. All rank keys of a board are equally
// long. The empty RankKey is no standing.
type RankKey string

// SortKey is a rank key, then achieved_at, then the user id: the total order of
// a ladder. Of two sort keys the smaller stands before the other.
type SortKey string

const columnBytes = 8

// column returns v as bytes that compare as v stands in order.
func column(dst []byte, order Order, v int64) []byte {
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

// rankKey joins the bytes of the score, already in b's order, and tie-breakers.
func (b *Board) rankKey(score []byte, ties []int64) RankKey {
	for i, tb := range b.TieBreakers {
		var v int64
		if i < len(ties) {
			v = ties[i]
		}
		score = column(score, tb.Order, v)
	}
	return RankKey(score)
}

// scoreBytes is the length of the score in a rank key of b.
func (b *Board) scoreBytes() int {
	if b.Policy == Decay {
		return decayKeyLen
	}
	return columnBytes
}

// RankKeyBytes is the length of b's rank keys in bytes.
func (b *Board) RankKeyBytes() int { return b.scoreBytes() + columnBytes*len(b.TieBreakers) }

// decayed returns d's bytes in b's order.
func (b *Board) decayed(d decaySum) []byte {
	key := d.appendKey(make([]byte, 0, b.RankKeyBytes()))
	if b.Order == HigherFirst {
		invert(key)
	}
	return key
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

// ScorePrefix returns the first bytes of the rank key of a score. A rank key
// stands strictly better than every standing of that score if it is smaller than
// the prefix. On decay boards the score is that at a moment, and a standing is of
// it if its value is rounded to it.
func (b *Board) ScorePrefix(s Score, at time.Time) RankKey {
	if b.Policy != Decay {
		return RankKey(column(nil, b.Order, int64(s)))
	}
	// The better end of what is rounded to s is half a point off, that is twice
	// as many points and one a half-life ago.
	doubled := 2*int64(s) + 1
	if b.Order == LowerFirst {
		doubled = 2*int64(s) - 1
	}
	half := b.HalfLife.Microseconds()
	d := decaySum{}.add(doubled, at.UnixMicro()-half, half)
	return RankKey(b.decayed(d))
}

// ScoreOf returns the score that k holds: on decay boards its value at the
// given moment, rounded to an integer; elsewhere the moment is not looked at.
// k must be one of b's rank keys.
func (b *Board) ScoreOf(k RankKey, at time.Time) Score {
	if b.Policy == Decay {
		key := []byte(k[:decayKeyLen])
		if b.Order == HigherFirst {
			invert(key)
		}
		return Score(decayScore(key, at.UnixMicro(), b.HalfLife.Microseconds()))
	}
	return Score(columnValue(b.Order, string(k[:columnBytes])))
}

// TieBreakersOf returns the tie-breakers that k holds, one for each of b's.
func (b *Board) TieBreakersOf(k RankKey) []int64 {
	if len(b.TieBreakers) == 0 {
		return nil
	}
	values := make([]int64, len(b.TieBreakers))
	rest := string(k[b.scoreBytes():])
	for i, tb := range b.TieBreakers {
		values[i] = columnValue(tb.Order, rest[i*columnBytes:][:columnBytes])
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

// Split returns what k was made of, given the length of its board's rank keys.
// It returns [ErrFormat] if k is too short or its user id is none.
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

// Entry is one user's standing in one scope, overall and in each of its
// divisions, without its rank.
type Entry struct {
	Scope
	User UserID
	// Key is empty if the user has no result that stands.
	Key RankKey
	// AchievedAt is when the user reached the score: the event time of Match.
	AchievedAt time.Time
	// Match is the result that decided: the one taken, or on boards that add up
	// the last one that changed the sum.
	Match MatchID
	// Metadata is that result's.
	Metadata string
	// Divisions are the slices that the user is in, at most one an attribute, in
	// the order of the board's attributes.
	Divisions []Division
	// Results counts the results that stand.
	Results int64
	// Hidden says that a ban keeps the entry out of every ladder.
	Hidden bool
	// Version grows with every change of what the user's entry is made of.
	// Entries of one scope and user with equal versions are equal.
	Version uint64
}

// Ranked says whether e stands in its ladders.
func (e *Entry) Ranked() bool { return e.Key != "" && !e.Hidden }

// SortKey returns e's sort key.
func (e *Entry) SortKey() SortKey { return MakeSortKey(e.Key, e.AchievedAt, e.User) }

// Ranks are a standing's ranks from 1 by each method. The ordinal rank is also
// its position in the ladder.
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

// Standing is one line of a ladder.
type Standing struct {
	User       UserID
	Key        RankKey
	AchievedAt time.Time
	Ranks      Ranks
}

// SortKey returns s's sort key.
func (s *Standing) SortKey() SortKey { return MakeSortKey(s.Key, s.AchievedAt, s.User) }

// Succeed gives s the ranks of the one that stands right after prev; the zero
// prev is the top. It is the one place that knows how ranks are numbered.
func (s *Standing) Succeed(prev *Standing) {
	s.Ranks.Ordinal = prev.Ranks.Ordinal + 1
	if prev.Ranks.Ordinal > 0 && prev.Key == s.Key {
		s.Ranks.Competition, s.Ranks.Dense = prev.Ranks.Competition, prev.Ranks.Dense
		return
	}
	s.Ranks.Competition, s.Ranks.Dense = s.Ranks.Ordinal, prev.Ranks.Dense+1
}

// Number gives entries, which must be in standing order, their ranks. It stops
// at the first error, which it passes on.
func Number(entries iter.Seq2[Entry, error]) iter.Seq2[Standing, error] {
	return func(yield func(Standing, error) bool) {
		var prev Standing
		for e, err := range entries {
			if err != nil {
				yield(Standing{}, err)
				return
			}
			s := Standing{User: e.User, Key: e.Key, AchievedAt: e.AchievedAt}
			s.Succeed(&prev)
			if !yield(s, nil) {
				return
			}
			prev = s
		}
	}
}
