// Package storage is the contract between package engine and a database. A backend stores values,
// and knows nothing about boards, users or ranks.
//
// Keys and values belong to lists, which need not be created. The caller chooses the names of
// lists.
package storage

import (
	"context"
	"iter"
	"math"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Backend is a database. Its methods are safe for concurrent use, stop when ctx is done, and never
// log. A write that returns nil is durable. Any method may return [leaderboard.ErrUnavailable]. A
// write may take effect despite this error.
type Backend interface {
	Registers
	Rows
	Incarnations

	// The rules behind the following methods are still in the backends. Of registers and rows, they
	// change nothing.
	leaderboard.BoardStore
	Results
	leaderboard.EntryStore // StartRecount concerns this region only
	Users
	// Of [leaderboard.SeasonStore].
	ChangedAt(ctx context.Context, s leaderboard.SeasonKey) (time.Time, error)
	NoteChange(ctx context.Context, s leaderboard.SeasonKey, at time.Time) error
	DeletedAt(ctx context.Context, s leaderboard.SeasonKey) (time.Time, error)
	DeleteSeason(ctx context.Context, s leaderboard.SeasonKey, deletedAt time.Time) error
	FinishDeletions(ctx context.Context) error

	// Use must be called before any other method.
	Use(e Engine)
	// Environment returns what the engine must know of the backend.
	Environment() Environment
	// Close releases resources. No method may be called after Close.
	Close() error
}

// Environment describes a backend.
type Environment struct {
	// Region is the name of the region that the process belongs to. Regions that share a database
	// have different names.
	Region string
	// Regions returns the names of all regions that share the database. It is nil if only one process
	// uses the database, and fills its index at each start.
	Regions func(ctx context.Context) ([]string, error)
	// Parallel is how many concurrent calls of the backend one call of the engine may make.
	Parallel int
	Now      func() time.Time
}

// ForEach calls f for each i below n, up to Parallel calls at a time. After the first error, it cancels ctx, starts no more
// calls, and returns the error.
func (e Environment) ForEach(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	if n == 1 {
		return f(ctx, 0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	slots := make(chan struct{}, e.Parallel)
	for i := range n {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := f(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// Register is a value that only Swap changes.
type Register struct {
	Key   string
	Tag   []byte // finds the register; nil for none
	Value []byte // not empty
	// After TTL, the register no longer exists. Zero means that the register does not expire.
	// Either all registers of a list expire or none. An embedded backend need not keep
	// registers that expire after Close.
	TTL time.Duration
}

// Registers keeps registers.
type Registers interface {
	// Register returns the value of a register, or nil if the register does not exist. The
	// returned value is durable: a caller that finds the value it would write is done.
	Register(ctx context.Context, list, key string) ([]byte, error)
	// Registers returns the keys and values of a list that does not expire, ordered by key. If tag is not
	// nil, Registers returns only those with the tag, and may include a register whose tag has
	// just changed.
	Registers(ctx context.Context, list string, tag []byte) ([]Register, error)
	// Swap replaces a register whose value is old, and reports whether it did. If old is nil, the
	// register must not exist. If r.Value is nil, Swap removes the register, which must not be
	// one that expires. Of several concurrent calls for one old value, at most one returns true.
	//
	// Swap may have replaced the register despite [leaderboard.ErrUnavailable]. A caller that
	// repeats its change finds out: Swap then returns false, and Register the caller's own value.
	Swap(ctx context.Context, list string, old []byte, r Register) (bool, error)
}

// Row is a key of a list, and its value.
type Row struct {
	Key   []byte // not empty
	Value []byte // not empty; nil removes the row
}

// RowWrite is a write of one row.
type RowWrite struct {
	List string
	Row
	// Version decides between the writes of one key: the greatest version wins. Of two writes
	// with one version, a removal wins, and otherwise the greater value. So the order and the
	// repetition of writes do not matter.
	Version int64
	// Forget, of a removal, means that this process makes no write of the key with a lower version
	// at the same time or later. A backend of one process then keeps nothing of the row, not even its
	// key.
	Forget bool
}

// RowKey identifies a row.
type RowKey struct {
	List string
	Key  []byte
}

// RowRange selects the first rows of a list whose keys begin with Prefix and are greater than After.
type RowRange struct {
	List   string
	Prefix []byte // not empty, and not all 0xff
	After  []byte
	Limit  int // at least 1
}

// Transient is the prefix of the names of lists whose rows are removed often. A removed row of such
// a list may come back if an older write of it follows.
const Transient = "transient/"

// Last is a version for RemoveRows. The caller is sure that no write of the lists follows.
const Last = math.MaxInt64

// ListRow is a row and its list.
type ListRow struct {
	List string
	Row
}

// Rows keeps rows.
type Rows interface {
	// WriteRows writes rows in the given order. A backend that can makes all writes visible
	// together. Otherwise, consecutive writes of one list usually become visible together.
	WriteRows(ctx context.Context, writes ...RowWrite) error
	// WriteAll is WriteRows in any order. It may cost less.
	WriteAll(ctx context.Context, writes ...RowWrite) error
	// RemoveRows removes the rows of lists whose versions are at most the given version. Later
	// writes of such versions have no effect, unless version is [Last].
	RemoveRows(ctx context.Context, version int64, lists ...string) error
	// Rows yields the rows of a list whose keys are greater than after, ordered by key. It yields
	// at most one error, as its last element.
	Rows(ctx context.Context, list string, after []byte) iter.Seq2[Row, error]
	// ListRows yields the rows of different lists whose keys begin with prefix. The rows of one
	// list are ordered by key. It yields at most one error, as its last element. The prefix must
	// not begin with the byte 255.
	ListRows(ctx context.Context, lists []string, prefix []byte) iter.Seq2[ListRow, error]
	// RowValues returns the values of rows of lists that are not transient, in the order of keys, and nil for a row that does not
	// exist. It reads all rows of one list together, and several lists at the same time.
	RowValues(ctx context.Context, keys ...RowKey) ([][]byte, error)
	// RowRanges returns the rows of each range, ordered by key, of lists that are not transient. It reads several ranges at the same
	// time.
	RowRanges(ctx context.Context, ranges ...RowRange) ([][]Row, error)
}

// Incarnation is a season from its creation to its deletion.
type Incarnation struct {
	leaderboard.SeasonKey
	// ID is different for all incarnations of all seasons. It has no zero byte.
	ID        string
	Deletions int // of the season, before this incarnation
	Open      bool
	// BoardMade is CreatedAt of the season's board.
	BoardMade time.Time
	Rules     int // see [leaderboard.Board].Rules
}

// Of reports whether i is open, and of a season of b.
func (i *Incarnation) Of(b *leaderboard.Board) bool {
	return i.Open && i.BoardMade.Equal(leaderboard.Truncate(b.CreatedAt))
}

// Incarnations keeps the incarnations of seasons.
type Incarnations interface {
	// Incarnation returns the open incarnation of a season, or one that is not Open. If mayBeOld is
	// true, it may cost less, and the incarnation may have ended.
	Incarnation(ctx context.Context, s leaderboard.SeasonKey, mayBeOld bool) (Incarnation, error)
	// Incarnations returns the open incarnations of a board's seasons, ordered by season. Maybe
	// some have no data.
	Incarnations(ctx context.Context, id leaderboard.BoardID) ([]Incarnation, error)
	// OpenIncarnation is Incarnation, with mayBeOld, for a season of b. If no incarnation is open,
	// it opens one. Errors: [leaderboard.ErrBoardNotFound] if b was deleted.
	OpenIncarnation(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID) (Incarnation, error)
}

// Engine is what a backend calls. An interrupted call of the backend repeats its calls of Engine.
type Engine interface {
	Finals
	Accounts
	Matches
	// Remove announces the end of an incarnation to other regions, and removes its final standings and matches. A
	// deletion first ends the incarnation, so that Incarnation no longer returns it. If there are several regions, it
	// then calls Remove before it removes other data.
	Remove(ctx context.Context, i *Incarnation) error
}

// Finals is what a backend must know and tell about final standings.
type Finals interface {
	// SealedRules reports whether a season is sealed, and the Rules of its final standings. It
	// only reads.
	SealedRules(ctx context.Context, i *Incarnation) (rules int, sealed bool, err error)
	// Overtake is SealedRules. Moreover, if a concurrent Seal returns after Overtake, the final
	// standings include all changes made before the call of Overtake.
	Overtake(ctx context.Context, i *Incarnation) (rules int, sealed bool, err error)
	// RemoveUsers removes what [Engine].Remove leaves of users' final standings.
	RemoveUsers(ctx context.Context, i *Incarnation, users []leaderboard.UserID) error
	// Erase removes a user from the final standings, after the user's entry was removed. The other
	// users keep their ranks.
	Erase(ctx context.Context, i *Incarnation, user leaderboard.UserID) error
}

// MaxVersion is the highest version of an entry. The versions above [MaxResultVersion] are for
// retractions, the lower half, and for bans and erasures, both halves.
const (
	MaxVersion       = 1 << 61
	MaxResultVersion = MaxVersion - VersionRoom
	VersionRoom      = 1 << 58
)

// MaxEpoch is the greatest [Account].Epoch.
const MaxEpoch = 1<<19 - 1

// Account is a user's account, as the seasons of one board follow it: bans that concern the board, and
// erasures.
type Account struct {
	Serial   uint64 // grows with each change of these bans, and begins again with each erasure
	Hidden   bool
	Epoch    int64     // the number of erasures
	Base     uint64    // entries from before the last erasure have lower versions
	ErasedAt time.Time // zero if the user was never erased
}

// Version is the version of an entry without results.
func (a *Account) Version() uint64 { return a.Base + a.Serial }

// Accounts reads accounts for a backend, and announces to other regions what they must repeat.
type Accounts interface {
	// Account returns a user's account for the seasons of b. It reads rows.
	Account(ctx context.Context, user leaderboard.UserID, b *leaderboard.Board) (Account, error)
	// AnnounceErasure must be called before data of a season from before an erasure is removed, unless
	// ChangeAccount removes it for an Erasure.
	AnnounceErasure(ctx context.Context, s leaderboard.SeasonKey, user leaderboard.UserID) error
}

// AccountChange is a change of a user's account.
type AccountChange struct {
	User leaderboard.UserID
	At   time.Time
	// Erasure means that the user is erased. Repeated means that another process announced the
	// change, and that the user's data may be from after the erasure.
	Erasure, Repeated bool

	List   string     // the rows of the account
	Writes []RowWrite // of List and other lists
	// Read decodes the rows of List, after Writes, for the following functions. It must not write.
	// Without the bans on single boards, it returns the account.
	Read func(rows iter.Seq2[Row, error]) (Account, error)
	// Seasons returns the seasons that must follow the account: those that UserSeasons returns after
	// Read, and seasons from an announcement.
	Seasons func(ctx context.Context, ofUser []leaderboard.SeasonKey) ([]leaderboard.SeasonKey, error)
	// On returns the account for the seasons of a board, and whether the change concerns the board.
	On func(b *leaderboard.Board) (acc Account, concerned bool)
}

// Users keeps what the seasons have of each user.
type Users interface {
	// UserSeasons is that of [leaderboard.UserStore].
	UserSeasons(ctx context.Context, user leaderboard.UserID) ([]leaderboard.SeasonKey, error)
	// HighestVersion returns the highest version of a user's entries.
	HighestVersion(ctx context.Context, user leaderboard.UserID) (uint64, error)
	// ChangeAccount makes the writes of c. Then it hides, shows or erases the entries of the user, and
	// returns the changes of entries, also those without a new version. A backend that can makes all
	// of this visible together. Otherwise, an interrupted call may be repeated, and concurrent calls
	// end with entries that follow the account with all writes.
	//
	// If an entry has a lower version than the Base of the account, ChangeAccount removes what the
	// season has of the user, and calls [Finals].Erase. If c.Read returns an error, ChangeAccount changes
	// no entry, and returns the error.
	ChangeAccount(ctx context.Context, c *AccountChange) ([]leaderboard.Change, error)
}

// Results keeps match results. Its other methods are those of [leaderboard.ResultStore].
type Results interface {
	// Apply is that of [leaderboard.ResultStore], on a board with Matches with the Voids that [Matches]
	// returns. It reports whether the stored board has Matches.
	Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (_ leaderboard.ApplyReport, hasMatches bool, _ error)
	Result(ctx context.Context, key leaderboard.ResultKey) (leaderboard.Record, error)
	RecentRefusals(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey) ([]leaderboard.RecentRefusal, error)
	Results(ctx context.Context, s leaderboard.SeasonKey, user leaderboard.UserID) iter.Seq2[leaderboard.MatchResult, error]
	Records(ctx context.Context, s leaderboard.SeasonKey, u leaderboard.UserID, m leaderboard.MatchID) iter.Seq2[leaderboard.MatchRecord, error]
	Users(ctx context.Context, s leaderboard.SeasonKey) iter.Seq2[leaderboard.UserID, error]
	HasUsers(ctx context.Context, s leaderboard.SeasonKey) (bool, error)
	UnregisteredUsers(ctx context.Context) iter.Seq2[leaderboard.EntryKey, error]
}

// Matches is what a backend must know about the matches of boards with Matches.
type Matches interface {
	// Voids returns the Voids of the matches that were ever voided. It reads rows.
	Voids(ctx context.Context, i *Incarnation, matches []leaderboard.MatchID) (map[leaderboard.MatchID]int64, error)
	// Unlist returns writes that remove an erased user from matches. They must be made before the user's results are
	// removed, or together with this. acc is the account after the erasure.
	Unlist(i *Incarnation, user leaderboard.UserID, matches []leaderboard.MatchID, acc *Account) []RowWrite
}
