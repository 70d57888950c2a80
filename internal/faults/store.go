package faults

import (
	"context"
	"iter"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Store is a store whose server may be down: it then returns
// [leaderboard.ErrUnavailable].
type Store struct {
	leaderboard.Store
	Switch
}

var _ leaderboard.Store = (*Store)(nil)

// failed is a sequence of nothing but an error.
func failed[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, err)
	}
}

func (s *Store) CreateBoard(ctx context.Context, b leaderboard.Board) error {
	if err := s.check(ctx, "CreateBoard", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.CreateBoard(ctx, b)
}

func (s *Store) Board(ctx context.Context, id leaderboard.BoardID) (r0 leaderboard.Board, err error) {
	if err = s.check(ctx, "Board", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Board(ctx, id)
}

func (s *Store) Boards(ctx context.Context) (r0 []leaderboard.Board, err error) {
	if err = s.check(ctx, "Boards", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Boards(ctx)
}

func (s *Store) AmendBoard(ctx context.Context, id leaderboard.BoardID, change func(*leaderboard.Board) error) (r0 leaderboard.Board, err error) {
	if err = s.check(ctx, "AmendBoard", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.AmendBoard(ctx, id, change)
}

func (s *Store) DeleteBoard(ctx context.Context, id leaderboard.BoardID) error {
	if err := s.check(ctx, "DeleteBoard", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.DeleteBoard(ctx, id)
}

func (s *Store) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (r0 leaderboard.ApplyReport, err error) {
	if err = s.check(ctx, "Apply", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Apply(ctx, b, results)
}

func (s *Store) Result(ctx context.Context, key leaderboard.ResultKey) (r0 leaderboard.Record, err error) {
	if err = s.check(ctx, "Result", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Result(ctx, key)
}

func (s *Store) Results(ctx context.Context, sc leaderboard.Scope, user leaderboard.UserID) iter.Seq2[leaderboard.MatchResult, error] {
	if err := s.check(ctx, "Results", leaderboard.ErrUnavailable); err != nil {
		return failed[leaderboard.MatchResult](err)
	}
	return s.Store.Results(ctx, sc, user)
}

func (s *Store) Users(ctx context.Context, sc leaderboard.Scope) iter.Seq2[leaderboard.UserID, error] {
	if err := s.check(ctx, "Users", leaderboard.ErrUnavailable); err != nil {
		return failed[leaderboard.UserID](err)
	}
	return s.Store.Users(ctx, sc)
}

func (s *Store) Unlisted(ctx context.Context) iter.Seq2[leaderboard.EntryKey, error] {
	if err := s.check(ctx, "Unlisted", leaderboard.ErrUnavailable); err != nil {
		return failed[leaderboard.EntryKey](err)
	}
	return s.Store.Unlisted(ctx)
}

func (s *Store) Entry(ctx context.Context, sc leaderboard.Scope, user leaderboard.UserID) (r0 leaderboard.Entry, err error) {
	if err = s.check(ctx, "Entry", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Entry(ctx, sc, user)
}

func (s *Store) Entries(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey) iter.Seq2[leaderboard.Entry, error] {
	if err := s.check(ctx, "Entries", leaderboard.ErrUnavailable); err != nil {
		return failed[leaderboard.Entry](err)
	}
	return s.Store.Entries(ctx, l, after)
}

func (s *Store) Scan(ctx context.Context, sc leaderboard.Scope) iter.Seq2[leaderboard.Entry, error] {
	if err := s.check(ctx, "Scan", leaderboard.ErrUnavailable); err != nil {
		return failed[leaderboard.Entry](err)
	}
	return s.Store.Scan(ctx, sc)
}

func (s *Store) Strays(ctx context.Context, sc leaderboard.Scope) iter.Seq2[leaderboard.Stray, error] {
	if err := s.check(ctx, "Strays", leaderboard.ErrUnavailable); err != nil {
		return failed[leaderboard.Stray](err)
	}
	return s.Store.Strays(ctx, sc)
}

func (s *Store) Recount(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (r0 leaderboard.Change, err error) {
	if err = s.check(ctx, "Recount", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Recount(ctx, b, season, user)
}

func (s *Store) SetBan(ctx context.Context, ban leaderboard.Ban) (r0 []leaderboard.Change, err error) {
	if err = s.check(ctx, "SetBan", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.SetBan(ctx, ban)
}

func (s *Store) Ban(ctx context.Context, user leaderboard.UserID) (r0 leaderboard.Ban, err error) {
	if err = s.check(ctx, "Ban", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Ban(ctx, user)
}

func (s *Store) Erase(ctx context.Context, user leaderboard.UserID, at time.Time) (r0 []leaderboard.Change, err error) {
	if err = s.check(ctx, "Erase", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Erase(ctx, user, at)
}

func (s *Store) UserScopes(ctx context.Context, user leaderboard.UserID) (r0 []leaderboard.Scope, err error) {
	if err = s.check(ctx, "UserScopes", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.UserScopes(ctx, user)
}

func (s *Store) Seasons(ctx context.Context, id leaderboard.BoardID) (r0 []leaderboard.SeasonRecord, err error) {
	if err = s.check(ctx, "Seasons", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Seasons(ctx, id)
}

func (s *Store) Season(ctx context.Context, sc leaderboard.Scope) (r0 leaderboard.SeasonRecord, err error) {
	if err = s.check(ctx, "Season", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Season(ctx, sc)
}

func (s *Store) Seal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (r0 leaderboard.SeasonRecord, err error) {
	if err = s.check(ctx, "Seal", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Seal(ctx, b, season, a)
}

func (s *Store) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (r0 leaderboard.SeasonRecord, err error) {
	if err = s.check(ctx, "Amend", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Amend(ctx, b, season, a)
}

func (s *Store) FinalStandings(ctx context.Context, l leaderboard.Ladder, position int64, n int) (r0 []leaderboard.Standing, r1 int64, err error) {
	if err = s.check(ctx, "FinalStandings", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.FinalStandings(ctx, l, position, n)
}

func (s *Store) FinalStanding(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID) (r0 leaderboard.Standing, err error) {
	if err = s.check(ctx, "FinalStanding", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.FinalStanding(ctx, l, user)
}

func (s *Store) DeleteSeason(ctx context.Context, sc leaderboard.Scope) error {
	if err := s.check(ctx, "DeleteSeason", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.DeleteSeason(ctx, sc)
}

func (s *Store) PutAPIKey(ctx context.Context, k leaderboard.APIKey) error {
	if err := s.check(ctx, "PutAPIKey", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.PutAPIKey(ctx, k)
}

func (s *Store) APIKey(ctx context.Context, hash [32]byte) (r0 leaderboard.APIKey, err error) {
	if err = s.check(ctx, "APIKey", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.APIKey(ctx, hash)
}

func (s *Store) APIKeys(ctx context.Context) (r0 []leaderboard.APIKey, err error) {
	if err = s.check(ctx, "APIKeys", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.APIKeys(ctx)
}

func (s *Store) DeleteAPIKey(ctx context.Context, id string) error {
	if err := s.check(ctx, "DeleteAPIKey", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.DeleteAPIKey(ctx, id)
}
