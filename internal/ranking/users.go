package ranking

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

const maxReasonBytes = 256

// SetBan hides a user on every board, in past and sealed seasons too, or brings
// the user back where the results now say. Results go on being kept meanwhile.
func (s *Service) SetBan(ctx context.Context, user leaderboard.UserID, banned bool, reason string) (leaderboard.Ban, error) {
	if err := user.Validate(); err != nil {
		return leaderboard.Ban{}, err
	}
	if len(reason) > maxReasonBytes {
		return leaderboard.Ban{}, &leaderboard.FieldError{Field: "reason", Problem: fmt.Sprintf("is %d bytes long, at most %d are allowed", len(reason), maxReasonBytes)}
	}
	ban := leaderboard.Ban{User: user, Banned: banned, Reason: reason, At: leaderboard.Truncate(s.now())}
	why := "unban a user"
	if banned {
		why = "ban a user"
	}
	return finish(ctx, s, func(ctx context.Context) (leaderboard.Ban, error) {
		return ban, s.setBan(ctx, ban, why)
	})
}

// setBan tells the ranks of all of the user's entries: of those that have been as
// they are, it is not known whether the process that changed them came to do so.
func (s *Service) setBan(ctx context.Context, ban leaderboard.Ban, why string) error {
	changes, err := s.store.SetBan(ctx, ban)
	if err != nil {
		return err
	}
	scopes, err := s.store.UserScopes(ctx, ban.User)
	if err != nil {
		return err
	}
	changed := entriesOf(changes)
	var others []leaderboard.Entry
	for _, scope := range scopes {
		if slices.ContainsFunc(changed, func(e leaderboard.Entry) bool { return e.Scope == scope }) {
			continue
		}
		e, err := s.store.Entry(ctx, scope, ban.User)
		if errors.Is(err, leaderboard.ErrEntryNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		others = append(others, e)
	}
	return s.settle(ctx, changed, others, why)
}

// Ban returns a user's ban.
func (s *Service) Ban(ctx context.Context, user leaderboard.UserID) (leaderboard.Ban, error) {
	if err := user.Validate(); err != nil {
		return leaderboard.Ban{}, err
	}
	return s.store.Ban(ctx, user)
}

// Erase removes all that is kept of a user, for good.
//
// The user is hidden first, as by a ban, so that the ranks are rid of the user
// while the store still knows where that was. When an erasure has begun, it does
// not any more, and nobody could finish it for a process that died.
func (s *Service) Erase(ctx context.Context, user leaderboard.UserID) error {
	if err := user.Validate(); err != nil {
		return err
	}
	_, err := finish(ctx, s, func(ctx context.Context) (struct{}, error) {
		const why = "erase a user"
		hidden := leaderboard.Ban{User: user, Banned: true, Reason: why, At: leaderboard.Truncate(s.now())}
		if err := s.setBan(ctx, hidden, why); err != nil {
			return struct{}{}, err
		}
		changes, err := s.store.Erase(ctx, user, leaderboard.Truncate(s.now()))
		if err != nil {
			return struct{}{}, err
		}
		// For final standings, from which the user has gone, nothing changes any more.
		return struct{}{}, s.settle(ctx, nil, entriesOf(changes), why)
	})
	return err
}

// UserScore is a user's entry on one board in one season.
type UserScore struct {
	About
	Line
}

// UserScores returns a user's entries everywhere, by board and season, with
// ranks by method. A banned user has none.
func (s *Service) UserScores(ctx context.Context, user leaderboard.UserID, method leaderboard.Method) ([]UserScore, error) {
	if err := user.Validate(); err != nil {
		return nil, err
	}
	scopes, err := s.store.UserScopes(ctx, user)
	if err != nil {
		return nil, err
	}
	var scores []UserScore
	for _, scope := range scopes {
		page, err := s.User(ctx, Query{Board: scope.Board, Season: scope.Season, Method: method}, user, 0, false)
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
