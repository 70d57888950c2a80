package ranking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
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
	// Percentile is the percentage of ranked users with a strictly worse rank key: 99 for the best of
	// 100 users with distinct scores. It is 0 without a rank.
	Percentile float64
	// Neighbors are in standing order and include the user. ClippedAbove and ClippedBelow mean
	// that the ladder has fewer neighbors above or below the user than [UserQuery].Neighbors.
	Neighbors                  []Line
	ClippedAbove, ClippedBelow bool
	// Target is nil if the query has no rank, or if Degraded is true.
	Target *Target
	// NoEntry means that the user has no entry, so that Line has only the User, and perhaps the Profile.
	// Percentile is then 0. With [UserQuery].AllowMissing, Neighbors are those of the place where the user would
	// stand, and WouldRank is the rank of this place by the query's method: see [leaderboard.Board.StartKey].
	// Otherwise they are empty and 0.
	NoEntry   bool
	WouldRank int64
}

// Target is how far a user is from a rank.
type Target struct {
	Rank int64 // by the query's method
	// Score is the least score that has this rank or a better one, if tie-breakers do not decide.
	// It is nil if the ladder has too few users, so that any score has.
	Score *leaderboard.Score
	Exact string // Score without rounding, on decay and average boards
	// Gap is as of [leaderboard.Board.Gap]. The score of a user without an entry is 0. Gap is nil if
	// such a user needs a low score of one result.
	Gap *leaderboard.Score
}

// User returns a user's entry, and on each side at most the given number of neighbors. If the
// rank index cannot answer, Degraded is set and there are no neighbors. Errors:
// [leaderboard.ErrEntryNotFound].
func (r *Reader) User(ctx context.Context, q Query, user leaderboard.UserID, neighbors int, details bool) (UserPage, error) {
	q.Include.Entry = details
	return r.UserToRank(ctx, UserQuery{Query: q, Neighbors: neighbors}, user)
}

// UserQuery selects the parts of a [UserPage].
type UserQuery struct {
	Query
	// Neighbors is the number of neighbors on each side, 0 to maxNeighbors. If one side has fewer and Fill
	// is true, the other side has more, so that there are 2*Neighbors if the ladder has them.
	Neighbors int
	Fill      bool
	// ToRank is the rank of the Target, or 0.
	ToRank int64
	// If AllowMissing is true, a user without an entry is no error: see [UserPage].NoEntry.
	AllowMissing bool
}

// UserToRank is [Reader.User], with the Target for a rank. With ToRank or AllowMissing, a user without an entry
// is no error, but [leaderboard.ErrRankUnavailable] is, if the user has no entry and the rank index cannot
// answer. ToRank must not be negative.
func (r *Reader) UserToRank(ctx context.Context, uq UserQuery, user leaderboard.UserID) (UserPage, error) {
	q, rank, missing := uq.Query, uq.ToRank, uq.ToRank > 0 || uq.AllowMissing
	if uq.Neighbors < 0 || uq.Neighbors > maxNeighbors {
		return UserPage{}, &leaderboard.FieldError{Field: "neighbors", Problem: fmt.Sprintf("must be 0 to %d, not %d", maxNeighbors, uq.Neighbors)}
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
		page, standing, err = v.user(ctx, user, &uq)
		if missing && errors.Is(err, leaderboard.ErrEntryNotFound) {
			page, err = v.missingUser(ctx, user, &uq)
		}
		if rank > 0 && err == nil {
			page.Target, err = v.target(ctx, rank, standing.Key)
		}
		return err
	})
	if (err == nil || errors.Is(err, leaderboard.ErrEntryNotFound)) && last != nil && !last.sealed && r.isBehind(ctx, last.ladder, user, &standing) {
		err = leaderboard.ErrRankUnavailable
	}
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		page, err = r.userFromStore(ctx, b, q, user)
		if missing && errors.Is(err, leaderboard.ErrEntryNotFound) {
			err = fmt.Errorf("ranking: user %q has no entry, and the ranks of others are unknown: %w", user, leaderboard.ErrRankUnavailable)
		}
	}
	if errors.Is(err, leaderboard.ErrEntryNotFound) {
		return UserPage{}, noEntryError(b, q, user)
	}
	if err == nil {
		err = r.addIncludedToUser(ctx, q.Include, &page)
	}
	return page, err
}

