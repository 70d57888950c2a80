package leaderboard

import (
	"context"
	"iter"
	"time"
)

// Store keeps boards, canonical match results and the entries made of them,
// durably. Every implementation passes storagetest.Run.
//
// Methods are safe for concurrent use, stop when ctx is done, and never log.
// Where they write, nil means durable, and any call may be repeated. Any method
// may return [ErrUnavailable]; then a write may or may not have taken effect.
// Stored instants have a resolution of one microsecond. Sequences yield at most
// one error, as their last element.
type Store interface {
	BoardStore
	ResultStore
	EntryStore
	UserStore
	SeasonStore
	APIKeyStore

	// Close releases what the store holds. Nothing may be called after it.
	Close() error
}

// BoardStore is the part of [Store] that keeps boards.
type BoardStore interface {
	// CreateBoard keeps a valid new board. If one of that id exists it changes
	// nothing, and returns [ErrBoardExists] unless the two are the same
	// ([Board.SameAs]).
	CreateBoard(ctx context.Context, b Board) error
	// Board returns a board, or [ErrBoardNotFound].
	Board(ctx context.Context, id BoardID) (Board, error)
	// Boards returns all boards by id.
	Boards(ctx context.Context) ([]Board, error)
	// AmendBoard replaces a board's settings by what [Board.Amend] makes of them
	// as changed, and returns that. change is given a copy of the board, again if
	// another AmendBoard came between, so that none undoes another. Errors:
	// [ErrBoardNotFound], that of change, and those of Amend.
	AmendBoard(ctx context.Context, id BoardID, change func(*Board) error) (Board, error)
	// DeleteBoard removes a board and all that is kept under it. A board of that
	// id made later starts empty. It returns [ErrBoardNotFound] if there is none.
	DeleteBoard(ctx context.Context, id BoardID) error
}

// Outcome is what became of one result of an Apply.
type Outcome struct {
	Status Status
	Reason Reason // if rejected
	// Entry is the user's in the result's scope once all of the Apply is done.
	// Its Key is empty if no result stands.
	Entry Entry
	// Err is set if this result, alone, could not be applied: it may or may not
	// have been, and may be applied again. The other fields are then zero.
	Err error
}

// Change is a user's entry in a scope before and after. Both carry scope and user.
type Change struct{ Before, After Entry }

// ApplyReport is the answer to an Apply.
type ApplyReport struct {
	Outcomes []Outcome // one a result, in their order
	Changes  []Change  // one for each user and scope whose entry's Version changed
}

// EntryKey names an entry.
type EntryKey struct {
	Scope
	User UserID
}

// Record is all that the store holds of a match result, be it only that it was
// refused.
type Record struct {
	// Result is the one that stands; nil if all that came were refused.
	Result *MatchResult
	// Refusals are by revision, then by the time they were received.
	Refusals []Refusal
}

// ResultStore is the part of [Store] that keeps canonical match results.
type ResultStore interface {
	// Apply merges results into what is known, by [Board.Merge], and brings the
	// entries of their users up to date. b is a board as the store returned it. All
	// results must be of b, carry their season, and have valid ids and revisions.
	// They may be of many users and seasons; those of one user are applied in
	// their order. Results and entries of one user change together: no reader and
	// no crash sees one without the other. It returns an error if none was applied;
	// [ErrBoardNotFound] if b was deleted, even if there is a new board of its id.
	Apply(ctx context.Context, b *Board, results []MatchResult) (ApplyReport, error)
	// Result returns what is known of a match result, or [ErrResultNotFound].
	Result(ctx context.Context, key ResultKey) (Record, error)
	// Results yields the results of a user in a scope that stand or are
	// retracted, by match id.
	Results(ctx context.Context, s Scope, user UserID) iter.Seq2[MatchResult, error]
	// Users yields each user with a [Record] in the scope, once, in any order.
	Users(ctx context.Context, s Scope) iter.Seq2[UserID, error]
	// Unlisted yields the users with a [Record] whom Users leaves out, of every
	// scope, once each, in any order. There are none but by damage; Recount of the
	// user puts that right. It looks through all results that the store has.
	Unlisted(ctx context.Context) iter.Seq2[EntryKey, error]
}

// Stray is a row of a ladder that is not as the user's entry says.
type Stray struct {
	Division Division
	User     UserID
	Key      SortKey // where the row stands
}

