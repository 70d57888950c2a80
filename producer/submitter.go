package producer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// Submitter publishes results, and waits for the updates in which consumers report
// the outcomes. The owner of the submitter must pass every update to Deliver.
type Submitter struct {
	producer *Producer
	topic    string
	wait     time.Duration

	mu      sync.Mutex
	waiting map[revision][]chan<- leaderboard.Outcome
}

// revision identifies the result that an update reports on.
type revision struct {
	key leaderboard.ResultKey
	n   int64
}

// NewSubmitter returns a submitter whose Submit waits at most wait for outcomes.
func NewSubmitter(p *Producer, t kafka.Topics, wait time.Duration) *Submitter {
	return &Submitter{producer: p, topic: t.Results(), wait: wait, waiting: map[revision][]chan<- leaderboard.Outcome{}}
}

// Accept publishes complete results of b without waiting for their outcomes: every
// result gets the status Accepted. It returns an error unless Kafka holds all of the
// results durably.
func (s *Submitter) Accept(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Outcome, error) {
	messages := make([]*sarama.ProducerMessage, len(results))
	outcomes := make([]leaderboard.Outcome, len(results))
	for i := range results {
		m, err := message(s.topic, b, &results[i])
		if err != nil {
			return nil, err
		}
		messages[i], outcomes[i].Status = m, leaderboard.Accepted
	}
	if err := s.producer.Send(ctx, messages); err != nil {
		return nil, err
	}
	return outcomes, nil
}

// message returns the message for a complete result of b.
func message(topic string, b *leaderboard.Board, r *leaderboard.MatchResult) (*sarama.ProducerMessage, error) {
	m, err := kafka.NewMessage(topic, string(r.User), &pb.MatchResultRecord{
		BoardId: string(b.ID), Result: protoconv.FromResult(b, r), Retracted: r.Retracted,
		Season: string(r.Season), ReceivedAt: protoconv.Timestamp(r.ReceivedAt), Assigned: r.Assigned,
	})
	if err != nil {
		return nil, fmt.Errorf("producer: result %q: %w", r.Match, err)
	}
	return m, nil
}

// Submit publishes complete results of b, and waits for their outcomes. It returns
// an error unless Kafka holds all of the results durably. If the wait ends, or ctx is
// done, before the outcome of a result arrives, the result has the status Accepted.
func (s *Submitter) Submit(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Outcome, error) {
	waits := make([]<-chan leaderboard.Outcome, len(results))
	for i := range results {
		c, stop := s.expect(revision{results[i].ResultKey, results[i].Revision})
		defer stop()
		waits[i] = c
	}
	outcomes, err := s.Accept(ctx, b, results)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	for i, c := range waits {
		select {
		case outcomes[i] = <-c:
		case <-ctx.Done():
			select {
			case outcomes[i] = <-c: // the outcome arrived while Submit waited for an earlier result
			default:
			}
		}
	}
	return outcomes, nil
}

// expect returns a channel that receives the outcome of a revision, until the
// caller calls stop.
func (s *Submitter) expect(r revision) (outcome <-chan leaderboard.Outcome, stop func()) {
	c := make(chan leaderboard.Outcome, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[r] = append(s.waiting[r], c)
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		left := s.waiting[r][:0]
		for _, other := range s.waiting[r] {
			if other != c {
				left = append(left, other)
			}
		}
		if len(left) == 0 {
			delete(s.waiting, r)
		} else {
			s.waiting[r] = left
		}
	}
}

// Deliver passes the outcome in an update to the Submit call that waits for it.
// If the same revision was sent more than once, several calls wait for it. Each
// update then answers one call, in the order of the calls.
func (s *Submitter) Deliver(u *pb.LeaderboardUpdate) error {
	status, ok := protoconv.ToStatus(u.GetStatus())
	if !ok {
		return fmt.Errorf("producer: update of match %q has unknown status %v", u.GetMatchId(), u.GetStatus())
	}
	season := leaderboard.SeasonKey{Board: leaderboard.BoardID(u.GetBoardId()), Season: leaderboard.SeasonID(u.GetSeason())}
	r := revision{leaderboard.ResultKey{SeasonKey: season, User: leaderboard.UserID(u.GetUserId()), Match: leaderboard.MatchID(u.GetMatchId())}, u.GetRevision()}
	outcome := leaderboard.Outcome{
		Status: status, Reason: leaderboard.Reason(u.GetReason()),
		Entry: leaderboard.Entry{SeasonKey: season, User: r.key.User, Key: leaderboard.RankKey(u.GetRankKey())},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.waiting[r] {
		select {
		case c <- outcome:
			return nil
		default: // this call has its outcome already
		}
	}
	return nil
}
