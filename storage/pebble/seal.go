package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// A sealRow marks a season as sealed. The seal and each amendment write a complete set of final
// standings, a generation. Generations are numbered from 1. Readers use only the generation with
// the number Generation.
type sealRow struct {
	Generation uint32                  `json:"generation"`
	SealedAt   time.Time               `json:"sealed_at"`
	Amendments []leaderboard.Amendment `json:"amendments,omitempty"`
	Rules      int                     `json:"rules,omitempty"` // of the board at the time of the seal
}

func (r *sealRow) record(s leaderboard.SeasonKey) leaderboard.SeasonRecord {
	return leaderboard.SeasonRecord{SeasonKey: s, SealedAt: r.SealedAt, Amendments: r.Amendments, Rules: r.Rules}
}

// A seal describes a seal or an amendment in progress.
type seal struct {
	generation uint32
	erased     []leaderboard.UserID // the users who were erased after the seal started
}

// Seal implements [leaderboard.Store].
func (s *Store) Seal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, at time.Time) (leaderboard.SeasonRecord, error) {
	return s.makeFinal(ctx, b, season, leaderboard.Amendment{At: at}, false, nil)
}

// Amend implements [leaderboard.Store]. It waits for a Seal in progress, because this Seal may have
// read the entries before the caller changed them.
func (s *Store) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment, users []leaderboard.UserID) (leaderboard.SeasonRecord, error) {
	record, err := s.makeFinal(ctx, b, season, a, true, users)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		err = errNotSealed(leaderboard.SeasonKey{Board: b.ID, Season: season})
	}
	return record, err
}

// makeFinal changes nothing in two cases:
//   - amend is false and the season is sealed.
//   - users is not empty, and their final standings agree with their entries.
//
// If amend is true and the season is not sealed, makeFinal returns [leaderboard.ErrNotSealed].
//
// makeFinal computes the standings from one snapshot. It writes them as a new generation, in many
// batches to bound memory. The last batch makes readers use the new generation and removes the
// previous one. Therefore readers see exactly one generation, even after a crash.
func (s *Store) makeFinal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment, amend bool, users []leaderboard.UserID) (leaderboard.SeasonRecord, error) {
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: season}
	fail := func(err error) (leaderboard.SeasonRecord, error) {
		return leaderboard.SeasonRecord{}, fmt.Errorf("seal of season %q of board %q: %w", season, b.ID, err)
	}
	bd, err := s.liveBoard(b)
	if err != nil {
		return fail(err)
	}
	if err := s.lock(ctx, bd.sealing); err != nil {
		return fail(err)
	}
	defer bd.sealing.unlock()
	if bd, err = s.liveBoard(b); err != nil { // another caller may have deleted the board before this caller got the lock
		return fail(err)
	}
	rowKey := makeSeasonRowKey(bd.number, season)
	var row sealRow
	found, err := s.getJSON(rowKey.kind(dataSeal), &row)
	if err == nil {
		err = s.failure() // after a failed sync, Pebble may return a row that is not on disk
	}
	if err == nil && amend && !found {
		err = errNotSealed(seasonKey)
	}
	if err != nil {
		return fail(err)
	}
	unchanged := found && !amend
	if found && amend && len(users) > 0 {
		if unchanged, err = s.agrees(ctx, bd, seasonKey, row.Generation, users); err != nil {
			return fail(err)
		}
	}
	if unchanged {
		return row.record(seasonKey), nil
	}
	row.Generation++
	a.At = leaderboard.Truncate(a.At)
	switch {
	case !found:
		row.SealedAt, row.Rules = a.At, bd.Rules()
	case !slices.ContainsFunc(row.Amendments, func(o leaderboard.Amendment) bool {
		return o.At.Equal(a.At) && o.Reason == a.Reason
	}):
		row.Amendments = append(row.Amendments, a)
	}

	snapshot, err := s.beginSeal(ctx, seasonKey, row.Generation)
	if err != nil {
		return fail(err)
	}
	defer snapshot.Close()
	if err := s.writeFinal(ctx, snapshot, bd, season, row.Generation); err != nil {
		s.abandonSeal(seasonKey, rowKey, row.Generation)
		return fail(err)
	}
	if err := s.endSeal(ctx, seasonKey, rowKey, &row); err != nil {
		return fail(err)
	}
	return row.record(seasonKey), nil
}

func (s *Store) agrees(ctx context.Context, bd *board, seasonKey leaderboard.SeasonKey, generation uint32, users []leaderboard.UserID) (bool, error) {
	rowKey := makeSeasonRowKey(bd.number, seasonKey.Season)
	for _, user := range users {
		entry, err := s.Entry(ctx, seasonKey, user)
		if err != nil && !errors.Is(err, leaderboard.ErrEntryNotFound) {
			return false, err
		}
		var want, got []string // each is a slot (see keys.go) and a sort key
		if err == nil && entry.Ranked() {
			for _, d := range append([]leaderboard.Division{{}}, entry.Divisions...) {
				slot, _ := bd.slot(d)
				want = append(want, string(slot)+string(entry.SortKey()))
			}
		}
		prefix := rowKey.finalUser(generation, user)
		if err := s.scan(ctx, prefix, keyAfter(prefix), func(key, value []byte) (bool, error) {
			slot := bytes.Clone(key[len(prefix):])
			position, err := decodeUvarint(value)
			if err != nil {
				return false, err
			}
			var st leaderboard.Standing
			_, err = s.get(rowKey.finalPlace(generation, slot, int64(position)), func(b []byte) (err error) {
				st, err = bd.decodeStanding(int64(position), b)
				return err
			})
			got = append(got, string(slot)+string(st.SortKey()))
			return true, err
		}); err != nil {
			return false, err
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			return false, nil
		}
	}
	return true, nil
}

