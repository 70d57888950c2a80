package pebble

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// A batch has at most chunkResults results, unless a single user has more.
const chunkResults = 1024

// Apply implements [leaderboard.Store].
func (s *Store) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (_ leaderboard.ApplyReport, hasMatches bool, _ error) {
	if err := ctx.Err(); err != nil {
		return leaderboard.ApplyReport{}, false, err
	}
	if err := s.failure(); err != nil {
		return leaderboard.ApplyReport{}, false, err
	}
	var users []leaderboard.UserID
	byUser := map[leaderboard.UserID][]int{}
	for i := range results {
		r := &results[i]
		if r.Board != b.ID {
			return leaderboard.ApplyReport{}, false, &leaderboard.FieldError{Field: "board_id", Problem: fmt.Sprintf("is %q, but Apply was called for board %q", r.Board, b.ID)}
		}
		if byUser[r.User] == nil {
			users = append(users, r.User)
		}
		byUser[r.User] = append(byUser[r.User], i)
	}

	out := leaderboard.ApplyReport{Outcomes: make([]leaderboard.Outcome, len(results))}
	var chunks []*chunk
	for len(users) > 0 {
		n, size := 0, 0
		for n < len(users) && (n == 0 || size+len(byUser[users[n]]) <= chunkResults) {
			size += len(byUser[users[n]])
			n++
		}
		c := &chunk{users: users[:n]}
		chunks, users = append(chunks, c), users[n:]
		c.err = s.applyChunk(ctx, b, c, byUser, results, out.Outcomes)
	}
	failed := 0
	var last error
	for _, c := range chunks {
		err := c.err
		if c.done != nil {
			err = s.waitForCommit(ctx, c.done)
		}
		if err == nil {
			out.Changes = append(out.Changes, c.changes...)
		}
		hasMatches = hasMatches || c.hasMatches
		for _, user := range c.users {
			for _, i := range byUser[user] {
				if err != nil {
					out.Outcomes[i] = leaderboard.Outcome{Err: err}
				}
				if out.Outcomes[i].Err != nil {
					last = out.Outcomes[i].Err
					failed++
				}
			}
		}
	}
	if failed == len(results) && failed > 0 {
		return leaderboard.ApplyReport{}, false, last
	}
	return out, hasMatches, nil
}

// A chunk is the part of an Apply that is written as one batch.
type chunk struct {
	users   []leaderboard.UserID
	changes []leaderboard.Change
	done    <-chan error // receives the result of the write; nil if no write was started
	err     error

	hasMatches bool // the stored board has Matches
}

// If applyUser fails for a user, only this user's outcomes get the error.
func (s *Store) applyChunk(ctx context.Context, b *leaderboard.Board, c *chunk, byUser map[leaderboard.UserID][]int,
	results []leaderboard.MatchResult, outcomes []leaderboard.Outcome,
) error {
	numbers := make([]int, len(c.users))
	for i, user := range c.users {
		numbers[i] = stripeOf(user)
	}
	unlock, err := s.lockStripes(ctx, numbers)
	if err != nil {
		return err
	}
	bd, err := s.liveBoard(b)
	if err != nil {
		unlock()
		return err
	}
	c.hasMatches = bd.Matches
	batch := s.db.NewBatch()
	changedAt := map[leaderboard.SeasonID]time.Time{}
	for _, user := range c.users {
		changes, err := s.applyUser(ctx, batch, bd, user, byUser[user], results, outcomes)
		if err != nil {
			for _, i := range byUser[user] {
				outcomes[i] = leaderboard.Outcome{Err: err}
			}
		}
		c.changes = append(c.changes, changes...)
		for _, i := range byUser[user] {
			if r := &results[i]; outcomes[i].Changed() && r.ReceivedAt.After(changedAt[r.Season]) {
				changedAt[r.Season] = r.ReceivedAt
			}
		}
	}
	for season, at := range changedAt {
		if err := s.noteChange(batch, makeSeasonRowKey(bd.number, season), leaderboard.Truncate(at)); err != nil {
			unlock()
			return err
		}
	}
	if batch.Empty() {
		unlock()
		return s.syncVisible(ctx)
	}
	c.done = s.startCommit(batch, unlock)
	return nil
}

// indexes lists the user's elements of results. applyUser reads all rows before it changes the
// batch, so a failed read leaves the batch unchanged.
func (s *Store) applyUser(ctx context.Context, batch *pebble.Batch, bd *board, user leaderboard.UserID, indexes []int,
	results []leaderboard.MatchResult, outcomes []leaderboard.Outcome,
) ([]leaderboard.Change, error) {
	var states []*userState
	stateOf := make([]*userState, len(indexes))
	for n, i := range indexes {
		season := results[i].Season
		position := slices.IndexFunc(states, func(st *userState) bool { return st.season == season })
		if position < 0 {
			st, err := s.loadUser(bd, season, user)
			if err != nil {
				return nil, err
			}
			if !st.exists {
				st.row.matches.known = true
			}
			position, states = len(states), append(states, st)
		}
		stateOf[n] = states[position]
		var err error
		if outcomes[i], err = states[position].merge(ctx, &results[i]); err != nil {
			return nil, err
		}
	}
	var changes []leaderboard.Change
	var writes []func() error
	for _, st := range states {
		change, write := st.finish(batch)
		if change.Before.Version != change.After.Version {
			changes = append(changes, change)
		}
		writes = append(writes, write)
	}
	for n, i := range indexes {
		outcomes[i].Entry = stateOf[n].after
	}
	for _, write := range writes {
		if err := write(); err != nil {
			return nil, err
		}
	}
	return changes, nil
}
