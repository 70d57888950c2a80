package faults

import (
	"context"
	"iter"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Store is a store with a simulated server. If the server is down, methods return
// [leaderboard.ErrUnavailable].
type Store struct {
	leaderboard.Store
	Switch
}

var _ leaderboard.Store = (*Store)(nil)

func failure[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, err)
	}
}

// CreateBoard implements [leaderboard.Store].
func (s *Store) CreateBoard(ctx context.Context, b leaderboard.Board) error {
	if err := s.check(ctx, "CreateBoard", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.CreateBoard(ctx, b)
}

// Board implements [leaderboard.Store].
func (s *Store) Board(ctx context.Context, id leaderboard.BoardID) (got leaderboard.Board, err error) {
	if err = s.check(ctx, "Board", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Board(ctx, id)
}

// Boards implements [leaderboard.Store].
func (s *Store) Boards(ctx context.Context) (list []leaderboard.Board, err error) {
	if err = s.check(ctx, "Boards", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Boards(ctx)
}

// AmendBoard implements [leaderboard.Store].
func (s *Store) AmendBoard(ctx context.Context, id leaderboard.BoardID, change func(*leaderboard.Board) error) (got leaderboard.Board, err error) {
	if err = s.check(ctx, "AmendBoard", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.AmendBoard(ctx, id, change)
}

// DeleteBoard implements [leaderboard.Store].
func (s *Store) DeleteBoard(ctx context.Context, id leaderboard.BoardID, at time.Time) error {
	if err := s.check(ctx, "DeleteBoard", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.DeleteBoard(ctx, id, at)
}

// Apply implements [leaderboard.Store].
func (s *Store) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (got leaderboard.ApplyReport, err error) {
	if err = s.check(ctx, "Apply", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Apply(ctx, b, results)
}

// Result implements [leaderboard.Store].
func (s *Store) Result(ctx context.Context, key leaderboard.ResultKey) (got leaderboard.Record, err error) {
	if err = s.check(ctx, "Result", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Result(ctx, key)
}

// Reserve implements [leaderboard.Store].
func (s *Store) Reserve(ctx context.Context, r leaderboard.Reservation) (got bool, err error) {
	if err = s.check(ctx, "Reserve", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Reserve(ctx, r)
}

// RecentRefusals implements [leaderboard.Store].
func (s *Store) RecentRefusals(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey) (_ []leaderboard.RecentRefusal, err error) {
	if err = s.check(ctx, "RecentRefusals", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.RecentRefusals(ctx, b, key)
}

// Results implements [leaderboard.Store].
func (s *Store) Results(ctx context.Context, key leaderboard.SeasonKey, user leaderboard.UserID) iter.Seq2[leaderboard.MatchResult, error] {
	if err := s.check(ctx, "Results", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.MatchResult](err)
	}
	return s.Store.Results(ctx, key, user)
}

// Records implements [leaderboard.Store].
func (s *Store) Records(ctx context.Context, key leaderboard.SeasonKey, user leaderboard.UserID, after leaderboard.MatchID) iter.Seq2[leaderboard.MatchRecord, error] {
	if err := s.check(ctx, "Records", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.MatchRecord](err)
	}
	return s.Store.Records(ctx, key, user, after)
}

// SetMatch implements [leaderboard.Store].
func (s *Store) SetMatch(ctx context.Context, b *leaderboard.Board, m leaderboard.MatchState) (_ leaderboard.MatchState, err error) {
	if err = s.check(ctx, "SetMatch", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.SetMatch(ctx, b, m)
}

// Match implements [leaderboard.Store].
func (s *Store) Match(ctx context.Context, key leaderboard.MatchKey) (_ leaderboard.MatchState, err error) {
	if err = s.check(ctx, "Match", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Match(ctx, key)
}

// Matches implements [leaderboard.Store].
func (s *Store) Matches(ctx context.Context, key leaderboard.SeasonKey) iter.Seq2[leaderboard.MatchState, error] {
	if err := s.check(ctx, "Matches", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.MatchState](err)
	}
	return s.Store.Matches(ctx, key)
}

// MatchUsers implements [leaderboard.Store].
func (s *Store) MatchUsers(ctx context.Context, key leaderboard.MatchKey) iter.Seq2[leaderboard.UserID, error] {
	if err := s.check(ctx, "MatchUsers", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.UserID](err)
	}
	return s.Store.MatchUsers(ctx, key)
}

// Users implements [leaderboard.Store].
func (s *Store) Users(ctx context.Context, key leaderboard.SeasonKey) iter.Seq2[leaderboard.UserID, error] {
	if err := s.check(ctx, "Users", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.UserID](err)
	}
	return s.Store.Users(ctx, key)
}

// HasUsers implements [leaderboard.Store].
func (s *Store) HasUsers(ctx context.Context, key leaderboard.SeasonKey) (has bool, err error) {
	if err = s.check(ctx, "HasUsers", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.HasUsers(ctx, key)
}

// UnregisteredUsers implements [leaderboard.Store].
func (s *Store) UnregisteredUsers(ctx context.Context) iter.Seq2[leaderboard.EntryKey, error] {
	if err := s.check(ctx, "UnregisteredUsers", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.EntryKey](err)
	}
	return s.Store.UnregisteredUsers(ctx)
}

// Entry implements [leaderboard.Store].
func (s *Store) Entry(ctx context.Context, key leaderboard.SeasonKey, user leaderboard.UserID) (got leaderboard.Entry, err error) {
	if err = s.check(ctx, "Entry", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Entry(ctx, key, user)
}

// Entries implements [leaderboard.Store].
func (s *Store) Entries(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey) iter.Seq2[leaderboard.Entry, error] {
	if err := s.check(ctx, "Entries", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.Entry](err)
	}
	return s.Store.Entries(ctx, l, after)
}

// Scan implements [leaderboard.Store].
func (s *Store) Scan(ctx context.Context, key leaderboard.SeasonKey, part leaderboard.Part) iter.Seq2[leaderboard.Entry, error] {
	if err := s.check(ctx, "Scan", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.Entry](err)
	}
	return s.Store.Scan(ctx, key, part)
}

// OrphanRows implements [leaderboard.Store].
func (s *Store) OrphanRows(ctx context.Context, key leaderboard.SeasonKey) iter.Seq2[leaderboard.OrphanRow, error] {
	if err := s.check(ctx, "OrphanRows", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.OrphanRow](err)
	}
	return s.Store.OrphanRows(ctx, key)
}

// RemoveOrphanRows implements [leaderboard.Store].
func (s *Store) RemoveOrphanRows(ctx context.Context, limit time.Duration) (int64, error) {
	if err := s.check(ctx, "RemoveOrphanRows", leaderboard.ErrUnavailable); err != nil {
		return 0, err
	}
	return s.Store.RemoveOrphanRows(ctx, limit)
}

// Recount implements [leaderboard.Store].
func (s *Store) Recount(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (got leaderboard.Change, err error) {
	if err = s.check(ctx, "Recount", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Recount(ctx, b, season, user)
}

// StartRecount implements [leaderboard.Store].
func (s *Store) StartRecount(ctx context.Context, b *leaderboard.Board) (seasons []leaderboard.SeasonID, err error) {
	if err = s.check(ctx, "StartRecount", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.StartRecount(ctx, b)
}

// SetBan implements [leaderboard.Store].
func (s *Store) SetBan(ctx context.Context, ban leaderboard.Ban) (list []leaderboard.Change, err error) {
	if err = s.check(ctx, "SetBan", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.SetBan(ctx, ban)
}

// UserBans implements [leaderboard.Store].
func (s *Store) UserBans(ctx context.Context, user leaderboard.UserID) (list []leaderboard.Ban, err error) {
	if err = s.check(ctx, "UserBans", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.UserBans(ctx, user)
}

// Bans implements [leaderboard.Store].
func (s *Store) Bans(ctx context.Context, after leaderboard.BanKey) iter.Seq2[leaderboard.Ban, error] {
	if err := s.check(ctx, "Bans", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.Ban](err)
	}
	return s.Store.Bans(ctx, after)
}

// BansEnding implements [leaderboard.Store].
func (s *Store) BansEnding(ctx context.Context, before time.Time) iter.Seq2[leaderboard.Ban, error] {
	if err := s.check(ctx, "BansEnding", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.Ban](err)
	}
	return s.Store.BansEnding(ctx, before)
}

// Erase implements [leaderboard.Store].
func (s *Store) Erase(ctx context.Context, user leaderboard.UserID, at time.Time) (list []leaderboard.Change, err error) {
	if err = s.check(ctx, "Erase", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Erase(ctx, user, at)
}

// UserSeasons implements [leaderboard.Store].
func (s *Store) UserSeasons(ctx context.Context, user leaderboard.UserID) (list []leaderboard.SeasonKey, err error) {
	if err = s.check(ctx, "UserSeasons", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.UserSeasons(ctx, user)
}

// Seasons implements [leaderboard.Store].
func (s *Store) Seasons(ctx context.Context, id leaderboard.BoardID) (list []leaderboard.SeasonRecord, err error) {
	if err = s.check(ctx, "Seasons", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Seasons(ctx, id)
}

// SeasonIDs implements [leaderboard.Store].
func (s *Store) SeasonIDs(ctx context.Context, id leaderboard.BoardID) (list []leaderboard.SeasonID, err error) {
	if err = s.check(ctx, "SeasonIDs", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.SeasonIDs(ctx, id)
}

// Season implements [leaderboard.Store].
func (s *Store) Season(ctx context.Context, key leaderboard.SeasonKey) (got leaderboard.SeasonRecord, err error) {
	if err = s.check(ctx, "Season", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Season(ctx, key)
}

// Seal implements [leaderboard.Store].
func (s *Store) Seal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, at time.Time) (got leaderboard.SeasonRecord, err error) {
	if err = s.check(ctx, "Seal", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Seal(ctx, b, season, at)
}

// Amend implements [leaderboard.Store].
func (s *Store) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment, users []leaderboard.UserID) (got leaderboard.SeasonRecord, err error) {
	if err = s.check(ctx, "Amend", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Amend(ctx, b, season, a, users)
}

// MarkFinal implements [leaderboard.Store].
func (s *Store) MarkFinal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, users []leaderboard.UserID, reason string) error {
	if err := s.check(ctx, "MarkFinal", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.MarkFinal(ctx, b, season, users, reason)
}

// FinalMarks implements [leaderboard.Store].
func (s *Store) FinalMarks(ctx context.Context) iter.Seq2[leaderboard.FinalMark, error] {
	if err := s.check(ctx, "FinalMarks", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.FinalMark](err)
	}
	return s.Store.FinalMarks(ctx)
}

// RemoveFinalMarks implements [leaderboard.Store].
func (s *Store) RemoveFinalMarks(ctx context.Context, marks []leaderboard.FinalMark) error {
	if err := s.check(ctx, "RemoveFinalMarks", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.RemoveFinalMarks(ctx, marks)
}

// ChangedAt implements [leaderboard.Store].
func (s *Store) ChangedAt(ctx context.Context, key leaderboard.SeasonKey) (at time.Time, err error) {
	if err = s.check(ctx, "ChangedAt", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.ChangedAt(ctx, key)
}

// NoteChange implements [leaderboard.Store].
func (s *Store) NoteChange(ctx context.Context, key leaderboard.SeasonKey, at time.Time) error {
	if err := s.check(ctx, "NoteChange", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.NoteChange(ctx, key, at)
}

// DeletedAt implements [leaderboard.Store].
func (s *Store) DeletedAt(ctx context.Context, key leaderboard.SeasonKey) (at time.Time, err error) {
	if err = s.check(ctx, "DeletedAt", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.DeletedAt(ctx, key)
}

// FinalStandings implements [leaderboard.Store].
func (s *Store) FinalStandings(ctx context.Context, l leaderboard.Ladder, position int64, n int) (list []leaderboard.Standing, total int64, err error) {
	if err = s.check(ctx, "FinalStandings", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.FinalStandings(ctx, l, position, n)
}

// FinalLookup implements [leaderboard.Store].
func (s *Store) FinalLookup(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID) (list []leaderboard.Standing, total int64, err error) {
	if err = s.check(ctx, "FinalLookup", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.FinalLookup(ctx, l, users)
}

// FinalAround implements [leaderboard.Store].
func (s *Store) FinalAround(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int) (n leaderboard.Neighborhood, total int64, err error) {
	if err = s.check(ctx, "FinalAround", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.FinalAround(ctx, l, user, above, below)
}

// FinalAfter implements [leaderboard.Store].
func (s *Store) FinalAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int) (list []leaderboard.Standing, counts leaderboard.Counts, total int64, err error) {
	if err = s.check(ctx, "FinalAfter", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.FinalAfter(ctx, l, after, n)
}

// DeleteSeason implements [leaderboard.Store].
func (s *Store) DeleteSeason(ctx context.Context, key leaderboard.SeasonKey, at time.Time) error {
	if err := s.check(ctx, "DeleteSeason", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.DeleteSeason(ctx, key, at)
}

// RankChanges implements [leaderboard.Store].
func (s *Store) RankChanges(ctx context.Context) iter.Seq2[leaderboard.RankChange, error] {
	if err := s.check(ctx, "RankChanges", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.RankChange](err)
	}
	return s.Store.RankChanges(ctx)
}

// FinishRankChange implements [leaderboard.Store].
func (s *Store) FinishRankChange(ctx context.Context, c leaderboard.RankChange, update func([]leaderboard.Entry) error) error {
	if err := s.check(ctx, "FinishRankChange", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.FinishRankChange(ctx, c, update)
}

// FinishDeletions implements [leaderboard.Store].
func (s *Store) FinishDeletions(ctx context.Context) error {
	if err := s.check(ctx, "FinishDeletions", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.FinishDeletions(ctx)
}

// PutAPIKey implements [leaderboard.Store].
func (s *Store) PutAPIKey(ctx context.Context, k leaderboard.APIKey) error {
	if err := s.check(ctx, "PutAPIKey", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.PutAPIKey(ctx, k)
}

// APIKey implements [leaderboard.Store].
func (s *Store) APIKey(ctx context.Context, hash [32]byte) (got leaderboard.APIKey, err error) {
	if err = s.check(ctx, "APIKey", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.APIKey(ctx, hash)
}

// APIKeys implements [leaderboard.Store].
func (s *Store) APIKeys(ctx context.Context) (list []leaderboard.APIKey, err error) {
	if err = s.check(ctx, "APIKeys", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.APIKeys(ctx)
}

// DeleteAPIKey implements [leaderboard.Store].
func (s *Store) DeleteAPIKey(ctx context.Context, id string) error {
	if err := s.check(ctx, "DeleteAPIKey", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.DeleteAPIKey(ctx, id)
}

// NoteAPIKeyUse implements [leaderboard.Store].
func (s *Store) NoteAPIKeyUse(ctx context.Context, id string, at time.Time) error {
	if err := s.check(ctx, "NoteAPIKeyUse", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.NoteAPIKeyUse(ctx, id, at)
}

// APIKeyUses implements [leaderboard.Store].
func (s *Store) APIKeyUses(ctx context.Context) (uses map[string]time.Time, err error) {
	if err = s.check(ctx, "APIKeyUses", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.APIKeyUses(ctx)
}

// AppendAct implements [leaderboard.Store].
func (s *Store) AppendAct(ctx context.Context, a leaderboard.Act) error {
	if err := s.check(ctx, "AppendAct", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.AppendAct(ctx, a)
}

// Acts implements [leaderboard.Store].
func (s *Store) Acts(ctx context.Context, after leaderboard.ActKey) iter.Seq2[leaderboard.Act, error] {
	if err := s.check(ctx, "Acts", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.Act](err)
	}
	return s.Store.Acts(ctx, after)
}

// UserActs implements [leaderboard.Store].
func (s *Store) UserActs(ctx context.Context, user leaderboard.UserID, after leaderboard.ActKey) iter.Seq2[leaderboard.Act, error] {
	if err := s.check(ctx, "UserActs", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.Act](err)
	}
	return s.Store.UserActs(ctx, user, after)
}

// MatchIDs implements [leaderboard.Store].
func (s *Store) MatchIDs(ctx context.Context, key leaderboard.SeasonKey, prefix, after leaderboard.MatchID) iter.Seq2[leaderboard.MatchID, error] {
	if err := s.check(ctx, "MatchIDs", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.MatchID](err)
	}
	return s.Store.MatchIDs(ctx, key, prefix, after)
}

// ListMatches implements [leaderboard.Store].
func (s *Store) ListMatches(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) error {
	if err := s.check(ctx, "ListMatches", leaderboard.ErrUnavailable); err != nil {
		return err
	}
	return s.Store.ListMatches(ctx, b, season, user)
}

// PutProfiles implements [leaderboard.Store].
func (s *Store) PutProfiles(ctx context.Context, profiles []leaderboard.Profile) (changes []leaderboard.ProfileChange, err error) {
	if err = s.check(ctx, "PutProfiles", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.PutProfiles(ctx, profiles)
}

// Profile implements [leaderboard.Store].
func (s *Store) Profile(ctx context.Context, user leaderboard.UserID) (got leaderboard.Profile, err error) {
	if err = s.check(ctx, "Profile", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.Profile(ctx, user)
}

// CachedProfiles implements [leaderboard.Store]. It fails even if all profiles are cached.
func (s *Store) CachedProfiles(ctx context.Context, users []leaderboard.UserID) (list []leaderboard.Profile, err error) {
	if err = s.check(ctx, "CachedProfiles", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.CachedProfiles(ctx, users)
}

// FindNames implements [leaderboard.Store].
func (s *Store) FindNames(ctx context.Context, prefix, after string, n int) (found []leaderboard.NameMatch, more bool, err error) {
	if err = s.check(ctx, "FindNames", leaderboard.ErrUnavailable); err != nil {
		return
	}
	return s.Store.FindNames(ctx, prefix, after, n)
}

// AllProfiles implements [leaderboard.Store].
func (s *Store) AllProfiles(ctx context.Context) iter.Seq2[leaderboard.Profile, error] {
	if err := s.check(ctx, "AllProfiles", leaderboard.ErrUnavailable); err != nil {
		return failure[leaderboard.Profile](err)
	}
	return s.Store.AllProfiles(ctx)
}
