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
	Receipt
	Effects
}

// PreviewRetraction returns what Retract would change, and changes nothing. Errors: those of
// Retract.
func (s *Submitter) PreviewRetraction(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey, revision *int64) (RetractionPreview, error) {
	r, err := s.retraction(ctx, b, key, revision)
	if err != nil {
		return RetractionPreview{}, err
	}
	receipts, effects, err := s.PreviewRetractions(ctx, b, planOfOne(&r))
	if err != nil {
		return RetractionPreview{}, err
	}
	return RetractionPreview{receipts[0], effects}, nil
}

// Retractions are results of one board that [Submitter.RetractAll] retracts. They are results
// with given keys ([Submitter.PlanRetractions]), or a purge: a user's results with event times
// in an interval ([Submitter.PlanPurge]).
type Retractions struct {
	// Closed are the keys of results that only administrators may retract, because the season
	// is closed, sealed, or no longer in the board's schedule.
	Closed []leaderboard.ResultKey
	// Keys are the keys of the results. RetractAll returns a [Receipt] for each, in this
	// order.
	Keys []leaderboard.ResultKey
	// More means that a purge has more than MaxBatch results. Keys has the first MaxBatch.
	More bool

	receipts  []Receipt // one for each key; it has an Err if the result cannot be retracted
	results   []leaderboard.MatchResult
	receiptOf []int     // the receipt of results[i] is receipts[receiptOf[i]]
	purge     bool      // the results have no reserved revisions yet
	from, to  time.Time // the interval of a purge; zero means no bound
}

// CheckRetraction returns the errors of [Submitter.Retract], and changes nothing.
func (s *Submitter) CheckRetraction(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey, revision *int64) error {
	_, err := s.retraction(ctx, b, key, revision)
	return err
}

// Retractable reports whether RetractAll will retract the result of Keys[i].
func (p *Retractions) Retractable(i int) bool { return p.receipts[i].Err == nil }

func (p *Retractions) isInInterval(r *leaderboard.MatchResult) bool {
	return !r.AchievedAt.Before(p.from) && (p.to.IsZero() || r.AchievedAt.Before(p.to))
}

// PlanRetractions finds up to [MaxBatch] results of a board. If a key has no season,
// PlanRetractions searches for the season: see [Reader.ResultSeason]. The [Receipt] of a result
// that cannot be retracted has an error: a [leaderboard.FieldError],
// [leaderboard.ErrResultNotFound] or [leaderboard.ErrSeasonNotFound].
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
			p.results, p.receiptOf = append(p.results, results[i]), append(p.receiptOf, i)
			if closed[i] {
				p.Closed = append(p.Closed, p.Keys[i])
			}
		}
	}
	return p, nil
}

// PlanPurge finds the first [MaxBatch] results of a user on a board that are not retracted and
// whose event time is in [from, to). Zero means no bound. An empty season means every season.
func (s *Submitter) PlanPurge(ctx context.Context, b *leaderboard.Board, user leaderboard.UserID, season leaderboard.SeasonID, from, to time.Time) (*Retractions, error) {
	if err := errors.Join(b.CheckDirect(), user.Validate()); err != nil {
		return nil, err
	}
	p := &Retractions{from: from, to: to, purge: true}
	return p, s.findPurged(ctx, b, ResultsQuery{User: user, Season: season}, p)
}

// setRevisions sets the revisions that RetractAll would reserve for a purge.
func (s *Submitter) setRevisions(ctx context.Context, b *leaderboard.Board, p *Retractions) error {
	return eachRead(ctx, len(p.results), func(ctx context.Context, i int) error {
		_, next, err := s.nextRetraction(ctx, b, p.results[i].ResultKey)
		p.results[i].Revision = max(p.results[i].Revision, next)
		if errors.Is(err, leaderboard.ErrResultNotFound) { // erased meanwhile
			err = nil
		}
		return err
	})
}

