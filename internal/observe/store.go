package observe

import (
	"context"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/open-leaderboard/leaderboard"
)

// Store returns a store that measures and traces the calls of s. It registers its metrics
// with reg. If Apply returns no error, its outcome is that of the first failed result.
func Store(s leaderboard.Store, reg prometheus.Registerer) leaderboard.Store {
	return &store{inner: s, calls: newCalls(reg, "store", "store")}
}

type store struct {
	inner leaderboard.Store
	calls calls
}

func (o *store) Close() error { return o.inner.Close() }

func (o *store) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	var measured error
	ctx, call := o.calls.begin(ctx, "Apply", b.ID)
	defer call.end(&measured)
	report, err := o.inner.Apply(ctx, b, results)
	measured = err
	for _, result := range report.Outcomes {
		if measured == nil {
			measured = result.Err
		}
	}
	return report, err
}

func (o *store) CreateBoard(ctx context.Context, b leaderboard.Board) (err error) {
	ctx, call := o.calls.begin(ctx, "CreateBoard", b.ID)
	defer call.end(&err)
	return o.inner.CreateBoard(ctx, b)
}

func (o *store) Board(ctx context.Context, id leaderboard.BoardID) (_ leaderboard.Board, err error) {
	ctx, call := o.calls.begin(ctx, "Board", id)
	defer call.end(&err)
	return o.inner.Board(ctx, id)
}

func (o *store) Boards(ctx context.Context) (_ []leaderboard.Board, err error) {
	ctx, call := o.calls.begin(ctx, "Boards", "")
	defer call.end(&err)
	return o.inner.Boards(ctx)
}

func (o *store) AmendBoard(ctx context.Context, id leaderboard.BoardID, change func(*leaderboard.Board) error) (_ leaderboard.Board, err error) {
	ctx, call := o.calls.begin(ctx, "AmendBoard", id)
	defer call.end(&err)
	return o.inner.AmendBoard(ctx, id, change)
}

func (o *store) DeleteBoard(ctx context.Context, id leaderboard.BoardID, at time.Time) (err error) {
	ctx, call := o.calls.begin(ctx, "DeleteBoard", id)
	defer call.end(&err)
	return o.inner.DeleteBoard(ctx, id, at)
}

func (o *store) Result(ctx context.Context, key leaderboard.ResultKey) (_ leaderboard.Record, err error) {
	ctx, call := o.calls.begin(ctx, "Result", key.Board)
	defer call.end(&err)
	return o.inner.Result(ctx, key)
}

func (o *store) RecentRefusals(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey) (_ []leaderboard.RecentRefusal, err error) {
	ctx, call := o.calls.begin(ctx, "RecentRefusals", b.ID)
	defer call.end(&err)
	return o.inner.RecentRefusals(ctx, b, key)
}

func (o *store) Reserve(ctx context.Context, r leaderboard.Reservation) (_ bool, err error) {
	ctx, call := o.calls.begin(ctx, "Reserve", r.Key.Board)
	defer call.end(&err)
	return o.inner.Reserve(ctx, r)
}

func (o *store) Results(ctx context.Context, s leaderboard.SeasonKey, user leaderboard.UserID) iter.Seq2[leaderboard.MatchResult, error] {
	return sequence(ctx, o.calls, "Results", s.Board, func(ctx context.Context) iter.Seq2[leaderboard.MatchResult, error] {
		return o.inner.Results(ctx, s, user)
	})
}

func (o *store) Records(ctx context.Context, s leaderboard.SeasonKey, user leaderboard.UserID, after leaderboard.MatchID) iter.Seq2[leaderboard.MatchRecord, error] {
	return sequence(ctx, o.calls, "Records", s.Board, func(ctx context.Context) iter.Seq2[leaderboard.MatchRecord, error] {
		return o.inner.Records(ctx, s, user, after)
	})
}

