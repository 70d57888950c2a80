package ranking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const recountChunk = 512

// SeasonEnding is the effect of [Admin.EndSeason].
type SeasonEnding struct {
	Season SeasonInfo // without its Total
	// Results is the number of results that stop counting. Users is the number of users who
	// have such results.
	Results, Users int64
	// Next is the first season that begins at the end or later, or nil.
	Next *leaderboard.Season
}

// EndSeason ends a season of a board before its time. The season then contains only results
// whose event time is before e.At. Later results are refused if they are new, and do not count
// if they are stored. Earlier results are accepted until the season closes.
//
// A zero e.DecidedAt means now. If both times are zero, a season keeps the early end
// that it has. Without an early end, it ends now.
//
// If e.DecidedAt is set, the end is an import from another server. EndSeason then also ends a
// closed season, which stays closed.
//
// Errors: [leaderboard.ErrBoardNotFound]; those of [leaderboard.Schedule.EndEarly]; a
// [leaderboard.FieldError] in these cases:
//
//   - A time is in the future.
//   - The season is closed or sealed, unless the end is imported or the season keeps its early end.
//   - An imported end has no At, or its DecidedAt is before At.
func (a *Admin) EndSeason(ctx context.Context, id leaderboard.BoardID, e leaderboard.EarlyEnd) (SeasonEnding, error) {
	season := e.ID
	record, err := a.store.Season(ctx, leaderboard.SeasonKey{Board: id, Season: season})
	if err != nil {
		return SeasonEnding{}, err
	}
	return runToEnd(ctx, a.tasks, func(ctx context.Context) (SeasonEnding, error) {
		defer a.forgetBoard(id)
		var before leaderboard.Board
		b, err := a.store.AmendBoard(ctx, id, func(b *leaderboard.Board) error {
			before = b.Clone()
			return a.endEarly(b, &record, e)
		})
		if err != nil {
			return SeasonEnding{}, err
		}
		a.forgetBoard(id)
		ending, err := a.ending(&b, &record)
		if err != nil {
			return SeasonEnding{}, err
		}
		ending.Results, ending.Users, err = a.recountAfterEnd(ctx, &before, &b, season, true)
		if err == nil {
			err = a.finishAmendments(ctx, map[leaderboard.SeasonKey]bool{record.SeasonKey: true})
		}
		a.tasks.running.Go(func() { a.recountLater(&b, season) })
		return ending, err
	})
}

// PreviewEnd returns what EndSeason would change, and changes nothing. Errors: those of
// EndSeason.
func (a *Admin) PreviewEnd(ctx context.Context, id leaderboard.BoardID, e leaderboard.EarlyEnd) (SeasonEnding, error) {
	record, before, b, err := a.checkEnd(ctx, id, e)
	if err != nil {
		return SeasonEnding{}, err
	}
	ending, err := a.ending(&b, &record)
	if err == nil {
		ending.Results, ending.Users, err = a.recountAfterEnd(ctx, &before, &b, e.ID, false)
	}
	return ending, err
}

// CheckEnd returns the season before EndSeason, without its Total, and changes nothing. Errors:
// those of EndSeason.
func (a *Admin) CheckEnd(ctx context.Context, id leaderboard.BoardID, e leaderboard.EarlyEnd) (SeasonInfo, error) {
	record, b, _, err := a.checkEnd(ctx, id, e)
	if err != nil {
		return SeasonInfo{}, err
	}
	ending, err := a.ending(&b, &record)
	return ending.Season, err
}

func (a *Admin) checkEnd(ctx context.Context, id leaderboard.BoardID, e leaderboard.EarlyEnd) (record leaderboard.SeasonRecord, before, after leaderboard.Board, err error) {
	if record, err = a.store.Season(ctx, leaderboard.SeasonKey{Board: id, Season: e.ID}); err != nil {
		return record, before, after, err
	}
	if before, err = a.store.Board(ctx, id); err != nil {
		return record, before, after, err
	}
	after, err = before.Revise(func(b *leaderboard.Board) error { return a.endEarly(b, &record, e) })
	return record, before, after, err
}

func (a *Admin) endEarly(b *leaderboard.Board, record *leaderboard.SeasonRecord, e leaderboard.EarlyEnd) error {
	season, err := b.Season.ByID(e.ID)
	if err != nil {
		return err
	}
	now := a.now()
	_, hasEarlyEnd := b.Season.EarlyEnd(season.ID)
	closed := b.Closed(season, now) || !record.SealedAt.IsZero()
	if !e.DecidedAt.IsZero() {
		if err := checkImportedEnd(&e, now); err != nil {
			return err
		}
		if closed {
			// The grace counts from DecidedAt. If DecidedAt stayed later than At, the season could open again.
			e.DecidedAt = e.At
		}
	} else {
		e.DecidedAt = now
		switch {
		case e.At.IsZero() && hasEarlyEnd:
			return nil
		case !record.SealedAt.IsZero():
			return &leaderboard.FieldError{Field: "season", Problem: fmt.Sprintf("%q was sealed at %s and cannot be ended", season.ID, record.SealedAt.Format(time.RFC3339))}
		case closed:
			return &leaderboard.FieldError{Field: "season", Problem: fmt.Sprintf("%q closed at %s and cannot be ended", season.ID, b.ClosesAt(season).Format(time.RFC3339))}
		case e.At.IsZero():
			e.At = now
		}
	}
	if e.At.After(now) {
		return &leaderboard.FieldError{Field: "at", Problem: fmt.Sprintf("must not be after the server's time, %s", now.UTC().Format(time.RFC3339))}
	}
	if hasEarlyEnd && leaderboard.Truncate(e.At).Equal(season.End) {
		return nil
	}
	return b.Season.EndEarly(e)
}

