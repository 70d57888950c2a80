package leaderboard

import (
	"context"
	"iter"
	"time"
)

// Store keeps boards, canonical match results and the entries that follow from
// them. It is durable. Every implementation passes storagetest.Run.
//
// Methods are safe for concurrent use, stop when ctx is done, and never log.
// A write that returns nil is durable, and every call may be repeated. Any method
// may return [ErrUnavailable]; then a write may or may not have taken effect.
// Stored instants have a resolution of one microsecond. A sequence yields at most
// one error, as its last element.
type Store interface {
	BoardStore
	ResultStore
	EntryStore
	UserStore
	SeasonStore
	APIKeyStore
	AuditStore

	// Close releases the store's resources. No method may be called after Close.
	Close() error
}

// BoardStore is the part of [Store] that keeps boards.
type BoardStore interface {
	// CreateBoard keeps a valid new board. If a board with its id exists,
	// CreateBoard changes nothing. It then returns [ErrBoardExists], unless the two
	// boards are the same ([Board.SameAs]).
	CreateBoard(ctx context.Context, b Board) error
	// Board returns the board with an id, or [ErrBoardNotFound]. The caller may
	// modify it.
	Board(ctx context.Context, id BoardID) (Board, error)
	// Boards returns all boards, ordered by id.
	Boards(ctx context.Context) ([]Board, error)
	// AmendBoard calls the function change with a copy of the board. It passes the
	// changed copy to [Board.Amend], stores the resulting board and returns it. If
	// another AmendBoard stores the board in between, AmendBoard calls change again
	// with the newer board. So concurrent amendments do not undo each other.
	// Errors: [ErrBoardNotFound], the error of change, and those of Amend.
	AmendBoard(ctx context.Context, id BoardID, change func(*Board) error) (Board, error)
	// DeleteBoard removes a board and everything kept under it. A board created
	// later with the same id starts empty. If at is not zero, that board rejects each
	// result that was received at the time at or earlier, with [ReasonDeleted].
	// Errors: [ErrBoardNotFound].
	DeleteBoard(ctx context.Context, id BoardID, at time.Time) error
}

// Outcome is what became of one result of an Apply.
type Outcome struct {
	Status Status
	Reason Reason // set if Status is Rejected
	// Entry is the user's entry in the result's season after the whole Apply. Its
	// Key is empty if no result of the user stands.
	Entry Entry
	// Err is set if the store failed on this result alone; the other fields are then
	// zero. The result may or may not have taken effect. The caller may apply it again.
	Err error
}

// Change is a user's entry in a season before and after a write. Before and After
// both have the season key and the user, even if one of them has no Key.
type Change struct{ Before, After Entry }

// ApplyReport is the answer to an Apply.
type ApplyReport struct {
	Outcomes []Outcome // one for each result, in their order
	Changes  []Change  // one for each user and season whose entry has a new Version
}

// EntryKey identifies an entry.
type EntryKey struct {
	SeasonKey
	User UserID
}

// Record is everything that a store keeps about one match result. A result that
// was only ever refused has a Record too.
type Record struct {
	// Result is the result that stands; nil if all were refused.
	Result *MatchResult
	// Refusals are ordered by revision, then by the time they were received.
	Refusals []Refusal
}

// ResultStore is the part of [Store] that keeps canonical match results.
type ResultStore interface {
	// Apply merges results into the stored ones by [Board.Merge] and updates the
	// entries of their users. b must be a board as the store returned it. All
	// results must be of b, name their season, and have valid ids and revisions.
	// They may be of many users and seasons. The results of one user are applied in
	// the order given.
	//
	// The results and entries of one user change together: no reader and no crash
	// sees one without the other. Apply returns an error only if it applied none of
	// the results. Errors: [ErrBoardNotFound] if b was deleted, even if a new board
	// has its id.
	Apply(ctx context.Context, b *Board, results []MatchResult) (ApplyReport, error)
	// Result returns the record of a match result, or [ErrResultNotFound].
	Result(ctx context.Context, key ResultKey) (Record, error)
	// Results yields the results of a user in a season that stand or are
	// retracted, ordered by match id.
	Results(ctx context.Context, s SeasonKey, user UserID) iter.Seq2[MatchResult, error]
	// Users yields each user with a [Record] in the season once, in any order.
	Users(ctx context.Context, s SeasonKey) iter.Seq2[UserID, error]
	// UnregisteredUsers yields each user that has a [Record] but that Users does not
	// yield, once per season, in any order. Only damaged data has such users. A Recount
	// of the user registers the user again. UnregisteredUsers reads every result in the
	// store.
	UnregisteredUsers(ctx context.Context) iter.Seq2[EntryKey, error]
}

