package cql

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
)

// # Why bans and erasures need no lock
//
// A row of the table accounts has two sets: the states of the user's bans, and the
// erasures. All writers add elements at one constant timestamp. So the order and the
// repetition of these writes do not matter, even between data centers.
//
// A writer first adds an element, and then reads the account: steps 1 and 2 in state.go.
// The argument there requires that the account's version only grows. This version is the
// base plus the serials:
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
// epoch takes effect when the erasure that began this epoch arrives from another data
// center.

type accountRow struct{ bans, erasures map[string][]byte }

func (r *accountRow) dest() []any { return []any{&r.bans, &r.erasures} }

// In a userAccount, the embedded Serial and Hidden are those of the ban on every board.
type userAccount struct {
	account
	bans []userBan // the standing state of each ban, ordered by board

	outdated []string // element names of the states of earlier epochs
	erasures [][]byte
	steps    uint64
}

type userBan struct {
	leaderboard.Ban
	serial uint64
}

// accountOn returns the account for the seasons of a board. Its Serial grows with every
// change of a ban that concerns the board.
func (a *userAccount) accountOn(board *leaderboard.Board) account {
	acc := a.account
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
	v := a.version()
	for i := range a.bans {
		if a.bans[i].Board != "" {
			v += a.bans[i].serial
		}
	}
	return v
}

// An element is a member of one of the two sets.
type element struct {
	name  string
	value []byte
}

const ( // write timestamps
	elementAdded   = int64(1)
	elementRemoved = int64(2)
)

func newElement(value []byte) element {
	sum := sha256.Sum256(value)
	return element{fmt.Sprintf("%x", sum[:16]), value}
}

func newBanElement(epoch int64, b *leaderboard.Ban) (element, error) {
	text, err := json.Marshal(b)
	if err != nil {
		return element{}, fmt.Errorf("cql: encode a ban: %w", err)
	}
	return newElement(append(binary.AppendUvarint([]byte{codecFormat}, uint64(epoch)), text...)), nil
}

func decodeBanElement(value []byte) (epoch int64, b leaderboard.Ban, err error) {
	d := codec.Decoder{Rest: value}
	format := d.Byte()
	if epoch = int64(d.Uvarint()); d.Bad || format != codecFormat {
		return 0, b, errFormat("ban")
	}
	return epoch, b, decodeBan(d.Rest, &b)
}

// The field base is the account's new base minus step, and minus the steps of all erasures
// that the writer has read. An erasure that the writer missed adds its own step.
type erasure struct {
	at         time.Time
	base, step uint64
}

func (e *erasure) element() element {
	value := binary.AppendVarint([]byte{codecFormat}, e.at.UnixMicro())
	return newElement(binary.AppendUvarint(binary.AppendUvarint(value, e.base), e.step))
}

func decodeErasure(value []byte) (erasure, error) {
	d := codec.Decoder{Rest: value}
	format := d.Byte()
	e := erasure{d.Time(), d.Uvarint(), d.Uvarint()}
	if d.Bad || len(d.Rest) > 0 || format != codecFormat {
		return erasure{}, errFormat("erasure")
	}
	return e, nil
}

// In nextErasure, highest is the highest version of the user's entries.
func (a *userAccount) nextErasure(at time.Time, highest uint64) (erasure, error) {
	highest = max(a.versionBound(), highest)
	base := erasedBase(highest)
	if base > maxVersion || a.Epoch >= maxEpoch {
		return erasure{}, &leaderboard.FieldError{Field: "user_id", Problem: "was erased and banned too often; use another id"}
	}
	step := uint64(erasureStep)
	if base > maxResultVersion {
		step = lastErasureStep
	}
	return erasure{at, base - step - a.steps, step}, nil
}

