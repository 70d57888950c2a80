package cql

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// Result returns the record of a match result.
func (s *Store) Result(ctx context.Context, key leaderboard.ResultKey) (leaderboard.Record, error) {
	m, err := withIncarnation(ctx, s, key.SeasonKey, func(ctx context.Context, inc incarnation) (*match, error) {
		st, err := s.readState(ctx, &userKey{key.SeasonKey, inc.number, key.User}, []leaderboard.MatchID{key.Match})
		if err != nil {
			return nil, err
		}
		return st.matches[key.Match], nil
	})
	if err == nil && (m == nil || m.result == nil && len(m.refusals) == 0) {
		err = leaderboard.ErrResultNotFound
	}
	if err != nil {
		return leaderboard.Record{}, fmt.Errorf("cql: result %q of user %q: %w", key.Match, key.User, err)
	}
	return m.record(), nil
}

func (m *match) record() leaderboard.Record {
	slices.SortFunc(m.refusals, leaderboard.Refusal.Compare)
	return leaderboard.Record{Result: m.result, Refusals: m.refusals}
}

// Records yields the records of a user's matches in a season.
func (s *Store) Records(ctx context.Context, seasonKey leaderboard.SeasonKey, user leaderboard.UserID, after leaderboard.MatchID) iter.Seq2[leaderboard.MatchRecord, error] {
	return func(yield func(leaderboard.MatchRecord, error) bool) {
		more := true
		inc, err := s.incarnations.readAgain(ctx, seasonKey)
		if err == nil && inc.open {
			key := &userKey{seasonKey, inc.number, user}
			_, err = s.eachMatch(ctx, key, op{selectUserAfter, append(key.args(), string(after))}, func(m *match, id leaderboard.MatchID, _ uint64) bool {
				if m != nil && (m.result != nil || len(m.refusals) > 0) {
					more = yield(leaderboard.MatchRecord{Match: id, Record: m.record()}, nil)
				}
				return more
			})
		}
		if err != nil && more {
			yield(leaderboard.MatchRecord{}, err)
		}
	}
}

// Results yields a user's results that stand in a season, including retractions.
func (s *Store) Results(ctx context.Context, seasonKey leaderboard.SeasonKey, user leaderboard.UserID) iter.Seq2[leaderboard.MatchResult, error] {
	return func(yield func(leaderboard.MatchResult, error) bool) {
		inc, err := s.incarnations.readAgain(ctx, seasonKey)
		more := true
		if err == nil && inc.open {
			key := &userKey{seasonKey, inc.number, user}
			_, err = s.eachMatch(ctx, key, op{selectUser, key.args()}, func(m *match, _ leaderboard.MatchID, _ uint64) bool {
				if m != nil && m.result != nil {
					more = yield(*m.result, nil)
				}
				return more
			})
		}
		if err != nil && more {
			yield(leaderboard.MatchResult{}, err)
		}
	}
}