// beginSeal holds the locks of all users while it registers the seal in s.seals and takes the
// snapshot. An erasure holds its user's lock. So the snapshot contains each earlier erasure, and
// each later erasure adds its user to seal.erased (see eraseFinal).
func (s *Store) beginSeal(ctx context.Context, seasonKey leaderboard.SeasonKey, generation uint32) (*pebble.Snapshot, error) {
	unlock, err := s.lockAllUsers(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s.sealMu.Lock()
	defer s.sealMu.Unlock()
	s.seals[seasonKey] = &seal{generation: generation}
	return s.db.NewSnapshot(), nil
}

// endSeal writes one batch. The batch makes readers use the new generation, and removes from it the
// users who were erased after the seal started.
func (s *Store) endSeal(ctx context.Context, seasonKey leaderboard.SeasonKey, rowKey seasonRowKey, row *sealRow) error {
	unlock, err := s.lockAllUsers(ctx)
	if err != nil {
		s.abandonSeal(seasonKey, rowKey, row.Generation)
		return err
	}
	s.sealMu.Lock()
	erased := s.seals[seasonKey].erased
	delete(s.seals, seasonKey)
	s.sealMu.Unlock()

	batch := s.db.NewBatch()
	counts := map[string]uint64{}
	for _, user := range erased {
		if err == nil {
			err = s.eraseGeneration(ctx, batch, rowKey, row.Generation, user, counts)
		}
	}
	if err == nil {
		err = batch.DeleteRange(rowKey.finalGeneration(0), rowKey.finalGeneration(row.Generation), nil)
	}
	if err == nil {
		err = setJSON(batch, rowKey.kind(dataSeal), row)
	}
	if err != nil {
		unlock()
		return err
	}
	// This commit ignores ctx. If it returned early, makeFinal would unlock board.sealing, and the
	// next seal might not find the new generation.
	return s.commit(context.WithoutCancel(ctx), batch, unlock)
}

func (s *Store) abandonSeal(seasonKey leaderboard.SeasonKey, rowKey seasonRowKey, generation uint32) {
	batch := s.db.NewBatch()
	if batch.DeleteRange(rowKey.finalGeneration(generation), keyAfter(rowKey.kind(dataFinal)), nil) == nil {
		// If this commit fails, the next seal removes the rows.
		_ = s.commit(context.Background(), batch, func() {})
	}
	s.sealMu.Lock()
	defer s.sealMu.Unlock()
	delete(s.seals, seasonKey)
}

const sealBatchBytes = 1 << 20

func (s *Store) writeFinal(ctx context.Context, snapshot *pebble.Snapshot, bd *board, season leaderboard.SeasonID, generation uint32) error {
	rowKey := makeSeasonRowKey(bd.number, season)
	batch := s.db.NewBatch()
	// An interrupted seal may have left rows of this generation.
	if err := batch.DeleteRange(rowKey.finalGeneration(generation), keyAfter(rowKey.kind(dataFinal)), nil); err != nil {
		return err
	}
	write := func(key, value []byte) error {
		if batch.Len() >= sealBatchBytes {
			if err := s.commit(ctx, batch, func() {}); err != nil {
				return err
			}
			batch = s.db.NewBatch()
		}
		return batch.Set(key, value, nil)
	}

	ladders := rowKey.kind(dataLadder)
	it, err := snapshot.NewIter(&pebble.IterOptions{
		LowerBound: append(bytes.Clone(ladders), slotOverall), UpperBound: keyAfter(ladders)})
	if err != nil {
		return errUnavailable("read", err)
	}
	defer func() { _ = it.Close() }() // it.Error below returns the same error
	for ok := it.First(); ok; ok = it.Valid() {
		slot, _, ok := cutSlot(bytes.Clone(it.Key()[len(ladders):]))
		if !ok {
			return errFormat("ladder row")
		}
		var n uint64
		for standing, err := range leaderboard.AssignRanks(ladderRows(ctx, it, bd, season, ladders, slot)) {
			if err != nil {
				return err
			}
			n++
			if err := write(rowKey.finalPlace(generation, slot, standing.Ranks.Ordinal), appendStanding(nil, &standing)); err != nil {
				return err
			}
			if err := write(append(rowKey.finalUser(generation, standing.User), slot...),
				binary.AppendUvarint(nil, uint64(standing.Ranks.Ordinal))); err != nil {
				return err
			}
		}
		if err := write(rowKey.finalCount(generation, slot), binary.AppendUvarint(nil, n)); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return errUnavailable("read", err)
	}
	return s.commit(ctx, batch, func() {})
}

// ladderRows starts at the iterator's current row and leaves the iterator at the first row after
// the ladder.
func ladderRows(ctx context.Context, it *pebble.Iterator, bd *board, season leaderboard.SeasonID, ladders, slot []byte) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		prefix := append(bytes.Clone(ladders), slot...)
		for n := 1; it.Valid() && bytes.HasPrefix(it.Key(), prefix); n++ {
			var e leaderboard.Entry
			value, err := it.ValueAndErr()
			if err != nil {
				err = errUnavailable("read", err)
			} else {
				e, err = bd.decodeEntry(season, slot, it.Key()[len(prefix):], value)
			}
			if n%ctxRows == 0 && err == nil {
				err = ctx.Err()
			}
			if !yield(e, err) || err != nil {
				return
			}
			it.Next()
		}
	}
}
