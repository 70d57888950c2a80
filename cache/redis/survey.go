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

// survey answers q for a season of one shard, in one round trip if the ladder's ends do not change.
func (r *reader) survey(q leaderboard.SurveyQuery) (leaderboard.Survey, error) {
	for range attempts {
		if s, stable, err := r.trySurvey(q); stable || err != nil {
			return s, err
		}
	}
	return leaderboard.Survey{}, errUnstable
}

// trySurvey returns stable as false if the ladder's ends changed between the calls, so that their buckets
// differ.
func (r *reader) trySurvey(q leaderboard.SurveyQuery) (s leaderboard.Survey, stable bool, err error) {
	pieces, calls := r.surveyCalls(q)
	if _, err := r.ask(calls); err != nil {
		return s, false, err
	}
	if err := r.checkKeys(q.Keys); err != nil {
		return s, false, err
	}
	h := histogram{query: &q, rest: r.view.Size}
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
		counted := reply{rest: p.list()}
		if !h.add(&counted) {
			return leaderboard.Survey{}, false, nil
		}
		p.fault = p.fault || counted.fault
	}
	if q.Buckets > 0 && r.view.Size > 0 {
		s.Buckets = append(h.buckets, h.rest)
	}
	return s, true, fault(calls)
}

// histogram joins the answers of count_buckets in lua/survey.lua. Each bucket comes from one answer.
type histogram struct {
	query   *leaderboard.SurveyQuery
	answers int
	ends    [2]string // the values of the best and of the worst standing; "" if the ladder is empty
	buckets []int64
	rest    int64 // the bucket after the last edge
}

// add returns false if the ends differ from those in the previous answers: the edges then differ too.
func (h *histogram) add(counted *reply) bool {
	var ends [2]string
	size, before := int64(0), []leaderboard.Counts(nil)
	if len(counted.rest) > 0 {
		ends, size = [2]string{counted.str(), counted.str()}, counted.int()
	}
	for len(counted.rest) > 0 && !counted.fault {
		before = append(before, leaderboard.Counts{Standings: counted.int()})
	}
	if counted.fault {
		return true // the caller returns an error
	}
	if h.answers++; h.answers == 1 {
		h.ends = ends
	} else if ends != h.ends {
		return false
	}
	if len(before) == 0 {
		return true
	}
	counts := h.query.BucketCounts(before, size)
	if last := len(counts) - 1; h.answers == 1 {
		h.buckets, h.rest = counts[:last:last], counts[last]
	} else { // the first bucket includes those of the previous answers
		h.buckets, h.rest = append(h.buckets, counts[1:last]...), counts[last]
	}
	return true
}

// checkKeys returns [leaderboard.ErrFormat] if a key is longer than the board's rank keys.
func (r *reader) checkKeys(keys []leaderboard.RankKey) error {
	if i := slices.IndexFunc(keys, func(k leaderboard.RankKey) bool { return len(k) > r.keyBytes }); i >= 0 {
		return fmt.Errorf("count: rank key has %d bytes, want at most %d: %w", len(keys[i]), r.keyBytes, leaderboard.ErrFormat)
	}
	return nil
}