func (o *store) SetMatch(ctx context.Context, b *leaderboard.Board, m leaderboard.MatchState) (_ leaderboard.MatchState, err error) {
	ctx, call := o.calls.begin(ctx, "SetMatch", b.ID)
	defer call.end(&err)
	return o.inner.SetMatch(ctx, b, m)
}

func (o *store) Match(ctx context.Context, key leaderboard.MatchKey) (_ leaderboard.MatchState, err error) {
	ctx, call := o.calls.begin(ctx, "Match", key.Board)
	defer call.end(&err)
	return o.inner.Match(ctx, key)
}

func (o *store) Matches(ctx context.Context, s leaderboard.SeasonKey) iter.Seq2[leaderboard.MatchState, error] {
	return sequence(ctx, o.calls, "Matches", s.Board, func(ctx context.Context) iter.Seq2[leaderboard.MatchState, error] { return o.inner.Matches(ctx, s) })
}

func (o *store) MatchUsers(ctx context.Context, key leaderboard.MatchKey) iter.Seq2[leaderboard.UserID, error] {
	return sequence(ctx, o.calls, "MatchUsers", key.Board, func(ctx context.Context) iter.Seq2[leaderboard.UserID, error] { return o.inner.MatchUsers(ctx, key) })
}

func (o *store) Users(ctx context.Context, s leaderboard.SeasonKey) iter.Seq2[leaderboard.UserID, error] {
	return sequence(ctx, o.calls, "Users", s.Board, func(ctx context.Context) iter.Seq2[leaderboard.UserID, error] { return o.inner.Users(ctx, s) })
}

func (o *store) HasUsers(ctx context.Context, s leaderboard.SeasonKey) (_ bool, err error) {
	ctx, call := o.calls.begin(ctx, "HasUsers", s.Board)
	defer call.end(&err)
	return o.inner.HasUsers(ctx, s)
}

func (o *store) UnregisteredUsers(ctx context.Context) iter.Seq2[leaderboard.EntryKey, error] {
	return sequence(ctx, o.calls, "UnregisteredUsers", "", func(ctx context.Context) iter.Seq2[leaderboard.EntryKey, error] {
		return o.inner.UnregisteredUsers(ctx)
	})
}

func (o *store) Entry(ctx context.Context, s leaderboard.SeasonKey, user leaderboard.UserID) (_ leaderboard.Entry, err error) {
	ctx, call := o.calls.begin(ctx, "Entry", s.Board)
	defer call.end(&err)
	return o.inner.Entry(ctx, s, user)
}

func (o *store) Entries(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey) iter.Seq2[leaderboard.Entry, error] {
	return sequence(ctx, o.calls, "Entries", l.Board, func(ctx context.Context) iter.Seq2[leaderboard.Entry, error] { return o.inner.Entries(ctx, l, after) })
}

func (o *store) Scan(ctx context.Context, s leaderboard.SeasonKey, part leaderboard.Part) iter.Seq2[leaderboard.Entry, error] {
	return sequence(ctx, o.calls, "Scan", s.Board, func(ctx context.Context) iter.Seq2[leaderboard.Entry, error] { return o.inner.Scan(ctx, s, part) })
}

func (o *store) OrphanRows(ctx context.Context, s leaderboard.SeasonKey) iter.Seq2[leaderboard.OrphanRow, error] {
	return sequence(ctx, o.calls, "OrphanRows", s.Board, func(ctx context.Context) iter.Seq2[leaderboard.OrphanRow, error] { return o.inner.OrphanRows(ctx, s) })
}

func (o *store) RemoveOrphanRows(ctx context.Context, limit time.Duration) (_ int64, err error) {
	ctx, call := o.calls.begin(ctx, "RemoveOrphanRows", "")
	defer call.end(&err)
	return o.inner.RemoveOrphanRows(ctx, limit)
}

