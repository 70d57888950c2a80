package leaderboard

import (
	"context"
	"iter"
	"time"
)

// Store keeps boards, match results and the entries that follow from them. Every
// implementation passes storagetest.Run.
//
// Methods are safe for concurrent use, stop when ctx is done, and never log. A write that
// returns nil is durable. Every call may be repeated. Any method may return
// [ErrUnavailable]. A write may take effect despite this error. Stored instants have a
// resolution of one microsecond.
//
// A sequence yields at most one error, as its last element. BansEnding and RankChanges may
// yield several errors, and elements after an error.
type Store interface {
	BoardStore
	ReservationStore
	ResultStore
	MatchStore
	EntryStore
	UserStore
	SeasonStore
	RankChangeStore
	APIKeyStore
	AuditStore
	ProfileStore

	// Close releases resources. No method may be called after Close.
	Close() error
}

// BoardStore keeps boards.
type BoardStore interface {
	// CreateBoard stores a new board, which must be valid. If a board with the id exists,
	// CreateBoard changes nothing: it returns nil if the boards are the same
	// ([Board.SameAs]), and [ErrBoardExists] otherwise.
	CreateBoard(ctx context.Context, b Board) error
	// Board returns a board, which the caller may modify. Errors: [ErrBoardNotFound].
	Board(ctx context.Context, id BoardID) (Board, error)
	// Boards returns all boards, ordered by id.
	Boards(ctx context.Context) ([]Board, error)
	// AmendBoard edits a copy of the board, and stores and returns the result of
	// [Board.Amend]. If a concurrent AmendBoard stores first, AmendBoard calls edit again
	// with the newer board. Errors: [ErrBoardNotFound], those of edit and of [Board.Amend].
	AmendBoard(ctx context.Context, id BoardID, edit func(*Board) error) (Board, error)
	// DeleteBoard removes a board and all its data. A later board with the same id
	// starts empty. If deletedAt is not zero, the later board, unless linked, rejects results
	// received at deletedAt or earlier, with [ReasonDeleted]. Errors: [ErrBoardNotFound].
	DeleteBoard(ctx context.Context, id BoardID, deletedAt time.Time) error
}

// ApplyReport is the answer to an Apply.
type ApplyReport struct {
	Outcomes []Outcome // for each result, in the order of the results
	Changes  []Change  // for each user and season whose entry has a new Version
}

// EntryKey identifies an entry.
type EntryKey struct {
	SeasonKey
	User UserID
}

// Record is everything that a season has about one match result.
type Record struct {
	// Result is the result that stands, or nil if every result was refused.
	Result *MatchResult
	// Refusals do not include recent refusals: see [Reason.IsRecent].
	// Refusals are ordered by Revision, then by ReceivedAt.
	Refusals []Refusal
}

// MatchRecord is the record of one of a user's matches.
type MatchRecord struct {
	Match MatchID
	Record
}

// Reservation is a caller's right, determined by the fields that are set in Key:
//   - all fields: to submit one revision of a match result
//   - Board and Season: to seal, amend or delete the season
//   - Board: to fill the board, or to finish a change of its divisions
type Reservation struct {
	Key      ResultKey
	Revision int64
	Holder   string // unique to the caller
	At       time.Time
	Until    time.Time // at most an hour after At; zero ends the holder's reservation
}

// Grants reports whether r may replace the stored reservation of the same Key: stored has
// a lower revision, has ended, or has the holder and revision of r.
func (r *Reservation) Grants(stored *Reservation) bool {
	return r.Revision > stored.Revision || !stored.Until.After(r.At) || r.Holder == stored.Holder && r.Revision == stored.Revision
}

// ReservationStore keeps reservations.
type ReservationStore interface {
	// Reserve stores r and returns true if no reservation has its Key, or if r may replace
	// the stored reservation ([Reservation.Grants]). Of several concurrent calls for one
	// revision, one returns true. Apply ignores reservations. An embedded store need not
	// keep reservations after Close.
	Reserve(ctx context.Context, r Reservation) (bool, error)
}

