package ranking

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// ScoreEffect is the effect that a call would have on a user's score and overall rank. A score
// is nil if no result of the user counts. A rank is 0 if it is unknown, the score is nil, or
// the user is hidden.
type ScoreEffect struct {
	leaderboard.SeasonKey
	User                    leaderboard.UserID
	ScoreBefore, ScoreAfter *leaderboard.Score
	RankBefore, RankAfter   int64 // competition ranks; RankAfter is the rank after all effects of the call
}

// Effects are the effects that a call would have on entries.
type Effects struct {
	// Entries are the first maxEffects entries whose rank key would change.
	Entries []ScoreEffect
	Changed map[leaderboard.BoardID]int // the number of entries whose rank key would change
	// Degraded means that the rank index cannot answer: at least one rank is unknown.
	Degraded bool
	AsOf     time.Time // when the computation began
}

func (e *Effects) add(effects []ScoreEffect, changes []leaderboard.Change) {
	for i := range effects {
		if changes[i].Before.Key == changes[i].After.Key {
			continue
		}
		if e.Changed == nil {
			e.Changed = map[leaderboard.BoardID]int{}
		}
		if e.Changed[effects[i].Board]++; len(e.Entries) < maxEffects {
			e.Entries = append(e.Entries, effects[i])
		}
	}
}

// The changes of one user are consecutive. Some leave the entry as it is.
func (s *Submitter) entryChanges(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Change, error) {
	links, err := s.linksOf(ctx, b.ID)
	if err != nil {
		return nil, err
	}
	var users []leaderboard.UserID
	byUser := map[leaderboard.UserID][]leaderboard.MatchResult{}
	for _, r := range results {
		if byUser[r.User] == nil {
			users = append(users, r.User)
		}
		byUser[r.User] = append(byUser[r.User], r)
	}
	changes := make([][]leaderboard.Change, len(users))
	err = eachRead(ctx, len(users), func(ctx context.Context, i int) (err error) {
		changes[i], err = s.userChanges(ctx, b, links.boards, users[i], byUser[users[i]])
		return err
	})
	return slices.Concat(changes...), err
}

func (s *Submitter) userChanges(ctx context.Context, b *leaderboard.Board, linked []*leaderboard.Board, user leaderboard.UserID, results []leaderboard.MatchResult) (changes []leaderboard.Change, err error) {
	keys, err := s.store.UserSeasons(ctx, user)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		board, replace := b, map[leaderboard.MatchID]leaderboard.MatchResult{}
		if key.Board != b.ID {
			i := slices.IndexFunc(linked, func(l *leaderboard.Board) bool { return l.ID == key.Board })
			if i < 0 {
				continue
			}
			board = linked[i]
		}
		for _, r := range results {
			if board != b {
				r = board.FromSource(b, &r, key.Season)
			}
			if r.SeasonKey == key {
				replace[r.Match] = r
			}
		}
		if len(replace) == 0 {
			continue
		}
		change, err := s.entryChange(ctx, board, leaderboard.EntryKey{SeasonKey: key, User: user}, replace)
		if err != nil {
			return nil, err
		}
		changes = append(changes, change)
	}
	return changes, nil
}

func (s *Submitter) entryChange(ctx context.Context, b *leaderboard.Board, key leaderboard.EntryKey, results map[leaderboard.MatchID]leaderboard.MatchResult) (leaderboard.Change, error) {
	before, err := s.store.Entry(ctx, key.SeasonKey, key.User)
	if errors.Is(err, leaderboard.ErrEntryNotFound) {
		before = leaderboard.Entry{SeasonKey: key.SeasonKey, User: key.User}
		before.Hidden, err = s.isHidden(ctx, b, key.User)
	}
	if err != nil {
		return leaderboard.Change{}, err
	}
	known, err := s.tallyIfNeeded(ctx, b, key, maps.Values(results))
	if err != nil {
		return leaderboard.Change{}, err
	}
	tally, err := b.Count(func(yield func(leaderboard.MatchResult, error) bool) {
		for stored, err := range s.store.Results(ctx, key.SeasonKey, key.User) {
			if r, ok := results[stored.Match]; ok && err == nil {
				// Merge needs no other fields of Known: r was received after every erasure and
				// deletion, and no refusal has its revision.
				if d := b.Merge(leaderboard.Known{Result: &stored, Tally: known}, r); d.Put != nil {
					stored = *d.Put
				}
			}
			if !yield(stored, err) {
				return
			}
		}
	})
	after := b.Entry(&tally, key.Season, key.User)
	after.Hidden = before.Hidden
	return leaderboard.Change{Before: before, After: after}, err
}

