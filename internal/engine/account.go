package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
	"github.com/open-leaderboard/leaderboard/storage"
)

// # Why bans and erasures need no lock
//
// A user's account is a list with two kinds of rows: the states of the user's bans, and the
// erasures. All writers add rows at one constant version. So the order and the repetition of
// these writes do not matter, even between regions.
//
// A writer first adds a row, and then reads the account: in Cassandra, steps 1 and 2 of a writer in
// storage/cql/state.go. The argument there requires that the account's version only grows. This
// version is the base plus the serials:
//
//   - The epoch is the number of erasures. A state of a ban has an effect only in the epoch
//     in which it was set.
//   - Of the states of a ban, the greatest by [leaderboard.Ban.Compare] stands.
//   - The serial of a ban counts the changes of Banned in its states, sorted by Compare.
//     The count begins with Banned false. A new state never lowers the serial. If the new
//     state hides or shows the user, it raises the serial.
//   - The base is the number from which versions of entries start after an erasure. It is
//     the greatest [erasure].base, plus the steps of all erasures. So each erasure raises
//     the base by at least its step, far above the serials.
//
// Writers remove only states of earlier epochs, which have no effect. A state of a later
// epoch takes effect when the erasure that began this epoch arrives from another region.
//
// A row's key has its kind and a hash of its value. The name of the list has a hash of the user's id,
// as both remain after an erasure.
const (
	banKind     = 'b'
	erasureKind = 'e'

	elementAdded   = int64(1) // versions of rows
	elementRemoved = int64(2)

	elementFormat = 1 // the first byte of a value
)

const (
	// erasureStep is added to the highest version that an erasure has read. Concurrent
	// writers reach the sum only with 4,096 results of the greatest revision.
	erasureStep = 1 << 54
	// lastErasureStep replaces erasureStep above [storage.MaxResultVersion]. A small step is enough:
	// the new base is above every retraction, and a ban raises the version by one.
	lastErasureStep = 1 << 32
)

func hashOf(user leaderboard.UserID) []byte {
	hash := sha256.Sum256([]byte(user))
	return hash[:]
}

func accountList(userHash []byte) string { return "account/" + hex.EncodeToString(userHash) }

// In a userAccount, the Serial and Hidden of the embedded Account are those of the ban on every board.
type userAccount struct {
	storage.Account
	bans []userBan // the standing state of each ban, ordered by board

	outdated [][]byte // keys of the states of earlier epochs
	erasures [][]byte
	steps    uint64
}

type userBan struct {
	leaderboard.Ban
	serial uint64
}

// on returns the account for the seasons of a board. Its Serial grows with every change of a ban
// that concerns the board.
func (a *userAccount) on(board *leaderboard.Board) storage.Account {
	acc := a.Account
	for i := range a.bans {
		if b := &a.bans[i]; b.Board != "" && b.Concerns(board) {
			acc.Serial += b.serial
			acc.Hidden = acc.Hidden || b.Hides(board)
		}
	}
	return acc
}

// versionBound bounds the account's share of any entry's version.
func (a *userAccount) versionBound() uint64 {
	v := a.Version()
	for i := range a.bans {
		if a.bans[i].Board != "" {
			v += a.bans[i].serial
		}
	}
	return v
}

// ban returns the stored state of the ban on a board, or nil.
func (a *userAccount) ban(board leaderboard.BoardID) *leaderboard.Ban {
	for i := range a.bans {
		if a.bans[i].Board == board {
			return &a.bans[i].Ban
		}
	}
	return nil
}

// newElement returns a row of an account.
func newElement(kind byte, value []byte) storage.Row {
	sum := sha256.Sum256(value)
	return storage.Row{Key: append([]byte{kind}, sum[:16]...), Value: value}
}

func newBanElement(epoch int64, b *leaderboard.Ban) (storage.Row, error) {
	text, err := json.Marshal(b)
	if err != nil {
		return storage.Row{}, fmt.Errorf("engine: encode a ban: %w", err)
	}
	return newElement(banKind, append(binary.AppendUvarint([]byte{elementFormat}, uint64(epoch)), text...)), nil
}

func decodeBanElement(value []byte) (epoch int64, b leaderboard.Ban, err error) {
	d := codec.Decoder{Rest: value}
	format := d.Byte()
	if epoch = int64(d.Uvarint()); d.Bad || format != elementFormat {
		return 0, b, fmt.Errorf("engine: ban: %w", leaderboard.ErrFormat)
	}
	return epoch, b, decode("ban", d.Rest, &b)
}

// The field base is the account's new base minus step, and minus the steps of all erasures
// that the writer has read. An erasure that the writer missed adds its own step.
type erasure struct {
	at         time.Time
	base, step uint64
}

func (e *erasure) value() []byte {
	value := binary.AppendVarint([]byte{elementFormat}, e.at.UnixMicro())
	return binary.AppendUvarint(binary.AppendUvarint(value, e.base), e.step)
}

func decodeErasure(value []byte) (erasure, error) {
	d := codec.Decoder{Rest: value}
	format := d.Byte()
	e := erasure{d.Time(), d.Uvarint(), d.Uvarint()}
	if d.Bad || len(d.Rest) > 0 || format != elementFormat {
		return erasure{}, fmt.Errorf("engine: erasure: %w", leaderboard.ErrFormat)
	}
	return e, nil
}

