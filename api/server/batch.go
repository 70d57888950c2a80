package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"golang.org/x/sync/errgroup"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// batch has the results of one board in a request.
type batch struct {
	board   leaderboard.Board
	results []leaderboard.MatchResult
	indexes []int // indexes[i] is the index of results[i] in the request
	err     error // why the board could not be read or written
}

// add converts r and adds the result to b. If r is invalid, add returns an outcome instead.
func (b *batch) add(index int, r *pb.Result) *pb.Outcome {
	result, err := newResult(&b.board, r)
	if err != nil {
		return fromReceipt(&b.board, result.User, &ranking.Receipt{
			Match: result.Match, Revision: result.Revision, Status: leaderboard.Rejected, Reason: leaderboard.ReasonInvalid, Err: err,
		})
	}
	b.results, b.indexes = append(b.results, result), append(b.indexes, index)
	return nil
}

// submitBatch passes b to the service, and sets the outcomes. outcomes has an element for each
// result of the request.
func (s *Server) submitBatch(ctx context.Context, method string, o submitOptions, b *batch, outcomes []*pb.Outcome) error {
	if len(b.results) == 0 {
		return nil
	}
	receipts, err := s.submit(ctx, method, o, &b.board, b.results)
	if err != nil {
		return err
	}
	for i := range receipts {
		outcomes[b.indexes[i]] = fromReceipt(&b.board, b.results[i].User, &receipts[i])
	}
	return nil
}

// BatchSubmitScores records many results of one board. Each result, valid or not, has an outcome.
func (s *Server) BatchSubmitScores(ctx context.Context, req *pb.BatchSubmitScoresRequest) (*pb.BatchSubmitScoresResponse, error) {
	board, err := s.board(ctx, boardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	b := &batch{board: board}
	res := &pb.BatchSubmitScoresResponse{Outcomes: make([]*pb.Outcome, len(req.GetResults()))}
	for i, r := range req.GetResults() {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		res.Outcomes[i] = b.add(i, r)
	}
	return res, s.submitBatch(ctx, "BatchSubmitScores", req, b, res.Outcomes)
}

const parallelBoards = 32

// BatchSubmitResults records results of many boards. Each result has an outcome. The failure of a
// board affects only the results of this board. If every board failed and a retry may succeed,
// BatchSubmitResults returns an error.
func (s *Server) BatchSubmitResults(ctx context.Context, req *pb.BatchSubmitResultsRequest) (*pb.BatchSubmitResultsResponse, error) {
	res := &pb.BatchSubmitResultsResponse{Outcomes: make([]*pb.Outcome, len(req.GetResults()))}
	ids := boardsOf(pb.Door_RESULT_BOARDS, req)
	batches := map[leaderboard.BoardID]*batch{}
	for _, id := range ids {
		batches[id] = &batch{}
	}
	forEach(len(ids), func(i int) {
		b := batches[ids[i]]
		b.board, b.err = s.service.Board(ctx, ids[i])
	})
	for i, r := range req.GetResults() {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		id := leaderboard.BoardID(r.GetBoardId())
		if id == "" {
			batches[id] = &batch{err: &leaderboard.FieldError{Field: "board_id", Problem: "is required"}}
		}
		if b := batches[id]; b.err == nil {
			res.Outcomes[i] = b.add(i, r)
		}
	}
	forEach(len(ids), func(i int) {
		if b := batches[ids[i]]; b.err == nil {
			b.err = s.submitBatch(ctx, "BatchSubmitResults", req, b, res.Outcomes)
		}
	})
	return res, s.addFailures(ctx, req.GetResults(), res.Outcomes, batches)
}

// addFailures sets the board of each outcome, and adds outcomes for the results of failed boards.
// If every board failed, addFailures returns the first failure that a retry may fix.
func (s *Server) addFailures(ctx context.Context, results []*pb.Result, outcomes []*pb.Outcome, batches map[leaderboard.BoardID]*batch) error {
	written := false
	var failure error
	for i, r := range results {
		id := leaderboard.BoardID(r.GetBoardId())
		name, err := string(id), batches[id].err
		if outcomes[i] == nil {
			receipt := ranking.Receipt{Match: leaderboard.MatchID(r.GetMatchId()), Revision: r.GetRevision(), Err: err}
			switch {
			case errors.Is(err, leaderboard.ErrBoardNotFound):
				receipt.Err = &leaderboard.FieldError{Field: "board_id", Problem: fmt.Sprintf("no board %q exists; create it first", id)}
				fallthrough
			case errors.Is(err, leaderboard.ErrInvalid):
				receipt.Err = s.reveal(ctx, receipt.Err)
				receipt.Status, receipt.Reason = leaderboard.Rejected, leaderboard.ReasonInvalid
			default:
				failure = cmp.Or(failure, err)
			}
			outcomes[i] = fromReceipt(nil, leaderboard.UserID(r.GetUserId()), &receipt)
			if errors.Is(err, leaderboard.ErrBoardNotFound) {
				outcomes[i].Reason = reasonOf(toStatus(err))
			}
		}
		written = written || err == nil
		outcomes[i].BoardId = &name
	}
	if !written {
		return failure
	}
	for id, b := range batches {
		if b.err != nil {
			s.options.Log.WarnContext(ctx, "results of a batch not applied", "board", id, "err", b.err)
		}
	}
	return nil
}

// forEach calls f(0) to f(n-1), at most parallelBoards at a time. If a call panics, forEach panics
// in its caller's goroutine.
func forEach(n int, f func(i int)) {
	var calls errgroup.Group
	calls.SetLimit(parallelBoards)
	for i := range n {
		calls.Go(func() (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("%v\n%s", p, debug.Stack())
				}
			}()
			f(i)
			return nil
		})
	}
	if err := calls.Wait(); err != nil {
		panic(err)
	}
}