// ResultStore keeps match results.
type ResultStore interface {
	// Apply merges results into the stored results by [Board.Merge] and updates the entries
	// of their users. b must be a board as the store returned it. All results must be of b,
	// have a season, and have valid ids and revisions. Apply merges one user's results in
	// the given order. A recent refusal ([Reason.IsRecent]) does not make a [Record] and does not
	// begin a season. If the board has [MaxBoardSeasons], Apply decides about results of other
	// seasons by [Board.RefuseSeason]. It may exceed the limit slightly if concurrent calls begin
	// seasons. Boards whose schedule is None or Explicit have no limit.
	//
	// The results and the entry of one user change atomically, for readers and after a
	// crash. Apply returns an error only if it applied none of the results. Errors:
	// [ErrBoardNotFound] if b was deleted, even if a new board has the same id.
	Apply(ctx context.Context, b *Board, results []MatchResult) (ApplyReport, error)
	// Result returns the record of a match result, or [ErrResultNotFound].
	Result(ctx context.Context, key ResultKey) (Record, error)
	// RecentRefusals returns the recent refusals of a match result, ordered by season, then by
	// Revision, then by ReceivedAt. If key.Season is empty, it returns those of all seasons. It omits
	// refusals that a deletion of the season or of b has deleted: see [Board.IsDeleted].
	RecentRefusals(ctx context.Context, b *Board, key ResultKey) ([]RecentRefusal, error)
	// Results yields a user's results that stand in a season, including retractions, ordered
	// by match id.
	Results(ctx context.Context, s SeasonKey, user UserID) iter.Seq2[MatchResult, error]
	// Records yields the records of a user's matches in a season, ordered by match id. It
	// yields only matches whose ids are greater than the parameter after.
	Records(ctx context.Context, s SeasonKey, user UserID, after MatchID) iter.Seq2[MatchRecord, error]
	// Users yields each user with a [Record] in the season once, in any order.
	Users(ctx context.Context, s SeasonKey) iter.Seq2[UserID, error]
	// HasUsers reports whether Users yields any user. Its cost does not grow with the number
	// of users.
	HasUsers(ctx context.Context, s SeasonKey) (bool, error)
	// UnregisteredUsers yields the users with a [Record] whom Users omits, once per season,
	// in any order. Only damaged data has such users. Users yields them after a Recount.
	// UnregisteredUsers reads every result in the store.
	UnregisteredUsers(ctx context.Context) iter.Seq2[EntryKey, error]
}

// MatchStore keeps the states of matches, on boards whose [Board].Matches is true. On such
// a board, Apply gives each result the Voids of its match.
type MatchStore interface {
	// SetMatch merges m into the stored state by [MergeMatch], and returns the merged
	// state. Each result that Apply stores later gets the new Voids. For earlier results,
	// the caller must apply a VoidOnly result for each user whom MatchUsers yields.
	//
	// The deletion of a season also deletes the states of its matches. If the season or the
	// board was deleted at m.At or later, SetMatch changes nothing and returns the stored
	// state. Errors: [ErrBoardNotFound], as in Apply.
	SetMatch(ctx context.Context, b *Board, m MatchState) (MatchState, error)
	// Match returns the state of a match. If no state is stored, only the MatchKey is set.
	Match(ctx context.Context, key MatchKey) (MatchState, error)
	// Matches yields the states that SetMatch stored in a season, ordered by match id.
	Matches(ctx context.Context, s SeasonKey) iter.Seq2[MatchState, error]
	// MatchUsers yields each user with a result of a match, and maybe other users, in any
	// order. It may omit the user of a concurrent Apply. If SetMatch returned before
	// MatchUsers began, this Apply sets the new Voids.
	MatchUsers(ctx context.Context, key MatchKey) iter.Seq2[UserID, error]
	// MatchIDs yields the ids of a season's matches that begin with prefix and are greater
	// than after, in ascending order: each match with a stored result or a state, and maybe
	// matches whose users were erased. It may omit the match of a concurrent call.
	MatchIDs(ctx context.Context, s SeasonKey, prefix, after MatchID) iter.Seq2[MatchID, error]
	// ListMatches adds a user's stored results to MatchUsers and MatchIDs. After AmendBoard has
	// set Matches, the caller must call StartRecount, and then ListMatches for each user with
	// results. Errors: [ErrBoardNotFound], as in Apply.
	ListMatches(ctx context.Context, b *Board, season SeasonID, user UserID) error
}

