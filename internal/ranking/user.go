package ranking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	maxNeighbors = 50
	// For storeAnswerAge after an answer from the store, isBehind compares the index with the
	// store. An update of the index takes less time.
	storeAnswerAge = 30 * time.Second
	// maxStoreAnswers is the size of Reader.storeAnswers.
	maxStoreAnswers = 1 << 14
)

// UserPage is a user's entry with its neighbors.
type UserPage struct {
	About
	Line
	// Percentile is the percentage of users with a strictly worse rank key: 99 for the best of
	// 100 users with distinct scores.
	Percentile float64
	// Neighbors are in standing order and include the user. ClippedAbove and ClippedBelow mean
	// that the ladder has fewer neighbors above or below the user than requested.
	Neighbors                  []Line
	ClippedAbove, ClippedBelow bool
}

// User returns a user's entry, and on each side at most the given number of neighbors. If the
// rank index cannot answer, Degraded is set and there are no neighbors. Errors:
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
	var standing leaderboard.Standing
	var last *view
	err = r.read(ctx, b, q, func(v *view) error {
		last, standing = v, leaderboard.Standing{}
		page, standing, err = v.user(ctx, user, neighbors)
		return err
	})
	if (err == nil || errors.Is(err, leaderboard.ErrEntryNotFound)) && last != nil && !last.sealed && r.isBehind(ctx, last.ladder, user, &standing) {
		err = leaderboard.ErrRankUnavailable
	}
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		page, err = r.userFromStore(ctx, b, q, user)
	}
	if errors.Is(err, leaderboard.ErrEntryNotFound) {
		return UserPage{}, noEntryError(b, q, user)
	}
	if err == nil && details {
		lines := []Line{page.Line}
		err = r.addEntries(ctx, leaderboard.SeasonKey{Board: b.ID, Season: page.Season.ID}, lines)
		page.Line = lines[0]
	}
	return page, err
}

func noEntryError(b *leaderboard.Board, q Query, user leaderboard.UserID) error {
	where := fmt.Sprintf("board %q", b.ID)
	if q.Season != "" {
		where += fmt.Sprintf(", season %q", q.Season)
	}
	if !q.Division.Overall() {
		where += fmt.Sprintf(", division %q", q.Division)
	}
	return fmt.Errorf("user %q has no entry on %s: %w", user, where, leaderboard.ErrEntryNotFound)
}

func (v *view) user(ctx context.Context, user leaderboard.UserID, neighbors int) (UserPage, leaderboard.Standing, error) {
	n, ladderView, err := v.Around(ctx, v.ladder, user, neighbors, neighbors, v.method)
	if err != nil {
		return UserPage{}, leaderboard.Standing{}, err
	}
	page := UserPage{About: v.about(ladderView), Neighbors: v.lines(n.Standings)}
	page.Neighbors[n.Of].Current = true
	page.Line = page.Neighbors[n.Of]
	page.ClippedAbove = n.Of < neighbors
	page.ClippedBelow = len(n.Standings)-1-n.Of < neighbors
	page.Percentile = percent(ladderView.Size-n.NotWorse, ladderView.Size)
	return page, n.Standings[n.Of], nil
}

// isBehind reports whether the index lacks a change that an earlier answer from the store may
// have shown. A consumer writes a result to the store before it updates the index. If the index
// becomes available between these two steps, its answers would go back to an older score.
func (r *Reader) isBehind(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, standing *leaderboard.Standing) bool {
	key := leaderboard.EntryKey{SeasonKey: l.SeasonKey, User: user}
	if at, ok := r.storeAnswers.Get(key); !ok || r.now().Sub(at) > storeAnswerAge {
		return false
	}
	e, err := r.store.Entry(ctx, l.SeasonKey, user)
	if err != nil && !errors.Is(err, leaderboard.ErrEntryNotFound) {
		return false
	}
	if err != nil || !hasPlace(&e, l.Division) {
		e = leaderboard.Entry{}
	}
	if e.Key != standing.Key || !e.AchievedAt.Equal(standing.AchievedAt) {
		return true
	}
	r.storeAnswers.Remove(key)
	return false
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
	if err == nil || errors.Is(err, leaderboard.ErrEntryNotFound) {
		r.storeAnswers.Add(leaderboard.EntryKey{SeasonKey: v.ladder.SeasonKey, User: user}, r.now())
	}
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
