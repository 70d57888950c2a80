package ranking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/coalesce"
)

// MaxBatch is the largest number of results in one Submit.
const MaxBatch = 5000

// ResultLog passes results with a season to the process that applies them. Its methods return
// one outcome for each result, in order. If a method returns no error, each result without an
// Err in its outcome is durable.
type ResultLog interface {
	// Submit waits until the results are applied. A result that is durable, but not applied in
	// time, has the status Accepted.
	Submit(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Outcome, error)
	// Accept waits only until the results are durable. A result that is not applied yet has
	// the status Accepted.
	Accept(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Outcome, error)
}

// directLog applies results itself. A result is durable only after it is applied, so Accept
// equals Submit.
type directLog struct {
	applier *Applier
	single  coalesce.Group[singleKey, *singleResult] // requests of one result, which share writes
}

type singleKey struct {
	board     leaderboard.BoardID
	createdAt int64  // of the board, in Unix microseconds
	reason    string // see amendReason
}

type singleResult struct {
	board   *leaderboard.Board
	result  leaderboard.MatchResult
	outcome leaderboard.Outcome
}

const (
	sharedApply     = 256                  // results of requests of one result that one Apply has at most
	sharedApplyWait = 5 * time.Millisecond // a slow Apply delays later results by this time at most
)

func newDirectLog(applier *Applier) *directLog {
	d := &directLog{applier: applier}
	d.single.Call, d.single.MaxBatch, d.single.MaxWait, d.single.Running = d.apply, sharedApply, sharedApplyWait, &applier.tasks.running
	return d
}

// When ctx is done, Submit returns the error of ctx, but the work continues.
func (d *directLog) Submit(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Outcome, error) {
	if len(results) == 1 {
		r := &singleResult{board: b, result: results[0]}
		if err := d.single.Do(ctx, singleKey{b.ID, b.CreatedAt.UnixMicro(), amendReason(results)}, r); err != nil {
			return nil, err
		}
		return []leaderboard.Outcome{r.outcome}, r.outcome.Err
	}
	report, err := runToEnd(ctx, d.applier.tasks, func(ctx context.Context) (leaderboard.ApplyReport, error) {
		return d.applier.Apply(ctx, b, results)
	})
	return report.Outcomes, err
}

func (d *directLog) apply(ctx context.Context, _ singleKey, batch []*singleResult) error {
	results := make([]leaderboard.MatchResult, len(batch))
	for i, r := range batch {
		results[i] = r.result
	}
	report, err := d.applier.Apply(ctx, batch[0].board, results)
	if err != nil {
		return err
	}
	for i, r := range batch {
		r.outcome = report.Outcomes[i]
	}
	return nil
}

func (d *directLog) Accept(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Outcome, error) {
	return d.Submit(ctx, b, results)
}

// Submitter completes and checks results of clients, and passes valid results to a
// [ResultLog].
type Submitter struct {
	*shared
	applier *Applier
	reader  *Reader
	results ResultLog
}

// Receipt is the answer to one submitted result.
type Receipt struct {
	Match      leaderboard.MatchID
	Revision   int64
	Season     leaderboard.SeasonID
	AchievedAt time.Time
	Status     leaderboard.Status
	Reason     leaderboard.Reason // set if Status is Rejected
	// Err is the fault of the result if Reason is INVALID. Any other Err means that the result
	// may or may not be applied: Status, Reason, Score and Rank are not valid, and the caller
	// may submit the result again.
	Err error
	// Repeated means that the same result was rejected before.
	Repeated bool
	// Stands means that this result stands although Status is Conflict.
	Stands bool
	// Score is the user's score after this result, and perhaps after later results. HasScore is
	// false if none of the user's results counts.
	Score    leaderboard.Score
	HasScore bool
	Exact    string // Score without rounding, on decay and average boards
	// Rank is the competition rank. It is 0 if ranks are unavailable, if the user is banned,
	// or if a later result of the same Submit changed the score.
	Rank int64
	// Previous is the user's score before this result. It is nil if there was none, or if the
	// stored result did not change.
	Previous *leaderboard.Score
	// PreviousRank is the competition rank of Previous among the other users, or 0 if unknown:
	// see [Submitter.AddPreviousRanks].
	PreviousRank int64
	// PersonalBest is the answer of [leaderboard.Board.PersonalBest], or nil.
	PersonalBest *bool
	// Banned means that a ban hides the user on the board.
	Banned bool
	// Finish is that of the user's entry, if HasScore is true.
	Finish leaderboard.Finish
	// Replaced is the result that stood directly before a correction or retraction, or nil. Only
	// [Submitter.Correct], [Submitter.Retract] and [Submitter.RetractAll] set it.
	Replaced *leaderboard.MatchResult
	// AsOf is the time of the last change that Score and Rank include. If the rank index did not
	// answer, AsOf is a time before the results were sent. It is zero if the result is not applied.
	AsOf time.Time
	// Sealed means that the season has final standings.
	Sealed bool
	// Linked is set by [Submitter.AddLinked].
	Linked []LinkedReceipt

	linked                  []leaderboard.LinkedEffect
	previousKey, currentKey leaderboard.RankKey // of Previous, and of the user's current score
	outdated                bool                // a later result of the same Submit changed the score
}