func (s *Submitter) findPurged(ctx context.Context, b *leaderboard.Board, q ResultsQuery, p *Retractions) error {
	seasons, err := s.reader.seasonsWithResults(ctx, b, q)
	if err != nil {
		return err
	}
	for _, id := range seasons {
		season, err := b.Season.ByID(id)
		isClosed := errors.Is(err, leaderboard.ErrSeasonNotFound)
		if err == nil {
			isClosed, err = s.reader.isClosed(ctx, b, season)
		}
		if err != nil && !isClosed {
			return err
		}
		for r, err := range s.store.Results(ctx, leaderboard.SeasonKey{Board: b.ID, Season: id}, q.User) {
			if err != nil {
				return err
			}
			if r.Retracted || !p.isInInterval(&r) {
				continue
			}
			if p.More = len(p.results) == MaxBatch; p.More {
				return nil
			}
			if isClosed {
				p.Closed = append(p.Closed, r.ResultKey)
			}
			p.receiptOf, p.Keys, p.receipts = append(p.receiptOf, len(p.receiptOf)), append(p.Keys, r.ResultKey), append(p.receipts, Receipt{})
			p.results = append(p.results, leaderboard.MatchResult{
				ResultKey: r.ResultKey, Revision: r.Revision + 1, Retracted: true, ReceivedAt: leaderboard.Truncate(s.now()),
			})
		}
	}
	return nil
}

func (r *Reader) isClosed(ctx context.Context, b *leaderboard.Board, season leaderboard.Season) (bool, error) {
	if b.Closed(season, r.now()) {
		return true, nil
	}
	_, sealed, err := r.seasonRecord(ctx, b, season)
	return sealed, err
}

// RetractAll retracts results of a board. If another call changes a result meanwhile,
// RetractAll also retracts the new revision, unless its event time is outside the interval of
// a purge. RetractAll reserves the revisions of the retractions, so that no correction
// replaces a retraction: see [leaderboard.ReservationStore].Reserve.
//
// RetractAll returns a [Receipt] for each of p.Keys, with Replaced. After an error, some results may be
// retracted, and the caller may repeat the call. Errors: [leaderboard.ErrUnavailable] if a
// result changes during each of correctionTries attempts.
func (s *Submitter) RetractAll(ctx context.Context, b *leaderboard.Board, p *Retractions) ([]Receipt, error) {
	results, receiptOf, holder := slices.Clone(p.results), p.receiptOf, rand.Text()
	for attempt := range correctionTries {
		pending := make([]bool, len(results))
		if err := eachRead(ctx, len(results), func(ctx context.Context, i int) (err error) {
			pending[i], p.receipts[receiptOf[i]].Replaced, err = s.reserveRetraction(ctx, b, p, &results[i], holder)
			return err
		}); err != nil {
			return p.receipts, err
		}
		if attempt > 0 { // the first attempt submits all retractions, so that each key gets a receipt
			results, receiptOf = filter(results, pending), filter(receiptOf, pending)
		}
		if err := s.deliver(ctx, b, results, receiptOf, p.receipts, s.results.Submit); err != nil {
			return p.receipts, err
		}
		superseded := make([]bool, len(results))
		for i := range results {
			r := &p.receipts[receiptOf[i]]
			superseded[i] = r.Status == leaderboard.Superseded && r.Err == nil
		}
		if results, receiptOf = filter(results, superseded), filter(receiptOf, superseded); len(results) == 0 {
			return p.receipts, nil
		}
	}
	return p.receipts, fmt.Errorf("ranking: match %q was changed during each of %d attempts to retract it: %w", results[0].Match, correctionTries, leaderboard.ErrUnavailable)
}

func filter[T any](list []T, chosen []bool) []T {
	var elements []T
	for i, v := range list {
		if chosen[i] {
			elements = append(elements, v)
		}
	}
	return elements
}

