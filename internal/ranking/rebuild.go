package ranking

import (
	"context"

	"github.com/open-leaderboard/leaderboard"
)

// Selection selects the seasons for Verify, Rebuild or Export. The zero value selects
// all seasons of all boards. If only Board is set, Selection selects all seasons of
// that board.
type Selection struct {
	Board  leaderboard.BoardID
	Season leaderboard.SeasonID
}

// boards returns the selected boards.
func (sel Selection) boards(ctx context.Context, store leaderboard.Store) ([]leaderboard.Board, error) {
	if sel.Board == "" {
		return store.Boards(ctx)
	}
	b, err := store.Board(ctx, sel.Board)
	if err != nil {
		return nil, err
	}
	return []leaderboard.Board{b}, nil
}

// eachSeason calls f for each selected season that has a record in the store. It
// stops at the first error of f.
func (sel Selection) eachSeason(ctx context.Context, store leaderboard.Store, f func(*leaderboard.Board, leaderboard.SeasonKey) error) error {
	boards, err := sel.boards(ctx, store)
	if err != nil {
		return err
	}
	for i := range boards {
		b := &boards[i]
		if sel.Season != "" {
			if _, err := b.Season.ByID(sel.Season); err != nil {
				return err
			}
		}
		seasons, err := store.Seasons(ctx, b.ID)
		if err != nil {
			return err
		}
		for _, r := range seasons {
			if sel.Season != "" && r.Season != sel.Season {
				continue
			}
			if err := f(b, r.SeasonKey); err != nil {
				return err
			}
		}
	}
	return nil
}

// Rebuild recomputes the entries of the selected seasons from the stored results. From
// the entries, it then recomputes the rank index, or the final standings of sealed
// seasons. It returns the number of users. If the selection contains all seasons of a
// linked board, Rebuild also starts a fill of the board.
func (v *Verifier) Rebuild(ctx context.Context, sel Selection, progress Progress) (users int64, err error) {
	unregistered, err := v.unregistered(ctx, sel)
	if err != nil {
		return 0, err
	}
	err = sel.eachSeason(ctx, v.store, func(b *leaderboard.Board, key leaderboard.SeasonKey) error {
		n, err := v.rebuildSeason(ctx, b, key, unregistered[key], progress)
		users += n
		return err
	})
	if err == nil {
		err = v.refill(ctx, sel)
	}
	return users, err
}

func (v *Verifier) rebuildSeason(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, unregistered map[leaderboard.UserID]bool, progress Progress) (n int64, err error) {
	for user := range unregistered { // Recount registers the user, so the loop below counts the user
		if _, err := v.store.Recount(ctx, b, key.Season, user); err != nil {
			return 0, err
		}
	}
	for user, err := range v.store.Users(ctx, key) {
		if err != nil {
			return 0, err
		}
		if _, err := v.store.Recount(ctx, b, key.Season, user); err != nil {
			return 0, err
		}
		if n++; progress != nil && n%1000 == 0 {
			progress(key, n)
		}
	}
	if progress != nil {
		progress(key, n)
	}
	return n, v.ranks.rebuild(ctx, b, key, "rebuild")
}
