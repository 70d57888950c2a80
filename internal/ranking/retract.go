package ranking

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// RetractionPreview is what Retract would change.
type RetractionPreview struct {
	Receipt // what Retract would return
	Effects
}

// PreviewRetraction returns what Retract would change, and changes nothing. Errors: those
// of Retract.
func (s *Submitter) PreviewRetraction(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey, revision *int64) (RetractionPreview, error) {
	r, err := s.retraction(ctx, b, key, revision)
	if err != nil {
		return RetractionPreview{}, err
	}
	receipts, effects, err := s.PreviewRetractions(ctx, b, planOf(&r))
	if err != nil {
		return RetractionPreview{}, err
	}
	return RetractionPreview{receipts[0], effects}, nil
}

// Retractions are results of one board that a call retracts. [Submitter.PlanRetractions]
// and [Submitter.PlanPurge] find them.
type Retractions struct {
	// Closed are the keys of the results whose seasons accept retractions from
	// administrators only.
	Closed []leaderboard.ResultKey
	// Keys has the key of each receipt.
	Keys []leaderboard.ResultKey
	// More means that a purge has found more than MaxBatch results, and leaves out the
	// others.
	More bool

	receipts []Receipt                 // one for each key; those of results that cannot be retracted have an Err
	results  []leaderboard.MatchResult // the retractions
	at       []int                     // the receipt of results[i] is receipts[at[i]]
	from, to time.Time                 // the interval of a purge
}

// purges reports whether the event time of r is in the interval of p. A zero time means no
// bound.
func (p *Retractions) purges(r *leaderboard.MatchResult) bool {
	return !r.AchievedAt.Before(p.from) && (p.to.IsZero() || r.AchievedAt.Before(p.to))
}

// PlanRetractions finds up to [MaxBatch] results of a board. It finds the season of a key
// without one as [Reader.ResultSeason] does. If a result cannot be retracted, only its
// receipt has an error: a [leaderboard.FieldError] or [leaderboard.ErrResultNotFound].
func (s *Submitter) PlanRetractions(ctx context.Context, b *leaderboard.Board, keys []leaderboard.ResultKey) (*Retractions, error) {
	if len(keys) == 0 || len(keys) > MaxBatch {
		return nil, &leaderboard.FieldError{Field: "results", Problem: fmt.Sprintf("must have 1 to %d results, not %d", MaxBatch, len(keys))}
	}
	if err := b.CheckDirect(); err != nil {
		return nil, err
	}
	p := &Retractions{Keys: slices.Clone(keys), receipts: make([]Receipt, len(keys))}
	results, closed := make([]leaderboard.MatchResult, len(keys)), make([]bool, len(keys))
	if err := eachRead(ctx, len(keys), func(ctx context.Context, i int) (err error) {
		key := &p.Keys[i]
		if err = errors.Join(key.User.Validate(), key.Match.Validate()); err == nil {
			key.Season, closed[i], err = s.reader.ResultSeason(ctx, b, *key)
		}
		if err == nil {
			results[i], err = s.retraction(ctx, b, *key, nil)
		}
		r := &p.receipts[i]
		r.Match, r.Season = key.Match, key.Season
		if errors.Is(err, leaderboard.ErrInvalid) || errors.Is(err, leaderboard.ErrResultNotFound) || errors.Is(err, leaderboard.ErrSeasonNotFound) {
			r.Status, r.Reason, r.Err, err = leaderboard.Rejected, leaderboard.ReasonInvalid, err, nil
		}
		return err
	}); err != nil {
		return nil, err
	}
	for i := range results {
		if p.receipts[i].Err == nil {
			p.results, p.at = append(p.results, results[i]), append(p.at, i)
			if closed[i] {
				p.Closed = append(p.Closed, p.Keys[i])
			}
		}
	}
	return p, nil
}

