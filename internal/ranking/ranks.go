package ranking

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/open-leaderboard/leaderboard"
)

type rankWriter struct {
	boards  *BoardCache
	store   leaderboard.Store
	index   *rankIndex
	journal Journal
	hub     *hub
	tasks   *tasks
	now     func() time.Time
}

func newRankWriter(boards *BoardCache, store leaderboard.Store, index *rankIndex, journal Journal, hub *hub, tasks *tasks, now func() time.Time) *rankWriter {
	return &rankWriter{boards: boards, store: store, index: index, journal: journal, hub: hub, tasks: tasks, now: now}
}

// update writes entries to the index. In a sealed season, it instead marks the users for an
// amendment. The caller has changed the entries in updates. Another process may have changed the
// entries in repeats, and died before it updated the index. If a season fails, update continues
// with the other seasons.
func (w *rankWriter) update(ctx context.Context, updates, repeats []leaderboard.Entry, reason string) error {
	return eachSeason(updates, repeats, func(key leaderboard.SeasonKey, updates, repeats []leaderboard.Entry) error {
		return w.updateSeason(ctx, key, updates, repeats, reason)
	})
}

func eachSeason(updates, repeats []leaderboard.Entry, f func(key leaderboard.SeasonKey, updates, repeats []leaderboard.Entry) error) error {
	type entries struct{ updates, repeats []leaderboard.Entry }
	bySeason := map[leaderboard.SeasonKey]*entries{}
	entriesOf := func(key leaderboard.SeasonKey) *entries {
		if bySeason[key] == nil {
			bySeason[key] = &entries{}
		}
		return bySeason[key]
	}
	for _, e := range updates {
		entriesOf(e.SeasonKey).updates = append(entriesOf(e.SeasonKey).updates, e)
	}
	for _, e := range repeats {
		entriesOf(e.SeasonKey).repeats = append(entriesOf(e.SeasonKey).repeats, e)
	}
	var errs []error
	for key, e := range bySeason {
		errs = append(errs, f(key, e.updates, e.repeats))
	}
	return errors.Join(errs...)
}

func (w *rankWriter) updateRecounted(ctx context.Context, changes []leaderboard.Change, reason string) error {
	var updates, repeats []leaderboard.Entry
	for i := range changes {
		if c := &changes[i]; c.Before.Version == c.After.Version {
			repeats = append(repeats, c.After)
		} else {
			updates = append(updates, c.After)
		}
	}
	return w.update(ctx, updates, repeats, reason)
}

// boardAge is the greatest age of a cached board from which update decides whether a season may
// be sealed. If an administrator ends a season early, the seal comes at least sealDelay later.
// boardAge is less than sealDelay, so a board that is cached at the seal has the early end.
const boardAge = 10 * time.Second

// updateSeason reads the board, because the caller may have read it long ago.
func (w *rankWriter) updateSeason(ctx context.Context, key leaderboard.SeasonKey, updates, repeats []leaderboard.Entry, reason string) error {
	b, err := w.boards.boardSince(ctx, key.Board, time.Now().Add(-boardAge))
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(updates) == 0 {
		if done, err := w.repeatAmendment(ctx, b, key, repeats, reason); done || err != nil {
			return err
		}
	}
	mark := func() error { return w.store.MarkFinal(ctx, b, key.Season, usersOf(updates, repeats), reason) }
	return w.ifSealed(b, key, mark, func() error {
		// The zero time does not change the season's AsOf.
		if err := w.index.tryUpdate(ctx, key, time.Time{}, repeats); err != nil {
			return err
		}
		if len(updates) > 0 {
			defer w.hub.notify(key)
			at := leaderboard.Truncate(w.now())
			var group errgroup.Group
			group.Go(func() error { return w.store.NoteChange(ctx, key, at) })
			group.Go(func() error { return w.index.tryUpdate(ctx, key, at, updates) })
			if err := group.Wait(); err != nil {
				return err
			}
		}
		return w.note(ctx, key, usersOf(updates, repeats))
	})
}

func (w *rankWriter) rebuild(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, reason string) error {
	amend := func() error { return w.amend(ctx, b, key, []string{reason}, nil) }
	return w.ifSealed(b, key, amend, func() error {
		defer w.hub.notify(key)
		return w.index.fill(ctx, b, key, nil)
	})
}