// OrphanRow is a row of a ladder that does not match its user's entry.
type OrphanRow struct {
	Division Division
	User     UserID
	Key      SortKey // of the row
}

// EntryStore keeps entries.
type EntryStore interface {
	// Entry returns a user's entry, even if it is hidden. It returns [ErrEntryNotFound] if
	// no result of the user counts.
	Entry(ctx context.Context, s SeasonKey, user UserID) (Entry, error)
	// Entries yields the ranked entries of a ladder in standing order, after the given sort
	// key, or from the top if the key is empty. It yields each entry once, but may repeat or
	// omit an entry that moves meanwhile.
	Entries(ctx context.Context, l Ladder, after SortKey) iter.Seq2[Entry, error]
	// Scan yields every entry of a season whose user belongs to a part, including hidden
	// entries, once and in any order. If an entry changes meanwhile, Scan yields its old or
	// its new state. Scan may read a snapshot taken at its start. The caller may write to
	// the store between two entries.
	Scan(ctx context.Context, s SeasonKey, part Part) iter.Seq2[Entry, error]
	// OrphanRows yields each [OrphanRow] of a season's ladders once, in any order. Damage
	// or the death of a process during a write causes orphan rows. OrphanRows may also
	// yield the row of an entry that moves meanwhile. Entries may omit orphan rows. A
	// Recount of the user removes them.
	OrphanRows(ctx context.Context, s SeasonKey) iter.Seq2[OrphanRow, error]
	// RemoveOrphanRows reads ladders of all seasons for about the given time, and removes
	// orphan rows. It returns the number of removed rows. It keeps rows that the entry of an
	// unfinished Apply may need, and rows of damaged data. Each call continues where the
	// previous one stopped. After the last ladder, RemoveOrphanRows returns early, and the
	// next call begins with the first one.
	RemoveOrphanRows(ctx context.Context, limit time.Duration) (removed int64, err error)
	// Recount computes a user's entry from the results that stand, and repairs the user's
	// rows in every ladder. It uses the rules of the stored board, even if b is older. It
	// returns the stored entry as Before and the computed entry as After. These differ only
	// if the data was damaged, or after a change of the divisions or an early end of the
	// season. After an early end, the caller must call Recount for each user with results
	// that no longer count. Errors: [ErrBoardNotFound], as in Apply.
	Recount(ctx context.Context, b *Board, season SeasonID, user UserID) (Change, error)
	// StartRecount makes each season of the board, except sealed seasons, follow the
	// divisions of b. The caller must call StartRecount after AmendBoard has changed the
	// divisions. StartRecount returns the seasons that follow the divisions of b.
	//
	// Entries created after StartRecount have the new divisions. An older entry gets them in
	// a Recount of its user. A call of Users after StartRecount yields all users with older
	// entries. Errors: [ErrBoardNotFound], as in Apply.
	StartRecount(ctx context.Context, b *Board) ([]SeasonID, error)
}

// UserStore keeps bans, erases users, and lists users' seasons.
type UserStore interface {
	// SetBan merges ban into the stored state by [MergeBan]. While Banned is set, the user's
	// present and later entries are hidden. A ban on one board also hides the entries on the
	// boards linked to it. The user's results are still accepted and counted.
	//
	// SetBan returns the changed entries. In some, only the Version may have changed. Bans
	// outlive the deletion of their board, and apply to a later board with the same id.
	SetBan(ctx context.Context, ban Ban) ([]Change, error)
	// UserBans returns the bans of a user, including lifted bans: first the ban on every
	// board, then those on single boards, ordered by board. Lifted bans whose Revision is 0
	// may be missing.
	UserBans(ctx context.Context, user UserID) ([]Ban, error)
	// Bans yields the bans of all users, including lifted bans, after the given key, or from
	// the first ban if the key is empty. The order of users depends on the store. The bans
	// of one user are consecutive, in the order of UserBans.
	Bans(ctx context.Context, after BanKey) iter.Seq2[Ban, error]
	// BansEnding yields the bans whose Until is set and before the given time, including
	// lifted bans, ordered by Until. In place of a damaged ban, it yields [ErrFormat] and
	// continues.
	BansEnding(ctx context.Context, before time.Time) iter.Seq2[Ban, error]
	// Erase removes all data of a user: results, refusals, entries, final standings and
	// their marks, bans, the details of acts, and the profile. Afterwards the store rejects each result
	// of the user received at erasedAt or earlier. To recognize the user, the store keeps a
	// value from which the id cannot be read.
	//
	// The user's later entries have greater versions than the erased entries. In final
	// standings, the other users keep their ranks. Erase returns the changed entries. Their
	// After has no Key.
	Erase(ctx context.Context, user UserID, erasedAt time.Time) ([]Change, error)
	// UserSeasons returns the seasons in which a user has a [Record], ordered by board and
	// season.
	UserSeasons(ctx context.Context, user UserID) ([]SeasonKey, error)
}

