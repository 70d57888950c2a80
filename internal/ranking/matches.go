package ranking

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// CheckMatches returns a [leaderboard.FieldError] if the matches of b cannot be voided.
func CheckMatches(b *leaderboard.Board) error {
	if err := b.CheckDirect(); err != nil || b.Matches {
		return err
	}
	return &leaderboard.FieldError{Field: "board", Problem: fmt.Sprintf("%q was created without \"matches\": true, so its matches cannot be voided; retract the results of the match", b.ID)}
}

// MatchSeason returns the season of a match. If the season in key is empty, MatchSeason searches
// the newest maxSearchedSeasons seasons for results or a void of the match. Errors: a
// [leaderboard.FieldError] if MatchSeason finds no season, or several.
func (r *Reader) MatchSeason(ctx context.Context, b *leaderboard.Board, key leaderboard.MatchKey) (leaderboard.SeasonID, error) {
	if err := key.Match.Validate(); err != nil {
		return "", err
	}
	if key.Season != "" || b.Season.Kind == leaderboard.None {
		season, err := r.season(ctx, b, key.Season)
		return season.ID, err
	}
	records, err := r.store.Seasons(ctx, b.ID)
	if err != nil {
		return "", err
	}
	var keys []leaderboard.SeasonKey
	for i := range records {
		keys = append(keys, records[i].SeasonKey)
	}
	keys = newestSeasons(b, keys)
	hasMatch := make([]bool, len(keys))
	if err := eachRead(ctx, len(keys), func(ctx context.Context, i int) error {
		matchKey := leaderboard.MatchKey{SeasonKey: keys[i], Match: key.Match}
		state, err := r.store.Match(ctx, matchKey)
		if hasMatch[i] = state.Voids > 0; hasMatch[i] || err != nil {
			return err
		}
		for _, err := range r.store.MatchUsers(ctx, matchKey) {
			hasMatch[i] = err == nil
			return err
		}
		return nil
	}); err != nil {
		return "", err
	}
	var seasons []leaderboard.SeasonID
	for i, key := range keys {
		if hasMatch[i] {
			seasons = append(seasons, key.Season)
		}
	}
	switch len(seasons) {
	case 1:
		return seasons[0], nil
	case 0:
		return "", &leaderboard.FieldError{Field: "season", Problem: fmt.Sprintf("is required, because none of the newest %d seasons has results of the match", len(keys))}
	}
	return "", &leaderboard.FieldError{Field: "season", Problem: fmt.Sprintf("is required, because the match has results in %d seasons: %q", len(seasons), seasons)}
}

// MatchState returns the stored state of a match: see [leaderboard.MatchStore].
func (r *Reader) MatchState(ctx context.Context, key leaderboard.MatchKey) (leaderboard.MatchState, error) {
	return r.store.Match(ctx, key)
}

// SetVoid voids or restores a match, and returns its state. While the match is void, none of its
// results counts, not even a result that arrives later. m has the key, the reason and the actor.
// A repeated call finishes an interrupted call.
func (a *Admin) SetVoid(ctx context.Context, b *leaderboard.Board, m leaderboard.MatchState, void bool) (leaderboard.MatchState, error) {
	if err := errors.Join(CheckMatches(b), m.Match.Validate(), CheckReason(m.Reason)); err != nil {
		return leaderboard.MatchState{}, err
	}
	return runToEnd(ctx, a.tasks, func(ctx context.Context) (leaderboard.MatchState, error) {
		state, err := a.store.Match(ctx, m.MatchKey)
		if err != nil || state.Voids == 0 && !void {
			return state, err
		}
		if state.IsVoid() != void {
			m.Voids, m.Applied, m.At = state.Voids+1, 0, leaderboard.Truncate(a.now())
			state = m
		}
		if state, err = a.applyVoids(ctx, b, state); err != nil {
			return state, err
		}
		return state, a.tryAmendments(ctx, map[leaderboard.SeasonKey]bool{m.SeasonKey: true})
	})
}

// applyVoids stores state, and sets the field Voids of all results of the match, and of their
// copies on linked boards, to state.Voids. Then it sets Applied to Voids, as a record that all
// results have this value. It may be repeated, and may run concurrently.
func (s *shared) applyVoids(ctx context.Context, b *leaderboard.Board, state leaderboard.MatchState) (leaderboard.MatchState, error) {
	// Call SetMatch before MatchUsers, even if the caller read state from the store: another
	// process or region may still be storing state, and Apply may not see it yet.
	state, err := s.store.SetMatch(ctx, b, state)
	if err != nil || state.Voids == 0 { // Voids is 0 if the season was deleted
		return state, err
	}
	var errs []error
	err = eachChunk(s.store.MatchUsers(ctx, state.MatchKey), fillChunk, func(users []leaderboard.UserID) error {
		err := s.applyVoidsTo(ctx, b, state.MatchKey, users)
		if damaged(err) {
			errs, err = append(errs, err), nil
		}
		return err
	})
	if err = errors.Join(append(errs, err)...); err != nil {
		return state, err
	}
	state.Applied = state.Voids
	return s.store.SetMatch(ctx, b, state)
}

