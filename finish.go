package leaderboard

// Finish says how a user finished a match. A result or an entry with another Finish than Ranked has no rank.
type Finish int8

// The finishes. A result never has TooFew.
const (
	Ranked       Finish = iota
	DNF                 // did not finish
	DNS                 // did not start
	DSQ                 // disqualified
	Cut                 // did not pass the cut
	HorsConcours        // takes part outside the competition
	TooFew              // the entry has fewer results than Board.MinResults
)

var finishNames = []string{"RANKED", "DNF", "DNS", "DSQ", "CUT", "HORS_CONCOURS", "TOO_FEW_RESULTS"}

func (f Finish) String() string { return enumString(finishNames, int(f)) }

// MarshalText writes RANKED, DNF, DNS, DSQ, CUT, HORS_CONCOURS or TOO_FEW_RESULTS.
func (f Finish) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (f *Finish) UnmarshalText(text []byte) error { return parseEnum("status", finishNames, text, f) }
