package ranking

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// CheckMatches returns a [leaderboard.FieldError] if b has no list of matches, and
// [leaderboard.ErrMatchesFilling] if the list may lack earlier results.
func CheckMatches(b *leaderboard.Board) error {
	switch err := b.CheckDirect(); {
	case err != nil:
		return err
	case !b.Matches:
		return &leaderboard.FieldError{Field: "board", Problem: fmt.Sprintf("%q has no list of matches, so its matches cannot be voided; switch the list on with \"matches\": true, or retract the results of the match", b.ID)}
	case b.UnfilledMatches:
		return fmt.Errorf("ranking: board %q: %w", b.ID, leaderboard.ErrMatchesFilling)
	}
	return nil
}

// MatchSeason returns the season of a match. If the season in key is empty, MatchSeason searches
// the newest maxSearchedSeasons seasons for results or a void of the match. Errors:
// [leaderboard.ErrMatchNotFound] if MatchSeason finds no season; a [leaderboard.FieldError] if it
// finds several.
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
		_, err := r.Match(ctx, leaderboard.MatchKey{SeasonKey: keys[i], Match: key.Match})
		if hasMatch[i] = err == nil; errors.Is(err, leaderboard.ErrMatchNotFound) {
			err = nil
		}
		return err
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
		return "", fmt.Errorf("ranking: match %q has no results in the newest %d seasons of board %q; name the season: %w", key.Match, len(keys), b.ID, leaderboard.ErrMatchNotFound)
	}
	return "", &leaderboard.FieldError{Field: "season", Problem: fmt.Sprintf("is required, because the match has results in %d seasons: %q", len(seasons), seasons)}
}

// Match returns the stored state of a match: see [leaderboard.MatchStore]. Errors:
// [leaderboard.ErrMatchNotFound], together with a state without voids.
func (r *Reader) Match(ctx context.Context, key leaderboard.MatchKey) (leaderboard.MatchState, error) {
	state, err := r.store.Match(ctx, key)
	if err != nil || state.Voids > 0 {
		return state, err
	}
	for _, err := range r.store.MatchUsers(ctx, key) {
		return state, err
	}
	return state, fmt.Errorf("ranking: match %q of board %q has no results in season %q: %w", key.Match, key.Board, key.Season, leaderboard.ErrMatchNotFound)
}

// MatchesQuery selects the matches of a season.
type MatchesQuery struct {
	Season leaderboard.SeasonID // empty means the current season
	Prefix leaderboard.MatchID
	After  leaderboard.MatchID // the last match of the previous page
	Limit  int                 // 1 to maxResults
}

// MatchesPage is a page of matches.
type MatchesPage struct {
	Matches []leaderboard.MatchState
	Next    leaderboard.MatchID // the After of the next page; empty on the last page
}

func checkPage(limit int) error {
	if limit < 1 || limit > maxResults {
		return &leaderboard.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d, not %d", maxResults, limit)}
	}
	return nil
}

// Matches returns a page of the matches with results or a state, ordered by id. A match whose users
// were all erased may be in the page. Errors: [leaderboard.ErrSeasonNotFound]; those of
// CheckMatches.
func (r *Reader) Matches(ctx context.Context, b *leaderboard.Board, q MatchesQuery) (MatchesPage, error) {
	if err := errors.Join(checkPage(q.Limit), CheckMatches(b)); err != nil {
		return MatchesPage{}, err
	}
	if q.Prefix != "" {
		if err := q.Prefix.Validate(); err != nil {
			return MatchesPage{}, &leaderboard.FieldError{Field: "prefix", Problem: "must be the beginning of a match id: 1 to 128 bytes of printable UTF-8"}
		}
	}
	season, err := r.season(ctx, b, q.Season)
	if err != nil {
		return MatchesPage{}, err
	}
	key := leaderboard.SeasonKey{Board: b.ID, Season: season.ID}
	var page MatchesPage
	for id, err := range r.store.MatchIDs(ctx, key, q.Prefix, q.After) {
		if err != nil {
			return MatchesPage{}, err
		}
		if len(page.Matches) == q.Limit {
			page.Next = page.Matches[q.Limit-1].Match
			break
		}
		page.Matches = append(page.Matches, leaderboard.MatchState{MatchKey: leaderboard.MatchKey{SeasonKey: key, Match: id}})
	}
	return page, eachRead(ctx, len(page.Matches), func(ctx context.Context, i int) (err error) {
		page.Matches[i], err = r.store.Match(ctx, page.Matches[i].MatchKey)
		return err
	})
}

// MatchPage is a match with a page of its results.
type MatchPage struct {
	State leaderboard.MatchState
	// Results has one result of each user, ordered by user.
	Results []UserResult
	Next    leaderboard.UserID // the parameter after of the next page; empty on the last page
}

// UserResult is the state of a user's result.
type UserResult struct {
	User leaderboard.UserID
	ResultStatus
}

// MatchResults returns a match and up to limit of its results, of the users after a given user. If
// the season in key is empty, MatchResults searches as MatchSeason does. Errors:
// [leaderboard.ErrMatchNotFound]; those of MatchSeason and CheckMatches.
func (r *Reader) MatchResults(ctx context.Context, b *leaderboard.Board, key leaderboard.MatchKey, after leaderboard.UserID, limit int) (MatchPage, error) {
	if err := errors.Join(checkPage(limit), CheckMatches(b)); err != nil {
		return MatchPage{}, err
	}
	var err error
	if key.Season, err = r.MatchSeason(ctx, b, key); err != nil {
		return MatchPage{}, err
	}
	page := MatchPage{}
	if page.State, err = r.Match(ctx, key); err != nil {
		return MatchPage{}, err
	}
	var users []leaderboard.UserID
	for user, err := range r.store.MatchUsers(ctx, key) {
		if err != nil {
			return MatchPage{}, err
		}
		if user > after {
			users = append(users, user)
		}
	}
	slices.Sort(users)
	if len(users) > limit {
		users, page.Next = users[:limit], users[limit-1]
	}
	page.Results = make([]UserResult, len(users))
	if err := eachRead(ctx, len(users), func(ctx context.Context, i int) error {
		record, err := r.recordOf(ctx, leaderboard.ResultKey{SeasonKey: key.SeasonKey, User: users[i], Match: key.Match})
		if err == nil && record.Result != nil {
			page.Results[i] = UserResult{users[i], StatusOf(b, record.Result)}
		}
		return err
	}); err != nil {
		return MatchPage{}, err
	}
	// MatchUsers may yield users without a result.
	page.Results = slices.DeleteFunc(page.Results, func(r UserResult) bool { return r.Result == nil })
	return page, nil
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