// In nextErasure, highest is the highest version of the user's entries.
func (a *userAccount) nextErasure(at time.Time, highest uint64) (erasure, error) {
	highest = max(a.versionBound(), highest)
	base, step := highest+erasureStep, uint64(erasureStep)
	if base > storage.MaxResultVersion {
		step = lastErasureStep
		base = max(highest, storage.MaxResultVersion+storage.VersionRoom/2) + step
	}
	if base > storage.MaxVersion || a.Epoch >= storage.MaxEpoch {
		return erasure{}, &leaderboard.FieldError{Field: "user_id", Problem: "was erased and banned too often; use another id"}
	}
	return erasure{at, base - step - a.steps, step}, nil
}

func decodeAccount(rows iter.Seq2[storage.Row, error]) (a userAccount, err error) {
	type banState struct {
		key   []byte
		epoch int64
		leaderboard.Ban
	}
	var banStates []banState
	for row, err := range rows {
		if err != nil {
			return userAccount{}, err
		}
		if row.Key[0] == erasureKind {
			if err := a.addErasure(row.Value); err != nil {
				return userAccount{}, err
			}
			continue
		}
		state := banState{key: row.Key}
		if state.epoch, state.Ban, err = decodeBanElement(row.Value); err != nil {
			return userAccount{}, err
		}
		banStates = append(banStates, state)
	}
	a.Base += a.steps
	current := map[leaderboard.BoardID][]leaderboard.Ban{}
	for _, state := range banStates {
		// a state of a later epoch has no effect yet
		if state.epoch == a.Epoch {
			current[state.Board] = append(current[state.Board], state.Ban)
		} else if state.epoch < a.Epoch {
			a.outdated = append(a.outdated, state.key)
		}
	}
	a.setBans(current)
	return a, nil
}

// The caller must add the steps to the Base after the last erasure.
func (a *userAccount) addErasure(value []byte) error {
	e, err := decodeErasure(value)
	if err != nil {
		return err
	}
	if e.at.After(a.ErasedAt) {
		a.ErasedAt = e.at
	}
	a.erasures = append(a.erasures, value)
	a.Base, a.steps, a.Epoch = max(a.Base, e.base), a.steps+e.step, a.Epoch+1
	return nil
}

func (a *userAccount) setBans(states map[leaderboard.BoardID][]leaderboard.Ban) {
	for board, all := range states {
		slices.SortFunc(all, func(x, y leaderboard.Ban) int { return x.Compare(&y) })
		serial, banned := uint64(0), false
		for i := range all {
			if all[i].Banned != banned {
				serial, banned = serial+1, all[i].Banned
			}
		}
		a.bans = append(a.bans, userBan{all[len(all)-1], serial})
		if board == "" {
			a.Serial, a.Hidden = serial, banned
		}
	}
	slices.SortFunc(a.bans, func(x, y userBan) int { return cmp.Compare(x.Board, y.Board) })
}

func (s *Store) account(ctx context.Context, userHash []byte) (userAccount, error) {
	return decodeAccount(s.Rows(ctx, accountList(userHash), nil))
}

// ErasedAt returns the time of the last erasure of a user, or zero.
func (s *Store) ErasedAt(ctx context.Context, user leaderboard.UserID) (time.Time, error) {
	acc, err := s.account(ctx, hashOf(user))
	return acc.ErasedAt, err
}

// accounts implements [storage.Accounts].
type accounts struct{ *Store }

func (s accounts) Account(ctx context.Context, user leaderboard.UserID, b *leaderboard.Board) (storage.Account, error) {
	acc, err := s.account(ctx, hashOf(user))
	return acc.on(b), err
}

func (s accounts) AnnounceErasure(ctx context.Context, key leaderboard.SeasonKey, user leaderboard.UserID) error {
	acc, err := s.account(ctx, hashOf(user))
	if err != nil {
		return err
	}
	return s.announceElsewhere(ctx, &storedChange{User: user, Erasures: acc.erasures, Seasons: []leaderboard.SeasonKey{key}})
}

// An accountChange adds rows to an account.
type accountChange struct {
	*Store
	storedChange
	ban    leaderboard.Ban // its Board is empty if the change concerns every board
	at     time.Time
	writes []storage.RowWrite

	erases, repeated bool // see [storage.AccountChange]

	acc userAccount // after the writes
}

func (c *accountChange) add(row storage.Row) {
	c.writes = append(c.writes, storage.RowWrite{List: accountList(hashOf(c.User)), Row: row, Version: elementAdded})
}

// run changes the account, and removes states of bans without effect. Each has the user's id.
func (c *accountChange) run(ctx context.Context) ([]leaderboard.Change, error) {
	list := accountList(hashOf(c.User))
	changes, err := c.ChangeAccount(ctx, &storage.AccountChange{
		User: c.User, At: c.at, Erasure: c.erases, Repeated: c.repeated, List: list, Writes: c.writes,
		Read: func(rows iter.Seq2[storage.Row, error]) (_ storage.Account, err error) {
			c.acc, err = decodeAccount(rows)
			return c.acc.Account, err
		},
		Seasons: c.addSeasons,
		On:      func(b *leaderboard.Board) (storage.Account, bool) { return c.acc.on(b), c.ban.Concerns(b) },
	})
	if err != nil || len(c.acc.outdated) == 0 {
		return changes, err
	}
	var removals []storage.RowWrite
	for _, key := range c.acc.outdated {
		removals = append(removals, storage.RowWrite{List: list, Row: storage.Row{Key: key}, Version: elementRemoved})
	}
	return changes, c.WriteRows(ctx, removals...)
}

func withNewVersion(changes []leaderboard.Change) []leaderboard.Change {
	return slices.DeleteFunc(changes, func(c leaderboard.Change) bool { return c.Before.Version == c.After.Version })
}
