package importer

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/internal/records"
)

// maxProfiles is the largest number of profiles of one call.
const maxProfiles = 1000

func profileItem(r records.Record) (it item, ok bool, err error) {
	text, ok := r.Column("profile")
	if !ok || !text.Composite {
		return item{}, false, nil
	}
	p := &pb.Profile{}
	if err := protojson.Unmarshal([]byte(text.Text), p); err != nil {
		return item{}, true, fmt.Errorf("profile: %w", err)
	}
	return item{line: r.Line, raw: string(r.Raw), result: &pb.Result{UserId: p.GetUserId()}, profile: p}, true, nil
}

// putProfiles sends the profiles at the beginning of items, and returns an outcome for each. The export of
// a user with several seasons repeats the profile, so only the first one of each user is sent.
func (im *importer) putProfiles(ctx context.Context, items []item) ([]*pb.Outcome, error) {
	req := &pb.BatchPutProfilesRequest{Reason: "import"}
	indexes := map[string]int{} // in req, by user
	var outcomes []*pb.Outcome
	for _, it := range items {
		if it.profile == nil || len(req.Profiles) == maxProfiles {
			break
		}
		if _, repeated := indexes[it.profile.GetUserId()]; !repeated {
			indexes[it.profile.GetUserId()] = len(req.Profiles)
			req.Profiles = append(req.Profiles, it.profile)
		}
		outcomes = append(outcomes, &pb.Outcome{UserId: it.profile.GetUserId()})
	}
	return outcomes, client.Retry(ctx, func() error {
		res, err := im.Scores.BatchPutProfiles(ctx, req)
		if err != nil {
			return err
		}
		if len(res.GetOutcomes()) != len(req.Profiles) {
			return fmt.Errorf("the server returned %d outcomes for %d profiles", len(res.GetOutcomes()), len(req.Profiles))
		}
		for _, o := range outcomes {
			from := res.GetOutcomes()[indexes[o.UserId]]
			o.Reason, o.Detail = from.GetReason(), from.GetDetail()
			switch from.GetStatus() {
			case pb.BatchPutProfilesResponse_Outcome_REJECTED:
				o.Status = pb.Outcome_REJECTED
			case pb.BatchPutProfilesResponse_Outcome_SUPERSEDED:
				o.Status = pb.Outcome_SUPERSEDED
			default:
				o.Status = pb.Outcome_APPLIED
			}
		}
		return nil
	})
}
