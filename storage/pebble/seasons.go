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

// sealRow says that a season is sealed, and which generation of its final
// standings counts. There is none of generation 0.
type sealRow struct {
	Generation uint32                  `json:"generation"`
	SealedAt   time.Time               `json:"sealed_at"`
	Amendments []leaderboard.Amendment `json:"amendments,omitempty"`
}

func (r *sealRow) record(s leaderboard.Scope) leaderboard.SeasonRecord {
	return leaderboard.SeasonRecord{Scope: s, SealedAt: r.SealedAt, Amendments: r.Amendments}
}

// seal is the making of final standings, under way.
type seal struct {
	generation uint32
	erased     []leaderboard.UserID // since it began
}

// seasonsUnder returns the seasons of which there is anything under a prefix: a
// board's or that of a scope.
func seasonsUnder(ctx context.Context, r pebble.Reader, prefix []byte) (seasons []leaderboard.SeasonID, err error) {
	end := after(prefix)
	for next := prefix; next != nil; {
		from := next
		next = nil
		if err := scan(ctx, r, from, end, func(key, _ []byte) (bool, error) {
			number, season, _, ok := parseScope(key[1:])
			if !ok {
				return false, errFormat("key of a scope")
			}
			seasons = append(seasons, season)
			next = after(makeScopeKey(number, season))
			return false, nil
		}); err != nil {
			return nil, err
		}
		if bytes.Compare(next, end) >= 0 {
			next = nil
		}
	}
	slices.Sort(seasons)
	return seasons, nil
}

// Seasons returns the seasons of a board that have results or final standings.
func (s *Store) Seasons(ctx context.Context, id leaderboard.BoardID) ([]leaderboard.SeasonRecord, error) {
	bd := s.board(id)
	if bd == nil {
		return nil, ctx.Err()
	}
	seasons, err := seasonsUnder(ctx, s.db, boardPrefix(bd.number))
	if err != nil {
		return nil, err
	}
	var out []leaderboard.SeasonRecord
	for _, season := range seasons {
		record, err := s.seasonOf(bd, season)
		if err != nil {
			return nil, err
		}
		out = append(out, record)
	}
	return out, nil
}

// Season returns what is known of a season.
func (s *Store) Season(ctx context.Context, scope leaderboard.Scope) (leaderboard.SeasonRecord, error) {
	bd := s.board(scope.Board)
	if err := ctx.Err(); err != nil || bd == nil {
		return leaderboard.SeasonRecord{Scope: scope}, err
	}
	return s.seasonOf(bd, scope.Season)
}

func (s *Store) seasonOf(bd *board, season leaderboard.SeasonID) (leaderboard.SeasonRecord, error) {
	var row sealRow
	_, err := s.getJSON(makeScopeKey(bd.number, season).kind(dataSeal), &row)
	return row.record(leaderboard.Scope{Board: bd.ID, Season: season}), err
}

// DeleteSeason removes all that is kept of a scope.
func (s *Store) DeleteSeason(ctx context.Context, scope leaderboard.Scope) error {
	bd := s.board(scope.Board)
	if bd == nil {
		return s.settle(ctx)
	}
	if err := s.lock(ctx, bd.sealing); err != nil {
		return err
	}
	defer bd.sealing.unlock()
	return s.remove(ctx, s.db.NewBatch(), bd, makeScopeKey(bd.number, scope.Season), func() {})
}

// Seal makes the final standings of a scope.
func (s *Store) Seal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (leaderboard.SeasonRecord, error) {
	return s.makeFinal(ctx, b, season, a, false)
}

// Amend makes the final standings of a sealed season again. While the season is
// being sealed it waits, as those final standings may lack what was changed before.
func (s *Store) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (leaderboard.SeasonRecord, error) {
	record, err := s.makeFinal(ctx, b, season, a, true)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		err = notSealed(leaderboard.Scope{Board: b.ID, Season: season})
	}
	return record, err
}

