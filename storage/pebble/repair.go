package pebble

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
)

// OrphanRows implements [leaderboard.Store]. It reads one consistent state of the store.
func (s *Store) OrphanRows(ctx context.Context, seasonKey leaderboard.SeasonKey) iter.Seq2[leaderboard.OrphanRow, error] {
	bd := s.board(seasonKey.Board)
	if bd == nil {
		return emptySeq[leaderboard.OrphanRow](ctx)
	}
	return func(yield func(leaderboard.OrphanRow, error) bool) {
		s.orphanMu.Lock()
		rowsOf, err := s.findOrphanRows(ctx, bd, seasonKey.Season)
		if err == nil {
			s.orphans[seasonKey] = maps.Clone(rowsOf) // Recount deletes from the clone while the loop below reads rowsOf
		}
		s.orphanMu.Unlock()
		if err != nil {
			yield(leaderboard.OrphanRow{}, err)
			return
		}
		ladders := len(makeSeasonRowKey(bd.number, seasonKey.Season).kind(dataLadder))
		for user, rows := range rowsOf {
			for _, row := range rows {
				slot, key, _ := cutSlot(row.key[ladders:])
				if !yield(leaderboard.OrphanRow{Division: bd.divisionOf(slot), User: user, Key: leaderboard.SortKey(key)}, nil) {
					return
				}
			}
		}
	}
}

// RemoveOrphanRows implements [leaderboard.Store]. Only damage causes orphan rows, so it removes
// none.
func (s *Store) RemoveOrphanRows(ctx context.Context, _ time.Duration) (int64, error) {
	return 0, ctx.Err()
}

func (bd *board) divisionOf(slot []byte) leaderboard.Division {
	d := codec.Decoder{Rest: slot}
	if d.Byte() != slotDivision {
		return leaderboard.Division{}
	}
	i, value := int(d.Byte()), d.Text()
	name, _ := bd.division(i) // i may be out of range in a damaged row
	return leaderboard.Division{Attribute: name, Value: value}
}

type orphans map[leaderboard.UserID][]placement

// Only the first call for a season searches the season. This process adds no orphan rows later,
// because each batch changes a user's ladder rows and user row together.
func (s *Store) orphanRowsOf(ctx context.Context, bd *board, season leaderboard.SeasonID, user leaderboard.UserID) ([]placement, error) {
	seasonKey := leaderboard.SeasonKey{Board: bd.ID, Season: season}
	s.orphanMu.Lock()
	defer s.orphanMu.Unlock()
	rowsOf, ok := s.orphans[seasonKey]
	if !ok {
		var err error
		if rowsOf, err = s.findOrphanRows(ctx, bd, season); err != nil {
			return nil, err
		}
		s.orphans[seasonKey] = rowsOf
	}
	return rowsOf[user], nil
}

func (s *Store) findOrphanRows(ctx context.Context, bd *board, season leaderboard.SeasonID) (orphans, error) {
	rowsOf := orphans{}
	rowKey := makeSeasonRowKey(bd.number, season)
	snapshot := s.db.NewSnapshot()
	defer snapshot.Close()
	prefix := rowKey.kind(dataLadder)
	err := scan(ctx, snapshot, prefix, keyAfter(prefix), func(key, value []byte) (bool, error) {
		_, sortKey, ok := cutSlot(key[len(prefix):])
		_, _, user, err := leaderboard.SortKey(sortKey).Split(bd.RankKeyBytes())
		if !ok || err != nil {
			return false, errors.Join(errFormat("ladder row"), err)
		}
		st := userState{s: s, bd: bd, season: season, user: user, rowKey: rowKey}
		if _, err := get(snapshot, rowKey.user(user), st.row.decode); err != nil && !errors.Is(err, leaderboard.ErrFormat) {
			return false, err
		}
		e := st.entry()
		if !slices.ContainsFunc(bd.placements(rowKey, &e), func(p placement) bool {
			return bytes.Equal(p.key, key) && bytes.Equal(p.value, value)
		}) {
			rowsOf[user] = append(rowsOf[user], placement{bytes.Clone(key), bytes.Clone(value)})
		}
		return true, nil
	})
	return rowsOf, err
}

// Recount implements [leaderboard.Store].
func (s *Store) Recount(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error) {
	if err := ctx.Err(); err != nil {
		return leaderboard.Change{}, err
	}
	if bd := s.board(b.ID); bd != nil { // a slow search must not run while the user is locked
		if _, err := s.orphanRowsOf(ctx, bd, season, user); err != nil {
			return leaderboard.Change{}, err
		}
	}
	unlock, err := s.lockUser(ctx, user)
	if err != nil {
		return leaderboard.Change{}, err
	}
	bd, err := s.liveBoard(b)
	if err != nil {
		unlock()
		return leaderboard.Change{}, err
	}
	batch := s.db.NewBatch()
	change, err := s.recount(ctx, batch, bd, season, user)
	if err != nil {
		unlock()
		return leaderboard.Change{}, err
	}
	if batch.Empty() {
		unlock()
		return change, s.syncVisible(ctx)
	}
	err = s.commit(ctx, batch, func() {
		s.orphanMu.Lock()
		delete(s.orphans[leaderboard.SeasonKey{Board: bd.ID, Season: season}], user)
		s.orphanMu.Unlock()
		unlock()
	})
	if err != nil {
		return leaderboard.Change{}, err
	}
	return change, nil
}