func (o *store) Recount(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (_ leaderboard.Change, err error) {
	ctx, call := o.calls.begin(ctx, "Recount", b.ID)
	defer call.end(&err)
	return o.inner.Recount(ctx, b, season, user)
}

func (o *store) StartRecount(ctx context.Context, b *leaderboard.Board) (_ []leaderboard.SeasonID, err error) {
	ctx, call := o.calls.begin(ctx, "StartRecount", b.ID)
	defer call.end(&err)
	return o.inner.StartRecount(ctx, b)
}

func (o *store) SetBan(ctx context.Context, ban leaderboard.Ban) (_ []leaderboard.Change, err error) {
	ctx, call := o.calls.begin(ctx, "SetBan", ban.Board)
	defer call.end(&err)
	return o.inner.SetBan(ctx, ban)
}

func (o *store) UserBans(ctx context.Context, user leaderboard.UserID) (_ []leaderboard.Ban, err error) {
	ctx, call := o.calls.begin(ctx, "UserBans", "")
	defer call.end(&err)
	return o.inner.UserBans(ctx, user)
}

func (o *store) Bans(ctx context.Context, after leaderboard.BanKey) iter.Seq2[leaderboard.Ban, error] {
	return sequence(ctx, o.calls, "Bans", "", func(ctx context.Context) iter.Seq2[leaderboard.Ban, error] { return o.inner.Bans(ctx, after) })
}

func (o *store) BansEnding(ctx context.Context, before time.Time) iter.Seq2[leaderboard.Ban, error] {
	return sequence(ctx, o.calls, "BansEnding", "", func(ctx context.Context) iter.Seq2[leaderboard.Ban, error] { return o.inner.BansEnding(ctx, before) })
}

func (o *store) Erase(ctx context.Context, user leaderboard.UserID, at time.Time) (_ []leaderboard.Change, err error) {
	ctx, call := o.calls.begin(ctx, "Erase", "")
	defer call.end(&err)
	return o.inner.Erase(ctx, user, at)
}

func (o *store) UserSeasons(ctx context.Context, user leaderboard.UserID) (_ []leaderboard.SeasonKey, err error) {
	ctx, call := o.calls.begin(ctx, "UserSeasons", "")
	defer call.end(&err)
	return o.inner.UserSeasons(ctx, user)
}

func (o *store) Seasons(ctx context.Context, id leaderboard.BoardID) (_ []leaderboard.SeasonRecord, err error) {
	ctx, call := o.calls.begin(ctx, "Seasons", id)
	defer call.end(&err)
	return o.inner.Seasons(ctx, id)
}

func (o *store) SeasonIDs(ctx context.Context, id leaderboard.BoardID) (_ []leaderboard.SeasonID, err error) {
	ctx, call := o.calls.begin(ctx, "SeasonIDs", id)
	defer call.end(&err)
	return o.inner.SeasonIDs(ctx, id)
}

func (o *store) Season(ctx context.Context, s leaderboard.SeasonKey) (_ leaderboard.SeasonRecord, err error) {
	ctx, call := o.calls.begin(ctx, "Season", s.Board)
	defer call.end(&err)
	return o.inner.Season(ctx, s)
}

func (o *store) ChangedAt(ctx context.Context, s leaderboard.SeasonKey) (_ time.Time, err error) {
	ctx, call := o.calls.begin(ctx, "ChangedAt", s.Board)
	defer call.end(&err)
	return o.inner.ChangedAt(ctx, s)
}

func (o *store) NoteChange(ctx context.Context, s leaderboard.SeasonKey, at time.Time) (err error) {
	ctx, call := o.calls.begin(ctx, "NoteChange", s.Board)
	defer call.end(&err)
	return o.inner.NoteChange(ctx, s, at)
}

func (o *store) DeletedAt(ctx context.Context, s leaderboard.SeasonKey) (_ time.Time, err error) {
	ctx, call := o.calls.begin(ctx, "DeletedAt", s.Board)
	defer call.end(&err)
	return o.inner.DeletedAt(ctx, s)
}

func (o *store) Seal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, at time.Time) (_ leaderboard.SeasonRecord, err error) {
	ctx, call := o.calls.begin(ctx, "Seal", b.ID)
	defer call.end(&err)
	return o.inner.Seal(ctx, b, season, at)
}

