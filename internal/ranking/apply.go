package ranking

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// retryPeriod is the time after a season's start in which a result without a timestamp may be
// the retry of a result of the previous season.
const retryPeriod = 24 * time.Hour

// Applier applies results to the store and the ranks. The match id, the times and the season
// of the results must be set: see [Applier.Complete].
type Applier struct {
	*shared
	reader  *Reader
	repairs repairs

	timestampMu   sync.Mutex
	lastTimestamp time.Time
}

// Synced reports whether the index has every update so far of the given seasons, or of all
// seasons if none is given: see [leaderboard.Index].
func (a *Applier) Synced(seasons ...leaderboard.SeasonKey) bool { return a.index.Synced(seasons...) }

// Apply makes results of a board durable, on the linked boards too, and updates the ranks.
// AmendMarked later amends the final standings of sealed seasons.
//
// When ctx is done, Apply begins no further writes, but completes the writes that have begun.
// Each result that was not applied has an Err in its outcome, and the caller can retry it.
func (a *Applier) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	a.tasks.running.Add(1)
	defer a.tasks.running.Done()
	ctx = fromLog(ctx)
	report, err := a.applyTo(ctx, b, results)
	if err == nil {
		err = a.fanOut(context.WithoutCancel(ctx), b.ID, results, &report)
	}
	return report, err
}

// applyTo applies results to one board, not to its linked boards.
func (s *shared) applyTo(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	report, err := s.store.Apply(ctx, b, results)
	if err != nil {
		if errors.Is(err, leaderboard.ErrBoardNotFound) {
			s.forgetBoard(b.ID)
		}
		return report, err
	}
	// The ranks must include what the store has applied, even if ctx is done.
	return report, s.ranks.update(context.WithoutCancel(ctx), entriesAfter(report.Changes), unchangedEntries(&report), amendReason(results))
}

// amendReason returns the reason of an amendment after an Apply of the results.
func amendReason(results []leaderboard.MatchResult) string {
	switch {
	case slices.ContainsFunc(results, func(r leaderboard.MatchResult) bool { return r.VoidOnly }):
		return "void or restore a match"
	case slices.ContainsFunc(results, func(r leaderboard.MatchResult) bool { return !r.Retracted }):
		return "late correction"
	}
	return "retraction"
}

func entriesAfter(changes []leaderboard.Change) []leaderboard.Entry {
	entries := make([]leaderboard.Entry, len(changes))
	for i := range changes {
		entries[i] = changes[i].After
	}
	return entries
}

func unchangedEntries(report *leaderboard.ApplyReport) (entries []leaderboard.Entry) {
	included := make(map[leaderboard.EntryKey]bool, len(report.Changes))
	for i := range report.Changes {
		e := &report.Changes[i].After
		included[leaderboard.EntryKey{SeasonKey: e.SeasonKey, User: e.User}] = true
	}
	for i := range report.Outcomes {
		o := &report.Outcomes[i]
		key := leaderboard.EntryKey{SeasonKey: o.Entry.SeasonKey, User: o.Entry.User}
		if o.Err == nil && o.Entry.User != "" && !included[key] {
			included[key] = true
			entries = append(entries, o.Entry)
		}
	}
	return entries
}

// Refresh recomputes a user's entry from the stored results, copies results to linked boards
// that lack them, and updates the ranks. Once begun, it does not stop when ctx is done.
// Errors: [leaderboard.ErrBoardNotFound].
func (a *Applier) Refresh(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error) {
	if err := ctx.Err(); err != nil {
		return leaderboard.Change{}, err
	}
	a.tasks.running.Add(1)
	defer a.tasks.running.Done()
	ctx = fromLog(context.WithoutCancel(ctx))
	change, err := a.store.Recount(ctx, b, season, user)
	if err == nil {
		err = a.refreshLinked(ctx, leaderboard.EntryKey{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: season}, User: user})
	}
	if err != nil {
		return change, err
	}
	return change, a.ranks.updateRecounted(ctx, []leaderboard.Change{change}, "refresh")
}