// OrphanRow is a ladder row that its user's entry does not imply. For example, the
// entry stands in another place, or the user has none.
type OrphanRow struct {
	Division Division
	User     UserID
	Key      SortKey // the row's place
}

// EntryStore is the part of [Store] that keeps entries.
type EntryStore interface {
	// Entry returns a user's entry, even if it is hidden. It returns
	// [ErrEntryNotFound] if no result of the user stands.
	Entry(ctx context.Context, s SeasonKey, user UserID) (Entry, error)
	// Entries yields the ranked entries of a ladder in standing order. It begins
	// after the given sort key, or at the top if the key is empty. An entry that moves
	// while Entries runs appears once, twice or not at all. Every other entry appears
	// once.
	Entries(ctx context.Context, l Ladder, after SortKey) iter.Seq2[Entry, error]
	// Scan yields every entry of a season, hidden ones too, in any order. An entry that
	// changes while Scan runs appears once, either old or new. An index builds fastest
	// if ranked entries come in the overall standing order.
	Scan(ctx context.Context, s SeasonKey) iter.Seq2[Entry, error]
	// OrphanRows yields each orphan row of a season's ladders once, in any order. An
	// orphan row is a ladder row that its user's entry does not imply. Such rows come
	// from damage, or from a writer that stopped halfway. OrphanRows may also yield a
	// row that moves while it runs. Entries may omit orphan rows. A Recount of the user
	// removes them.
	OrphanRows(ctx context.Context, s SeasonKey) iter.Seq2[OrphanRow, error]
	// Recount computes a user's entry from the canonical results alone, repairs
	// every ladder that disagrees with it, and returns the entry before and after.
	// Before is the entry as stored until then. If nothing was damaged, Before equals
	// After.
	// Errors: [ErrBoardNotFound], as in Apply.
	Recount(ctx context.Context, b *Board, season SeasonID, user UserID) (Change, error)
}

// UserStore is the part of [Store] that knows users across boards.
type UserStore interface {
	// SetBan merges the state of a ban into the stored one by [MergeBan]. While the state
	// that stands for a board, or that for every board, has Banned, the store hides the
	// user's present and future entries on that board. It still keeps and counts the
	// results.
	//
	// SetBan returns the changes. A change may differ in the Version only. A ban on a board
	// outlives the board: it holds for a later board with the same id.
	SetBan(ctx context.Context, ban Ban) ([]Change, error)
	// UserBans returns the bans of a user, lifted ones too: first the ban on every board,
	// then those on boards, ordered by board. A ban that was lifted before revisions
	// existed is not kept.
	UserBans(ctx context.Context, user UserID) ([]Ban, error)
	// Bans yields the bans of all users, lifted ones too. It begins after the given key, or
	// at the first if the key is empty. The order of users is the store's own; the bans of
	// one user follow each other as in UserBans.
	Bans(ctx context.Context, after BanKey) iter.Seq2[Ban, error]
	// BansEnding yields the bans with an Until before the given time, ordered by Until. It
	// includes lifted ones.
	BansEnding(ctx context.Context, before time.Time) iter.Seq2[Ban, error]
	// Erase removes everything kept about a user: results, refusals, entries, final
	// standings, bans, and the details of acts. After it, the store rejects each result of the user that
	// was received at the given time or earlier. To recognize such results, the store
	// keeps a value from which the user's id cannot be read.
	//
	// If the user returns, new entries have greater versions than the erased ones. In
	// final standings the other users keep their ranks. Erase returns the changes, in
	// which After has no Key.
	Erase(ctx context.Context, user UserID, at time.Time) ([]Change, error)
	// UserSeasons returns the seasons in which a user has a [Record], ordered by
	// board and season.
	UserSeasons(ctx context.Context, user UserID) ([]SeasonKey, error)
}

// Amendment records why the final standings of a season were replaced.
type Amendment struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"` // such as "late correction"; it must not name a user
}

// SeasonRecord is the state of a season in the store.
type SeasonRecord struct {
	SeasonKey
	SealedAt   time.Time // zero if the season is not sealed
	Amendments []Amendment
}

