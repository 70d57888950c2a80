package leaderboard

import (
	"errors"
	"fmt"
)

// The errors that callers may test for with [errors.Is]. Each is wrapped with
// what it is about where it happens.
var (
	// ErrInvalid is wrapped by every [FieldError].
	ErrInvalid = errors.New("invalid argument")
	// ErrBoardNotFound: no board has the id.
	ErrBoardNotFound = errors.New("board not found")
	// ErrBoardExists: a board of the id exists with other rules.
	ErrBoardExists = errors.New("board exists with other rules")
	// ErrEntryNotFound: the user has no entry there, or is hidden by a ban.
	ErrEntryNotFound = errors.New("entry not found")
	// ErrResultNotFound: no match result of that id is known.
	ErrResultNotFound = errors.New("match result not found")
	// ErrSeasonOpen: the operation needs a season that is over and past its grace.
	ErrSeasonOpen = errors.New("season is still open")
	// ErrNotSealed: the season has no final standings yet.
	ErrNotSealed = errors.New("season is not sealed")
	// ErrAPIKeyNotFound: no API key has the id or the hash.
	ErrAPIKeyNotFound = errors.New("api key not found")
	// ErrRankUnavailable: the rank index cannot answer now; the entry may still
	// be read from the store.
	ErrRankUnavailable = errors.New("rank unavailable")
	// ErrUnavailable: a server that the operation needs does not answer. The
	// operation may be retried; whether it took effect is unknown.
	ErrUnavailable = errors.New("temporarily unavailable")
	// ErrFormat: stored bytes are not of a form that this version reads.
	ErrFormat = errors.New("unknown storage format")
)

// A FieldError says which field of an argument breaks which limit. It wraps
// [ErrInvalid].
type FieldError struct {
	Field   string // the field's name as in JSON, e.g. "user_id" or "season.time_zone"
	Problem string // what is wrong and what is allowed
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Unwrap returns [ErrInvalid].
func (e *FieldError) Unwrap() error { return ErrInvalid }

func fieldErrorf(field, format string, args ...any) error {
	return &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}
