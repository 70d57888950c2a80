package cql

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// userAccount is a row of table accounts: a user's bans and erasures. In the embedded
// account, Serial and Hidden are those of the ban on every board.
type userAccount struct {
	account
	bans []userBan // in the order of leaderboard.Store.UserBans
	body []byte    // the stored column body; nil if the table has no row of the user
}

// userBan is a ban with its serial: the number of changes of the ban's field Banned since
// the last erasure.
type userBan struct {
	leaderboard.Ban
	serial uint64
}

// accountOn returns the account that a season of the board stores. The Serial of this account
// grows with every change of a ban on the board, on its source, and on every board.
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

// versionBound returns an upper bound of the version that the account adds to any entry of
// the user.
func (a *userAccount) versionBound() uint64 {
	v := a.version()
	for i := range a.bans {
		if a.bans[i].Board != "" {
			v += a.bans[i].serial
		}
	}
	return v
}

// setBan merges a state of a ban into the account. It reports whether this state stands.
func (a *userAccount) setBan(next leaderboard.Ban) bool {
	i, found := slices.BinarySearchFunc(a.bans, next.Board, func(b userBan, board leaderboard.BoardID) int {
		return strings.Compare(string(b.Board), string(board))
	})
	var have *leaderboard.Ban
	var serial uint64
	if found {
		have, serial = &a.bans[i].Ban, a.bans[i].serial
	} else if next.Board == "" {
		serial = a.Serial
	}
	banned := found && have.Banned
	next, stands := leaderboard.MergeBan(have, next, a.ErasedAt)
	if !stands {
		return false
	}
	if next.Banned != banned {
		serial++
	}
	if next.Board == "" {
		a.Serial, a.Hidden = serial, next.Banned
	}
	a.bans = slices.Clone(a.bans)
	if found {
		a.bans[i] = userBan{next, serial}
	} else {
		a.bans = slices.Insert(a.bans, i, userBan{next, serial})
	}
	return true
}

// bansFormat is the first byte of a body that contains bans.
const bansFormat = 2

// append appends the row's body. If the user has no bans, the body is the encoded account
// only.
func (a *userAccount) append(dst []byte) ([]byte, error) {
	if len(a.bans) == 0 {
		return a.account.append(dst), nil
	}
	own := a.account.append(nil)
	dst = appendString(append(dst, bansFormat), string(own))
	dst = binary.AppendUvarint(dst, uint64(len(a.bans)))
	for i := range a.bans {
		text, err := json.Marshal(&a.bans[i].Ban)
		if err != nil {
			return nil, fmt.Errorf("cql: encode a ban: %w", err)
		}
		dst = appendString(binary.AppendUvarint(dst, a.bans[i].serial), string(text))
	}
	return dst, nil
}

// decodeUserAccount decodes a row of table accounts. text is the column ban. In rows that
// an older version wrote, the body contains no bans, and this column contains the ban on
// every board.
func decodeUserAccount(body []byte, text string) (a userAccount, err error) {
	a.body = bytes.Clone(body)
	if len(body) == 0 || body[0] != bansFormat {
		if a.account, err = decodeAccount(body); err == nil && text != "" {
			a.bans = []userBan{{serial: a.Serial}}
			err = decodeBan([]byte(text), &a.bans[0].Ban)
		}
		return a, err
	}
	d := decoder{b: body[1:]}
	if a.account, err = decodeAccount(d.next(d.uvarint())); err != nil {
		return a, err
	}
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		b := userBan{serial: d.uvarint()}
		if err := decodeBan(d.next(d.uvarint()), &b.Ban); err != nil {
			return a, err
		}
		a.bans = append(a.bans, b)
	}
	if d.bad || len(d.b) > 0 {
		return a, errFormat("account")
	}
	return a, nil
}

func decodeBan(text []byte, b *leaderboard.Ban) error {
	if err := json.Unmarshal(text, b); err != nil {
		return fmt.Errorf("cql: ban: %w: %w", leaderboard.ErrFormat, err)
	}
	return nil
}

// SetBan merges the state of a ban, and hides or shows the user's entries.
func (s *Store) SetBan(ctx context.Context, ban leaderboard.Ban) ([]leaderboard.Change, error) {
	unlock, err := s.lock(ctx, ban.User)
	if err != nil {
		return nil, err
	}
	defer unlock()
	acc, err := s.changeAccount(ctx, ban.User, func(ctx context.Context, a *userAccount) (bool, error) {
		if !a.setBan(ban) {
			return false, nil
		}
		// The row of table ban_ends is written before the ban, so that every ban with an
		// end has a row.
		return true, s.putBanEnd(ctx, banOf(a, ban.Board))
	})
	if err != nil {
		return nil, err
	}
	keys, err := s.userSeasons(ctx, ban.User)
	if err != nil {
		return nil, err
	}
	changes := make([]leaderboard.Change, len(keys))
	err = s.forEach(ctx, len(keys), func(ctx context.Context, i int) (err error) {
		changes[i], err = s.updateSeason(ctx, &keys[i], &ban, &acc)
		return err
	})
	return withNewVersion(changes), err
}

