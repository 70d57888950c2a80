package pebble

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
)

// Recent refusals are in rows outside of the seasons. The key of a row begins with the period of the
// write, so that one deletion removes all rows of a period. A refusal is removed once a period has ended
// RefusalTime ago.
const refusalPeriod = 10 * 24 * time.Hour

func periodOf(t time.Time) uint32 { return uint32(t.Unix() / int64(refusalPeriod.Seconds())) }

// periods returns the present period, and the earlier periods whose refusals are kept.
func (s *Store) periods() (oldest, present uint32) {
	now := s.now()
	return periodOf(now.Add(-leaderboard.RefusalTime)), periodOf(now)
}

func refusalsOf(period uint32, user leaderboard.UserID) []byte {
	return codec.AppendText(binary.BigEndian.AppendUint32([]byte{kindRefusals}, period), user)
}

func refusalsPrefix(period, board uint32, user leaderboard.UserID, match leaderboard.MatchID) []byte {
	return codec.AppendText(binary.BigEndian.AppendUint32(refusalsOf(period, user), board), match)
}

func refusalsKey(period, board uint32, key *leaderboard.ResultKey) []byte {
	return append(refusalsPrefix(period, board, key.User, key.Match), key.Season...)
}

// RecentRefusals implements [leaderboard.Store].
func (s *Store) RecentRefusals(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey) ([]leaderboard.RecentRefusal, error) {
	bd, err := s.liveBoard(b)
	if err != nil || ctx.Err() != nil {
		return nil, ctx.Err() // the refusals of a deleted board are deleted
	}
	oldest, present := s.periods()
	var refusals []leaderboard.RecentRefusal
	for period := oldest; period <= present; period++ {
		prefix := refusalsPrefix(period, bd.number, key.User, key.Match)
		if err := s.scan(ctx, append(prefix, key.Season...), keyAfter(prefix), func(k, value []byte) (bool, error) {
			season := leaderboard.SeasonID(k[len(prefix):])
			if key.Season != "" && season != key.Season {
				return false, nil
			}
			rec, err := decodeRecord(key, value)
			deletedAt := s.deletedAt(leaderboard.SeasonKey{Board: b.ID, Season: season})
			for _, f := range rec.Refusals {
				if !b.IsDeleted(deletedAt, f.ReceivedAt) {
					refusals = append(refusals, leaderboard.RecentRefusal{Season: season, Refusal: f})
				}
			}
			return true, err
		}); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(refusals, leaderboard.RecentRefusal.Compare)
	return refusals, nil
}

// recentRefusals are the recent refusals of a user's match during an operation.
type recentRefusals struct {
	present uint32
	stored  []leaderboard.Refusal // in earlier periods
	record  leaderboard.Record    // the row of the present period: it has only Refusals
	changed bool
}

func (r *recentRefusals) add(f *leaderboard.Refusal) {
	r.record.Refusals = slices.DeleteFunc(r.record.Refusals, func(o leaderboard.Refusal) bool { return o.Revision == f.Revision && o.Content == f.Content })
	r.record.Refusals, r.changed = append(r.record.Refusals, *f), true
}

func (st *userState) recentOf(match leaderboard.MatchID) (*recentRefusals, error) {
	if recent := st.recent[match]; recent != nil {
		return recent, nil
	}
	key := st.resultKey(match)
	oldest, present := st.s.periods()
	recent := &recentRefusals{present: present}
	for period := oldest; period <= present; period++ {
		recent.stored = append(recent.stored, recent.record.Refusals...)
		recent.record = leaderboard.Record{}
		if _, err := st.s.get(refusalsKey(period, st.bd.number, &key), func(b []byte) (err error) {
			recent.record, err = decodeRecord(key, b)
			return err
		}); err != nil {
			return nil, err
		}
	}
	if st.recent == nil {
		st.recent = map[leaderboard.MatchID]*recentRefusals{}
	}
	st.recent[match] = recent
	return recent, nil
}

func (st *userState) writeRecent(batch *pebble.Batch) error {
	for match, recent := range st.recent {
		if !recent.changed {
			continue
		}
		key := st.resultKey(match)
		if err := batch.Set(refusalsKey(recent.present, st.bd.number, &key), appendRecord(nil, &recent.record), nil); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) eraseRecent(batch *pebble.Batch, user leaderboard.UserID) error {
	oldest, present := s.periods()
	for period := oldest; period <= present; period++ {
		if err := deletePrefix(batch, refusalsOf(period, user)); err != nil {
			return err
		}
	}
	return nil
}

// removeExpired removes the refusals of expired periods.
func (s *Store) removeExpired(ctx context.Context) error {
	oldest, _ := s.periods()
	first, end := []byte{kindRefusals}, binary.BigEndian.AppendUint32([]byte{kindRefusals}, oldest)
	found := false
	if err := s.scan(ctx, first, end, func(_, _ []byte) (bool, error) { found = true; return false, nil }); err != nil || !found {
		return err
	}
	batch := s.db.NewBatch()
	if err := batch.DeleteRange(first, end, nil); err != nil {
		return errUnavailable("write", err)
	}
	return s.commit(ctx, batch, func() {})
}

// knownSeasons has the seasons of a board with results, and maybe seasons whose first write failed. It is
// empty until the first call of isFull.
type knownSeasons struct {
	mu  sync.Mutex
	ids map[leaderboard.SeasonID]bool
}

func (k *knownSeasons) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ids = nil
}

// isFull reports whether a result must not begin the season. Otherwise it adds the season to bd.seasons.
func (s *Store) isFull(ctx context.Context, bd *board, season leaderboard.SeasonID) (bool, error) {
	if !bd.HasSeasonLimit() {
		return false, nil
	}
	k := bd.seasons
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids == nil {
		ids, err := seasonsUnder(ctx, s.db, boardPrefix(bd.number))
		if err != nil {
			return false, err
		}
		k.ids = map[leaderboard.SeasonID]bool{}
		for _, id := range ids {
			k.ids[id] = true
		}
	}
	if !k.ids[season] && len(k.ids) >= s.maxSeasons {
		return true, nil
	}
	k.ids[season] = true
	return false, nil
}