func (o *store) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, amendment leaderboard.Amendment, users []leaderboard.UserID) (_ leaderboard.SeasonRecord, err error) {
	ctx, call := o.calls.begin(ctx, "Amend", b.ID)
	defer call.end(&err)
	return o.inner.Amend(ctx, b, season, amendment, users)
}

func (o *store) FinalStandings(ctx context.Context, l leaderboard.Ladder, position int64, n int) (_ []leaderboard.Standing, _ int64, err error) {
	ctx, call := o.calls.begin(ctx, "FinalStandings", l.Board)
	defer call.end(&err)
	return o.inner.FinalStandings(ctx, l, position, n)
}

func (o *store) FinalLookup(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID) (_ []leaderboard.Standing, _ int64, err error) {
	ctx, call := o.calls.begin(ctx, "FinalLookup", l.Board)
	defer call.end(&err)
	return o.inner.FinalLookup(ctx, l, users)
}

func (o *store) FinalAround(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int) (_ leaderboard.Neighborhood, _ int64, err error) {
	ctx, call := o.calls.begin(ctx, "FinalAround", l.Board)
	defer call.end(&err)
	return o.inner.FinalAround(ctx, l, user, above, below)
}

func (o *store) FinalAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int) (_ []leaderboard.Standing, _ leaderboard.Counts, _ int64, err error) {
	ctx, call := o.calls.begin(ctx, "FinalAfter", l.Board)
	defer call.end(&err)
	return o.inner.FinalAfter(ctx, l, after, n)
}

func (o *store) DeleteSeason(ctx context.Context, s leaderboard.SeasonKey, at time.Time) (err error) {
	ctx, call := o.calls.begin(ctx, "DeleteSeason", s.Board)
	defer call.end(&err)
	return o.inner.DeleteSeason(ctx, s, at)
}

func (o *store) MarkFinal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, users []leaderboard.UserID, reason string) (err error) {
	ctx, call := o.calls.begin(ctx, "MarkFinal", b.ID)
	defer call.end(&err)
	return o.inner.MarkFinal(ctx, b, season, users, reason)
}

func (o *store) FinalMarks(ctx context.Context) iter.Seq2[leaderboard.FinalMark, error] {
	return sequence(ctx, o.calls, "FinalMarks", "", o.inner.FinalMarks)
}

func (o *store) RemoveFinalMarks(ctx context.Context, marks []leaderboard.FinalMark) (err error) {
	ctx, call := o.calls.begin(ctx, "RemoveFinalMarks", "")
	defer call.end(&err)
	return o.inner.RemoveFinalMarks(ctx, marks)
}

func (o *store) RankChanges(ctx context.Context) iter.Seq2[leaderboard.RankChange, error] {
	return sequence(ctx, o.calls, "RankChanges", "", o.inner.RankChanges)
}

func (o *store) FinishRankChange(ctx context.Context, c leaderboard.RankChange, update func([]leaderboard.Entry) error) (err error) {
	ctx, call := o.calls.begin(ctx, "FinishRankChange", "")
	defer call.end(&err)
	return o.inner.FinishRankChange(ctx, c, update)
}

func (o *store) FinishDeletions(ctx context.Context) (err error) {
	ctx, call := o.calls.begin(ctx, "FinishDeletions", "")
	defer call.end(&err)
	return o.inner.FinishDeletions(ctx)
}

func (o *store) PutAPIKey(ctx context.Context, k leaderboard.APIKey) (err error) {
	ctx, call := o.calls.begin(ctx, "PutAPIKey", "")
	defer call.end(&err)
	return o.inner.PutAPIKey(ctx, k)
}

func (o *store) APIKey(ctx context.Context, hash [32]byte) (_ leaderboard.APIKey, err error) {
	ctx, call := o.calls.begin(ctx, "APIKey", "")
	defer call.end(&err)
	return o.inner.APIKey(ctx, hash)
}