func (r *accountRow) decode() (a userAccount, err error) {
	for _, value := range r.erasures {
		e, err := decodeErasure(value)
		if err != nil {
			return userAccount{}, err
		}
		if e.at.After(a.ErasedAt) {
			a.ErasedAt = e.at
		}
		a.erasures = append(a.erasures, value)
		a.Base, a.steps, a.Epoch = max(a.Base, e.base), a.steps+e.step, a.Epoch+1
	}
	a.Base += a.steps
	states := map[leaderboard.BoardID][]leaderboard.Ban{}
	for name, value := range r.bans {
		epoch, ban, err := decodeBanElement(value)
		if err != nil {
			return userAccount{}, err
		}
		// a state of a later epoch has no effect yet
		if epoch == a.Epoch {
			states[ban.Board] = append(states[ban.Board], ban)
		} else if epoch < a.Epoch {
			a.outdated = append(a.outdated, name)
		}
	}
	slices.Sort(a.outdated)
	a.setBans(states)
	return a, nil
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

func decodeBan(text []byte, b *leaderboard.Ban) error {
	if err := json.Unmarshal(text, b); err != nil {
		return fmt.Errorf("cql: ban: %w: %w", leaderboard.ErrFormat, err)
	}
	return nil
}

func banOf(a *userAccount, board leaderboard.BoardID) *leaderboard.Ban {
	for i := range a.bans {
		if a.bans[i].Board == board {
			return &a.bans[i].Ban
		}
	}
	return nil
}

func (s *Store) readAccount(ctx context.Context, user leaderboard.UserID) (userAccount, error) {
	return s.readAccountHash(ctx, userHash(user))
}

func (s *Store) readAccountHash(ctx context.Context, hash []byte) (userAccount, error) {
	var row accountRow
	exists := false
	err := s.conn.read(ctx, op{selectAccount, []any{hash}}, row.dest(), func() bool { exists = true; return true })
	if err != nil || !exists {
		return userAccount{}, err
	}
	return row.decode()
}

// ErasedAt returns the time of a user's last erasure.
func (s *Store) ErasedAt(ctx context.Context, user leaderboard.UserID) (time.Time, error) {
	acc, err := s.readAccount(ctx, user)
	return acc.ErasedAt, err
}

// storeErasure calls announce with the value of a new erasure, adds the erasure to the
// account, and removes the bans.
func (s *Store) storeErasure(ctx context.Context, user leaderboard.UserID, at time.Time, highest uint64, announce func(value []byte) error) (userAccount, error) {
	acc, err := s.readAccount(ctx, user)
	if err != nil {
		return userAccount{}, err
	}
	erasure, err := acc.nextErasure(at, highest)
	if err != nil {
		return userAccount{}, err
	}
	value := erasure.element().value
	if err := announce(value); err != nil {
		return userAccount{}, err
	}
	return s.addErasures(ctx, user, [][]byte{value})
}

func (a *userAccount) erasuresIn(key *userKey) *storedChange {
	return &storedChange{User: key.user, Erasures: a.erasures, Seasons: []leaderboard.SeasonKey{key.SeasonKey}}
}

func (s *Store) addErasures(ctx context.Context, user leaderboard.UserID, values [][]byte) (userAccount, error) {
	hash := userHash(user)
	var ops []op
	for _, value := range values {
		element := newElement(value)
		ops = append(ops, op{setErasure, []any{elementAdded, element.name, element.value, hash}})
	}
	if err := s.conn.write(ctx, ops...); err != nil {
		return userAccount{}, err
	}
	acc, err := s.readAccount(ctx, user)
	if ops := removeBans(hash, acc.outdated); err == nil && len(ops) > 0 {
		err = s.conn.write(ctx, ops...)
	}
	return acc, err
}

// removeBans returns the statements that remove the named states of bans. The user must have
// been erased.
func removeBans(hash []byte, names []string) (ops []op) {
	for _, name := range names {
		ops = append(ops, op{setBan, []any{elementRemoved, name, nil, hash}})
	}
	return ops
}
