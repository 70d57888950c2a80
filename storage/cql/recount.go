package cql

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Recount computes a user's entry from the results by the rules of the stored board, and
// repairs the entry and the rows.
//
// A wrong cell may have a greater timestamp than the repair. In this case, Recount first
// adds a row of kindRepair, which raises the entry's version. The timestamp of the repair
// follows from the version.
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
	r := &recounting{Store: s, seasonKey: seasonKey, user: user, inc: inc}
	for try := range maxTries {
		stored, err := s.liveBoard(ctx, b) // b may be outdated
		if err != nil || !r.inc.openFor(stored) {
			none := leaderboard.Entry{SeasonKey: seasonKey, User: user}
			return leaderboard.Change{Before: none, After: none}, err
		}
		inSeason, err := s.boardWithRules(ctx, stored, r.inc)
		if err != nil {
			return leaderboard.Change{}, err
		}
		if done, err := r.attempt(ctx, inSeason, try > 0); err != nil {
			return leaderboard.Change{}, err
		} else if done {
			return r.change, nil
		}
	}
	return leaderboard.Change{}, fmt.Errorf("cql: user %q in season %q of board %q: the entry changed in every attempt to repair it; repeat the call: %w",
		user, season, b.ID, leaderboard.ErrUnavailable)
}

type recounting struct {
	*Store
	seasonKey leaderboard.SeasonKey
	user      leaderboard.UserID
	inc       incarnation

	change leaderboard.Change
	raised claim  // claim of the last raiseVersion
	placed uint64 // version of the last entry that attempt wrote
}

// attempt repairs the entry and the rows. It returns false if the caller must call it
// again, with retry set.
func (r *recounting) attempt(ctx context.Context, b *leaderboard.Board, retry bool) (done bool, err error) {
	key := &userKey{r.seasonKey, r.inc.number, r.user}
	r.dropSummary(key)
	var st *state
	var stored storedEntry
	var rows []row
	live, err := r.whileOpen(ctx, r.seasonKey, r.inc, func(ctx context.Context) (err error) {
		st, stored, rows, err = r.inspect(ctx, b, key, r.inc, r.raised)
		return err
	})
	if err != nil {
		return false, err
	}
	if !live { // the season was deleted, or its rules changed
		r.raised, r.placed = claim{}, 0
		r.inc, err = r.incarnations.cachedOrRead(ctx, r.seasonKey)
		return false, err
	}
	if !st.registered {
		change, done, err := r.removeUnregistered(ctx, b, key, r.inc)
		if done {
			r.change = change
		}
		return done, err
	}
	copied, erased, err := r.copyAccount(ctx, b, key, &st.account)
	if err != nil || copied {
		return false, err
	}
	if erased != nil {
		r.change = *erased
		return true, nil
	}
	want, none := st.entries(b, key)
	previous := stored.entryOr(none)
	if r.change.Before.User == "" {
		r.change.Before = previous
	}
	r.change.After = want
	if stored.equals(&want) && !rowsDiffer(rows, &want) || stored.entry == nil && stored.rowExists && want.Version == none.Version {
		return true, nil
	}
	timestamp := greatestTimestamp(&stored, rows, &want)
	if retry && want.Version == r.placed {
		// place has written this version, but another write prevails, probably a deletion.
		// The timestamp of a deletion cannot be read. Assume a deletion by hand, with a
		// timestamp from a clock.
		timestamp = time.Now().Add(time.Minute).UnixMicro()
	}
	if timestamp > deleteTime(want.Version) {
		err := r.raiseVersion(ctx, key, st, versionCovering(timestamp)-want.Version)
		r.raised = st.claim
		return false, err
	}
	err = r.place(ctx, key, r.inc, &st.statics, &want, &previous, rowKeysOf(rows))
	r.placed = want.Version
	return false, err
}

// greatestTimestamp returns the greatest timestamp of the wrong cells.
func greatestTimestamp(stored *storedEntry, rows []row, want *leaderboard.Entry) int64 {
	timestamp := stored.written
	if stored.equals(want) {
		timestamp = 0
	}
	for _, r := range rows {
		if !slices.Contains(rowKeys(want), r.rowKey) {
			timestamp = max(timestamp, r.written)
		}
	}
	return timestamp
}

