package ranking

import (
	"context"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
)

// Journal writes messages to the log for index updates that no other message of the log caused,
// for example updates by a fill. If a server of the index loses such an update, a consumer of the
// log repeats the update: see [leaderboard.Index].Advance.
type Journal interface {
	// Note writes a message for each of the users in a season. It returns nil once all messages
	// are durable.
	Note(ctx context.Context, key leaderboard.SeasonKey, users []leaderboard.UserID) error
}

type loggedKey struct{}

// fromLog returns a context for updates that need no Journal: a message of the log caused them,
// or a later FinishRankChanges repeats them.
func fromLog(ctx context.Context) context.Context { return context.WithValue(ctx, loggedKey{}, true) }

// note writes the users of updated entries to the journal, unless ctx is from fromLog. The
// caller must update the index first. An index whose position is after the message then has the
// update.
func (w *rankWriter) note(ctx context.Context, key leaderboard.SeasonKey, users []leaderboard.UserID) error {
	if w.journal == nil || ctx.Value(loggedKey{}) != nil || len(users) == 0 {
		return nil
	}
	if err := w.journal.Note(ctx, key, users); err != nil {
		return fmt.Errorf("ranking: write the updated ranks of %s/%s to the log: %w", key.Board, key.Season, err)
	}
	return nil
}
