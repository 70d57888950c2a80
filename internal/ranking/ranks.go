package ranking

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/coalesce"
)

// rankWriter updates the ranks after entries have changed in the store. The ranks are
// in the index, or in the final standings of a sealed season.
type rankWriter struct {
	boards *BoardCache
	store  leaderboard.Store
	index  *rankIndex
	hub    *hub
	tasks  *tasks
	now    func() time.Time
	amends coalesce.Group[amendKey, *amendment]
}

func newRankWriter(boards *BoardCache, store leaderboard.Store, index *rankIndex, hub *hub, tasks *tasks, now func() time.Time) *rankWriter {
	w := &rankWriter{boards: boards, store: store, index: index, hub: hub, tasks: tasks, now: now}
	w.amends.Call = w.amendBatch
	return w
}

// update updates the ranks of entries. In sealed seasons, it amends the final standings
// for the given reason. The slice changed contains the entries that the caller has
// changed. The slice unchanged contains entries that an earlier process may have changed
// before it died without updating the ranks.
func (w *rankWriter) update(ctx context.Context, changed, unchanged []leaderboard.Entry, reason string) error {
	type entries struct{ changed, unchanged []leaderboard.Entry }
	bySeason := map[leaderboard.SeasonKey]*entries{}
	of := func(key leaderboard.SeasonKey) *entries {
		if bySeason[key] == nil {
			bySeason[key] = &entries{}
		}
		return bySeason[key]
	}
	for _, e := range changed {
		of(e.SeasonKey).changed = append(of(e.SeasonKey).changed, e)
	}
	for _, e := range unchanged {
		of(e.SeasonKey).unchanged = append(of(e.SeasonKey).unchanged, e)
	}
	for key, e := range bySeason {
		if err := w.updateSeason(ctx, key, e.changed, e.unchanged, reason); err != nil {
			return err
		}
	}
	return nil
}

// updateRecounted does the work of update for entries that the caller has recounted.
func (w *rankWriter) updateRecounted(ctx context.Context, changes []leaderboard.Change, reason string) error {
	var changed, unchanged []leaderboard.Entry
	for i := range changes {
		if c := &changes[i]; c.Before.Version == c.After.Version {
			unchanged = append(unchanged, c.After)
		} else {
			changed = append(changed, c.After)
		}
	}
	return w.update(ctx, changed, unchanged, reason)
}

// updateSeason does the work of update for the entries of one season.
func (w *rankWriter) updateSeason(ctx context.Context, key leaderboard.SeasonKey, changed, unchanged []leaderboard.Entry, reason string) error {
	b, err := w.boards.board(ctx, key.Board)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return nil // after the entries changed, the board and its ranks were deleted
	}
	if err != nil {
		return err
	}
	if len(changed) == 0 {
		done, err := w.inFinalStandings(ctx, b, key, unchanged)
		if err != nil || done {
			return err
		}
	}
	return w.amendOr(ctx, b, key, reason, func() error {
		// The index usually has these entries already. The zero time does not change
		// the time of the season's last change.
		if err := w.index.tryUpdate(ctx, key, time.Time{}, unchanged); err != nil || len(changed) == 0 {
			return err
		}
		defer w.hub.notify(key)
		return w.index.tryUpdate(ctx, key, leaderboard.Truncate(w.now()), changed)
	})
}

// rebuild builds the ranks of a season from the season's entries. It fills the index,
// or amends the final standings of a sealed season for the given reason.
func (w *rankWriter) rebuild(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, reason string) error {
	return w.amendOr(ctx, b, key, reason, func() error {
		defer w.hub.notify(key)
		return w.index.fill(ctx, b, key, nil)
	})
}