// If applyVoidsTo fails for a user, it continues with the other users, and returns all errors.
func (s *shared) applyVoidsTo(ctx context.Context, b *leaderboard.Board, key leaderboard.MatchKey, users []leaderboard.UserID) error {
	results := make([]leaderboard.MatchResult, len(users))
	for i, user := range users {
		results[i] = leaderboard.MatchResult{ResultKey: leaderboard.ResultKey{SeasonKey: key.SeasonKey, User: user, Match: key.Match}, VoidOnly: true}
	}
	report, err := s.applyTo(ctx, b, results)
	if err != nil {
		return err
	}
	var errs []error
	addError := func(user leaderboard.UserID, err error) {
		errs = append(errs, fmt.Errorf("user %q: %w", user, err))
	}
	var applied []leaderboard.MatchResult
	for i := range report.Outcomes {
		if err := report.Outcomes[i].Err; err != nil {
			addError(users[i], err)
		} else {
			applied = append(applied, results[i])
		}
	}
	err = eachIntact(applied, userOf, func(results []leaderboard.MatchResult) error { return s.convergeLinked(ctx, b.ID, results) }, addError)
	return errors.Join(append(errs, err)...)
}

func (s *shared) convergeLinked(ctx context.Context, source leaderboard.BoardID, results []leaderboard.MatchResult) error {
	for {
		l, err := s.linksOf(ctx, source)
		if err != nil || len(l.boards) == 0 {
			return err
		}
		matches := make([]*linkedMatch, len(results))
		for i := range results {
			matches[i] = &linkedMatch{key: results[i].ResultKey}
		}
		err = l.converge(ctx, matches)
		if repeat, err := l.mustRepeat(ctx, err); !repeat {
			return err
		}
	}
}

// finishVoids finishes calls of SetVoid that were interrupted, or made in another region: in the
// states of their matches, Applied is less than Voids. finishVoids continues after errors.
// Unless includeSealed is true, it omits seasons that this process knows to be sealed.
func (a *Admin) finishVoids(ctx context.Context, b *leaderboard.Board, includeSealed bool) error {
	if !b.Matches {
		return nil
	}
	ids, err := a.store.SeasonIDs(ctx, b.ID)
	if err != nil {
		return err
	}
	sealed := a.plans.get(b.ID).forBoard(b).sealed
	var errs []error
	for _, id := range ids {
		if _, ok := sealed[id]; ok && !includeSealed {
			continue
		}
		for m, err := range a.store.Matches(ctx, leaderboard.SeasonKey{Board: b.ID, Season: id}) {
			if err == nil && m.Applied < m.Voids {
				if _, err = runToEnd(ctx, a.tasks, func(ctx context.Context) (leaderboard.MatchState, error) { return a.applyVoids(ctx, b, m) }); err != nil {
					err = fmt.Errorf("ranking: void of match %q in %s/%s: %w", m.Match, b.ID, m.Season, err)
				}
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ExportVoids calls send for each void match of the selected seasons.
func (a *Admin) ExportVoids(ctx context.Context, sel Selection, send func(leaderboard.MatchState) error) error {
	return sel.eachSeason(ctx, a.store, func(_ *leaderboard.Board, key leaderboard.SeasonKey) error {
		for m, err := range a.store.Matches(ctx, key) {
			if err == nil && m.IsVoid() {
				err = send(m)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// PreviewVoid returns what SetVoid would change, and changes nothing.
func (s *Submitter) PreviewVoid(ctx context.Context, b *leaderboard.Board, key leaderboard.MatchKey, void bool) (Effects, error) {
	if err := CheckMatches(b); err != nil {
		return Effects{}, err
	}
	state, err := s.store.Match(ctx, key)
	if err != nil || state.IsVoid() == void {
		return Effects{}, err
	}
	var users []leaderboard.UserID
	for user, err := range s.store.MatchUsers(ctx, key) {
		if err != nil {
			return Effects{}, err
		}
		users = append(users, user)
	}
	slices.Sort(users)
	results := make([]leaderboard.MatchResult, len(users))
	if err := eachRead(ctx, len(users), func(ctx context.Context, i int) error {
		record, err := s.recordOf(ctx, leaderboard.ResultKey{SeasonKey: key.SeasonKey, User: users[i], Match: key.Match})
		if record.Result != nil {
			results[i] = *record.Result
			results[i].Voids = state.Voids + 1
		}
		return err
	}); err != nil {
		return Effects{}, err
	}
	results = slices.DeleteFunc(results, func(r leaderboard.MatchResult) bool { return r.User == "" })
	changes, err := s.entryChanges(ctx, b, results)
	if err != nil {
		return Effects{}, err
	}
	_, all, err := s.effectsOf(ctx, changes)
	return all, err
}
