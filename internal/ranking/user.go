package ranking

import (
	"context"
	"errors"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
)

const maxNeighbors = 50

// UserPage is a user's entry with its neighbors.
type UserPage struct {
	About
	Line
	// Percentile is the percentage of users with a strictly worse rank key: 99 for the best of
	// 100 users with distinct scores.
	Percentile float64
	// Neighbors are in standing order and include the user. ClippedAbove or ClippedBelow means
	// that the side has fewer neighbors than requested.
	Neighbors                  []Line
	ClippedAbove, ClippedBelow bool
}

// User returns a user's entry, and up to neighbors entries on each side. If the rank index
// cannot answer, Degraded is set and there are no neighbors. Errors:
// [leaderboard.ErrEntryNotFound].
func (r *Reader) User(ctx context.Context, q Query, user leaderboard.UserID, neighbors int, details bool) (UserPage, error) {
	if neighbors < 0 || neighbors > maxNeighbors {
		return UserPage{}, &leaderboard.FieldError{Field: "neighbors", Problem: fmt.Sprintf("must be 0 to %d, not %d", maxNeighbors, neighbors)}
	}
	if err := user.Validate(); err != nil {
		return UserPage{}, err
	}
	b, err := r.boardOf(ctx, &q)
	if err != nil {
		return UserPage{}, err
	}
	var page UserPage
	err = r.read(ctx, b, q, func(v *view) error {
		page, err = v.user(ctx, user, neighbors)
		return err
	})
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		page, err = r.userFromStore(ctx, b, q, user)
	}
	if err == nil && details {
		lines := []Line{page.Line}
		err = r.addEntries(ctx, leaderboard.SeasonKey{Board: b.ID, Season: page.Season.ID}, lines)
		page.Line = lines[0]
	}
	return page, err
}

func (v *view) user(ctx context.Context, user leaderboard.UserID, neighbors int) (UserPage, error) {
	n, ladderView, err := v.Around(ctx, v.ladder, user, neighbors, neighbors, v.method)
	if err != nil {
		return UserPage{}, err
	}
	page := UserPage{About: v.about(ladderView), Neighbors: v.lines(n.Standings)}
	page.Neighbors[n.Of].Current = true
	page.Line = page.Neighbors[n.Of]
	page.ClippedAbove = n.Of < neighbors
	page.ClippedBelow = len(n.Standings)-1-n.Of < neighbors
	page.Percentile = percent(ladderView.Size-n.NotWorse, ladderView.Size)
	return page, nil
}

func percent(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return max(0, float64(part)*100/float64(whole))
}

func (r *Reader) userFromStore(ctx context.Context, b *leaderboard.Board, q Query, user leaderboard.UserID) (UserPage, error) {
	v, err := r.view(ctx, b, q)
	if err != nil {
		return UserPage{}, err
	}
	about := r.aboutStore(v)
	e, err := r.store.Entry(ctx, v.ladder.SeasonKey, user)
	if err != nil {
		return UserPage{}, err
	}
	if !hasPlace(&e, v.ladder.Division) {
		return UserPage{}, fmt.Errorf("ranking: user %q: %w", user, leaderboard.ErrEntryNotFound)
	}
	return UserPage{About: about, Line: v.unranked(&e)}, nil
}

// UserScore is a user's entry in one season of a board.
type UserScore struct {
	About
	Line
}

// UserScores returns a user's entries in every season of every board, except those that a ban
// hides.
func (r *Reader) UserScores(ctx context.Context, user leaderboard.UserID, method leaderboard.Method) ([]UserScore, error) {
	if err := user.Validate(); err != nil {
		return nil, err
	}
	keys, err := r.store.UserSeasons(ctx, user)
	if err != nil {
		return nil, err
	}
	var scores []UserScore
	for _, key := range keys {
		page, err := r.User(ctx, Query{Board: key.Board, Season: key.Season, Method: method}, user, 0, false)
		if errors.Is(err, leaderboard.ErrEntryNotFound) || errors.Is(err, leaderboard.ErrBoardNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		scores = append(scores, UserScore{page.About, page.Line})
	}
	return scores, nil
}