// copyAccount copies the user's account to the season if seasonAcc is outdated. If the
// season has data from before an erasure, copyAccount erases the data and returns the
// change.
func (s *Store) copyAccount(ctx context.Context, b *leaderboard.Board, key *userKey, seasonAcc *account) (copied bool, erased *leaderboard.Change, err error) {
	acc, err := s.readAccount(ctx, key.user, b)
	if err != nil {
		return false, nil, err
	}
	if acc.Epoch > seasonAcc.Epoch {
		if err := s.engine.AnnounceErasure(ctx, key.SeasonKey, key.user); err != nil {
			return false, nil, err
		}
		change, err := s.eraseIn(ctx, key, &acc)
		return false, &change, err
	}
	if acc.Epoch < seasonAcc.Epoch || acc.Serial <= seasonAcc.Serial {
		return false, nil, nil
	}
	return true, nil, s.conn.write(ctx, key.setAccount(&acc)...)
}

// removeUnregistered removes the entry and the rows of a user without an account in the
// season. If it returns false, the user has an account now, and the caller must repair the
// entry.
func (s *Store) removeUnregistered(ctx context.Context, b *leaderboard.Board, key *userKey, inc incarnation) (leaderboard.Change, bool, error) {
	acc, err := s.readAccount(ctx, key.user, b)
	if err != nil {
		return leaderboard.Change{}, false, err
	}
	none := key.entry(b, &leaderboard.Tally{}, &acc, acc.version())
	change := leaderboard.Change{Before: none, After: none}
	stored, err := s.readEntry(ctx, key, inc)
	if err != nil {
		return change, false, err
	}
	divisions, err := s.ladderNames(ctx, key.SeasonKey, inc)
	if err != nil {
		return change, false, err
	}
	rows, err := s.userRows(ctx, key, inc, divisions[1:]) // userRows adds divisions[0], the overall ladder
	if err != nil {
		return change, false, err
	}
	// writers register a user before they write the entry: if the user is registered now,
	// the entry may be valid
	if current, err := s.readStatics(ctx, key); err != nil || current.registered {
		return change, false, err
	}
	if stored.entry == nil && len(rows) == 0 {
		return change, true, nil
	}
	change.Before = stored.entryOr(none)
	timestamp := stored.written
	for _, r := range rows {
		timestamp = max(timestamp, r.written)
	}
	if timestamp > deleteTime(acc.Base) {
		return change, false, s.registerAbove(ctx, b, key, inc, &acc, timestamp)
	}
	var deletions []op
	for _, r := range rows {
		deletions = append(deletions, key.deleteRow(inc, r.rowKey, acc.Base))
	}
	deletions = append(deletions, op{deleteEntry, []any{deleteTime(acc.Base), string(key.Board), string(key.Season), key.incarnation,
		bucketOf(key.user, inc.buckets), string(key.user)}})
	return change, true, s.forEach(ctx, len(deletions), func(ctx context.Context, i int) error { return s.conn.write(ctx, deletions[i]) })
}

// registerAbove registers a user whose results were lost, and raises the version, so that
// later entries have timestamps above timestamp. Otherwise, a deletion of the user's cells
// would hide these entries.
func (s *Store) registerAbove(ctx context.Context, b *leaderboard.Board, key *userKey, inc incarnation, acc *account, timestamp int64) error {
	st := &state{statics: statics{account: *acc}}
	if err := s.register(ctx, b, key, inc, &st.statics); err != nil || !st.registered {
		return err
	}
	if err := s.conn.write(ctx, key.setAccount(&st.account)...); err != nil {
		return err
	}
	if covering := versionCovering(timestamp); covering > st.version() {
		return s.raiseVersion(ctx, key, st, covering-st.version())
	}
	return nil
}

// liveBoard reads board b again. The caller must not change the result. The read begins
// after the call. Errors: [leaderboard.ErrBoardNotFound] if b was deleted, even if a new
// board has its id.
func (s *Store) liveBoard(ctx context.Context, b *leaderboard.Board) (*leaderboard.Board, error) {
	var stored storedBoard
	err := s.boards.Do(ctx, b.ID, &stored)
	if err == nil && !sameBoard(&stored.board, b) {
		err = errBoardNotFound(b.ID)
	}
	if err != nil {
		return nil, err
	}
	return &stored.board, nil
}

func (s *Store) readBoards(ctx context.Context, id leaderboard.BoardID, group []*storedBoard) error {
	stored, err := s.readBoard(ctx, id)
	for _, result := range group {
		*result = stored
	}
	return err
}

func (s *Store) raiseVersion(ctx context.Context, key *userKey, st *state, increment uint64) error {
	item := binary.BigEndian.AppendUint64(nil, st.version()+increment)
	return s.writeUser(ctx,
		op{insertItem, append(key.args(), "", int8(kindRepair), item, binary.AppendUvarint(nil, increment), st.account.Epoch<<epochShift|1)},
		key.noteRaise(st, "", kindRepair, item),
		s.newClaim(key, &st.statics))
}
