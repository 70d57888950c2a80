package pebble

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// userState is the state of a user in a season during an operation.
type userState struct {
	s      *Store
	bd     *board
	season leaderboard.SeasonID
	user   leaderboard.UserID
	rowKey seasonRowKey

	row    userRow
	exists bool              // has a row in this season
	before leaderboard.Entry // at the start of the operation
	after  leaderboard.Entry // to be written

	records map[leaderboard.MatchID]*leaderboard.Record // read so far
	changed map[leaderboard.MatchID]bool                // to be written
	recent  map[leaderboard.MatchID]*recentRefusals     // read so far
	hasPut  bool                                        // a result is new or replaced, so the entry's version must grow

	stored   []leaderboard.MatchResult // the user's stored results; nil before the second call of recountTally
	recounts int                       // calls of recountTally so far
}

// If the user has no row in the season, the state gets the row of newUserRow.
func (s *Store) loadUser(bd *board, season leaderboard.SeasonID, user leaderboard.UserID) (*userState, error) {
	st := &userState{
		s: s, bd: bd, season: season, user: user, rowKey: makeSeasonRowKey(bd.number, season),
		records: map[leaderboard.MatchID]*leaderboard.Record{},
		changed: map[leaderboard.MatchID]bool{},
	}
	var err error
	if st.exists, err = s.get(st.rowKey.user(user), st.row.decode); err == nil && !st.exists {
		st.row, err = s.newUserRow(bd, season, user)
	}
	if err != nil {
		return nil, fmt.Errorf("user %q: %w", user, err)
	}
	st.before = st.entry()
	return st, nil
}

// A new row follows the user's account.
func (s *Store) newUserRow(bd *board, season leaderboard.SeasonID, user leaderboard.UserID) (userRow, error) {
	acc, err := s.engine.Account(context.Background(), user, &bd.Board)
	if err != nil {
		return userRow{}, err
	}
	row := userRow{version: acc.Version(), hidden: acc.Hidden, erasedAt: acc.ErasedAt}
	row.rules, err = s.rulesOf(bd, season)
	return row, err
}

// For a sealed season, rulesOf returns the Rules at the time of the seal, otherwise the board's
// current Rules.
func (s *Store) rulesOf(bd *board, season leaderboard.SeasonID) (int, error) {
	if bd.Rules() == 0 {
		return 0, nil
	}
	i, err := s.incarnation(bd, season)
	if err != nil {
		return 0, err
	}
	rules, sealed, err := s.engine.SealedRules(context.Background(), &i)
	if !sealed {
		rules = i.Rules
	}
	return rules, err
}

// board returns a board with the divisions that the entry follows. If AmendBoard changed the
// divisions after the caller read st.bd, st.bd may lack these divisions.
func (st *userState) board() *leaderboard.Board {
	bd := st.bd
	if current := st.s.boards.Load().byNumber[bd.number]; st.row.rules > bd.Rules() && current != nil {
		bd = current
	}
	return bd.WithRules(st.row.rules)
}

func (st *userState) entry() leaderboard.Entry {
	e := st.board().Entry(&st.row.tally, st.season, st.user)
	e.Hidden, e.Version = st.row.hidden, st.row.version
	return e
}

func (st *userState) resultKey(match leaderboard.MatchID) leaderboard.ResultKey {
	return leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: st.bd.ID, Season: st.season}, User: st.user, Match: match}
}

func (st *userState) record(match leaderboard.MatchID) (*leaderboard.Record, error) {
	if rec := st.records[match]; rec != nil {
		return rec, nil
	}
	rec := &leaderboard.Record{}
	if st.exists && st.row.matches.mayHave(match) {
		key := st.resultKey(match)
		if _, err := st.s.get(st.rowKey.record(st.user, match), func(b []byte) (err error) {
			*rec, err = decodeRecord(key, b)
			return err
		}); err != nil {
			return nil, err
		}
	}
	st.records[match] = rec
	return rec, nil
}

// The returned outcome has no Entry.
func (st *userState) merge(ctx context.Context, r *leaderboard.MatchResult) (leaderboard.Outcome, error) {
	rec, err := st.record(r.Match)
	if err != nil {
		return leaderboard.Outcome{}, err
	}
	in := *r
	if st.bd.Matches {
		i, err := st.s.incarnation(st.bd, st.season)
		var voids map[leaderboard.MatchID]int64
		if err == nil {
			voids, err = st.s.engine.Voids(ctx, &i, []leaderboard.MatchID{r.Match})
		}
		if err != nil {
			return leaderboard.Outcome{}, err
		}
		in.Voids = max(in.Voids, voids[r.Match])
	}
	b := st.board()
	d, err := st.decide(ctx, b, rec, &in)
	if err != nil {
		return leaderboard.Outcome{}, err
	}
	before := b.RankKey(&st.row.tally)
	if d.Refuse != nil && !d.Reason.IsRecent() {
		rec.Refusals = append(rec.Refusals, *d.Refuse)
		st.changed[r.Match] = true
	}
	if d.Put != nil {
		rec.Result = d.Put
		st.changed[r.Match] = true
		st.hasPut = true
		st.row.tally = d.Tally
		if d.Recount {
			if err := st.recountTally(ctx); err != nil {
				return leaderboard.Outcome{}, err
			}
		}
	}
	return d.Outcome(before, b.RankKey(&st.row.tally)), nil
}