// Amendment records why the final standings of a season were replaced.
type Amendment struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"` // it must not name a user
}

// FinalMark means that the final standings of a sealed season may lack a change of a user's
// entry: see [SeasonStore].MarkFinal.
type FinalMark struct {
	SeasonKey
	User   UserID
	ID     string // distinguishes the marks of a user
	Reason string // of the Amendment that is due
}

// SeasonRecord is the state of a season in the store.
type SeasonRecord struct {
	SeasonKey
	SealedAt   time.Time // zero if the season is not sealed
	Amendments []Amendment
	// Rules identifies the divisions of the season's entries: see [Board.Rules]. Rules does
	// not change while the season is sealed. Without data of the season, it has no meaning.
	Rules int `json:",omitzero"`
}

// SeasonStore keeps seasons and their final standings.
type SeasonStore interface {
	// Seasons returns the seasons of a board that have a [Record] or are sealed, ordered by
	// id.
	Seasons(ctx context.Context, id BoardID) ([]SeasonRecord, error)
	// SeasonIDs returns the ids of the seasons that Seasons returns, and maybe others,
	// ordered by id. It costs less than Seasons.
	SeasonIDs(ctx context.Context, id BoardID) ([]SeasonID, error)
	// Season returns the state of a season. Without data of the season, only the SeasonKey
	// is set.
	Season(ctx context.Context, s SeasonKey) (SeasonRecord, error)
	// ChangedAt returns the time of the last change of a season's entries, or the zero time
	// if no entry changed. The time is the latest of:
	//   - ReceivedAt of each result that Apply stored
	//   - At of each ban that SetBan stored
	//   - the time of each Erase that removed an entry
	//
	// If many processes write a season, a store may instead keep only the times that the
	// callers of NoteChange give.
	ChangedAt(ctx context.Context, s SeasonKey) (time.Time, error)
	// NoteChange states that entries of a season changed at a time. A caller that changes entries must call it
	// after the change, and before it acknowledges the change. A store that keeps the times of
	// changes itself ignores the call. Without data of the season, NoteChange does nothing.
	NoteChange(ctx context.Context, s SeasonKey, at time.Time) error
	// DeletedAt returns the time at which the season, or a board with the season's board id,
	// was last deleted. Without deletions, it returns the zero time.
	DeletedAt(ctx context.Context, s SeasonKey) (time.Time, error)
	// Seal computes the final standings of a season from the current entries, and sets
	// SealedAt. If the season is already sealed, Seal changes nothing and returns the
	// record. Of several concurrent calls, one seals the season. The caller must make sure
	// that the season is closed. Errors: [ErrBoardNotFound], as in Apply.
	Seal(ctx context.Context, b *Board, season SeasonID, sealedAt time.Time) (SeasonRecord, error)
	// MarkFinal writes a [FinalMark] for each of users. The caller must call MarkFinal after
	// it changes entries in a season that may be sealed, and before it acknowledges the
	// change. While the marks exist, an Amend for these users is due.
	//
	// If the season is not sealed, MarkFinal returns [ErrNotSealed]. If a concurrent Seal
	// returns after MarkFinal, one of two cases holds:
	//   - MarkFinal has written the marks.
	//   - The final standings include all changes made before the call of MarkFinal.
	MarkFinal(ctx context.Context, b *Board, season SeasonID, users []UserID, reason string) error
	// FinalMarks yields the marks that RemoveFinalMarks has not removed, in any order. If
	// several regions share the data, each region has its own marks. Marks of a deleted
	// season may remain.
	FinalMarks(ctx context.Context) iter.Seq2[FinalMark, error]
	// RemoveFinalMarks removes marks that FinalMarks has yielded. Later marks of the same
	// users stay.
	RemoveFinalMarks(ctx context.Context, marks []FinalMark) error
	// Amend replaces the final standings of a sealed season by those of the current entries.
	// It appends the amendment to the season's record, unless the record has it already.
	// Readers see either the old or the new standings, never a mixture.
	//
	// The caller may pass users if only the entries of these users have changed: Amend may
	// cost less. If the final standings of these users agree with their entries, Amend
	// changes nothing and appends no amendment. In this case too, a concurrent Amend that
	// has read older entries reads the entries again.
	//
	// If the season is not sealed, Amend returns [ErrNotSealed]. If a concurrent Seal
	// returns after Amend, the final standings include all changes made before the call of
	// Amend.
	Amend(ctx context.Context, b *Board, season SeasonID, amendment Amendment, users []UserID) (SeasonRecord, error)
	// FinalStandings returns up to n final standings, beginning at a position from 1, and
	// the total number. Errors: [ErrNotSealed].
	FinalStandings(ctx context.Context, l Ladder, position int64, n int) ([]Standing, int64, error)
	// FinalLookup returns the final standings of users, in the order given, and the total
	// number. For a user without a final standing, Key is empty. Errors: [ErrNotSealed].
	FinalLookup(ctx context.Context, l Ladder, users []UserID) ([]Standing, int64, error)
	// FinalAround is [Ranker].Around for final standings. It also returns their total
	// number. Erased users keep their positions, and count in the parameters above and below
	// and in NotWorse. Errors: [ErrNotSealed], [ErrEntryNotFound].
	FinalAround(ctx context.Context, l Ladder, user UserID, above, below int) (Neighborhood, int64, error)
	// FinalAfter returns up to n final standings that follow a sort key, and the total
	// number. If the key is a rank key or a prefix of a rank key, FinalAfter also returns
	// the Counts for the key. Errors: [ErrNotSealed].
	FinalAfter(ctx context.Context, l Ladder, after SortKey, n int) ([]Standing, Counts, int64, error)
	// DeleteSeason removes all data of a season, if any. If deletedAt is not zero and the
	// board exists, the season afterwards rejects results received at deletedAt or earlier,
	// with [ReasonDeleted].
	DeleteSeason(ctx context.Context, s SeasonKey, deletedAt time.Time) error
	// FinishDeletions removes the data that interrupted calls of DeleteSeason and
	// DeleteBoard have left, and expired refusals ([RefusalTime]). No other method returns such
	// data. The data of a deletion include no recent refusals. FinishDeletions may ignore
	// recent calls, which may still run.
	FinishDeletions(ctx context.Context) error
}

