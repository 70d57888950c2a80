package producer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/wire"
)

// Submitter publishes results and waits until they are applied, by following
// the updates that consumers publish.
type Submitter struct {
	producer *Producer
	topic    string
	wait     time.Duration

	mu      sync.Mutex
	waiting map[revision][]chan<- leaderboard.Outcome
}

// revision identifies what an update is about.
type revision struct {
	key leaderboard.ResultKey
	n   int64
}

// NewSubmitter returns a submitter that waits at most so long for results to be applied.
func NewSubmitter(p *Producer, t Topics, wait time.Duration) *Submitter {
	return &Submitter{producer: p, topic: t.Results(), wait: wait, waiting: map[revision][]chan<- leaderboard.Outcome{}}
}

// Accept publishes complete results of b, and does not wait until they are
// applied: each has the status Accepted. It returns an error unless all of them
// are durable in the log.
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

// Submit publishes complete results of b, and waits until they are applied. It
// returns an error unless all of them are durable in the log. Those that were not
// applied in time, or before ctx is done, have the status Accepted.
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
			case outcomes[i] = <-c: // in time, behind one that is not
			default:
			}
		}
	}
	return outcomes, nil
}

// expect returns a channel on which the outcome of a revision comes, until stop.
func (s *Submitter) expect(r revision) (<-chan leaderboard.Outcome, func()) {
	c := make(chan leaderboard.Outcome, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[r] = append(s.waiting[r], c)
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		left := s.waiting[r][:0]
		for _, have := range s.waiting[r] {
			if have != c {
				left = append(left, have)
			}
		}
		if len(left) == 0 {
			delete(s.waiting, r)
		} else {
			s.waiting[r] = left
		}
	}
}

// Deliver gives an update to those who wait for it. Of several who wait for one
// revision, sent more than once, each update answers one, in order.
func (s *Submitter) Deliver(u *pb.LeaderboardUpdate) error {
	status, ok := wire.ToStatus(u.GetStatus())
	if !ok {
		return fmt.Errorf("producer: update of %q has status %v", u.GetMatchId(), u.GetStatus())
	}
	scope := leaderboard.Scope{Board: leaderboard.BoardID(u.GetBoardId()), Season: leaderboard.SeasonID(u.GetSeason())}
	r := revision{leaderboard.ResultKey{Scope: scope, User: leaderboard.UserID(u.GetUserId()), Match: leaderboard.MatchID(u.GetMatchId())}, u.GetRevision()}
	outcome := leaderboard.Outcome{
		Status: status, Reason: leaderboard.Reason(u.GetReason()),
		Entry: leaderboard.Entry{Scope: scope, User: r.key.User, Key: leaderboard.RankKey(u.GetRankKey())},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.waiting[r] {
		select {
		case c <- outcome:
			return nil
		default: // this one has its answer
		}
	}
	return nil
}
