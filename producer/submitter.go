package producer

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// Submitter publishes results, and waits for the updates that report the outcomes. Its owner must
// pass every update to Deliver.
type Submitter struct {
	producer *Producer
	topic    string
	timeout  time.Duration

	mu      sync.Mutex
	waiters map[revision][]waiter
}

// Results with equal keys and revisions may differ in content.
type revision struct {
	key    leaderboard.ResultKey
	number int64
}

type waiter struct {
	content leaderboard.ContentID
	outcome chan<- leaderboard.Outcome
}

// NewSubmitter returns a submitter whose Submit waits for outcomes for at most timeout.
func NewSubmitter(p *Producer, t kafka.Topics, timeout time.Duration) *Submitter {
	return &Submitter{producer: p, topic: t.Results(), timeout: timeout, waiters: map[revision][]waiter{}}
}

// Accept publishes completed results (see ranking.Applier.Complete), and gives each the status
// Accepted. It returns an error unless Kafka acknowledged all results.
func (s *Submitter) Accept(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Outcome, error) {
	ctx, end := kafka.TraceSend(ctx, s.topic, len(results))
	outcomes, err := s.send(ctx, b, results)
	end(err)
	return outcomes, err
}

func (s *Submitter) send(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Outcome, error) {
	messages := make([]*sarama.ProducerMessage, len(results))
	outcomes := make([]leaderboard.Outcome, len(results))
	for i := range results {
		m, err := message(s.topic, b, &results[i])
		if err != nil {
			return nil, err
		}
		kafka.InjectTrace(ctx, m)
		messages[i], outcomes[i].Status = m, leaderboard.Accepted
	}
	if err := s.producer.Send(ctx, messages); err != nil {
		return nil, err
	}
	return outcomes, nil
}

func message(topic string, b *leaderboard.Board, r *leaderboard.MatchResult) (*sarama.ProducerMessage, error) {
	m, err := kafka.NewMessage(topic, string(r.User), &pb.MatchResultRecord{
		BoardId: string(b.ID), Result: protoconv.FromResult(b, r), Retracted: r.Retracted,
		Season: string(r.Season), ReceivedAt: protoconv.Timestamp(r.ReceivedAt), Assigned: r.Assigned, Amends: r.Amends,
	})
	if err != nil {
		return nil, fmt.Errorf("producer: result %q: %w", r.Match, err)
	}
	return m, nil
}

// Submit publishes results like [Submitter.Accept], and waits for their outcomes. If an outcome
// does not arrive in time, the result has the status Accepted.
func (s *Submitter) Submit(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Outcome, error) {
	waits := make([]<-chan leaderboard.Outcome, len(results))
	for i := range results {
		c, stop := s.expect(&results[i])
		defer stop()
		waits[i] = c
	}
	outcomes, err := s.Accept(ctx, b, results)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for i, c := range waits {
		select {
		case outcomes[i] = <-c:
		case <-ctx.Done():
			select {
			case outcomes[i] = <-c:
			default:
			}
		}
	}
	return outcomes, nil
}

// expect registers a waiter for the outcome of a result. stop removes the waiter.
func (s *Submitter) expect(result *leaderboard.MatchResult) (outcome <-chan leaderboard.Outcome, stop func()) {
	c := make(chan leaderboard.Outcome, 1)
	r := revision{result.ResultKey, result.Revision}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters[r] = append(s.waiters[r], waiter{result.ContentID(), c})
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.setWaiters(r, slices.DeleteFunc(s.waiters[r], func(w waiter) bool { return w.outcome == c }))
	}
}

// Deliver passes the outcome in an update to one Submit call that waits for the update's content.
func (s *Submitter) Deliver(u *pb.LeaderboardUpdate) error {
	status, ok := protoconv.ToStatus(u.GetStatus())
	if !ok {
		return fmt.Errorf("producer: update of match %q has unknown status %v", u.GetMatchId(), u.GetStatus())
	}
	season := leaderboard.SeasonKey{Board: leaderboard.BoardID(u.GetBoardId()), Season: leaderboard.SeasonID(u.GetSeason())}
	r := revision{leaderboard.ResultKey{SeasonKey: season, User: leaderboard.UserID(u.GetUserId()), Match: leaderboard.MatchID(u.GetMatchId())}, u.GetRevision()}
	outcome := leaderboard.Outcome{
		Status: status, Reason: leaderboard.Reason(u.GetReason()),
		Entry: leaderboard.Entry{SeasonKey: season, User: r.key.User, Key: leaderboard.RankKey(u.GetRankKey()), Hidden: u.GetHidden()},
	}
	outcome.Repeated, outcome.Stands = u.GetRepeated(), u.GetStands()
	outcome.Before, outcome.After = leaderboard.RankKey(u.GetRankKeyBefore()), leaderboard.RankKey(u.GetRankKeyAfter())
	for _, l := range u.GetLinked() {
		e := leaderboard.Entry{User: r.key.User, Key: leaderboard.RankKey(l.GetRankKey()), Hidden: l.GetHidden()}
		e.Board, e.Season = leaderboard.BoardID(l.GetBoardId()), leaderboard.SeasonID(l.GetSeason())
		outcome.Linked = append(outcome.Linked, leaderboard.LinkedEffect{Change: leaderboard.Change{Before: e, After: e}, Skipped: leaderboard.Reason(l.GetSkipped())})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.waiters[r]
	index := slices.IndexFunc(waiting, func(w waiter) bool { return bytes.Equal(u.ContentId, w.content[:]) })
	if index >= 0 {
		waiting[index].outcome <- outcome // does not block: each waiter gets one outcome
		s.setWaiters(r, slices.Delete(waiting, index, index+1))
	}
	return nil
}

func (s *Submitter) setWaiters(r revision, waiters []waiter) {
	if len(waiters) == 0 {
		delete(s.waiters, r)
	} else {
		s.waiters[r] = waiters
	}
}