// TookEffect reports whether the result now stands and did not before.
func (r *Receipt) TookEffect() bool {
	return r.Err == nil && (r.Status == leaderboard.Applied || r.Status == leaderboard.Conflict && r.Stands)
}

// ScoreBefore returns the user's score directly before the result, or nil if there was none or if
// the result is not applied yet.
func (r *Receipt) ScoreBefore() *leaderboard.Score {
	switch {
	case r.TookEffect():
		return r.Previous
	case r.HasScore:
		return &r.Score
	}
	return nil
}

// Submit accepts up to [MaxBatch] results for a board. After Submit returns nil, valid results
// are durable. Results whose status is not Accepted are also visible to every read, unless the
// amendment of a sealed season takes longer than amendTimeout.
//
// An empty Match becomes a new id. A zero AchievedAt becomes the present time, or the time of
// the stored result if the result has a Season. An invalid result gets an error in its
// receipt.
//
// If Submit returns an error, some results may be durable. The caller may repeat the call if
// all results have a Match: results with the same match id count once.
func (s *Submitter) Submit(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]Receipt, error) {
	return s.completeAndSend(ctx, b, results, s.results.Submit)
}

// Accept is [Submitter.Submit], but returns as soon as the results are durable. Results that
// another process will apply have the status Accepted and no score.
func (s *Submitter) Accept(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]Receipt, error) {
	return s.completeAndSend(ctx, b, results, s.results.Accept)
}

func (s *Submitter) completeAndSend(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult,
	send func(context.Context, *leaderboard.Board, []leaderboard.MatchResult) ([]leaderboard.Outcome, error)) ([]Receipt, error) {
	if len(results) == 0 || len(results) > MaxBatch {
		return nil, &leaderboard.FieldError{Field: "results", Problem: fmt.Sprintf("must have 1 to %d results, not %d", MaxBatch, len(results))}
	}
	if err := b.CheckDirect(); err != nil {
		return nil, err
	}
	current, linked, err := s.declaringBoards(ctx, b, results)
	if err != nil {
		return nil, err
	}
	stored, err := s.storedResults(ctx, b, results)
	if err != nil {
		return nil, err
	}
	receipts := make([]Receipt, len(results))
	valid := make([]leaderboard.MatchResult, 0, len(results))
	receiptOf := make([]int, 0, len(results)) // the receipt of valid[i] is receipts[receiptOf[i]]
	for i, r := range results {
		submitErr := current.CheckSubmit(&r, linked)
		r, err := s.complete(ctx, b, r, stored[i])
		if err == nil {
			err = errors.Join(submitErr, b.Check(&r, s.now()))
		}
		receipts[i] = Receipt{Match: r.Match, Revision: r.Revision, Season: r.Season, AchievedAt: r.AchievedAt}
		switch {
		case errors.Is(err, leaderboard.ErrInvalid), errors.Is(err, leaderboard.ErrSeasonNotFound):
			receipts[i].Status, receipts[i].Reason, receipts[i].Err = leaderboard.Rejected, leaderboard.ReasonInvalid, err
		case err != nil:
			return nil, err
		default:
			valid, receiptOf = append(valid, r), append(receiptOf, i)
		}
	}
	return receipts, s.deliver(ctx, b, valid, receiptOf, receipts, send)
}

// storedResults reads the stored result of each result with a season but no time. Other elements
// are nil.
func (s *Submitter) storedResults(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]*leaderboard.MatchResult, error) {
	stored := make([]*leaderboard.MatchResult, len(results))
	var untimed []int
	for i := range results {
		r := &results[i]
		if r.Season == "" || !r.AchievedAt.IsZero() || r.User.Validate() != nil || r.Match.Validate() != nil {
			continue
		}
		if _, err := b.Season.ByID(r.Season); err == nil {
			untimed = append(untimed, i)
		}
	}
	err := eachRead(ctx, len(untimed), func(ctx context.Context, n int) error {
		key := results[untimed[n]].ResultKey
		key.Board = b.ID
		record, err := s.recordOf(ctx, key)
		stored[untimed[n]] = record.Result
		return err
	})
	return stored, err
}

