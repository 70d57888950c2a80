package leaderboard

import (
	"errors"
	"fmt"
)

// Callers test for these errors with [errors.Is].
var (
	// ErrInvalid means that an argument is not allowed.
	ErrInvalid = errors.New("invalid argument")
	// ErrBoardNotFound means that no board has the id.
	ErrBoardNotFound = errors.New("board not found")
	// ErrBoardExists means that a different board has the same id: see [Board.SameAs].
	ErrBoardExists = errors.New("board exists with other rules")
	// ErrEntryNotFound means that the user has no entry, or that a ban hides it.
	ErrEntryNotFound = errors.New("entry not found")
	// ErrResultNotFound means that the store has no match result with the id.
	ErrResultNotFound = errors.New("match result not found")
	// ErrMatchNotFound means that no result names the match, and that it was never voided.
	ErrMatchNotFound = errors.New("match not found")
	// ErrMatchesFilling means that the lists of matches may still lack earlier results: see
	// [Board].UnfilledMatches.
	ErrMatchesFilling = errors.New("earlier results are still being added to the matches of the board")
	// ErrNotSealed means that the season has no final standings yet.
	ErrNotSealed       = errors.New("season is not sealed")
	ErrAPIKeyNotFound  = errors.New("api key not found")
	ErrRankUnavailable = errors.New("rank unavailable")
	// ErrProfileNotFound means that the user has no profile.
	ErrProfileNotFound = errors.New("profile not found")
	// ErrDeadLetterNotFound means that no dead letter has the id, or that Kafka has deleted it.
	ErrDeadLetterNotFound = errors.New("dead letter not found")
	// ErrErased means that the user was erased at the time of a change or later.
	ErrErased = errors.New("the user was erased")
	// ErrMethodUnavailable means that the index has no ranks of a [Method] for a season.
	ErrMethodUnavailable = errors.New("a season on several shards has no dense ranks before it is sealed")
	// ErrUnavailable means that a needed server does not answer. The operation may or may
	// not have taken effect. The caller may retry the operation.
	ErrUnavailable = errors.New("temporarily unavailable")
	// ErrFormat means that this build cannot read stored bytes.
	ErrFormat = errors.New("unknown storage format")
)

// FieldError describes a field of an argument whose value is not allowed. It wraps
// [ErrInvalid].
type FieldError struct {
	Field   string // in JSON, such as "user_id" or "season.time_zone"
	Problem string // what is wrong, and which values are allowed
	// Boards are other boards that the problem concerns. Problem does not have their ids, because
	// not every caller may see these boards.
	Boards []BoardID
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Unwrap returns [ErrInvalid].
func (e *FieldError) Unwrap() error { return ErrInvalid }

func fieldErrorf(field, format string, args ...any) error {
	return &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}