// RankChange is a SetBan or an Erase of a user, a deletion of seasons, or a StartRecount
// that another region called.
type RankChange struct {
	ID      string
	User    UserID      // of a SetBan or an Erase; otherwise empty
	Seasons []SeasonKey // the deleted seasons, or the seasons of User
	Board   BoardID     // of a StartRecount; otherwise empty
	Data    string      // used by the store only
}

// RankChangeStore keeps the changes that an index may lack: an index of another region, or
// one that was unavailable during the change.
type RankChangeStore interface {
	// RankChanges yields the changes that FinishRankChange has not removed, in any order.
	// Each region has its own list of the changes of all regions. An embedded store yields
	// no changes: its process fills the index at each start.
	RankChanges(ctx context.Context) iter.Seq2[RankChange, error]
	// FinishRankChange repeats a SetBan, an Erase or a StartRecount in this region, and calls
	// the function update:
	//   - For a SetBan or an Erase, update gets the user's entries in all seasons of the
	//     change. An entry without a Key means that the user has none.
	//   - For other changes, update gets no entries.
	//   - For a StartRecount, update must recount the users.
	//
	// If update returns nil, FinishRankChange removes the change. Otherwise it returns the
	// error of update.
	FinishRankChange(ctx context.Context, c RankChange, update func([]Entry) error) error
}

