package cql

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Recount computes a user's entry from the results by the stored board, and repairs the
// entry and the user's rows if they differ.
//
// An operator may have written a cell by hand, with a greater timestamp than the
// repair's. Cassandra would then keep that cell. In this case Recount adds a row of
// kindRepair to the user's state. The row raises the version, so the repair gets greater
// timestamps.
func (s *Store) Recount(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error) {
	unlock, err := s.lock(ctx, user)
	if err != nil {
		return leaderboard.Change{}, err
	}
	defer unlock()
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: season}
	inc, err := s.incarnations.readAgain(ctx, seasonKey)
	if err != nil {
		return leaderboard.Change{}, err
	}
	none := leaderboard.Entry{SeasonKey: seasonKey, User: user}
	var change leaderboard.Change
	var raised claim
	placed := uint64(0)
	for try := range maxTries {
		stored, err := s.liveBoard(ctx, b) // b may lack a change, such as an early end of the season
		if err != nil || !inc.openFor(stored) {
			return leaderboard.Change{Before: none, After: none}, err
		}
		ruled, err := s.ruled(ctx, stored, inc)
		if err != nil {
			return leaderboard.Change{}, err
		}
		key := &userKey{seasonKey, inc.number, user}
		s.dropSummary(key)
		var st *state
		var have storedEntry
		var rows []row
		live, err := s.whileOpen(ctx, seasonKey, inc, func(ctx context.Context) (err error) {
			st, have, rows, err = s.inspect(ctx, ruled, key, inc, raised)
			return err
		})
		if err != nil {
			return leaderboard.Change{}, err
		}
		if !live { // the season was deleted, or its rules changed
			if inc, err = s.incarnations.cachedOrRead(ctx, seasonKey); err != nil {
				return leaderboard.Change{}, err
			}
			raised, placed = claim{}, 0
			continue
		}
		if !st.known {
			change, ok, err := s.removeUnregistered(ctx, ruled, key, inc)
			if err != nil || ok {
				return change, err
			}
			continue // another call registered the user after inspect had read the state
		}
		want, none := st.entries(ruled, key)
		before := have.entryOr(none)
		if change.Before.User == "" {
			change.Before = before
		}
		change.After = want
		if have.is(&want) && !rowsDiffer(rows, &want) || have.entry == nil && have.listed && want.Version == none.Version {
			return change, nil
		}
		reach := have.written
		if have.is(&want) {
			reach = 0
		}
		for _, r := range rows {
			if !slices.Contains(rowKeys(&want), r.rowKey) {
				reach = max(reach, r.written)
			}
		}
		if try > 0 && want.Version == placed {
			// place has written the entry at this version, but the entry is still wrong.
			// So another write prevails, and its timestamp cannot be read. Presumably an
			// operator deleted a row by hand, with a timestamp from a clock.
			reach = time.Now().Add(time.Minute).UnixMicro()
		}
		if reach > deleteTime(want.Version) {
			if err := s.raiseVersion(ctx, key, st, versionCovering(reach)-want.Version); err != nil {
				return leaderboard.Change{}, err
			}
			raised = st.claim
			continue
		}
		if err := s.place(ctx, key, inc, &st.statics, &want, &before, rowKeysOf(rows)); err != nil {
			return leaderboard.Change{}, err
		}
		placed = want.Version
	}
	return leaderboard.Change{}, fmt.Errorf("cql: user %q in season %q of board %q: the entry changed in every attempt to repair it; repeat the call: %w",
		user, season, b.ID, leaderboard.ErrUnavailable)
}

// removeUnregistered removes the entry and the rows of a user without a registration in the
// season. If an erasure overtook a slow writer, this writer may have written them after the
// erasure. If the user is registered afterwards, removeUnregistered returns false, and the
// caller must repair the user's entry.
func (s *Store) removeUnregistered(ctx context.Context, b *leaderboard.Board, key *userKey, inc incarnation) (leaderboard.Change, bool, error) {
	whole, err := s.readAccount(ctx, key.user)
	if err != nil {
		return leaderboard.Change{}, false, err
	}
	acc := whole.accountOn(b)
	none := key.entry(b, &leaderboard.Tally{}, &acc, acc.version())
	change := leaderboard.Change{Before: none, After: none}
	have, err := s.readEntry(ctx, key, inc)
	if err != nil {
		return change, false, err
	}
	divisions, err := s.divisionsOf(ctx, key.SeasonKey, inc)
	if err != nil {
		return change, false, err
	}
	rows, err := s.userRows(ctx, key, inc, divisions[1:]) // without the overall ladder, which is the first, because userRows adds it
	if err != nil {
		return change, false, err
	}
	// Writers register a user before they write the entry. So if the user is registered
	// now, the entry and the rows that were just read may be valid.
	if now, err := s.readStatics(ctx, key); err != nil || now.known {
		return change, false, err
	}
	if have.entry == nil && len(rows) == 0 {
		return change, true, nil
	}
	change.Before = have.entryOr(none)
	reach := have.written
	for _, r := range rows {
		reach = max(reach, r.written)
	}
	if reach > deleteTime(acc.Base) {
		return change, false, s.registerAbove(ctx, b, key, inc, &acc, reach)
	}
	var gone []op
	for _, r := range rows {
		gone = append(gone, op{deleteRow, append(key.ladderArgs(inc, r.division, deleteTime(acc.Base)), []byte(r.standing), string(key.user))})
	}
	gone = append(gone, op{deleteEntry, []any{deleteTime(acc.Base), string(key.Board), string(key.Season), key.incarnation,
		bucketOf(key.user, inc.buckets), string(key.user)}})
	return change, true, s.forEach(ctx, len(gone), func(ctx context.Context, i int) error { return s.conn.write(ctx, gone[i]) })
}

// registerAbove registers a user whose results were lost, but whose entry or rows have a
// timestamp up to reach. Deletions with this timestamp would hide the entries that the user
// gets later, because the user's versions begin again. registerAbove therefore gives the user
// a version that covers reach.
func (s *Store) registerAbove(ctx context.Context, b *leaderboard.Board, key *userKey, inc incarnation, acc *account, reach int64) error {
	st := &state{statics: statics{account: *acc}}
	if err := s.register(ctx, b, key, inc, &st.statics); err != nil || !st.known {
		return err
	}
	if err := s.conn.write(ctx, op{setAccount, key.args(st.account.writeTime(), st.account.append(nil))}); err != nil {
		return err
	}
	if covering := versionCovering(reach); covering > st.version() {
		return s.raiseVersion(ctx, key, st, covering-st.version())
	}
	return nil
}

// liveBoard returns the stored board with b's id and time of creation. It returns
// [leaderboard.ErrBoardNotFound] if this board was deleted.
func (s *Store) liveBoard(ctx context.Context, b *leaderboard.Board) (*leaderboard.Board, error) {
	k, err := s.readBoard(ctx, b.ID)
	if err == nil && !sameBoard(&k.board, b) {
		err = notFound(b.ID)
	}
	if err != nil {
		return nil, err
	}
	return &k.board, nil
}

// raiseVersion writes a row of kindRepair that increases the version of a user's state.
func (s *Store) raiseVersion(ctx context.Context, key *userKey, st *state, increment uint64) error {
	item := binary.BigEndian.AppendUint64(nil, st.version()+increment)
	return s.writeUser(ctx,
		op{insertItem, append(key.args(), "", int8(kindRepair), item, binary.AppendUvarint(nil, increment), st.account.Epoch<<epochShift|1)},
		s.newClaim(key, &st.statics))
}