// SeasonStore is the part of [Store] that keeps seasons and their final standings.
type SeasonStore interface {
	// Seasons returns the seasons of a board that have a [Record] or are sealed,
	// ordered by id.
	Seasons(ctx context.Context, id BoardID) ([]SeasonRecord, error)
	// Season returns the state of a season. If the store knows nothing of it, only
	// the SeasonKey is set.
	Season(ctx context.Context, s SeasonKey) (SeasonRecord, error)
	// Seal computes the final standings of each of a season's ladders from the
	// season's present entries. It sets SealedAt to the amendment's time. If the season
	// is sealed already, Seal replaces the final standings and appends the amendment to
	// the season's record. It appends nothing if the record holds the amendment, or if
	// the amendment's time equals SealedAt. So a call may be repeated.
	//
	// Readers see either the old standings or the new ones, never a mixture. The
	// caller must know that the season is over. Errors: [ErrBoardNotFound], as in
	// Apply.
	Seal(ctx context.Context, b *Board, season SeasonID, amendment Amendment) (SeasonRecord, error)
	// Amend replaces the final standings of a sealed season, as Seal does. If the
	// season is not sealed, it returns [ErrNotSealed]. A Seal that returns after such
	// an Amend, even one that started earlier, includes all changes made before the
	// call of Amend. Call Amend after changing an entry of a season that may already
	// be sealed.
	Amend(ctx context.Context, b *Board, season SeasonID, amendment Amendment) (SeasonRecord, error)
	// FinalStandings returns up to n final standings, beginning at a position, and
	// the total number. Positions count from 1. Errors: [ErrNotSealed].
	FinalStandings(ctx context.Context, l Ladder, position int64, n int) ([]Standing, int64, error)
	// FinalStanding returns a user's final standing.
	// Errors: [ErrNotSealed], [ErrEntryNotFound].
	FinalStanding(ctx context.Context, l Ladder, user UserID) (Standing, error)
	// DeleteSeason removes everything kept about a season. It returns nil if the
	// store knows nothing of the season. If at is not zero, and the board exists, the
	// season then rejects each result that was received at the time at or earlier, with
	// [ReasonDeleted].
	DeleteSeason(ctx context.Context, s SeasonKey, at time.Time) error
}

// APIKey is a caller's credential, without its secret.
type APIKey struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`   // for operators
	Hash      [32]byte  `json:"hash"`   // SHA-256 of the secret
	Scopes    []string  `json:"scopes"` // read, submit, admin
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"` // zero means never

	// Boards and BoardPrefixes name the boards that the key is for, by their ids and
	// by the beginnings of their ids. If both are empty, the key is for all boards.
	Boards        []BoardID `json:"boards,omitempty"`
	BoardPrefixes []string  `json:"board_prefixes,omitempty"`
	// Insecure marks a key that a server without keys created, where every caller may
	// create one. Servers that require keys refuse it.
	Insecure bool `json:"insecure,omitempty"`
}

// APIKeyStore is the part of [Store] that keeps API keys.
type APIKeyStore interface {
	// PutAPIKey keeps a key. It replaces a key with the same id.
	PutAPIKey(ctx context.Context, k APIKey) error
	// APIKey returns the key with a hash, or [ErrAPIKeyNotFound].
	APIKey(ctx context.Context, hash [32]byte) (APIKey, error)
	// APIKeys returns all keys, ordered by id.
	APIKeys(ctx context.Context) ([]APIKey, error)
	// DeleteAPIKey removes the key with an id, or returns [ErrAPIKeyNotFound].
	DeleteAPIKey(ctx context.Context, id string) error
}

// AuditStore is the part of [Store] that keeps the audit log. Acts are appended, and
// never changed or removed, except that [UserStore].Erase removes the ActDetail of the
// acts that concern the user.
type AuditStore interface {
	// AppendAct appends an act. Appending an equal act again changes nothing. If the
	// act's user was erased at the act's time or later, AppendAct keeps the act without
	// its ActDetail.
	AppendAct(ctx context.Context, a Act) error
	// Acts yields the acts, ordered by [ActKey.Compare]: the newest first. It begins
	// after the act with the given key, or with the newest if the key is empty.
	Acts(ctx context.Context, after ActKey) iter.Seq2[Act, error]
}