// decide adds a recent refusal to st.recent.
func (st *userState) decide(ctx context.Context, b *leaderboard.Board, rec *leaderboard.Record, r *leaderboard.MatchResult) (leaderboard.Decision, error) {
	known := leaderboard.Known{
		Result: rec.Result, Refusals: rec.Refusals, Tally: st.row.tally, ErasedAt: st.row.erasedAt, DeletedAt: st.s.deletedAt(r.SeasonKey),
	}
	if b.NeedsRecent(r) {
		recent, err := st.recentOf(r.Match)
		if err != nil {
			return leaderboard.Decision{}, err
		}
		known.Refusals = slices.Concat(rec.Refusals, recent.stored, recent.record.Refusals)
	}
	d := b.Merge(known, *r)
	if d.BeginsSeason() && !st.exists && len(st.changed) == 0 {
		full, err := st.s.isFull(ctx, st.bd, st.season)
		if err != nil {
			return leaderboard.Decision{}, err
		}
		if full {
			d = b.RefuseSeason(known, *r)
		}
	}
	if d.Refuse != nil && d.Reason.IsRecent() {
		recent, err := st.recentOf(r.Match)
		if err != nil {
			return leaderboard.Decision{}, err
		}
		recent.add(d.Refuse)
	}
	return d, nil
}

// The second call reads the stored results into memory, also for later calls.
func (st *userState) recountTally(ctx context.Context) (err error) {
	if st.recounts++; st.recounts == 2 && st.exists {
		for r, err := range st.s.results(ctx, st.bd, st.season, st.user) {
			if err != nil {
				return err
			}
			st.stored = append(st.stored, r)
		}
	}
	st.row.tally, err = st.board().Count(st.results(ctx))
	return err
}

// A record in st.records replaces the stored record of the same match.
func (st *userState) results(ctx context.Context) iter.Seq2[leaderboard.MatchResult, error] {
	return func(yield func(leaderboard.MatchResult, error) bool) {
		for _, rec := range st.records {
			if rec.Result != nil && !yield(*rec.Result, nil) {
				return
			}
		}
		if !st.exists {
			return
		}
		stored := st.s.results(ctx, st.bd, st.season, st.user)
		if st.stored != nil {
			stored = func(yield func(leaderboard.MatchResult, error) bool) {
				for i := range st.stored {
					if !yield(st.stored[i], nil) {
						return
					}
				}
			}
		}
		for r, err := range stored {
			if err == nil && st.records[r.Match] != nil {
				continue
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

func (st *userState) finish(batch *pebble.Batch) (leaderboard.Change, func() error) {
	if st.hasPut {
		st.row.version++
	}
	st.after = st.entry()
	return leaderboard.Change{Before: st.before, After: st.after}, func() error { return st.write(batch) }
}

func (st *userState) write(batch *pebble.Batch) error {
	if err := st.writeRecent(batch); err != nil || len(st.changed) == 0 {
		return err
	}
	for _, match := range slices.Sorted(maps.Keys(st.changed)) {
		if err := batch.Set(st.rowKey.record(st.user, match), appendRecord(nil, st.records[match]), nil); err != nil {
			return err
		}
		st.row.matches.add(match)
	}
	if st.bd.Matches {
		if err := st.s.markOpened(batch, st.rowKey); err != nil {
			return err
		}
	}
	if !st.exists {
		if err := batch.Set(seasonsKey(st.user, st.bd.number, st.season), nil, nil); err != nil {
			return err
		}
	}
	if st.hasPut || !st.exists {
		return st.writeEntry(batch)
	}
	return st.writeRow(batch)
}

func (st *userState) writeRow(batch *pebble.Batch) error {
	row, err := st.row.append(nil)
	if err != nil {
		return err
	}
	return batch.Set(st.rowKey.user(st.user), row, nil)
}

func (st *userState) writeEntry(batch *pebble.Batch) error {
	if err := st.writeRow(batch); err != nil {
		return err
	}
	return replaceRows(batch, st.bd.placements(st.rowKey, &st.before), st.bd.placements(st.rowKey, &st.after))
}

func replaceRows(batch *pebble.Batch, oldRows, newRows []placement) error {
	for _, old := range oldRows {
		if slices.ContainsFunc(newRows, func(p placement) bool { return string(p.key) == string(old.key) }) {
			continue
		}
		if err := batch.Delete(old.key, nil); err != nil {
			return err
		}
	}
	for _, p := range newRows {
		if err := batch.Set(p.key, p.value, nil); err != nil {
			return err
		}
	}
	return nil
}
