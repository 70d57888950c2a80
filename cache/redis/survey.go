package redis

import (
	"context"
	"fmt"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// A script blocks its server. So surveyPiece bounds the sum of the positions, percents and keys in one
// script, and edgesPiece the edges between buckets.
const (
	surveyPiece = 16
	edgesPiece  = 25
)

// Survey implements [leaderboard.Ranker]. With several shards, it reads a page for each position.
func (x *Index) Survey(ctx context.Context, l leaderboard.Ladder, q leaderboard.SurveyQuery, methods ...leaderboard.Method) (leaderboard.Survey, leaderboard.View, error) {
	if len(*x.peek(l.SeasonKey).control.Load()) > 1 {
		return leaderboard.SurveyByPages(ctx, x, l, q, methods...)
	}
	var s leaderboard.Survey
	v, err := x.answer(ctx, l, countsOf(methods), func(r *reader) (err error) {
		if r.shards() > 1 { // another process has rebuilt the season with more shards
			return errAgain
		}
		s, err = r.survey(q)
		return err
	})
	if len(*x.peek(l.SeasonKey).control.Load()) > 1 {
		return leaderboard.SurveyByPages(ctx, x, l, q, methods...)
	}
	if err != nil {
		return leaderboard.Survey{}, leaderboard.View{}, err
	}
	return s, v, nil
}

// surveyCall is a call of the survey script for a part of a query, and the numbers of positions,
// percents, keys and edges in this part.
type surveyCall struct {
	*call
	positions, percents, keys, edges int
}

func (r *reader) surveyCalls(q leaderboard.SurveyQuery) (pieces []surveyCall, calls []*call) {
	fromWorst := 0
	if q.FromWorst {
		fromWorst = 1
	}
	remaining, edges := q, 0 // the edges in earlier calls
	for first := true; first || len(remaining.Positions)+len(remaining.Percents)+len(remaining.Keys) > 0 || edges < q.Buckets-1; first = false {
		p := surveyCall{positions: min(len(remaining.Positions), surveyPiece)}
		p.percents = min(len(remaining.Percents), surveyPiece-p.positions)
		p.keys = min(len(remaining.Keys), surveyPiece-p.positions-p.percents)
		p.edges = max(min(q.Buckets-1-edges, edgesPiece), 0)
		buckets := 0
		if p.edges > 0 {
			buckets = q.Buckets
		}
		args := []any{p.positions, p.percents, buckets, fromWorst, edges + 1, p.edges}
		edges += p.edges
		for _, position := range remaining.Positions[:p.positions] {
			args = append(args, min(position, maxPosition)-1)
		}
		for _, percent := range remaining.Percents[:p.percents] {
			args = append(args, percent)
		}
		for _, k := range remaining.Keys[:p.keys] {
			args = append(args, string(k))
		}
		remaining = leaderboard.SurveyQuery{Positions: remaining.Positions[p.positions:], Percents: remaining.Percents[p.percents:], Keys: remaining.Keys[p.keys:]}
		p.call = r.call(surveyScript, 0, args...)
		pieces, calls = append(pieces, p), append(calls, p.call)
	}
	return pieces, calls
}

// survey answers q for a season of one shard, in one round trip.
func (r *reader) survey(q leaderboard.SurveyQuery) (leaderboard.Survey, error) {
	pieces, calls := r.surveyCalls(q)
	if _, err := r.ask(calls); err != nil {
		return leaderboard.Survey{}, err
	}
	if err := r.checkKeys(q.Keys); err != nil {
		return leaderboard.Survey{}, err
	}
	var s leaderboard.Survey
	var ends [2]string // the values of the best and of the worst standing
	var before []leaderboard.Counts
	for _, p := range pieces {
		for range p.positions {
			p.int()
			s.Positions = append(s.Positions, leaderboard.RankKey(rankKey(p.str(), r.keyBytes)))
		}
		for range p.percents {
			p.int()
			s.Percents = append(s.Percents, leaderboard.RankKey(rankKey(p.str(), r.keyBytes)))
		}
		for range p.keys {
			s.Counts = append(s.Counts, leaderboard.Counts{Standings: p.int(), Distinct: p.int()})
		}
		if p.edges == 0 {
			continue
		}
		found := reply{rest: p.list()}
		if len(found.rest) > 0 {
			if at := [2]string{found.str(), found.str()}; ends == ([2]string{}) {
				ends = at
			} else if at != ends {
				return leaderboard.Survey{}, errAgain // the edges of two calls differ
			}
		}
		for len(found.rest) > 0 && !found.fault {
			before = append(before, leaderboard.Counts{Standings: found.int()})
		}
		p.fault = p.fault || found.fault
	}
	if q.Buckets > 0 && r.view.Size > 0 {
		s.Buckets = q.BucketCounts(before, r.view.Size)
	}
	return s, fault(calls)
}

// checkKeys returns [leaderboard.ErrFormat] if a key is longer than the board's rank keys.
func (r *reader) checkKeys(keys []leaderboard.RankKey) error {
	if i := slices.IndexFunc(keys, func(k leaderboard.RankKey) bool { return len(k) > r.keyBytes }); i >= 0 {
		return fmt.Errorf("count: rank key has %d bytes, want at most %d: %w", len(keys[i]), r.keyBytes, leaderboard.ErrFormat)
	}
	return nil
}
