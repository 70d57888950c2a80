package ranking

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	// CatchUp drops a season if it must refresh more than minRebuilt users, and more than
	// 1/rebuiltShare of the season's users in the index.
	minRebuilt   = 1000
	rebuiltShare = 8
	refreshChunk = 512
	maxRepairs   = 1 << 16
)

// CatchUp updates the index with the stored entries of users, in the season and on the linked
// boards. It is called if a process may have died before it updated the index. The board of
// the season must not be a linked board. If users is nil, CatchUp updates all users.
//
// Once CatchUp has returned no error and Synced returns true, every process sees the entries or
// treats their season as not loaded. After an error, rest has the users whose entries are not
// refreshed. CatchUp may be repeated, and may run while results are applied: the index ignores
// older versions of an entry.
//
// If users is nil or long, it is cheaper to fill the season again. CatchUp then drops the
// season and the unsealed seasons of the linked boards, and returns dropped as true. CatchUp
// also updates a season that is not loaded: another process may be filling the season, and may
// have read the entries before they changed.
//
// Errors: [leaderboard.ErrRankUnavailable] if the index does not answer; errors of the store.
func (a *Applier) CatchUp(ctx context.Context, key leaderboard.SeasonKey, users []leaderboard.UserID) (rest []leaderboard.UserID, dropped bool, err error) {
	links, err := a.linksOf(ctx, key.Board)
	if err != nil {
		return users, false, err
	}
	if links.source == nil {
		return nil, false, nil
	}
	many, err := a.isLargePart(ctx, key, users)
	if err != nil {
		return users, false, err
	}
	if users == nil || many {
		err := a.dropSeason(ctx, key)
		for _, b := range links.boards {
			err = errors.Join(err, a.dropUnsealed(ctx, b))
		}
		if err != nil {
			return users, false, err
		}
		return nil, true, nil
	}
	for len(users) > 0 {
		// A failed Update makes the season unavailable, so first check that the index answers.
		if _, err := a.index.Loaded(ctx, key); err != nil {
			return users, false, err
		}
		n := min(len(users), refreshChunk)
		if err := a.refreshIndex(ctx, links, key, users[:n]); err != nil {
			return users, false, err
		}
		users = users[n:]
	}
	return nil, false, nil
}

func (a *Applier) isLargePart(ctx context.Context, key leaderboard.SeasonKey, users []leaderboard.UserID) (bool, error) {
	if len(users) <= minRebuilt {
		return false, nil
	}
	loaded, err := a.index.Loaded(ctx, key)
	if err != nil || !loaded {
		return true, err
	}
	_, view, err := a.index.Index.Page(ctx, leaderboard.Ladder{SeasonKey: key}, 1, 1, leaderboard.Ordinal)
	return int64(len(users)) > view.Size/rebuiltShare, err
}

// RepairIndex updates the index, in the background, with a user's entry that another process
// could not write to it. If RepairIndex fails, or too many entries are waiting, it invalidates
// the season ([leaderboard.Index].Invalidate). Otherwise the index could return old ranks after
// an outage.
func (a *Applier) RepairIndex(key leaderboard.SeasonKey, user leaderboard.UserID) {
	added, start := a.repairs.add(leaderboard.EntryKey{SeasonKey: key, User: user})
	if !added {
		a.index.Invalidate(key)
	}
	if start {
		a.tasks.running.Go(a.repairIndex)
	}
}

func (a *Applier) repairIndex() {
	for pending := a.repairs.take(); len(pending) > 0; pending = a.repairs.take() {
		seasons := map[leaderboard.SeasonKey][]leaderboard.UserID{}
		for k := range pending {
			seasons[k.SeasonKey] = append(seasons[k.SeasonKey], k.User)
		}
		for key, users := range seasons {
			if err := a.repairSeason(key, users); err != nil && a.tasks.ctx.Err() == nil {
				a.index.Invalidate(key)
			}
		}
	}
}

func (a *Applier) repairSeason(key leaderboard.SeasonKey, users []leaderboard.UserID) error {
	for chunk := range slices.Chunk(users, refreshChunk) {
		if err := a.Reindex(a.tasks.ctx, key, chunk, a.now()); err != nil {
			return err
		}
	}
	return nil
}

type repairs struct {
	mu      sync.Mutex
	pending map[leaderboard.EntryKey]struct{}
	running bool // a goroutine takes the pending entries
}