// If r has a season, a zero time becomes the time of the stored result, and complete checks
// that the time is in the season.
func (s *Submitter) complete(ctx context.Context, b *leaderboard.Board, r leaderboard.MatchResult, stored *leaderboard.MatchResult) (leaderboard.MatchResult, error) {
	season := r.Season
	if season == "" {
		return s.applier.Complete(ctx, b, r)
	}
	if _, err := b.Season.ByID(season); err != nil {
		return r, &leaderboard.FieldError{Field: "season", Problem: fmt.Sprintf("the board has no season %q", season)}
	}
	if r.AchievedAt.IsZero() {
		if err := errors.Join(r.User.Validate(), r.Match.Validate()); err != nil {
			return r, err
		}
		if stored == nil || stored.Retracted {
			return r, &leaderboard.FieldError{Field: "achieved_at", Problem: fmt.Sprintf("is required, because the match has no result in season %s", season)}
		}
		r.AchievedAt, r.Assigned = stored.AchievedAt, stored.Assigned
	}
	r, err := s.applier.Complete(ctx, b, r)
	if err == nil && r.Season != season {
		err = &leaderboard.FieldError{Field: "achieved_at", Problem: fmt.Sprintf("is in season %s, not in season %s that the request names", r.Season, season)}
	}
	return r, err
}

// The receipt of results[i] is receipts[receiptOf[i]].
func (s *Submitter) deliver(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult, receiptOf []int, receipts []Receipt,
	send func(context.Context, *leaderboard.Board, []leaderboard.MatchResult) ([]leaderboard.Outcome, error)) error {
	if len(results) == 0 {
		return nil
	}
	asOf := leaderboard.Truncate(s.now())
	outcomes, err := send(ctx, b, results)
	if err != nil {
		return err
	}
	amended := s.waitForAmendments(ctx, results, outcomes)
	last := map[leaderboard.EntryKey]int{}
	for i := range results {
		last[leaderboard.EntryKey{SeasonKey: results[i].SeasonKey, User: results[i].User}] = i
	}
	for i := range outcomes {
		r, result := &receipts[receiptOf[i]], &results[i]
		r.Match, r.Revision, r.Season = result.Match, result.Revision, result.Season
		s.setOutcome(b, r, &outcomes[i], last[leaderboard.EntryKey{SeasonKey: result.SeasonKey, User: result.User}] == i)
		if r.Err == nil && r.Status != leaderboard.Accepted {
			r.AsOf, r.Sealed = asOf, s.hasSeal(ctx, b, r.Season)
		}
		if outcomes[i].Status == leaderboard.Duplicate && result.Assigned {
			if record, err := s.store.Result(ctx, result.ResultKey); err == nil && record.Result != nil {
				r.AchievedAt = record.Result.AchievedAt // the time that the first submit assigned
			}
		}
		if !amended {
			r.previousKey = "" // the ranks may not include the result
		}
	}
	return s.setRanks(ctx, b, results, outcomes, receiptOf, receipts)
}