func (s *Store) recount(ctx context.Context, batch *pebble.Batch, bd *board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error) {
	orphanRows, err := s.orphanRowsOf(ctx, bd, season, user)
	if err != nil {
		return leaderboard.Change{}, err
	}
	st, damaged, err := s.loadDamagedUser(bd, season, user)
	if err != nil {
		return leaderboard.Change{}, err
	}
	oldRow, err := st.row.append(nil)
	if err != nil {
		return leaderboard.Change{}, err
	}

	hasRecords, err := s.hasRecords(ctx, st)
	if err != nil {
		return leaderboard.Change{}, err
	}
	fresh, err := s.newUserRow(bd, season, user)
	if err != nil {
		return leaderboard.Change{}, err
	}
	st.row.hidden, st.row.erasedAt, st.row.rules = fresh.hidden, fresh.erasedAt, fresh.rules
	if st.row.tally, err = st.board().Count(s.results(ctx, bd, season, user)); err != nil {
		return leaderboard.Change{}, err
	}
	newRow, err := st.row.append(nil)
	if err != nil {
		return leaderboard.Change{}, err
	}

	ladderRows := bd.placements(st.rowKey, &st.before)
	wrong := damaged || st.exists != hasRecords || !bytes.Equal(oldRow, newRow) || len(orphanRows) > 0
	if !wrong && hasRecords {
		same, err := s.hasRows(append(ladderRows, placement{seasonsKey(user, bd.number, season), nil}))
		if err != nil {
			return leaderboard.Change{}, err
		}
		wrong = !same
	}
	if !wrong {
		return leaderboard.Change{Before: st.before, After: st.before}, nil
	}
	st.followOrphanRows(orphanRows, damaged)
	st.row.matches = matchSet{} // it may lack a record
	st.row.version++
	st.after = st.entry()
	change := leaderboard.Change{Before: st.before, After: st.after}
	if !hasRecords {
		err = errors.Join(batch.Delete(st.rowKey.user(user), nil), batch.Delete(seasonsKey(user, bd.number, season), nil))
		return change, errors.Join(err, replaceRows(batch, append(ladderRows, orphanRows...), nil))
	}
	ladderRows = append(ladderRows, orphanRows...)
	err = batch.Set(seasonsKey(user, bd.number, season), nil, nil)
	return change, errors.Join(err, st.writeRow(batch), replaceRows(batch, ladderRows, bd.placements(st.rowKey, &st.after)))
}

func (s *Store) loadDamagedUser(bd *board, season leaderboard.SeasonID, user leaderboard.UserID) (st *userState, damaged bool, err error) {
	st, err = s.loadUser(bd, season, user)
	if !errors.Is(err, leaderboard.ErrFormat) {
		return st, false, err
	}
	st = &userState{s: s, bd: bd, season: season, user: user, rowKey: makeSeasonRowKey(bd.number, season)}
	if st.row, err = s.newUserRow(bd, season, user); err != nil {
		return nil, true, err
	}
	st.before = st.entry()
	return st, true, nil
}

// followOrphanRows raises st.row.version to the highest version of an orphan row. If the user row is
// damaged, st.before becomes the entry of the first readable orphan row.
func (st *userState) followOrphanRows(orphanRows []placement, damaged bool) {
	for _, p := range orphanRows {
		slot, sortKey, _ := cutSlot(p.key[len(st.rowKey)+1:])
		e, err := st.bd.decodeEntry(st.season, slot, sortKey, p.value)
		if err != nil {
			e = leaderboard.Entry{}
		}
		st.row.version = max(st.row.version, e.Version)
		if damaged && st.before.Key == "" {
			st.before = e
		}
	}
}

// hasRecords does not read the user row, because this row may be missing.
func (s *Store) hasRecords(ctx context.Context, st *userState) (found bool, err error) {
	prefix := st.rowKey.records(st.user)
	err = s.scan(ctx, prefix, keyAfter(prefix), func(_, _ []byte) (bool, error) {
		found = true
		return false, nil
	})
	return found, err
}

func (s *Store) hasRows(rows []placement) (bool, error) {
	for _, p := range rows {
		same := false
		if _, err := s.get(p.key, func(value []byte) error {
			same = bytes.Equal(value, p.value)
			return nil
		}); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// StartRecount implements [leaderboard.Store]. It writes nothing, because each user row has the Rules
// that its entry follows. AmendBoard has waited for all changes of users with the previous divisions.
func (s *Store) StartRecount(ctx context.Context, b *leaderboard.Board) ([]leaderboard.SeasonID, error) {
	if _, err := s.liveBoard(b); err != nil {
		return nil, err
	}
	all, err := s.Incarnations(ctx, b.ID)
	var seasons []leaderboard.SeasonID
	for _, i := range all {
		rules, sealed, err := s.engine.Overtake(ctx, &i)
		if err != nil {
			return nil, err
		}
		if !sealed || rules >= b.Rules() {
			seasons = append(seasons, i.Season)
		}
	}
	return seasons, err
}