func (o *store) APIKeys(ctx context.Context) (_ []leaderboard.APIKey, err error) {
	ctx, call := o.calls.begin(ctx, "APIKeys", "")
	defer call.end(&err)
	return o.inner.APIKeys(ctx)
}

func (o *store) DeleteAPIKey(ctx context.Context, id string) (err error) {
	ctx, call := o.calls.begin(ctx, "DeleteAPIKey", "")
	defer call.end(&err)
	return o.inner.DeleteAPIKey(ctx, id)
}

func (o *store) NoteAPIKeyUse(ctx context.Context, id string, at time.Time) (err error) {
	ctx, call := o.calls.begin(ctx, "NoteAPIKeyUse", "")
	defer call.end(&err)
	return o.inner.NoteAPIKeyUse(ctx, id, at)
}

func (o *store) APIKeyUses(ctx context.Context) (_ map[string]time.Time, err error) {
	ctx, call := o.calls.begin(ctx, "APIKeyUses", "")
	defer call.end(&err)
	return o.inner.APIKeyUses(ctx)
}

func (o *store) AppendAct(ctx context.Context, a leaderboard.Act) (err error) {
	ctx, call := o.calls.begin(ctx, "AppendAct", "")
	defer call.end(&err)
	return o.inner.AppendAct(ctx, a)
}

func (o *store) Acts(ctx context.Context, after leaderboard.ActKey) iter.Seq2[leaderboard.Act, error] {
	return sequence(ctx, o.calls, "Acts", "", func(ctx context.Context) iter.Seq2[leaderboard.Act, error] { return o.inner.Acts(ctx, after) })
}

func (o *store) UserActs(ctx context.Context, user leaderboard.UserID, after leaderboard.ActKey) iter.Seq2[leaderboard.Act, error] {
	return sequence(ctx, o.calls, "UserActs", "", func(ctx context.Context) iter.Seq2[leaderboard.Act, error] { return o.inner.UserActs(ctx, user, after) })
}

func (o *store) MatchIDs(ctx context.Context, s leaderboard.SeasonKey, prefix, after leaderboard.MatchID) iter.Seq2[leaderboard.MatchID, error] {
	return sequence(ctx, o.calls, "MatchIDs", s.Board, func(ctx context.Context) iter.Seq2[leaderboard.MatchID, error] {
		return o.inner.MatchIDs(ctx, s, prefix, after)
	})
}

func (o *store) ListMatches(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (err error) {
	ctx, call := o.calls.begin(ctx, "ListMatches", b.ID)
	defer call.end(&err)
	return o.inner.ListMatches(ctx, b, season, user)
}

func (o *store) PutProfiles(ctx context.Context, profiles []leaderboard.Profile) (_ []leaderboard.ProfileChange, err error) {
	ctx, call := o.calls.begin(ctx, "PutProfiles", "")
	defer call.end(&err)
	return o.inner.PutProfiles(ctx, profiles)
}

func (o *store) Profile(ctx context.Context, user leaderboard.UserID) (_ leaderboard.Profile, err error) {
	ctx, call := o.calls.begin(ctx, "Profile", "")
	defer call.end(&err)
	return o.inner.Profile(ctx, user)
}

func (o *store) CachedProfiles(ctx context.Context, users []leaderboard.UserID) (_ []leaderboard.Profile, err error) {
	ctx, call := o.calls.begin(ctx, "CachedProfiles", "")
	defer call.end(&err)
	return o.inner.CachedProfiles(ctx, users)
}

func (o *store) FindNames(ctx context.Context, prefix, after string, n int) (_ []leaderboard.NameMatch, _ bool, err error) {
	ctx, call := o.calls.begin(ctx, "FindNames", "")
	defer call.end(&err)
	return o.inner.FindNames(ctx, prefix, after, n)
}

func (o *store) AllProfiles(ctx context.Context) iter.Seq2[leaderboard.Profile, error] {
	return sequence(ctx, o.calls, "AllProfiles", "", o.inner.AllProfiles)
}
