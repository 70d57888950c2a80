package importer

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
)

// sendLane sends items in their order. It sends consecutive submits as one batch, and
// retractions, bans, voids and ends one by one. It returns an outcome for each item.
func (im *importer) sendLane(ctx context.Context, items []item) ([]*pb.Outcome, error) {
	outcomes := make([]*pb.Outcome, 0, len(items))
	for len(items) > 0 {
		n := 0
		for n < len(items) && !items[n].retract && items[n].ban == nil && items[n].void == nil && items[n].end == nil {
			n++
		}
		var got []*pb.Outcome
		var err error
		switch {
		case n > 0:
			got, err = im.submit(ctx, items[:n])
		case items[0].ban != nil:
			n = 1
			got, err = im.setBan(ctx, items[0].ban)
		case items[0].void != nil:
			n = 1
			got, err = im.void(ctx, items[0].void)
		case items[0].end != nil:
			n = 1
			got, err = im.end(ctx, items[0].end)
		default:
			n = 1
			got, err = im.retract(ctx, items[0])
		}
		if err != nil {
			return nil, err
		}
		outcomes, items = append(outcomes, got...), items[n:]
	}
	return outcomes, nil
}

// submit sends items as one batch. If the server could not apply some of the results,
// submit retries these results only.
func (im *importer) submit(ctx context.Context, items []item) ([]*pb.Outcome, error) {
	results := make([]*pb.Result, len(items))
	pending := make([]int, len(items))
	for i, it := range items {
		results[i], pending[i] = it.result, i
	}
	outcomes := make([]*pb.Outcome, len(items))
	err := retry(ctx, func() error {
		batch := make([]*pb.Result, len(pending))
		for i, at := range pending {
			batch[i] = results[at]
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
	outcome := &pb.Outcome{}
	err := retry(ctx, func() error {
		res, err := im.Scores.RetractResult(ctx, &pb.RetractResultRequest{
			Board: client.BoardName(im.board), UserId: it.result.GetUserId(), MatchId: it.result.GetMatchId(), Season: it.season, Revision: &it.result.Revision,
			Reason: "import", // required if the season is closed
		})
		switch status.Code(err) {
		case codes.OK:
			outcome.Status = res.GetStatus()
			return nil
		case codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound:
			outcome.Status, outcome.Reason, outcome.Detail = pb.Outcome_REJECTED, "INVALID", status.Convert(err).Message()
			return nil
		}
		return err
	})
	return []*pb.Outcome{outcome}, err
}

func (im *importer) setBan(ctx context.Context, ban *pb.Ban) ([]*pb.Outcome, error) {
	outcome := &pb.Outcome{Status: pb.Outcome_APPLIED}
	err := retry(ctx, func() error {
		_, err := im.Admin.ImportBans(ctx, &pb.ImportBansRequest{Bans: []*pb.Ban{ban}})
		if status.Code(err) == codes.InvalidArgument {
			outcome.Status, outcome.Reason, outcome.Detail = pb.Outcome_REJECTED, "INVALID", status.Convert(err).Message()
			return nil
		}
		return err
	})
	return []*pb.Outcome{outcome}, err
}

// void voids a match. The outcome does not depend on whether its results are imported
// before or after.
func (im *importer) void(ctx context.Context, void *pb.ExportResultsResponse_Void) ([]*pb.Outcome, error) {
	outcome := &pb.Outcome{Status: pb.Outcome_APPLIED}
	err := retry(ctx, func() error {
		_, err := im.Scores.VoidMatch(ctx, &pb.VoidMatchRequest{
			Board: client.BoardName(im.board), Season: void.GetSeason(), MatchId: void.GetMatchId(), Reason: cmp.Or(void.GetReason(), "import"),
		})
		switch status.Code(err) {
		case codes.InvalidArgument, codes.NotFound:
			outcome.Status, outcome.Reason, outcome.Detail = pb.Outcome_REJECTED, "INVALID", status.Convert(err).Message()
			return nil
		}
		return err
	})
	return []*pb.Outcome{outcome}, err
}

// end ends a season as it ended on the server of the export.
func (im *importer) end(ctx context.Context, end *pb.ExportResultsResponse_End) ([]*pb.Outcome, error) {
	outcome := &pb.Outcome{Status: pb.Outcome_APPLIED}
	err := retry(ctx, func() error {
		_, err := im.Scores.EndSeason(ctx, &pb.EndSeasonRequest{
			Board: client.BoardName(im.board), Season: end.GetSeason(), At: end.GetAt(), DecidedAt: end.GetDecidedAt(), Reason: "import",
		})
		switch status.Code(err) {
		case codes.InvalidArgument, codes.NotFound:
			outcome.Status, outcome.Reason, outcome.Detail = pb.Outcome_REJECTED, "INVALID", status.Convert(err).Message()
			return nil
		}
		return err
	})
	return []*pb.Outcome{outcome}, err
}

// retryFor is how long retry retries a call.
const retryFor = 2 * time.Minute

// retry calls f until f succeeds, f returns a permanent error, or retryFor has passed.
// Results that are sent again count once, because every item has a match id.
func retry(ctx context.Context, f func() error) error {
	delays := &serverDelays{ExponentialBackOff: backoff.ExponentialBackOff{
		InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 5 * time.Second,
	}}
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := f()
		switch status.Code(err) {
		case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Aborted:
			delays.least = client.RetryDelay(err)
		default:
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(delays), backoff.WithMaxElapsedTime(retryFor))
	return err
}

// serverDelays is an exponential backoff. Each delay is at least the one that the server
// suggested.
type serverDelays struct {
	backoff.ExponentialBackOff
	least time.Duration
}

// NextBackOff implements [backoff.BackOff].
func (b *serverDelays) NextBackOff() time.Duration {
	return max(b.ExponentialBackOff.NextBackOff(), b.least)
}