func usersOf(lists ...[]leaderboard.Entry) (users []leaderboard.UserID) {
	for _, e := range slices.Concat(lists...) {
		users = append(users, e.User)
	}
	return users
}

// If the season may be sealed, ifSealed calls changeFinal. If changeFinal was not called, or
// returns [leaderboard.ErrNotSealed], ifSealed calls updateIndex.
//
// The caller must first change the entries in the store, and changeFinal must call MarkFinal or
// Amend. A concurrent seal then does not lose the change: see
// [leaderboard.SeasonStore].MarkFinal.
func (w *rankWriter) ifSealed(b *leaderboard.Board, key leaderboard.SeasonKey, changeFinal, updateIndex func() error) error {
	season, err := b.Season.ByID(key.Season)
	if err != nil {
		return err
	}
	err = leaderboard.ErrNotSealed
	if w.boards.mayBeSealed(season) {
		err = changeFinal()
	}
	if errors.Is(err, leaderboard.ErrNotSealed) {
		return updateIndex()
	}
	return err
}

// amend amends the final standings of users, or of all users if users is empty. Errors:
// [leaderboard.ErrNotSealed].
func (w *rankWriter) amend(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, reasons []string, users []leaderboard.UserID) error {
	a := leaderboard.Amendment{At: leaderboard.Truncate(w.now()), Reason: strings.Join(reasons, ", ")}
	record, err := w.store.Amend(ctx, b, key.Season, a, users)
	if err != nil {
		return err
	}
	return w.useFinal(ctx, record)
}

func (w *rankWriter) seal(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey) error {
	record, err := w.store.Seal(ctx, b, key.Season, leaderboard.Truncate(w.now()))
	if err != nil {
		return err
	}
	return w.useFinal(ctx, record)
}

func (w *rankWriter) useFinal(ctx context.Context, record leaderboard.SeasonRecord) error {
	w.boards.putSeason(record)
	defer w.hub.notify(record.SeasonKey)
	return w.index.dropFinal(ctx, record.SeasonKey)
}

// repeatAmendment returns true if the final standings agree with entries. The users then need
// no mark.
//
// A concurrent amendment may have read older entries, and could replace the final standings. So
// repeatAmendment calls Amend, which makes the concurrent amendment read the entries again.
//
// If the store is unavailable, repeatAmendment returns false. The caller then marks the users,
// so the consumer need not wait.
func (w *rankWriter) repeatAmendment(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, entries []leaderboard.Entry, reason string) (bool, error) {
	agree, err := w.inFinalStandings(ctx, b, key, entries)
	if err == nil && agree {
		a := leaderboard.Amendment{At: leaderboard.Truncate(w.now()), Reason: reason}
		_, err = w.store.Amend(ctx, b, key.Season, a, usersOf(entries))
	}
	if errors.Is(err, leaderboard.ErrNotSealed) || errors.Is(err, leaderboard.ErrUnavailable) {
		return false, nil
	}
	return agree, err
}

// inFinalStandings reports whether the final standings agree with entries. It omits the ladders
// of former divisions.
func (w *rankWriter) inFinalStandings(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, entries []leaderboard.Entry) (bool, error) {
	season, err := b.Season.ByID(key.Season)
	if err != nil || !w.boards.mayBeSealed(season) {
		return false, err
	}
	users, indexes := map[leaderboard.Division][]leaderboard.UserID{}, map[leaderboard.Division][]int{}
	for i := range entries {
		for _, d := range append([]leaderboard.Division{{}}, entries[i].Divisions...) {
			users[d], indexes[d] = append(users[d], entries[i].User), append(indexes[d], i)
		}
	}
	for d := range users {
		final, _, err := w.store.FinalLookup(ctx, leaderboard.Ladder{SeasonKey: key, Division: d}, users[d])
		if errors.Is(err, leaderboard.ErrNotSealed) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for i := range final {
			e := &entries[indexes[d][i]]
			if ranked := final[i].Key != ""; ranked != e.Ranked() || ranked && (final[i].Key != e.Key || !final[i].AchievedAt.Equal(e.AchievedAt)) {
				return false, nil
			}
		}
	}
	return true, nil
}