func checkImportedEnd(e *leaderboard.EarlyEnd, now time.Time) error {
	switch {
	case e.At.IsZero():
		return &leaderboard.FieldError{Field: "at", Problem: "is required with decided_at"}
	case e.DecidedAt.Before(e.At):
		return &leaderboard.FieldError{Field: "decided_at", Problem: "must not be before at"}
	case e.DecidedAt.After(now):
		return &leaderboard.FieldError{Field: "decided_at", Problem: fmt.Sprintf("must not be after the server's time, %s", now.UTC().Format(time.RFC3339))}
	}
	return nil
}

func (a *Admin) ending(b *leaderboard.Board, record *leaderboard.SeasonRecord) (SeasonEnding, error) {
	season, err := b.Season.ByID(record.Season)
	if err != nil {
		return SeasonEnding{}, err
	}
	ending := SeasonEnding{Season: seasonInfo(b, season, record, a.now())}
	if following, ok := b.Season.After(season.End); ok {
		ending.Next = &following
	}
	return ending, nil
}

// recountAfterEnd returns the number of results after the season's early end that counted by
// before, the previous version of b. It also returns the number of users with such results. If
// recount is true, it recounts every user with a result after the end.
func (s *shared) recountAfterEnd(ctx context.Context, before, b *leaderboard.Board, season leaderboard.SeasonID, recount bool) (results, users int64, err error) {
	key := leaderboard.SeasonKey{Board: b.ID, Season: season}
	err = eachChunk(s.store.Users(ctx, key), recountChunk, func(chunk []leaderboard.UserID) error {
		counted := make([]int64, len(chunk))
		late := make([]bool, len(chunk))
		if err := eachRead(ctx, len(chunk), func(ctx context.Context, i int) error {
			for r, err := range s.store.Results(ctx, key, chunk[i]) {
				if err != nil {
					return s.unlessDamaged(ctx, b, season, chunk[i], err)
				}
				if b.EndedEarly(&r) {
					late[i] = true
					if before.Counts(&r) {
						counted[i]++
					}
				}
			}
			return nil
		}); err != nil {
			return err
		}
		var affected []leaderboard.UserID
		for i, user := range chunk {
			if results += counted[i]; counted[i] > 0 {
				users++
			}
			if late[i] {
				affected = append(affected, user)
			}
		}
		if !recount || len(affected) == 0 {
			return nil
		}
		return s.recountUsers(ctx, b, season, affected, "season ended early")
	})
	return results, users, err
}

func (s *shared) recountUsers(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, users []leaderboard.UserID, reason string) error {
	changes := make([]leaderboard.Change, len(users))
	if err := eachRead(ctx, len(users), func(ctx context.Context, i int) (err error) {
		changes[i], err = s.store.Recount(ctx, b, season, users[i])
		return s.unlessDamaged(ctx, b, season, users[i], err)
	}); err != nil {
		return err
	}
	changes = slices.DeleteFunc(changes, func(c leaderboard.Change) bool { return c.After.User == "" })
	return s.ranks.updateRecounted(ctx, changes, reason)
}

// unlessDamaged logs err and returns nil if err means damaged data.
func (s *shared) unlessDamaged(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID, err error) error {
	if !damaged(err) {
		return err
	}
	s.leaveOut(ctx, leaderboard.SeasonKey{Board: b.ID, Season: season}, user, err)
	return nil
}

func (s *shared) leaveOut(ctx context.Context, key leaderboard.SeasonKey, user leaderboard.UserID, err error) {
	s.log.ErrorContext(ctx, "user left out, because stored data are damaged", "board", key.Board, "season", key.Season, "user", user, "err", err)
}

func damaged(err error) bool {
	return errors.Is(err, leaderboard.ErrFormat) || errors.Is(err, leaderboard.ErrInvalid)
}

// recountLater waits until every process has read the new board, and repeats the recount: a
// process with the old board may have counted results after the end.
func (s *shared) recountLater(b *leaderboard.Board, season leaderboard.SeasonID) {
	ctx := s.tasks.ctx
	if wait(ctx, 2*max(s.ttl, s.linkTTL)) != nil {
		return
	}
	if _, _, err := s.recountAfterEnd(ctx, b, b, season, true); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "cannot recount a season that ended early; the sweep recounts it before the seal", "board", b.ID, "season", season, "err", err)
	}
}