// APIKey is a caller's credential, without its secret.
type APIKey struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Hash      [32]byte  `json:"hash"`   // SHA-256 of the secret
	Scopes    []string  `json:"scopes"` // read, submit, admin
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"` // zero means never

	// The key is valid for the boards whose id is in Boards or begins with one of
	// BoardPrefixes. If both are empty, the key is valid for all boards.
	Boards        []BoardID `json:"boards,omitempty"`
	BoardPrefixes []string  `json:"board_prefixes,omitempty"`
	// Insecure means that a server without keys created the key. Servers that require keys
	// reject it.
	Insecure bool `json:"insecure,omitempty"`
}

// APIKeyStore keeps API keys.
type APIKeyStore interface {
	// PutAPIKey stores a key. It replaces any key with the same id.
	PutAPIKey(ctx context.Context, k APIKey) error
	// APIKey returns the key with the given hash, or [ErrAPIKeyNotFound].
	APIKey(ctx context.Context, hash [32]byte) (APIKey, error)
	// APIKeys returns all keys, ordered by id.
	APIKeys(ctx context.Context) ([]APIKey, error)
	// DeleteAPIKey removes the key with an id, or returns [ErrAPIKeyNotFound].
	DeleteAPIKey(ctx context.Context, id string) error
	// NoteAPIKeyUse stores the time of a call with a key, unless a later one is stored.
	NoteAPIKeyUse(ctx context.Context, id string, at time.Time) error
	// APIKeyUses returns the latest times that NoteAPIKeyUse stored, by the ids of keys. Deleted keys may be among them.
	APIKeyUses(ctx context.Context) (map[string]time.Time, error)
}

// AuditStore keeps the audit log. The log is append-only, but [UserStore].Erase removes the
// ActDetail of the acts that concern the user.
type AuditStore interface {
	// AppendAct appends a record of an act, an intent or an outcome. The id must not contain a
	// zero byte. Appending an equal record again changes nothing. If the user of the act was
	// erased at At or later, AppendAct stores the record without its ActDetail.
	AppendAct(ctx context.Context, a Act) error
	// Acts yields the records of all acts, the newest act first ([ActKey.Compare]), after the
	// act with the given key, or from the newest act if the key is empty. The outcome of an
	// act directly precedes its intent.
	Acts(ctx context.Context, after ActKey) iter.Seq2[Act, error]
	// UserActs yields the records that Acts yields and that concern a user, in the same order.
	UserActs(ctx context.Context, user UserID, after ActKey) iter.Seq2[Act, error]
}

// ProfileStore keeps profiles.
type ProfileStore interface {
	// PutProfiles stores profiles of different users. UpdatedAt must be set. If Revision is 0,
	// PutProfiles sets it to [Profile.NextRevision] after the stored profile.
	//
	// The answer has a change for each user, in the order given. After is the stored profile if
	// this has a higher revision, or the same revision and greater contents. If the user was
	// erased at UpdatedAt or later, PutProfiles stores nothing, and After only has the User.
	PutProfiles(ctx context.Context, profiles []Profile) ([]ProfileChange, error)
	// Profile returns the profile of a user, or [ErrProfileNotFound].
	Profile(ctx context.Context, user UserID) (Profile, error)
	// CachedProfiles returns the profiles of users, in the order given. If a user has no profile,
	// [Profile.Exists] is false. A profile has the changes that PutProfiles and Erase of this
	// process made before the call, and the changes of other processes that ended
	// [ProfileStaleness] before the call.
	CachedProfiles(ctx context.Context, users []UserID) ([]Profile, error)
	// FindNames returns the folded display names and ids ([NameMatch]) of users with a profile that
	// begin with a folded text, ordered by Position, after the given position or from the first one.
	// It returns about n matches, and reports whether there may be more. A match may be outdated: it
	// may be that of a former name. The texts are folded and cut by names.Index.
	FindNames(ctx context.Context, prefix, after string, n int) ([]NameMatch, bool, error)
	// AllProfiles yields every profile that exists once, in any order.
	AllProfiles(ctx context.Context) iter.Seq2[Profile, error]
}

// ProfileChange is what a call of PutProfiles found, and what counts afterwards. Of a user without a
// profile, [Profile.Exists] is false.
type ProfileChange struct{ Before, After Profile }

// NameMatch is the folded name or id of a user.
type NameMatch struct {
	User     UserID
	Folded   string
	IsID     bool
	Position string // in the order of Folded; of equal texts, ids come first
}

// ProfileStaleness bounds the age of cached profiles.
const ProfileStaleness = 2 * time.Second