// amendOr amends the final standings if the season is sealed, and calls updateIndex
// otherwise.
//
// The caller must change the entries in the store before it calls amendOr. The final
// standings then include the change, even if the season is sealed at the same time: see
// [leaderboard.SeasonStore].Amend.
func (w *rankWriter) amendOr(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, reason string, updateIndex func() error) error {
	season, err := b.Season.ByID(key.Season)
	if err != nil {
		return err
	}
	err = leaderboard.ErrNotSealed
	if w.boards.mayBeSealed(season) {
		err = w.amend(ctx, b, key, reason)
	}
	if errors.Is(err, leaderboard.ErrNotSealed) {
		return updateIndex()
	}
	return err
}

// amendKey identifies a season of a board. The board's creation time distinguishes the
// board from a deleted board with the same id.
type amendKey struct {
	leaderboard.SeasonKey
	createdAt int64
}

// amendment is a request to amend the final standings of a season.
type amendment struct {
	board  *leaderboard.Board
	reason string
	sealed bool // the answer: the season was sealed, and the amendment is written
}

// amend recomputes the final standings of a sealed season. If the season is not sealed,
// it returns [leaderboard.ErrNotSealed]. Requests that arrive while an amendment is
// running wait, and then share the next amendment.
func (w *rankWriter) amend(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, reason string) error {
	a := &amendment{board: b, reason: reason}
	_, err := runToEnd(ctx, w.tasks, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.amends.Do(ctx, amendKey{key, b.CreatedAt.UnixMicro()}, a)
	})
	if err == nil && !a.sealed {
		err = leaderboard.ErrNotSealed
	}
	return err
}

// amendBatch amends final standings once, for the reasons of all requests.
func (w *rankWriter) amendBatch(ctx context.Context, key amendKey, batch []*amendment) error {
	var reasons []string
	for _, a := range batch {
		if !slices.Contains(reasons, a.reason) {
			reasons = append(reasons, a.reason)
		}
	}
	err := w.writeFinal(ctx, batch[0].board, key.SeasonKey, strings.Join(reasons, ", "), w.store.Amend)
	if errors.Is(err, leaderboard.ErrNotSealed) {
		return nil
	}
	for _, a := range batch {
		a.sealed = err == nil
	}
	return err
}

// seal writes the final standings of a closed season.
func (w *rankWriter) seal(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey) error {
	return w.writeFinal(ctx, b, key, "season over", w.store.Seal)
}

// writeFinal calls write, which is the store's Seal or Amend. It then drops the season
// from the index and notifies watchers.
func (w *rankWriter) writeFinal(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, reason string,
	write func(context.Context, *leaderboard.Board, leaderboard.SeasonID, leaderboard.Amendment) (leaderboard.SeasonRecord, error)) error {
	record, err := write(ctx, b, key.Season, leaderboard.Amendment{At: leaderboard.Truncate(w.now()), Reason: reason})
	if err != nil {
		return err
	}
	w.boards.putSeason(record)
	defer w.hub.notify(key)
	return w.index.tryDrop(ctx, key)
}

var errDiffers = errors.New("the final standings differ from the entry")

// inFinalStandings reports whether a season is sealed and its final standings agree
// with entries. It checks the current divisions of each entry only. It does not notice
// a user who is still in the final standings of a former division.
func (w *rankWriter) inFinalStandings(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, entries []leaderboard.Entry) (bool, error) {
	season, err := b.Season.ByID(key.Season)
	if err != nil || !w.boards.mayBeSealed(season) {
		return false, err
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelReads)
	for i := range entries {
		e := &entries[i]
		for _, d := range append([]leaderboard.Division{{}}, e.Divisions...) {
			group.Go(func() error {
				st, err := w.store.FinalStanding(gctx, leaderboard.Ladder{SeasonKey: key, Division: d}, e.User)
				found := err == nil
				if err != nil && !errors.Is(err, leaderboard.ErrEntryNotFound) {
					return err
				}
				if found != e.Ranked() || found && (st.Key != e.Key || !st.AchievedAt.Equal(e.AchievedAt)) {
					return errDiffers
				}
				return nil
			})
		}
	}
	err = group.Wait()
	if errors.Is(err, errDiffers) || errors.Is(err, leaderboard.ErrNotSealed) {
		return false, nil
	}
	return err == nil, err
}
