package leaderboard

import "time"

// Method is a rule for the ranks of standings with equal rank keys. See
// https://en.wikipedia.org/wiki/Ranking.
type Method int8

// In the examples below, the second and the third of four standings have equal rank keys.
const (
	// Competition gives 1-2-2-4: 1 plus the number of standings with a better rank key.
	Competition Method = iota
	// Dense gives 1-2-2-3: 1 plus the number of distinct better rank keys.
	Dense
	// Ordinal gives 1-2-3-4: the position in the ladder.
	Ordinal
)

var methodNames = []string{"competition", "dense", "ordinal"}

func (m Method) String() string { return enumString(methodNames, int(m)) }

// MarshalText writes competition, dense or ordinal.
func (m Method) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (m *Method) UnmarshalText(text []byte) error { return parseEnum("method", methodNames, text, m) }

// Ladder identifies one ranking: a season of a board, overall or in one division.
type Ladder struct {
	SeasonKey
	Division Division
}

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

// Standing is an entry's place in a ladder.
type Standing struct {
	User       UserID
	Key        RankKey
	AchievedAt time.Time // as in [Entry]
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

// Counts are the numbers of standings that rank strictly better than a rank key.
type Counts struct {
	Standings int64 // users
	Distinct  int64 // different rank keys of these users
}

// Neighborhood is a user's standing among its neighbors.
type Neighborhood struct {
	Standings []Standing
	// Of is the index of the user's standing in Standings.
	Of int
	// NotWorse is the number of standings of the ladder whose rank key is equal to the
	// user's or better.
	NotWorse int64
}
