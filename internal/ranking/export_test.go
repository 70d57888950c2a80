package ranking

import (
	"context"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// MaxEffects is maxEffects.
const MaxEffects = maxEffects

// SetMaxUsersInPass sets maxUsersInPass until the test ends.
func SetMaxUsersInPass(t *testing.T, n int64) {
	previous := maxUsersInPass
	maxUsersInPass = n
	t.Cleanup(func() { maxUsersInPass = previous })
}

// CachedSeasons returns the number of cached season records.
func (c *BoardCache) CachedSeasons() (n int) {
	c.seasons.Range(func(any, any) bool { n++; return true })
	return n
}

// Seal seals a season immediately. Unlike Sweep, Seal does not wait for sealDelay.
func (a *Admin) Seal(ctx context.Context, id leaderboard.BoardID, season leaderboard.SeasonID) error {
	b, err := a.board(ctx, id)
	if err != nil {
		return err
	}
	key := leaderboard.SeasonKey{Board: id, Season: season}
	if record, err := a.store.Season(ctx, key); err != nil || !record.SealedAt.IsZero() {
		return err
	}
	return a.ranks.seal(ctx, b, key)
}

// FillBoards is fillBoards.
func (s *Service) FillBoards(ctx context.Context, interval time.Duration) {
	s.fillBoards(ctx, interval)
}

// LiftEndedBans is liftEndedBans.
func (a *Admin) LiftEndedBans(ctx context.Context, until time.Time) (nextEnd time.Time, err error) {
	return a.liftEndedBans(ctx, until)
}

// SeasonOfMatch is seasonOfMatch.
func (r *Reader) SeasonOfMatch(ctx context.Context, b *leaderboard.Board, user leaderboard.UserID, match leaderboard.MatchID) (leaderboard.SeasonID, error) {
	return r.seasonOfMatch(ctx, b, user, match)
}

// FinishVoids calls finishVoids for all boards, and includes sealed seasons.
func (a *Admin) FinishVoids(ctx context.Context) error {
	return a.eachBoard(ctx, func(b *leaderboard.Board) error { return a.finishVoids(ctx, b, true) })
}
