package importer

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
)

// sendLane sends a lane (see chunk): consecutive submits as one batch, and other items one by one.
// It returns an outcome for each item.
func (im *importer) sendLane(ctx context.Context, items []item) ([]*pb.Outcome, error) {
	outcomes := make([]*pb.Outcome, 0, len(items))
	for len(items) > 0 {
		n := 0
		for n < len(items) && !items[n].retract && items[n].ban == nil && items[n].void == nil && items[n].end == nil && items[n].profile == nil {
			n++
		}
		var answer []*pb.Outcome
		var err error
		switch {
		case n > 0:
			answer, err = im.submit(ctx, items[:n])
		case items[0].ban != nil:
			n = 1
			answer, err = im.setBan(ctx, items[0].ban)
		case items[0].profile != nil:
			answer, err = im.putProfiles(ctx, items)
			n = len(answer)
		case items[0].void != nil:
			n = 1
			answer, err = im.voidMatch(ctx, items[0].void)
		case items[0].end != nil:
			n = 1
			answer, err = im.endSeason(ctx, items[0].end)
		default:
			n = 1
			answer, err = im.retract(ctx, items[0])
		}
		if err != nil {
			return nil, err
		}
		outcomes, items = append(outcomes, answer...), items[n:]
	}
	return outcomes, nil
}

// submit sends results as one batch. A retry has only the results that the server could not apply.
func (im *importer) submit(ctx context.Context, items []item) ([]*pb.Outcome, error) {
	results := make([]*pb.Result, len(items))
	pending := make([]int, len(items))
	for i, it := range items {
		results[i], pending[i] = it.result, i
	}
	outcomes := make([]*pb.Outcome, len(items))
	err := client.Retry(ctx, func() error {
		batch := make([]*pb.Result, len(pending))
		for i, index := range pending {
			batch[i] = results[index]
		}
		res, err := im.Scores.BatchSubmitScores(ctx, &pb.BatchSubmitScoresRequest{Board: im.board, Results: batch})
		if err != nil {
			return err
		}
		if len(res.GetOutcomes()) != len(batch) {
			return fmt.Errorf("the server returned %d outcomes for %d results", len(res.GetOutcomes()), len(batch))
		}
		var failed []int
		for i, o := range res.GetOutcomes() {
			outcomes[pending[i]] = o
			if o.GetStatus() == pb.Outcome_FAILED {
				failed = append(failed, pending[i])
			}
		}
		if pending = failed; len(failed) > 0 {
			return status.Errorf(codes.Unavailable, "the server could not apply %d results: %s", len(failed), outcomes[failed[0]].GetDetail())
		}
		return nil
	})
	return outcomes, err
}

func (im *importer) retract(ctx context.Context, it item) ([]*pb.Outcome, error) {
	return importOne(ctx, func(outcome *pb.Outcome) error {
		res, err := im.Scores.RetractResult(ctx, &pb.RetractResultRequest{
			Board: client.BoardName(im.board), UserId: it.result.GetUserId(), MatchId: it.result.GetMatchId(), Season: it.season, Revision: &it.result.Revision,
			Reason: "import", // required if the season is closed
		})
		outcome.Status = res.GetStatus()
		if outcome.Status == pb.Outcome_CONFLICT {
			outcome.Stands = &res.Success
		}
		return err
	}, codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound)
}

func (im *importer) setBan(ctx context.Context, ban *pb.Ban) ([]*pb.Outcome, error) {
	return importOne(ctx, func(*pb.Outcome) error {
		_, err := im.Admin.ImportBans(ctx, &pb.ImportBansRequest{Bans: []*pb.Ban{ban}})
		return err
	}, codes.InvalidArgument)
}

func (im *importer) voidMatch(ctx context.Context, void *pb.ExportResultsResponse_Void) ([]*pb.Outcome, error) {
	return importOne(ctx, func(*pb.Outcome) error {
		_, err := im.Scores.VoidMatch(ctx, &pb.VoidMatchRequest{
			Board: client.BoardName(im.board), Season: void.GetSeason(), MatchId: void.GetMatchId(), Reason: cmp.Or(void.GetReason(), "import"),
			AllowUnknown: true, // the server may still be applying the results
		})
		return err
	}, codes.InvalidArgument, codes.NotFound)
}

func (im *importer) endSeason(ctx context.Context, end *pb.ExportResultsResponse_End) ([]*pb.Outcome, error) {
	return importOne(ctx, func(*pb.Outcome) error {
		_, err := im.Scores.EndSeason(ctx, &pb.EndSeasonRequest{
			Board: client.BoardName(im.board), Season: end.GetSeason(), At: end.GetAt(), DecidedAt: end.GetDecidedAt(), Reason: "import",
		})
		return err
	}, codes.InvalidArgument, codes.NotFound)
}

// importOne calls send, with retries, and returns the outcome. If send returns a code in refusals, the
// status is REJECTED. If send sets no status, the status is APPLIED.
func importOne(ctx context.Context, send func(*pb.Outcome) error, refusals ...codes.Code) ([]*pb.Outcome, error) {
	outcome := &pb.Outcome{Status: pb.Outcome_APPLIED}
	err := client.Retry(ctx, func() error {
		err := send(outcome)
		if slices.Contains(refusals, status.Code(err)) {
			outcome.Status, outcome.Reason, outcome.Detail = pb.Outcome_REJECTED, "INVALID", status.Convert(err).Message()
			return nil
		}
		return err
	})
	return []*pb.Outcome{outcome}, err
}