// reserveRetraction sets a reserved revision in the retraction r. The revision is higher than
// those of the stored result and of refused results. If the stored result is a retraction, r
// becomes a duplicate of it. Corrections with lower reserved revisions do not matter: r
// supersedes them.
//
// reserveRetraction returns false in two cases:
//
//   - The result was erased.
//   - A correction moved the event time out of the interval of a purge. r gets a lower revision
//     than the stored result, so the store treats r as superseded.
//
// reserveRetraction also returns the stored result, or nil.
func (s *Submitter) reserveRetraction(ctx context.Context, b *leaderboard.Board, p *Retractions, r *leaderboard.MatchResult, holder string) (pending bool, stored *leaderboard.MatchResult, err error) {
	for reserved := int64(-1); ; {
		stored, next, err := s.nextRetraction(ctx, b, r.ResultKey)
		switch {
		case errors.Is(err, leaderboard.ErrResultNotFound) || err == nil && stored == nil:
			return false, nil, nil
		case err != nil:
			return false, nil, err
		case stored.Retracted:
			r.Revision = next
			return true, stored, nil
		case !p.isInInterval(stored):
			r.Revision = stored.Revision - 1
			return false, stored, nil
		}
		r.Revision = max(r.Revision, next)
		if r.Revision == reserved {
			return true, stored, nil
		}
		// A revision above MaxRevision needs no reservation: no correction can have it.
		for ; r.Revision <= leaderboard.MaxRevision; r.Revision++ {
			now := s.now()
			granted, err := s.store.Reserve(ctx, leaderboard.Reservation{Key: r.ResultKey, Revision: r.Revision, Holder: holder, At: now, Until: now.Add(reservationTime)})
			if err != nil {
				return false, stored, err
			}
			if granted {
				break
			}
		}
		reserved = r.Revision
	}
}

// PreviewRetractions returns what RetractAll would change, and changes nothing. Each [Receipt]
// has the user's score before the first retraction, and the score and rank after the last one.
func (s *Submitter) PreviewRetractions(ctx context.Context, b *leaderboard.Board, p *Retractions) ([]Receipt, Effects, error) {
	if p.purge {
		if err := s.setRevisions(ctx, b, p); err != nil {
			return nil, Effects{}, err
		}
	}
	changes, err := s.entryChanges(ctx, b, p.results)
	if err != nil {
		return nil, Effects{}, err
	}
	effects, all, err := s.effectsOf(ctx, changes)
	if err != nil {
		return nil, Effects{}, err
	}
	changeOf := map[leaderboard.EntryKey]int{}
	for i := range changes {
		changeOf[leaderboard.EntryKey{SeasonKey: changes[i].After.SeasonKey, User: changes[i].After.User}] = i
	}
	outcomes, err := s.previewOutcomes(ctx, b, p.results, func(key leaderboard.EntryKey) leaderboard.Change {
		if i, ok := changeOf[key]; ok {
			return changes[i]
		}
		return leaderboard.Change{}
	})
	if err != nil {
		return nil, Effects{}, err
	}
	for i := range outcomes {
		r, result := &p.receipts[p.receiptOf[i]], &p.results[i]
		r.Match, r.Revision, r.Season = result.Match, result.Revision, result.Season
		s.setOutcome(b, r, &outcomes[i], true)
		r.AsOf, r.Sealed = all.AsOf, s.hasSeal(ctx, b, r.Season)
		if n, ok := changeOf[leaderboard.EntryKey{SeasonKey: result.SeasonKey, User: result.User}]; ok {
			r.Rank = effects[n].RankAfter
		}
	}
	return p.receipts, all, nil
}

// The function change must return how all retractions together would change a user's entry.
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
		var err error
		if hidden[r.User], err = s.isHidden(ctx, b, r.User); err != nil {
			return nil, err
		}
	}
	outcomes := make([]leaderboard.Outcome, len(results))
	return outcomes, eachRead(ctx, len(results), func(ctx context.Context, i int) error {
		r := &results[i]
		record, err := s.recordOf(ctx, r.ResultKey)
		if err != nil {
			return err
		}
		if first[r.ResultKey] < i {
			// results has the key twice. RetractAll would merge r after it has stored the first
			// retraction.
			retraction := r.Normalize()
			record.Result = &retraction
		}
		key := leaderboard.EntryKey{SeasonKey: r.SeasonKey, User: r.User}
		tally, err := s.tallyIfNeeded(ctx, b, key, slices.Values(results[i:i+1]))
		if err != nil {
			return err
		}
		d, c := b.Merge(leaderboard.Known{Result: record.Result, Refusals: record.Refusals, Tally: tally}, *r), change(key)
		outcomes[i] = d.Outcome(c.Before.Key, c.After.Key)
		outcomes[i].Entry, outcomes[i].Entry.Hidden = c.After, hidden[r.User]
		return nil
	})
}