// add adds an entry. If too many entries are pending, add removes the season's entries instead
// and returns added as false; the caller must invalidate the season. If start is true, the
// caller must start a goroutine that calls take.
func (r *repairs) add(k leaderboard.EntryKey) (added, start bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) >= maxRepairs {
		maps.DeleteFunc(r.pending, func(other leaderboard.EntryKey, _ struct{}) bool { return other.SeasonKey == k.SeasonKey })
		return false, false
	}
	if r.pending == nil {
		r.pending = map[leaderboard.EntryKey]struct{}{}
	}
	r.pending[k] = struct{}{}
	start, r.running = !r.running, true
	return true, start
}

// If take returns no entries, the goroutine must end.
func (r *repairs) take() map[leaderboard.EntryKey]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.pending
	r.pending, r.running = nil, len(taken) > 0
	return taken
}

// CatchUpAll does the work of CatchUp for all users of all seasons: it drops all unsealed
// seasons from the index.
func (a *Applier) CatchUpAll(ctx context.Context) error {
	boards, err := a.store.Boards(ctx)
	if err != nil {
		return err
	}
	for i := range boards {
		if err := a.dropUnsealed(ctx, &boards[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *shared) dropUnsealed(ctx context.Context, b *leaderboard.Board) error {
	ids, err := s.store.SeasonIDs(ctx, b.ID)
	if err != nil {
		return err
	}
	for _, id := range ids {
		key := leaderboard.SeasonKey{Board: b.ID, Season: id}
		season, err := b.Season.ByID(id)
		if err != nil {
			return err
		}
		if _, sealed, err := s.seasonRecord(ctx, b, season); sealed || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if err := s.dropSeason(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func (s *shared) dropSeason(ctx context.Context, key leaderboard.SeasonKey) error {
	defer s.hub.notify(key)
	return s.index.Drop(ctx, key)
}

// refreshIndex updates the index with the entries of users: in one season (key) of the source, and in
// all seasons of its linked boards.
func (a *Applier) refreshIndex(ctx context.Context, links *linking, key leaderboard.SeasonKey, users []leaderboard.UserID) error {
	changedAt := a.now()
	keys := make([][]leaderboard.EntryKey, len(users))
	if err := eachRead(ctx, len(users), func(ctx context.Context, i int) error {
		keys[i] = []leaderboard.EntryKey{{SeasonKey: key, User: users[i]}}
		if len(links.boards) == 0 {
			return nil
		}
		seasons, err := a.store.UserSeasons(ctx, users[i])
		for _, s := range seasons {
			if slices.ContainsFunc(links.boards, func(b *leaderboard.Board) bool { return b.ID == s.Board }) {
				keys[i] = append(keys[i], leaderboard.EntryKey{SeasonKey: s, User: users[i]})
			}
		}
		return err
	}); err != nil {
		return err
	}
	bySeason := map[leaderboard.SeasonKey][]leaderboard.UserID{}
	for _, k := range slices.Concat(keys...) {
		bySeason[k.SeasonKey] = append(bySeason[k.SeasonKey], k.User)
	}
	boards := append([]*leaderboard.Board{links.source}, links.boards...)
	for season, users := range bySeason {
		b := boards[slices.IndexFunc(boards, func(b *leaderboard.Board) bool { return b.ID == season.Board })]
		if err := a.refreshEntries(ctx, b, season, users, changedAt); err != nil {
			return err
		}
	}
	return nil
}

// refreshEntries also updates a season that is not loaded: see CatchUp. It leaves out users with
// damaged data.
func (a *Applier) refreshEntries(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, users []leaderboard.UserID, changedAt time.Time) error {
	entries := make([]leaderboard.Entry, len(users))
	if err := eachRead(ctx, len(users), func(ctx context.Context, i int) (err error) {
		entries[i], err = a.storedEntry(ctx, b, key, users[i])
		if damaged(err) {
			a.leaveOut(ctx, key, users[i], err)
			err = nil
		}
		return err
	}); err != nil {
		if errors.Is(err, leaderboard.ErrBoardNotFound) {
			return nil
		}
		return err
	}
	entries = slices.DeleteFunc(entries, func(e leaderboard.Entry) bool { return e.User == "" })
	defer a.hub.notify(key)
	return a.index.tryUpdate(ctx, key, leaderboard.Truncate(changedAt), entries)
}

// If no result of the user counts, the entry has a version, but no key. Errors:
// [leaderboard.ErrBoardNotFound].
func (s *shared) storedEntry(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, user leaderboard.UserID) (leaderboard.Entry, error) {
	stored, err := s.store.Entry(ctx, key, user)
	if errors.Is(err, leaderboard.ErrEntryNotFound) { // only a recount returns the version of an entry without results
		var change leaderboard.Change
		change, err = s.store.Recount(ctx, b, key.Season, user)
		stored = change.After
	}
	return stored, err
}
