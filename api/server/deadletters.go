package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// DeadLetters reads and replays the messages in Kafka that consumers could not apply. Errors of all methods:
// [leaderboard.FieldError], [leaderboard.ErrUnavailable].
type DeadLetters interface {
	// List returns the page that the request selects. The limit is valid. The zero time selects all.
	List(ctx context.Context, req *pb.ListDeadLettersRequest, limit int, since time.Time) (*pb.ListDeadLettersResponse, error)
	// Get returns dead letters with their messages, in the order of ids. Errors:
	// [leaderboard.ErrDeadLetterNotFound].
	Get(ctx context.Context, ids []string) ([]*pb.DeadLetter, error)
	// Replay sends the messages of dead letters again, in the order of ids, and returns once Kafka has them. Errors:
	// [leaderboard.ErrDeadLetterNotFound].
	Replay(ctx context.Context, ids []string) error
}

const (
	defaultDeadLetters = 100
	maxDeadLetters     = 1000
	maxReplayed        = 100
	// deadLetterTimeout bounds a call, which Kafka may otherwise delay without end.
	deadLetterTimeout = 30 * time.Second
)

func (s *Server) deadLetters() (DeadLetters, error) {
	if s.options.DeadLetters == nil {
		return nil, fmt.Errorf("the embedded engine has no dead letters: it answers each result at once, and the answer says why a result is refused: %w", errors.ErrUnsupported)
	}
	return s.options.DeadLetters, nil
}

var deadLetterID = regexp.MustCompile(`^[0-9]{1,10}:[0-9]{1,19}$`)

func checkDeadLetterID(field, id string) error {
	if !deadLetterID.MatchString(id) {
		return &leaderboard.FieldError{Field: field, Problem: "must be a partition and an offset, such as 3:17"}
	}
	return nil
}

// ListDeadLetters returns a page of dead letters, without their messages.
func (s *Server) ListDeadLetters(ctx context.Context, req *pb.ListDeadLettersRequest) (*pb.ListDeadLettersResponse, error) {
	limit := orDefault(req.Limit, defaultDeadLetters)
	if limit < 1 || limit > maxDeadLetters {
		return nil, &leaderboard.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d, not %d", maxDeadLetters, limit)}
	}
	for field, text := range map[string]string{"cause": req.GetCause(), "user_id": req.GetUserId()} {
		if len(text) > leaderboard.MaxIDBytes {
			return nil, &leaderboard.FieldError{Field: field, Problem: fmt.Sprintf("must be at most %d bytes", leaderboard.MaxIDBytes)}
		}
	}
	since, err := parseTime("since", req.GetSince())
	if err != nil {
		return nil, err
	}
	source, err := s.deadLetters()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	return source.List(ctx, req, limit, since)
}

// GetDeadLetter returns a dead letter with its message.
func (s *Server) GetDeadLetter(ctx context.Context, req *pb.GetDeadLetterRequest) (*pb.GetDeadLetterResponse, error) {
	if err := checkDeadLetterID("dead_letter_id", req.GetDeadLetterId()); err != nil {
		return nil, err
	}
	source, err := s.deadLetters()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	list, err := source.Get(ctx, []string{req.GetDeadLetterId()})
	if err != nil {
		return nil, err
	}
	return &pb.GetDeadLetterResponse{DeadLetter: list[0]}, nil
}

// ReplayDeadLetters sends the messages of dead letters again, the oldest first. Each is an act of its own.
func (s *Server) ReplayDeadLetters(ctx context.Context, req *pb.ReplayDeadLettersRequest) (*pb.ReplayDeadLettersResponse, error) {
	if n := len(req.GetDeadLetterIds()); n < 1 || n > maxReplayed {
		return nil, &leaderboard.FieldError{Field: "dead_letter_ids", Problem: fmt.Sprintf("must have 1 to %d ids, not %d", maxReplayed, n)}
	}
	err := ranking.CheckReason(req.GetReason())
	for i, id := range req.GetDeadLetterIds() {
		err = errors.Join(err, checkDeadLetterID(fmt.Sprintf("dead_letter_ids[%d]", i), id))
	}
	if err != nil {
		return nil, err
	}
	source, err := s.deadLetters()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	ids := slices.Clone(req.GetDeadLetterIds())
	slices.Sort(ids)
	list, err := source.Get(ctx, slices.Compact(ids))
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(x, y *pb.DeadLetter) int { return x.GetAt().AsTime().Compare(y.GetAt().AsTime()) })
	res := &pb.ReplayDeadLettersResponse{}
	var replayed []string
	var acts []leaderboard.Act
	for _, d := range list {
		d.Message, d.MessageBytes = nil, nil
		if !d.GetReplayable() {
			res.Skipped = append(res.Skipped, d)
			continue
		}
		res.Replayed, replayed, acts = append(res.Replayed, d), append(replayed, d.GetDeadLetterId()), append(acts, replayAct(d, req.GetReason()))
	}
	if req.GetDryRun() || len(replayed) == 0 {
		return res, nil
	}
	return res, s.auditAll(ctx, acts, func([]leaderboard.Act) error { return source.Replay(ctx, replayed) }, slog.Int("dead_letters", len(replayed)))
}

// replayAct is the record of a replay. After is the dead letter. The ids come from a message that others wrote, so
// the record has only valid ones as its own fields.
func replayAct(d *pb.DeadLetter, reason string) leaderboard.Act {
	act := leaderboard.Act{Action: "dead_letter.replay", ActDetail: leaderboard.ActDetail{Reason: reason, After: messageJSON(d)}}
	if id := leaderboard.BoardID(d.GetBoard()); id.Validate() == nil {
		act.Board = id
	}
	if id := leaderboard.UserID(d.GetUserId()); id.Validate() == nil {
		act.User = id
	}
	if id := leaderboard.MatchID(d.GetMatchId()); id.Validate() == nil {
		act.Match = id
	}
	return act
}