// PlanPurge finds the first [MaxBatch] results of a user on a board that count and whose
// event time is in [from, to). A zero time means no bound. An empty season means every
// season.
func (s *Submitter) PlanPurge(ctx context.Context, b *leaderboard.Board, user leaderboard.UserID, season leaderboard.SeasonID, from, to time.Time) (*Retractions, error) {
	if err := errors.Join(b.CheckDirect(), user.Validate()); err != nil {
		return nil, err
	}
	seasons, err := s.reader.seasonsWithResults(ctx, b, ResultsQuery{User: user, Season: season})
	if err != nil {
		return nil, err
	}
	p := &Retractions{from: from, to: to}
	for _, season := range seasons {
		of, err := b.Season.ByID(season)
		isClosed := errors.Is(err, leaderboard.ErrSeasonNotFound)
		if err == nil {
			isClosed, err = s.reader.isClosed(ctx, b, of)
		}
		if err != nil && !isClosed {
			return nil, err
		}
		for r, err := range s.store.Results(ctx, leaderboard.SeasonKey{Board: b.ID, Season: season}, user) {
			if err != nil {
				return nil, err
			}
			if r.Retracted || !p.purges(&r) {
				continue
			}
			if p.More = len(p.results) == MaxBatch; p.More {
				return p, nil
			}
			if isClosed {
				p.Closed = append(p.Closed, r.ResultKey)
			}
			p.at, p.Keys, p.receipts = append(p.at, len(p.at)), append(p.Keys, r.ResultKey), append(p.receipts, Receipt{})
			p.results = append(p.results, leaderboard.MatchResult{
				ResultKey: r.ResultKey, Revision: r.Revision + 1, Retracted: true, ReceivedAt: leaderboard.Truncate(s.now()),
			})
		}
	}
	return p, nil
}

// isClosed reports whether a season accepts results from administrators only, because it is
// closed or sealed.
func (r *Reader) isClosed(ctx context.Context, b *leaderboard.Board, season leaderboard.Season) (bool, error) {
	if b.Closed(season, r.now()) {
		return true, nil
	}
	_, sealed, err := r.seasonRecord(ctx, b, season)
	return sealed, err
}

// RetractAll retracts results of a board. If another call changes a result meanwhile,
// RetractAll also retracts the revision that then counts, unless a purge no longer concerns
// it. It reserves the revisions of the retractions first. Otherwise a correction that has
// read the result before could replace its retraction.
//
// RetractAll returns a receipt for each of p.Keys. If it returns an error, some results may
// be retracted; the caller may repeat the call. Errors: [leaderboard.ErrUnavailable] if a
// result changes during each of many attempts.
func (s *Submitter) RetractAll(ctx context.Context, b *leaderboard.Board, p *Retractions) ([]Receipt, error) {
	results, at, holder := slices.Clone(p.results), p.at, rand.Text()
	for range correctionTries {
		err := eachRead(ctx, len(results), func(ctx context.Context, i int) error { return s.reserveRetraction(ctx, p, &results[i], holder) })
		if err == nil {
			err = s.deliver(ctx, b, results, at, p.receipts, s.results.Submit)
		}
		if err != nil {
			return p.receipts, err
		}
		if results, at, err = s.superseded(ctx, p, results, at); err != nil || len(results) == 0 {
			return p.receipts, err
		}
	}
	return p.receipts, fmt.Errorf("ranking: match %q was changed during each of %d attempts to retract it: %w", results[0].Match, correctionTries, leaderboard.ErrUnavailable)
}

// reserveRetraction reserves the revision of the retraction r, or the next free one, unless
// the stored result is this retraction already. It does not wait for corrections that have
// reserved lower revisions: the retraction supersedes them. If a correction has moved the
// result out of a purge, r gets a revision that is superseded.
func (s *Submitter) reserveRetraction(ctx context.Context, p *Retractions, r *leaderboard.MatchResult, holder string) error {
	for reserved := int64(-1); ; {
		record, err := s.record(ctx, r.ResultKey)
		have := record.Result
		if err != nil || have == nil || have.Retracted {
			return err
		}
		if have.Revision >= r.Revision { // the result has changed
			if !p.purges(have) {
				r.Revision = have.Revision - 1
				return nil
			}
			r.Revision = have.Revision + 1
		}
		if r.Revision == reserved {
			return nil
		}
		for ; r.Revision <= leaderboard.MaxRevision; r.Revision++ { // no correction has a higher revision
			now := s.now()
			ok, err := s.store.Reserve(ctx, leaderboard.Reservation{Key: r.ResultKey, Revision: r.Revision, Holder: holder, At: now, Until: now.Add(reserveFor)})
			if err != nil {
				return err
			}
			if ok {
				break
			}
		}
		reserved = r.Revision
	}
}