// waitForAmendments returns false after amendTimeout, or if an amendment fails. AmendMarked
// later completes the amendments.
func (s *Submitter) waitForAmendments(ctx context.Context, results []leaderboard.MatchResult, outcomes []leaderboard.Outcome) bool {
	keys := map[leaderboard.SeasonKey]bool{}
	for i := range outcomes {
		if o := &outcomes[i]; o.Err == nil && o.Status != leaderboard.Accepted {
			keys[results[i].SeasonKey] = true
			for _, l := range o.Linked {
				keys[l.After.SeasonKey] = true
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, amendTimeout)
	defer cancel()
	err := s.finishAmendments(ctx, keys)
	if err != nil {
		s.logNotAmended(ctx, err)
	}
	return err == nil
}

// isLast is true if no later result of the Submit has the user and season of r. The score of r
// is then the user's current score.
func (s *Submitter) setOutcome(b *leaderboard.Board, r *Receipt, o *leaderboard.Outcome, isLast bool) {
	r.Status, r.Reason, r.Err, r.Banned = o.Status, o.Reason, o.Err, o.Entry.Hidden
	r.Repeated, r.Stands, r.linked = o.Repeated, o.Stands, o.Linked
	key, scoredAt := o.After, scoreTime(b, r.Season, s.now())
	if r.outdated = !isLast && o.After != o.Entry.Key; !r.outdated {
		key = o.Entry.Key
	}
	if r.HasScore = key != ""; r.HasScore {
		r.Score, r.Exact, r.Finish = b.ScoreOf(key, scoredAt), b.ExactScoreOf(key, scoredAt), b.FinishOf(key)
	}
	if o.Before != "" && o.Changed() {
		score := b.ScoreOf(o.Before, scoredAt)
		r.Previous, r.previousKey, r.currentKey = &score, o.Before, o.Entry.Key
	}
	if best, ok := b.PersonalBest(o); ok {
		r.PersonalBest = &best
	}
}

// hasSeal reports whether a season is known to be sealed.
func (s *Submitter) hasSeal(ctx context.Context, b *leaderboard.Board, id leaderboard.SeasonID) bool {
	season, err := b.Season.ByID(id)
	if err != nil {
		return false
	}
	_, sealed, err := s.seasonRecord(ctx, b, season)
	return err == nil && sealed
}

// AddPreviousRanks sets the PreviousRank of each receipt that has a Previous, if ranks are
// available. The receipts must be of one Submit to board b.
func (s *Submitter) AddPreviousRanks(ctx context.Context, b *leaderboard.Board, receipts []Receipt) error {
	bySeason := map[leaderboard.SeasonID][]*Receipt{}
	for i := range receipts {
		if r := &receipts[i]; r.previousKey != "" && !r.Banned {
			bySeason[r.Season] = append(bySeason[r.Season], r)
		}
	}
	for season, receipts := range bySeason {
		keys := make([]leaderboard.RankKey, len(receipts))
		for i, r := range receipts {
			keys[i] = r.previousKey
		}
		ranks, err := s.reader.ranksOf(ctx, b, season, keys)
		if err != nil && !errors.Is(err, leaderboard.ErrRankUnavailable) {
			return err
		}
		for i, r := range receipts {
			if err == nil && ranks[i] > 0 {
				r.PreviousRank = leaderboard.RankAmongOthers(ranks[i], r.previousKey, r.currentKey)
			}
		}
	}
	return nil
}

func (s *Submitter) setRanks(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult, outcomes []leaderboard.Outcome, receiptOf []int, receipts []Receipt) error {
	entries := map[leaderboard.SeasonID][]leaderboard.Entry{}
	receiptsOf := map[leaderboard.SeasonID][]*Receipt{}
	for i := range results {
		if r := &receipts[receiptOf[i]]; (r.HasScore || r.Status == leaderboard.Applied) && r.Err == nil && !r.outdated {
			e := outcomes[i].Entry
			e.User = results[i].User
			entries[r.Season], receiptsOf[r.Season] = append(entries[r.Season], e), append(receiptsOf[r.Season], r)
		}
	}
	for season, entries := range entries {
		if err := s.eachRanked(ctx, b, season, entries, func(i int, asOf time.Time, l Line) {
			r := receiptsOf[season][i]
			if r.AsOf = asOf; l.Rank > 0 {
				r.Score, r.Exact, r.Rank = l.Score, l.Exact, l.Rank
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// eachRanked calls the function set for each entry i that the ladder includes, with the time of the ladder's
// last change. The Line has the score and competition rank at that moment, or is empty if the user has no
// standing. If another result has changed the entry, they are those of the new entry.
//
// The process that applied a result may have failed to update the index. eachRanked then updates
// the index, so that later reads see the result.
func (s *Submitter) eachRanked(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, entries []leaderboard.Entry, set func(i int, asOf time.Time, l Line)) error {
	key := leaderboard.SeasonKey{Board: b.ID, Season: season}
	users := make([]leaderboard.UserID, len(entries))
	for i := range entries {
		users[i] = entries[i].User
	}
	err := s.reader.read(ctx, b, Query{Board: b.ID, Season: season}, func(v *view) error {
		standings, ladderView, err := v.Standings(ctx, v.ladder, users, leaderboard.Competition)
		if err != nil {
			return err
		}
		current, missing := s.compare(ctx, b, key, entries, standings)
		if len(missing) > 0 {
			if err := s.index.tryUpdate(ctx, key, leaderboard.Truncate(s.now()), missing); err != nil {
				return err
			}
			if standings, ladderView, err = v.Standings(ctx, v.ladder, users, leaderboard.Competition); err != nil {
				return err
			}
		}
		for i, st := range standings {
			switch {
			case st.Key != current[i]:
			case st.Key == "":
				set(i, ladderView.AsOf, Line{})
			default:
				set(i, ladderView.AsOf, v.line(&st))
			}
		}
		return nil
	})
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		return nil
	}
	return err
}

// compare returns the rank keys that the users should have in the ladder. If a standing differs
// from the given entry, the rank key is that of the stored entry, or empty if the store does not
// answer. missing are the entries that the index lacks.
func (s *Submitter) compare(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, entries []leaderboard.Entry, standings []leaderboard.Standing) (current []leaderboard.RankKey, missing []leaderboard.Entry) {
	current = make([]leaderboard.RankKey, len(entries))
	for i := range entries {
		if current[i] = rankedKey(&entries[i]); current[i] == standings[i].Key {
			continue
		}
		stored, err := s.storedEntry(ctx, b, key, entries[i].User)
		if err != nil {
			current[i] = ""
			continue
		}
		if current[i] = rankedKey(&stored); current[i] != standings[i].Key {
			missing = append(missing, stored)
		}
	}
	return current, missing
}

func rankedKey(e *leaderboard.Entry) leaderboard.RankKey {
	if e.Ranked() {
		return e.Key
	}
	return ""
}

// Retract retracts a match result of a board, also in a sealed season. An empty season in key
// means the current season.
//
// revision is the revision of the retraction. If revision is nil, Retract retracts the result
// that stands, even if another call changes the result meanwhile. Errors:
// [leaderboard.ErrResultNotFound] if revision is nil and no result of the match stands; those
// of [Submitter.RetractAll].
func (s *Submitter) Retract(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey, revision *int64) (Receipt, error) {
	r, err := s.retraction(ctx, b, key, revision)
	if err != nil {
		return Receipt{}, err
	}
	if revision != nil {
		record, err := s.recordOf(ctx, r.ResultKey)
		if err != nil {
			return Receipt{}, err
		}
		receipt, err := s.submitOne(ctx, b, r)
		receipt.Replaced = record.Result
		return receipt, err
	}
	receipts, err := s.RetractAll(ctx, b, planOfOne(&r))
	if err == nil {
		err = receipts[0].Err
	}
	return receipts[0], err
}

func planOfOne(r *leaderboard.MatchResult) *Retractions {
	return &Retractions{Keys: []leaderboard.ResultKey{r.ResultKey}, receipts: make([]Receipt, 1), results: []leaderboard.MatchResult{*r}, receiptOf: []int{0}}
}

func (s *Submitter) retraction(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey, revision *int64) (leaderboard.MatchResult, error) {
	if err := b.CheckDirect(); err != nil {
		return leaderboard.MatchResult{}, err
	}
	season, err := s.reader.season(ctx, b, key.Season)
	if err != nil {
		return leaderboard.MatchResult{}, err
	}
	key.Board, key.Season = b.ID, season.ID
	r := leaderboard.MatchResult{ResultKey: key, Retracted: true, ReceivedAt: leaderboard.Truncate(s.now())}
	if revision != nil {
		r.Revision = *revision
	}
	if err := b.Check(&r, s.now()); err != nil {
		return leaderboard.MatchResult{}, err
	}
	if revision != nil {
		return r, nil
	}
	stored, next, err := s.nextRetraction(ctx, b, key)
	if err == nil && stored == nil {
		err = fmt.Errorf("ranking: match %q was rejected and cannot be retracted: %w", key.Match, leaderboard.ErrResultNotFound)
	}
	r.Revision = next
	return r, err
}

// nextRetraction returns the result that stands, or nil, and the revision of its next retraction: above
// the stored revision and those of refused results. If the stored result is a retraction, the next
// one is a duplicate of it.
func (s *Submitter) nextRetraction(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey) (*leaderboard.MatchResult, int64, error) {
	record, err := s.store.Result(ctx, key)
	if err != nil || record.Result == nil {
		return nil, 0, err
	}
	if record.Result.Retracted {
		return record.Result, record.Result.Revision, nil
	}
	revision := record.Result.Revision + 1
	err = s.addRecent(ctx, b, key, &record)
	for _, refusal := range record.Refusals { // as correctedResult does
		revision = max(revision, min(refusal.Revision, leaderboard.MaxRevision)+1)
	}
	return record.Result, revision, err
}