// makeFinal makes the final standings of a scope; if again, of one that is sealed.
//
// They are written as a new generation, in many batches, from the state of one
// moment; the last batch makes it the one that counts and removes the one
// before. So memory is bounded, and readers and crashes see one or the other.
func (s *Store) makeFinal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment, again bool) (leaderboard.SeasonRecord, error) {
	scope := leaderboard.Scope{Board: b.ID, Season: season}
	fail := func(err error) (leaderboard.SeasonRecord, error) {
		return leaderboard.SeasonRecord{}, fmt.Errorf("seal of season %q of board %q: %w", season, b.ID, err)
	}
	bd, err := s.live(b)
	if err != nil {
		return fail(err)
	}
	if err := s.lock(ctx, bd.sealing); err != nil {
		return fail(err)
	}
	defer bd.sealing.unlock()
	if bd, err = s.live(b); err != nil { // it may have been deleted meanwhile; from here on it stays
		return fail(err)
	}
	key := makeScopeKey(bd.number, season)
	var row sealRow
	found, err := s.getJSON(key.kind(dataSeal), &row)
	if err == nil {
		err = s.failure() // of a seal of which it is not known whether it counts
	}
	if err == nil && again && !found {
		err = notSealed(scope)
	}
	if err != nil {
		return fail(err)
	}
	row.Generation++
	a.At = leaderboard.Truncate(a.At)
	switch {
	case !found:
		row.SealedAt = a.At
	case !a.At.Equal(row.SealedAt) && !slices.ContainsFunc(row.Amendments, func(o leaderboard.Amendment) bool {
		return o.At.Equal(a.At) && o.Reason == a.Reason
	}):
		row.Amendments = append(row.Amendments, a)
	}

	moment, err := s.beginSeal(ctx, scope, row.Generation)
	if err != nil {
		return fail(err)
	}
	defer moment.Close()
	if err := s.writeFinal(ctx, moment, bd, season, row.Generation); err != nil {
		s.abandonSeal(scope, key, row.Generation)
		return fail(err)
	}
	if err := s.endSeal(ctx, scope, key, &row); err != nil {
		return fail(err)
	}
	return row.record(scope), nil
}