// superseded returns the retractions that replace those of results that are superseded. The
// receipt of the returned result i is p.receipts[next[i]].
func (s *Submitter) superseded(ctx context.Context, p *Retractions, results []leaderboard.MatchResult, at []int) (again []leaderboard.MatchResult, next []int, err error) {
	for i := range results {
		receipt, r := &p.receipts[at[i]], results[i]
		if receipt.Status != leaderboard.Superseded || receipt.Err != nil {
			continue
		}
		record, err := s.record(ctx, r.ResultKey)
		if err != nil {
			return nil, nil, err
		}
		if have := record.Result; have == nil || !have.Retracted && !p.purges(have) {
			continue // erased or moved meanwhile
		}
		r.Revision = retractionOf(record.Result)
		again, next = append(again, r), append(next, at[i])
	}
	return again, next, nil
}

// PreviewRetractions returns what RetractAll would change, and changes nothing. The scores
// and ranks in its receipts are those before and after all of the retractions.
func (s *Submitter) PreviewRetractions(ctx context.Context, b *leaderboard.Board, p *Retractions) ([]Receipt, Effects, error) {
	changes, err := s.entryChanges(ctx, b, p.results)
	if err != nil {
		return nil, Effects{}, err
	}
	effects, all, err := s.effectsOf(ctx, changes)
	if err != nil {
		return nil, Effects{}, err
	}
	of := map[leaderboard.EntryKey]int{}
	for i := range changes {
		of[leaderboard.EntryKey{SeasonKey: changes[i].After.SeasonKey, User: changes[i].After.User}] = i
	}
	outcomes, err := s.previewOutcomes(ctx, b, p.results, func(key leaderboard.EntryKey) leaderboard.Change {
		if i, ok := of[key]; ok {
			return changes[i]
		}
		return leaderboard.Change{}
	})
	if err != nil {
		return nil, Effects{}, err
	}
	for i := range outcomes {
		r, result := &p.receipts[p.at[i]], &p.results[i]
		r.Match, r.Revision, r.Season = result.Match, result.Revision, result.Season
		s.setOutcome(b, r, &outcomes[i], true)
		if n, ok := of[leaderboard.EntryKey{SeasonKey: result.SeasonKey, User: result.User}]; ok {
			r.Rank = effects[n].RankAfter
		}
	}
	return p.receipts, all, nil
}

// previewOutcomes returns the outcome that each retraction would have on b. change returns
// the change of a user's entry by all of them.
func (s *Submitter) previewOutcomes(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult, change func(leaderboard.EntryKey) leaderboard.Change) ([]leaderboard.Outcome, error) {
	first, hidden := map[leaderboard.ResultKey]int{}, map[leaderboard.UserID]bool{}
	for i := range results {
		r := &results[i]
		if _, ok := first[r.ResultKey]; !ok {
			first[r.ResultKey] = i
		}
		if _, ok := hidden[r.User]; ok {
			continue
		}
		bans, err := s.store.UserBans(ctx, r.User)
		if err != nil {
			return nil, err
		}
		hidden[r.User] = slices.ContainsFunc(bans, func(ban leaderboard.Ban) bool { return ban.Hides(b) }) // also without an entry
	}
	outcomes := make([]leaderboard.Outcome, len(results))
	return outcomes, eachRead(ctx, len(results), func(ctx context.Context, i int) error {
		r := &results[i]
		record, err := s.record(ctx, r.ResultKey)
		if err != nil {
			return err
		}
		if first[r.ResultKey] < i {
			stands := r.Normalize()
			record.Result = &stands
		}
		d := b.Merge(leaderboard.Known{Result: record.Result, Refusals: record.Refusals}, *r)
		c := change(leaderboard.EntryKey{SeasonKey: r.SeasonKey, User: r.User})
		outcomes[i] = d.Outcome(c.Before.Key, c.After.Key)
		outcomes[i].Entry, outcomes[i].Entry.Hidden = c.After, hidden[r.User]
		return nil
	})
}