// banOf returns the ban on a board, or nil. The empty board means every board.
func banOf(a *userAccount, board leaderboard.BoardID) *leaderboard.Ban {
	for i := range a.bans {
		if a.bans[i].Board == board {
			return &a.bans[i].Ban
		}
	}
	return nil
}

// UserBans returns the bans of a user.
func (s *Store) UserBans(ctx context.Context, user leaderboard.UserID) ([]leaderboard.Ban, error) {
	acc, err := s.readAccount(ctx, user)
	if err != nil {
		return nil, err
	}
	var bans []leaderboard.Ban
	for i := range acc.bans {
		bans = append(bans, acc.bans[i].Ban)
	}
	return bans, nil
}

// Bans yields the bans of all users, ordered by the token of the user.
func (s *Store) Bans(ctx context.Context, after leaderboard.BanKey) iter.Seq2[leaderboard.Ban, error] {
	return func(yield func(leaderboard.Ban, error) bool) {
		query := op{selectAccounts, nil}
		if after.User != "" {
			query = op{selectAccountsFrom, []any{userHash(after.User)}}
		}
		var body []byte
		var text string
		var bad error
		stopped := false
		err := s.conn.read(ctx, query, []any{&body, &text}, func() bool {
			var acc userAccount
			if acc, bad = decodeUserAccount(take(&body), text); bad != nil {
				return false
			}
			for i := range acc.bans {
				b := &acc.bans[i].Ban
				if after.User != "" && b.User == after.User && b.Board <= after.Board {
					continue
				}
				if stopped = !yield(*b, nil); stopped {
					return false
				}
			}
			return true
		})
		if err == nil {
			err = bad
		}
		if err != nil && !stopped {
			yield(leaderboard.Ban{}, err)
		}
	}
}

// # The ends of bans
//
// BansEnding finds bans by the time of their end in table ban_ends. SetBan writes a row
// of this table before it writes the ban. A row may not belong to a ban: another ban
// replaced it, the user was erased, or the process died before it wrote the ban. Such a
// row has no effect, because BansEnding compares each row with the user's account. SetBan
// does not remove it: a user who was erased may get the same ban again, and the deletion
// would then hide the row.

func hasEnd(b *leaderboard.Ban) bool { return b != nil && !b.Until.IsZero() }

func (s *Store) putBanEnd(ctx context.Context, b *leaderboard.Ban) error {
	if !hasEnd(b) {
		return nil
	}
	return s.conn.write(ctx, op{insertBanEnd, []any{b.Until.UnixMicro(), userHash(b.User), string(b.Board), insertTime(uint64(b.Revision))}})
}

// staleBanEnd is the time from a ban's end after which BansEnding removes the row of
// table ban_ends if the account has no ban with this end. SetBan writes the row and the
// ban within a much shorter time.
const staleBanEnd = time.Hour

// BansEnding yields the bans that end before a time.
func (s *Store) BansEnding(ctx context.Context, before time.Time) iter.Seq2[leaderboard.Ban, error] {
	return func(yield func(leaderboard.Ban, error) bool) {
		type end struct {
			until int64
			hash  []byte
			board string
		}
		var e end
		ends, err := gather(ctx, s.conn, op{selectBanEnds, []any{leaderboard.Truncate(before).UnixMicro()}}, []any{&e.until, &e.hash, &e.board},
			func() (end, error) { return end{e.until, take(&e.hash), e.board}, nil })
		for _, e := range ends {
			var acc userAccount
			if acc, err = s.readAccountHash(ctx, e.hash); errors.Is(err, leaderboard.ErrFormat) {
				if !yield(leaderboard.Ban{}, fmt.Errorf("cql: account of a user whose ban ends: %w", err)) {
					return
				}
				err = nil
				continue
			}
			if err != nil {
				break
			}
			b := banOf(&acc, leaderboard.BoardID(e.board))
			if hasEnd(b) && b.Until.UnixMicro() == e.until {
				if !yield(*b, nil) {
					return
				}
				continue
			}
			if s.now().UnixMicro()-e.until > staleBanEnd.Microseconds() {
				if err = s.conn.write(ctx, op{deleteBanEnd, []any{sweepTime, e.until, e.hash, e.board}}); err != nil {
					break
				}
			}
		}
		if err != nil {
			yield(leaderboard.Ban{}, err)
		}
	}
}