// RanksOf returns the competition rank of each rank key in the overall ladder of a season,
// whether or not an entry has the key. In a sealed season all ranks are 0: its final standings
// may lack applied results.
func (a *Applier) RanksOf(ctx context.Context, key leaderboard.SeasonKey, keys []leaderboard.RankKey) ([]int64, error) {
	b, err := a.board(ctx, key.Board)
	if err != nil {
		return nil, err
	}
	season, err := b.Season.ByID(key.Season)
	if err != nil {
		return nil, err
	}
	if _, sealed, err := a.seasonRecord(ctx, b, season); err != nil || sealed {
		return make([]int64, len(keys)), err
	}
	return a.reader.ranksOf(ctx, b, key.Season, keys)
}

// KeysAt returns the rank key at each position in the overall ladder of a season. Positions
// count from 1. A missing position has an empty key.
func (a *Applier) KeysAt(ctx context.Context, key leaderboard.SeasonKey, positions []int64) ([]leaderboard.RankKey, error) {
	return a.reader.keysAt(ctx, key, positions)
}

// Complete sets the match id and the times if the result omits them, and the season that
// contains AchievedAt. If r retries a result of the previous season, Complete copies the
// season and time of that result: see completeRetry. Errors: [leaderboard.ErrSeasonNotFound]
// if the board has no season at AchievedAt; a [leaderboard.FieldError] if the board is linked.
func (a *Applier) Complete(ctx context.Context, b *leaderboard.Board, r leaderboard.MatchResult) (leaderboard.MatchResult, error) {
	r.Board = b.ID
	if err := b.CheckDirect(); err != nil {
		return r, err
	}
	hasMatch := r.Match != ""
	if !hasMatch {
		r.Match = leaderboard.MatchID(rand.Text())
	}
	if r.AchievedAt.IsZero() {
		r.Assigned, r.AchievedAt = true, a.newTimestamp()
	}
	if r.ReceivedAt.IsZero() {
		r.ReceivedAt = a.now()
	}
	r.ReceivedAt, r.AchievedAt = leaderboard.Truncate(r.ReceivedAt), leaderboard.Truncate(r.AchievedAt)
	season, err := b.Season.At(r.AchievedAt)
	if err != nil {
		return r, err
	}
	hasSeason := r.Season != ""
	r.Season = season.ID
	if hasMatch && !hasSeason && r.Assigned && !season.Start.IsZero() && r.AchievedAt.Sub(season.Start) < retryPeriod {
		if err := a.completeRetry(ctx, b, season, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// completeRetry moves r into the previous season if that season has the user's result of the
// match, and the service assigned the time of this stored result. r is then a retry or
// correction of the stored result, and the match must count once.
func (a *Applier) completeRetry(ctx context.Context, b *leaderboard.Board, season leaderboard.Season, r *leaderboard.MatchResult) error {
	previous, ok := b.Season.Previous(season)
	if !ok || r.User.Validate() != nil || r.Match.Validate() != nil {
		return nil //nolint:nilerr // an invalid id is no error here; Board.Check rejects it later
	}
	key := r.ResultKey
	key.Season = previous.ID
	record, err := a.store.Result(ctx, key)
	if errors.Is(err, leaderboard.ErrResultNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	original := record.Result
	if original == nil || !original.Assigned {
		return nil
	}
	r.Season, r.AchievedAt = previous.ID, original.AchievedAt
	return nil
}

// Each returned time is later than the previous one.
func (a *Applier) newTimestamp() time.Time {
	a.timestampMu.Lock()
	defer a.timestampMu.Unlock()
	t := leaderboard.Truncate(a.now())
	if !t.After(a.lastTimestamp) {
		t = a.lastTimestamp.Add(time.Microsecond)
	}
	a.lastTimestamp = t
	return t
}