// EntryStore is the part of [Store] that keeps entries.
type EntryStore interface {
	// Entry returns a user's entry, also a hidden one, or [ErrEntryNotFound] if
	// no result of the user stands.
	Entry(ctx context.Context, s Scope, user UserID) (Entry, error)
	// Entries yields the ranked entries of a ladder in standing order, beginning
	// after the given sort key, or at the top if it is empty. An entry that moves
	// meanwhile is yielded once, twice or not at all; all others once.
	Entries(ctx context.Context, l Ladder, after SortKey) iter.Seq2[Entry, error]
	// Scan yields every entry of a scope, hidden ones too, in any order. An entry
	// that changes meanwhile is yielded once, as it was or as it became. An index
	// builds fastest from ranked entries in the overall standing order.
	Scan(ctx context.Context, s Scope) iter.Seq2[Entry, error]
	// Strays yields the rows of a scope's ladders that are not as their users'
	// entries say, once each, in any order. Entries may leave them out; Recount
	// of the user removes them. There are none but by damage, or by a writer that
	// stopped halfway; a row that is being moved may be yielded, though.
	Strays(ctx context.Context, s Scope) iter.Seq2[Stray, error]
	// Recount makes a user's entry anew from the canonical results, puts right
	// whatever of it is wrong in any ladder, and returns the entry before and
	// after. Before is what was found; if it was whole, both are equal. Errors:
	// [ErrBoardNotFound], as of Apply.
	Recount(ctx context.Context, b *Board, season SeasonID, user UserID) (Change, error)
}

// Ban says whether a user is hidden from every ladder.
type Ban struct {
	User   UserID
	Banned bool
	Reason string // for operators, at most 256 bytes
	At     time.Time
}

// UserStore is the part of [Store] that knows users across boards.
type UserStore interface {
	// SetBan hides a user's entries, present and future, on every board, or
	// brings them back, and returns the changes. Results go on being kept and
	// counted while a user is banned.
	SetBan(ctx context.Context, ban Ban) ([]Change, error)
	// Ban returns a user's ban, Banned false if there is none.
	Ban(ctx context.Context, user UserID) (Ban, error)
	// Erase removes all that is kept of a user: results, refusals, entries, final
	// standings and ban. Results received at or before at are rejected from then
	// on; what remains to know them by is no id that could be read back. If the
	// user comes back, versions go on growing. In final standings the others keep
	// their ranks. It returns the changes; each After is empty.
	Erase(ctx context.Context, user UserID, at time.Time) ([]Change, error)
	// UserScopes returns the scopes in which a user has a [Record], by board and season.
	UserScopes(ctx context.Context, user UserID) ([]Scope, error)
}

// Amendment says why final standings were made again.
type Amendment struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"` // e.g. "late correction"; it names nobody
}

// SeasonRecord is what the store knows of a season.
type SeasonRecord struct {
	Scope
	SealedAt   time.Time // zero if it is not sealed
	Amendments []Amendment
}

// SeasonStore is the part of [Store] that keeps seasons and their final standings.
type SeasonStore interface {
	// Seasons returns the seasons of a board in which there is a [Record], or that
	// are sealed, by id.
	Seasons(ctx context.Context, id BoardID) ([]SeasonRecord, error)
	// Season returns what is known of a season; all but the scope is zero if there is
	// nothing.
	Season(ctx context.Context, s Scope) (SeasonRecord, error)
	// Seal makes the final standings of a scope, for each of its ladders, from
	// its entries as they are, and marks it sealed at a.At. On a sealed season it
	// makes them again and appends a to the record, unless a is there already or
	// of the time that it was sealed at. Readers see the old standings or the new
	// ones whole. Whether the season is over is the caller's to know. Errors:
	// [ErrBoardNotFound], as of Apply.
	Seal(ctx context.Context, b *Board, season SeasonID, a Amendment) (SeasonRecord, error)
	// Amend makes the final standings of a sealed season of b again, as Seal does.
	// If it is not sealed it returns [ErrNotSealed], and any Seal that returns later,
	// though it be under way, makes the final standings with all that was changed
	// before the call. So who changes an entry of a season that may be sealed calls
	// Amend afterwards.
	Amend(ctx context.Context, b *Board, season SeasonID, a Amendment) (SeasonRecord, error)
	// FinalStandings returns up to n standings from a position on, from 1, and
	// the number of all. It returns [ErrNotSealed] if the season is not sealed.
	FinalStandings(ctx context.Context, l Ladder, position int64, n int) ([]Standing, int64, error)
	// FinalStanding returns a user's. Errors: [ErrNotSealed], [ErrEntryNotFound].
	FinalStanding(ctx context.Context, l Ladder, user UserID) (Standing, error)
	// DeleteSeason removes all that is kept of a scope, if there is anything.
	DeleteSeason(ctx context.Context, s Scope) error
}

// APIKey is a caller's credential, without its secret.
type APIKey struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`   // for operators
	Hash      [32]byte  `json:"hash"`   // SHA-256 of the secret
	Scopes    []string  `json:"scopes"` // read, submit, admin
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"` // zero: never
}

// APIKeyStore is the part of [Store] that keeps API keys.
type APIKeyStore interface {
	// PutAPIKey keeps a key, replacing one of the same id.
	PutAPIKey(ctx context.Context, k APIKey) error
	// APIKey returns the key with a hash, or [ErrAPIKeyNotFound].
	APIKey(ctx context.Context, hash [32]byte) (APIKey, error)
	// APIKeys returns all keys by id.
	APIKeys(ctx context.Context) ([]APIKey, error)
	// DeleteAPIKey removes a key, or returns [ErrAPIKeyNotFound].
	DeleteAPIKey(ctx context.Context, id string) error
}
