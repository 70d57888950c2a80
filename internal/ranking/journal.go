package ranking

import (
	"context"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
)

// Journal records index updates that no message of the log of results caused, for example after a
// ban. It writes a message for each user to the log. If a server of the index fails, the index may
// lose such an update. A consumer that reads the message passes the stored entry to the index again.
// So the log is enough to bring the index up to date: see [leaderboard.Index].Advance.
type Journal interface {
	// Note writes a message for each user of a season. It returns nil once all are durable.
	Note(ctx context.Context, key leaderboard.SeasonKey, users []leaderboard.UserID) error
}

type loggedKey struct{}

// fromLog returns a context for updates that follow from a message of the log, or that a later call
// of FinishRankChanges repeats. They need no Journal.
func fromLog(ctx context.Context) context.Context { return context.WithValue(ctx, loggedKey{}, true) }

// note writes updated entries to the journal, unless ctx is from fromLog. Call it after the update of
// the index. Then the index had the update before a position after the message was recorded.
func (w *rankWriter) note(ctx context.Context, key leaderboard.SeasonKey, users []leaderboard.UserID) error {
	if w.journal == nil || ctx.Value(loggedKey{}) != nil || len(users) == 0 {
		return nil
	}
	if err := w.journal.Note(ctx, key, users); err != nil {
		return fmt.Errorf("ranking: write the updated ranks of %s/%s to the log: %w", key.Board, key.Season, err)
	}
	return nil
}