// beginSeal takes note that final standings are being made, and returns the
// state to make them of. Erasures under way have ended by then, and those that
// come later know of the seal.
func (s *Store) beginSeal(ctx context.Context, scope leaderboard.Scope, generation uint32) (*pebble.Snapshot, error) {
	unlock, err := s.lockAllUsers(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s.sealMu.Lock()
	defer s.sealMu.Unlock()
	s.seals[scope] = &seal{generation: generation}
	return s.db.NewSnapshot(), nil
}

// endSeal makes a generation the one that counts. Users erased since it was
// begun are taken out of it.
func (s *Store) endSeal(ctx context.Context, scope leaderboard.Scope, key scopeKey, row *sealRow) error {
	unlock, err := s.lockAllUsers(ctx)
	if err != nil {
		s.abandonSeal(scope, key, row.Generation)
		return err
	}
	s.sealMu.Lock()
	erased := s.seals[scope].erased
	delete(s.seals, scope)
	s.sealMu.Unlock()

	batch := s.db.NewBatch()
	counts := map[string]uint64{}
	for _, user := range erased {
		if err == nil {
			err = s.eraseGeneration(ctx, batch, key, row.Generation, user, counts)
		}
	}
	if err == nil {
		err = batch.DeleteRange(key.final(0), key.final(row.Generation), nil)
	}
	if err == nil {
		err = setJSON(batch, key.kind(dataSeal), row)
	}
	if err != nil {
		unlock()
		return err
	}
	// Whoever waits for the gate finds the season sealed, or the store failed.
	return s.commit(context.WithoutCancel(ctx), batch, unlock)
}

// abandonSeal removes what there is of a generation that will not count.
func (s *Store) abandonSeal(scope leaderboard.Scope, key scopeKey, generation uint32) {
	batch := s.db.NewBatch()
	if batch.DeleteRange(key.final(generation), after(key.kind(dataFinal)), nil) == nil {
		// If this fails too, the next seal begins with it.
		_ = s.commit(context.Background(), batch, func() {})
	}
	s.sealMu.Lock()
	defer s.sealMu.Unlock()
	delete(s.seals, scope)
}

// sealBatchBytes is about how large the batches of a seal become.
const sealBatchBytes = 1 << 20

// writeFinal writes a generation of final standings of all ladders of a scope.
func (s *Store) writeFinal(ctx context.Context, moment *pebble.Snapshot, bd *board, season leaderboard.SeasonID, generation uint32) error {
	scope := makeScopeKey(bd.number, season)
	batch := s.db.NewBatch()
	// A seal that was cut short by a crash may have left something.
	if err := batch.DeleteRange(scope.final(generation), after(scope.kind(dataFinal)), nil); err != nil {
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

	ladders := scope.kind(dataLadder)
	it, err := moment.NewIter(&pebble.IterOptions{
		LowerBound: append(bytes.Clone(ladders), slotOverall), UpperBound: after(ladders)})
	if err != nil {
		return unavailable("read", err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Valid() {
		slot, _, ok := cutSlot(bytes.Clone(it.Key()[len(ladders):]))
		if !ok {
			return errFormat("ladder row")
		}
		var n uint64
		for standing, err := range leaderboard.Number(ladderRows(ctx, it, bd, season, ladders, slot)) {
			if err != nil {
				return err
			}
			n++
			if err := write(scope.finalPlace(generation, slot, standing.Ranks.Ordinal), appendStanding(nil, &standing)); err != nil {
				return err
			}
			if err := write(append(scope.finalUser(generation, standing.User), slot...),
				binary.AppendUvarint(nil, uint64(standing.Ranks.Ordinal))); err != nil {
				return err
			}
		}
		if err := write(scope.finalCount(generation, slot), binary.AppendUvarint(nil, n)); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return unavailable("read", err)
	}
	return s.commit(ctx, batch, func() {})
}

// ladderRows yields the entries in a slot from where it stands, and leaves it at
// the first row that is not in the slot.
func ladderRows(ctx context.Context, it *pebble.Iterator, bd *board, season leaderboard.SeasonID, ladders, slot []byte) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		prefix := append(bytes.Clone(ladders), slot...)
		for n := 1; it.Valid() && bytes.HasPrefix(it.Key(), prefix); n++ {
			var e leaderboard.Entry
			value, err := it.ValueAndErr()
			if err != nil {
				err = unavailable("read", err)
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

// eraseFinal adds to batch the removal of a user's final standings in a scope.
// The others keep their ranks.
func (s *Store) eraseFinal(ctx context.Context, batch *pebble.Batch, st *userState) error {
	scope := leaderboard.Scope{Board: st.bd.ID, Season: st.season}
	var making uint32 // the generation that is being made, if any
	s.sealMu.Lock()
	if sl := s.seals[scope]; sl != nil {
		making = sl.generation
		sl.erased = append(sl.erased, st.user)
	}
	s.sealMu.Unlock()
	prefix := st.scope.kind(dataFinal)
	counts := map[string]uint64{}
	for next := prefix; next != nil; {
		from := next
		next = nil
		var generation uint32
		if err := s.scan(ctx, from, after(prefix), func(key, _ []byte) (bool, error) {
			generation = binary.BigEndian.Uint32(key[len(prefix):])
			next = st.scope.final(generation + 1)
			return false, nil
		}); err != nil {
			return err
		}
		if next == nil || generation == making {
			continue
		}
		if err := s.eraseGeneration(ctx, batch, st.scope, generation, st.user, counts); err != nil {
			return err
		}
	}
	return nil
}

// eraseGeneration is eraseFinal for one generation. counts holds, by key, the
// numbers of standings that batch changes.
func (s *Store) eraseGeneration(ctx context.Context, batch *pebble.Batch, scope scopeKey, generation uint32, user leaderboard.UserID, counts map[string]uint64) error {
	prefix := scope.finalUser(generation, user)
	return s.scan(ctx, prefix, after(prefix), func(key, value []byte) (bool, error) {
		slot := key[len(prefix):]
		position, err := decodeUvarint(value)
		if err != nil {
			return false, err
		}
		if err := batch.Delete(key, nil); err != nil {
			return false, err
		}
		if err := batch.Delete(scope.finalPlace(generation, slot, int64(position)), nil); err != nil {
			return false, err
		}
		countKey := scope.finalCount(generation, slot)
		n, ok := counts[string(countKey)]
		if !ok {
			if _, err := s.get(countKey, func(b []byte) (err error) {
				n, err = decodeUvarint(b)
				return err
			}); err != nil {
				return false, err
			}
		}
		if n == 0 { // of a seal that a crash cut short
			return true, nil
		}
		counts[string(countKey)] = n - 1
		return true, batch.Set(countKey, binary.AppendUvarint(nil, n-1), nil)
	})
}

// final is a sealed ladder, as of one moment.
type final struct {
	bd     *board
	moment *pebble.Snapshot
	scope  scopeKey
	slot   []byte // nil if the board has no such division
	sealRow
}

// openFinal returns a sealed ladder, which the caller closes.
func (s *Store) openFinal(ctx context.Context, l leaderboard.Ladder) (*final, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	bd := s.board(l.Board)
	if bd == nil {
		return nil, notSealed(l.Scope)
	}
	f := &final{bd: bd, moment: s.db.NewSnapshot(), scope: makeScopeKey(bd.number, l.Season)}
	f.slot, _ = bd.slot(l.Division)
	found, err := get(f.moment, f.scope.kind(dataSeal), func(b []byte) error { return decodeJSON(b, &f.sealRow) })
	if err == nil && !found {
		err = notSealed(l.Scope)
	}
	if err != nil {
		f.moment.Close()
		return nil, err
	}
	return f, nil
}

func notSealed(s leaderboard.Scope) error {
	return fmt.Errorf("pebble: season %q of board %q: %w", s.Season, s.Board, leaderboard.ErrNotSealed)
}

// FinalStandings returns final standings from a position on.
func (s *Store) FinalStandings(ctx context.Context, l leaderboard.Ladder, position int64, n int) ([]leaderboard.Standing, int64, error) {
	f, err := s.openFinal(ctx, l)
	if err != nil {
		return nil, 0, err
	}
	defer f.moment.Close()
	if f.slot == nil {
		return nil, 0, nil
	}
	var total uint64
	if _, err := get(f.moment, f.scope.finalCount(f.Generation, f.slot), func(b []byte) (err error) {
		total, err = decodeUvarint(b)
		return err
	}); err != nil {
		return nil, 0, err
	}
	if n <= 0 {
		return nil, int64(total), nil
	}
	var out []leaderboard.Standing
	prefix := f.scope.finalPlaces(f.Generation, f.slot)
	from := f.scope.finalPlace(f.Generation, f.slot, max(position, 1))
	err = scan(ctx, f.moment, from, after(prefix), func(key, value []byte) (bool, error) {
		standing, err := f.bd.decodeStanding(int64(binary.BigEndian.Uint64(key[len(prefix):])), value)
		out = append(out, standing)
		return len(out) < n, err
	})
	if err != nil {
		return nil, 0, err
	}
	return out, int64(total), nil
}

// FinalStanding returns a user's final standing.
func (s *Store) FinalStanding(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID) (leaderboard.Standing, error) {
	f, err := s.openFinal(ctx, l)
	if err != nil {
		return leaderboard.Standing{}, err
	}
	defer f.moment.Close()
	var standing leaderboard.Standing
	found := false
	if f.slot != nil {
		var position uint64
		found, err = get(f.moment, append(f.scope.finalUser(f.Generation, user), f.slot...), func(b []byte) (err error) {
			position, err = decodeUvarint(b)
			return err
		})
		if err == nil && found {
			found, err = get(f.moment, f.scope.finalPlace(f.Generation, f.slot, int64(position)), func(b []byte) (err error) {
				standing, err = f.bd.decodeStanding(int64(position), b)
				return err
			})
		}
	}
	switch {
	case err != nil:
		return leaderboard.Standing{}, err
	case !found:
		return leaderboard.Standing{}, fmt.Errorf("pebble: final standing of user %q: %w", user, leaderboard.ErrEntryNotFound)
	}
	return standing, nil
}