func (r *Reader) addIncludedToUser(ctx context.Context, include Include, page *UserPage) error {
	lines := page.Neighbors
	if len(lines) == 0 || page.NoEntry {
		lines = append(lines, page.Line)
	}
	err := r.addIncluded(ctx, include, leaderboard.SeasonKey{Board: page.Board.ID, Season: page.Season.ID}, lines)
	for i := range lines {
		if lines[i].User == page.User {
			page.Line = lines[i]
		}
	}
	if page.NoEntry {
		page.Neighbors, page.Entry = lines[:len(lines)-1], nil // a ban may hide the user's entry
	}
	return err
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

func (v *view) user(ctx context.Context, user leaderboard.UserID, q *UserQuery) (UserPage, leaderboard.Standing, error) {
	side := q.Neighbors
	if q.Fill {
		side *= 2
	}
	n, ladderView, err := v.Around(ctx, v.ladder, user, side, side, v.method)
	if err != nil {
		return UserPage{}, leaderboard.Standing{}, err
	}
	above, below := n.Of, len(n.Standings)-1-n.Of
	page := UserPage{About: v.about(ladderView), ClippedAbove: above < q.Neighbors, ClippedBelow: below < q.Neighbors}
	size := min(2*q.Neighbors+1, len(n.Standings))
	first := min(max(above-q.Neighbors, 0), len(n.Standings)-size)
	page.Neighbors = v.lines(n.Standings[first : first+size])
	page.Neighbors[n.Of-first].Current = true
	page.Line = page.Neighbors[n.Of-first]
	page.Percentile = percent(ladderView.Ranked()-n.NotWorse, ladderView.Ranked())
	return page, n.Standings[n.Of], nil
}

// missingUser returns the page of a user without an entry.
func (v *view) missingUser(ctx context.Context, user leaderboard.UserID, q *UserQuery) (UserPage, error) {
	place := leaderboard.Standing{User: user, Key: v.board.StartKey(), AchievedAt: v.board.TieTime(v.scoredAt)}
	key := v.firstKey(v.board.UnrankedFrom())
	if place.Key != "" {
		key = place.SortKey()
	}
	// The standing before the place decides its rank.
	standings, of, ladderView, err := v.around(ctx, key, max(q.Neighbors, 1), max(2*q.Neighbors, 2))
	if err != nil {
		return UserPage{}, err
	}
	page := UserPage{About: v.about(ladderView), Line: Line{User: user}, NoEntry: true}
	if !q.AllowMissing {
		return page, nil
	}
	place.RankAfter(last(standings[:of]))
	page.WouldRank = place.Ranks.By(v.method)
	above, below := of, len(standings)-of
	page.ClippedAbove, page.ClippedBelow = above < q.Neighbors, below < q.Neighbors
	if !q.Fill {
		above, below = min(above, q.Neighbors), min(below, q.Neighbors)
	}
	if q.Neighbors > 0 {
		page.Neighbors = v.lines(standings[of-above : of+below])
	}
	return page, nil
}

func (v *view) target(ctx context.Context, rank int64, from leaderboard.RankKey) (*Target, error) {
	key, err := v.keyAt(ctx, rank)
	if err != nil {
		return nil, err
	}
	t := &Target{Rank: rank, Score: v.score(key), Gap: new(leaderboard.Score)}
	if key == "" {
		return t, nil
	}
	t.Exact = v.board.ExactScoreOf(key, v.scoredAt)
	if *t.Gap = v.board.Gap(from, key, v.scoredAt); from == "" && v.board.Order == leaderboard.LowerFirst && !v.board.StartsAtZero() {
		t.Gap = nil
	}
	return t, nil
}

// keyAt returns the worst rank key that has the given rank or a better one, or "" if every key has.
func (v *view) keyAt(ctx context.Context, rank int64) (leaderboard.RankKey, error) {
	survey, ladderView, err := v.Survey(ctx, v.ladder, leaderboard.SurveyQuery{Positions: []int64{rank}}, v.method)
	if err != nil {
		return "", err
	}
	if v.method != leaderboard.Dense {
		return survey.Positions[0], nil
	}
	// Dense ranks grow by at most 1 with each position.
	var key leaderboard.RankKey
	sort.Search(int(max(ladderView.Ranked()-rank+1, 0)), func(i int) bool {
		if err != nil {
			return true
		}
		var page []leaderboard.Standing
		page, _, err = v.Page(ctx, v.ladder, rank+int64(i), 1, leaderboard.Dense)
		if err != nil || len(page) == 0 || page[0].Ranks.Dense < rank {
			return err != nil || len(page) == 0
		}
		key = page[0].Key
		return true
	})
	return key, err
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
	return UserPage{About: about, Line: v.withoutRank(&e)}, nil
}

// UserScore is a user's entry in one season of a board.
type UserScore struct {
	About
	Line
}

// UserScores returns a user's entries in every season of some boards, or of every board if the list is empty, except
// those that a ban hides.
func (r *Reader) UserScores(ctx context.Context, user leaderboard.UserID, method leaderboard.Method, boards []leaderboard.BoardID) ([]UserScore, error) {
	if err := user.Validate(); err != nil {
		return nil, err
	}
	keys, err := r.store.UserSeasons(ctx, user)
	if err != nil {
		return nil, err
	}
	var scores []UserScore
	for _, key := range keys {
		if len(boards) > 0 && !slices.Contains(boards, key.Board) {
			continue
		}
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