// tallyIfNeeded returns a user's tally if Merge needs it for at least one of the results. Merge
// never refuses a retraction or a change of Voids, so it needs no tally for them.
func (s *Submitter) tallyIfNeeded(ctx context.Context, b *leaderboard.Board, key leaderboard.EntryKey, results iter.Seq[leaderboard.MatchResult]) (leaderboard.Tally, error) {
	for r := range results {
		if !r.Retracted && !r.VoidOnly {
			return b.Count(s.store.Results(ctx, key.SeasonKey, key.User))
		}
	}
	return leaderboard.Tally{}, nil
}

func (s *Submitter) isHidden(ctx context.Context, b *leaderboard.Board, user leaderboard.UserID) (bool, error) {
	bans, err := s.store.UserBans(ctx, user)
	return slices.ContainsFunc(bans, func(ban leaderboard.Ban) bool { return ban.Hides(b) }), err
}

func (s *Submitter) effectsOf(ctx context.Context, changes []leaderboard.Change) ([]ScoreEffect, Effects, error) {
	asOf := leaderboard.Truncate(s.now())
	effects, degraded, err := s.scoreEffects(ctx, changes)
	if err != nil {
		return nil, Effects{}, err
	}
	all := Effects{Degraded: degraded, AsOf: asOf}
	all.add(effects, changes)
	return effects, all, nil
}

func (s *Submitter) scoreEffects(ctx context.Context, changes []leaderboard.Change) (effects []ScoreEffect, degraded bool, err error) {
	effects = make([]ScoreEffect, len(changes))
	bySeason := map[leaderboard.SeasonKey][]int{}
	for i := range changes {
		key := changes[i].After.SeasonKey
		bySeason[key] = append(bySeason[key], i)
	}
	for key, indexes := range bySeason {
		b, err := s.board(ctx, key.Board)
		if err != nil {
			return nil, false, err
		}
		scoredAt := scoreTime(b, key.Season, s.now())
		for _, i := range indexes {
			effects[i] = ScoreEffect{SeasonKey: key, User: changes[i].After.User}
			for rankKey, score := range map[*leaderboard.RankKey]**leaderboard.Score{
				&changes[i].Before.Key: &effects[i].ScoreBefore, &changes[i].After.Key: &effects[i].ScoreAfter,
			} {
				if *rankKey != "" {
					n := b.ScoreOf(*rankKey, scoredAt)
					*score = &n
				}
			}
		}
		err = s.rankEffects(ctx, b, key.Season, changes, effects, indexes)
		if errors.Is(err, leaderboard.ErrRankUnavailable) {
			degraded, err = true, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
	return effects, degraded, nil
}

// rankEffects sets the ranks of the effects at the given indexes, all of one season. RankAfter
// is the present rank of the new rank key, minus the number of changed entries that are above
// this key now, plus the number of changed entries that will be above it.
func (s *Submitter) rankEffects(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, changes []leaderboard.Change, effects []ScoreEffect, indexes []int) error {
	var before, after, keys []leaderboard.RankKey
	for _, i := range indexes {
		if c := &changes[i]; !c.Before.Hidden {
			keys = append(keys, c.Before.Key, c.After.Key)
			before, after = append(before, c.Before.Key), append(after, c.After.Key)
		}
	}
	var ranks []int64
	for keys := range slices.Chunk(keys, MaxLookup) {
		chunk, err := s.reader.ranksOf(ctx, b, season, keys)
		if err != nil {
			return err
		}
		ranks = append(ranks, chunk...)
	}
	above := func(keys []leaderboard.RankKey) func(leaderboard.RankKey) int64 {
		keys = slices.DeleteFunc(keys, func(k leaderboard.RankKey) bool { return k == "" })
		slices.Sort(keys)
		return func(k leaderboard.RankKey) int64 {
			n, _ := slices.BinarySearch(keys, k)
			return int64(n)
		}
	}
	wereAbove, willBeAbove := above(before), above(after)
	n := 0
	for _, i := range indexes {
		c := &changes[i]
		if c.Before.Hidden {
			continue
		}
		if c.Before.Key != "" {
			effects[i].RankBefore = ranks[n]
		}
		if k := c.After.Key; k != "" && ranks[n+1] > 0 {
			effects[i].RankAfter = ranks[n+1] - wereAbove(k) + willBeAbove(k)
		}
		n += 2
	}
	return nil
}
