package ranking

import (
	"context"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// Selection selects seasons for Verify, Rebuild or Export: all seasons of all boards, all
// seasons of Board, or one season.
type Selection struct {
	Board  leaderboard.BoardID
	Season leaderboard.SeasonID
}

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

// CheckSelection returns [leaderboard.ErrBoardNotFound] or [leaderboard.ErrSeasonNotFound] if the
// board or season of sel does not exist.
func (v *Verifier) CheckSelection(ctx context.Context, sel Selection) error {
	boards, err := sel.boards(ctx, v.store)
	if err == nil && sel.Season != "" {
		_, err = boards[0].Season.ByID(sel.Season)
	}
	return err
}

func (sel Selection) filledLinks(ctx context.Context, store leaderboard.Store) ([]leaderboard.Board, error) {
	boards, err := sel.boards(ctx, store)
	return slices.DeleteFunc(boards, func(b leaderboard.Board) bool { return b.Source == nil || b.Filling() }), err
}

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

// Rebuild recomputes the entries of the selected seasons from their results, and then the rank
// index or the final standings. It returns the number of users: a user of several seasons counts
// once in each. If sel selects all seasons of a linked board, Rebuild also starts a fill of the
// board.
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
	// Users omits these users until a Recount. The loop below then counts them.
	for user := range unregistered {
		if _, err := v.store.Recount(ctx, b, key.Season, user); err != nil {
			return 0, err
		}
	}
	err = eachChunk(v.store.Users(ctx, key), recountChunk, func(users []leaderboard.UserID) error {
		err := eachRead(ctx, len(users), func(ctx context.Context, i int) error {
			_, err := v.store.Recount(ctx, b, key.Season, users[i])
			return err
		})
		if n += int64(len(users)); err == nil && progress != nil && len(users) == recountChunk {
			progress(key, n)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	if progress != nil {
		progress(key, n)
	}
	return n, v.ranks.rebuild(ctx, b, key, "rebuild")
}
