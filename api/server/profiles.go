package server

import (
	"context"
	"encoding/base64"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// GetProfile returns the profile of a user.
func (s *Server) GetProfile(ctx context.Context, req *pb.GetProfileRequest) (*pb.GetProfileResponse, error) {
	p, err := s.service.Profile(ctx, leaderboard.UserID(req.GetUserId()))
	if err != nil {
		return nil, err
	}
	return &pb.GetProfileResponse{Profile: protoconv.FromProfile(&p)}, nil
}

// checkEditor checks that the caller may change the profile of a user, with the given revision. A
// method with own_user admits callers without the submit scope: they may change only their own profile.
func checkEditor(ctx context.Context, user string, revision *int64) error {
	a := admissionFrom(ctx)
	switch {
	case a != nil && a.caller.Scope >= auth.Submit:
		return nil
	case a.anonymous():
		return auth.ErrUnauthenticated
	case a.caller.ID != "jwt:"+user:
		return &auth.ScopeError{Need: auth.Submit}
	case revision != nil:
		return &leaderboard.FieldError{Field: "revision", Problem: "needs the submit scope"}
	}
	return nil
}

// PutProfile replaces the profile of a user.
func (s *Server) PutProfile(ctx context.Context, req *pb.PutProfileRequest) (*pb.PutProfileResponse, error) {
	if req.Profile == nil {
		return nil, &leaderboard.FieldError{Field: "profile", Problem: "is required"}
	}
	if err := checkEditor(ctx, req.GetUserId(), req.Profile.Revision); err != nil {
		return nil, err
	}
	if id := req.Profile.GetUserId(); id != "" && id != req.GetUserId() {
		return nil, &leaderboard.FieldError{Field: "profile.user_id", Problem: "differs from user_id"}
	}
	p, err := s.newProfile(req.GetUserId(), req.Profile)
	if err != nil {
		return nil, err
	}
	changes, err := s.changeProfiles(ctx, "profile.put", req.GetReason(), []leaderboard.Profile{p})
	if err != nil {
		return nil, err
	}
	if !changes[0].After.Exists() {
		return nil, fmt.Errorf("server: profile of %q: %w", p.User, leaderboard.ErrErased)
	}
	return &pb.PutProfileResponse{Profile: protoconv.FromProfile(&changes[0].After)}, nil
}

// newProfile converts a profile and checks it.
func (s *Server) newProfile(user string, m *pb.Profile) (leaderboard.Profile, error) {
	p, err := protoconv.ToProfile(leaderboard.UserID(user), m)
	if err == nil {
		err = s.service.CheckProfile(&p)
	}
	if err == nil && s.options.DenyName != nil && s.options.DenyName(p.DisplayName) {
		err = &leaderboard.FieldError{Field: "display_name", Problem: fmt.Sprintf("%q is on the deny list of the server; choose another name", p.DisplayName)}
	}
	return p, err
}

// DeleteProfile deletes the profile of a user.
func (s *Server) DeleteProfile(ctx context.Context, req *pb.DeleteProfileRequest) (*pb.DeleteProfileResponse, error) {
	if err := checkEditor(ctx, req.GetUserId(), nil); err != nil {
		return nil, err
	}
	p, err := s.service.Profile(ctx, leaderboard.UserID(req.GetUserId()))
	if err != nil {
		return nil, err
	}
	_, err = s.changeProfiles(ctx, "profile.delete", req.GetReason(), []leaderboard.Profile{{User: p.User, Deleted: true}})
	return &pb.DeleteProfileResponse{}, err
}

// BatchPutProfiles replaces the profiles of many users. Each profile, valid or not, has an outcome.
func (s *Server) BatchPutProfiles(ctx context.Context, req *pb.BatchPutProfilesRequest) (*pb.BatchPutProfilesResponse, error) {
	res := &pb.BatchPutProfilesResponse{Outcomes: make([]*pb.BatchPutProfilesResponse_Outcome, len(req.GetProfiles()))}
	var profiles []leaderboard.Profile
	var outcomes []*pb.BatchPutProfilesResponse_Outcome // of profiles
	given := map[string]bool{}
	for i, m := range req.GetProfiles() {
		o := &pb.BatchPutProfilesResponse_Outcome{UserId: m.GetUserId()}
		res.Outcomes[i] = o
		p, err := s.newProfile(m.GetUserId(), m)
		if err == nil && given[m.GetUserId()] {
			err = &leaderboard.FieldError{Field: "user_id", Problem: fmt.Sprintf("%q is given twice", m.GetUserId())}
		}
		if err != nil {
			o.Status, o.Reason, o.Detail = pb.BatchPutProfilesResponse_Outcome_REJECTED, string(leaderboard.ReasonInvalid), messageOf(err)
			continue
		}
		given[m.GetUserId()] = true
		profiles, outcomes = append(profiles, p), append(outcomes, o)
	}
	changes, err := s.changeProfiles(ctx, "profile.put", req.GetReason(), profiles)
	for i := range changes {
		after, o := &changes[i].After, outcomes[i]
		switch {
		case !after.Exists() && after.Revision == 0:
			o.Status, o.Reason, o.Detail = pb.BatchPutProfilesResponse_Outcome_REJECTED, pb.Error_USER_ERASED.String(), messageOf(leaderboard.ErrErased)
			continue
		case after.Deleted || profiles[i].Revision != 0 && profiles[i].Revision < after.Revision:
			o.Status = pb.BatchPutProfilesResponse_Outcome_SUPERSEDED
		default:
			o.Status = pb.BatchPutProfilesResponse_Outcome_APPLIED
		}
		o.Revision = &after.Revision
	}
	return res, err
}

// changeProfiles stores profiles, with records in the audit log if the caller is an administrator or
// gives a reason.
func (s *Server) changeProfiles(ctx context.Context, action, reason string, profiles []leaderboard.Profile) (changes []leaderboard.ProfileChange, err error) {
	if err := ranking.CheckReason(reason); err != nil {
		return nil, err
	}
	var acts []leaderboard.Act
	if isRecorded(ctx, reason) {
		for i := range profiles {
			act := leaderboard.Act{Action: action, ActDetail: leaderboard.ActDetail{User: profiles[i].User, Reason: reason}}
			if !profiles[i].Deleted {
				act.After = messageJSON(protoconv.FromProfile(&profiles[i]))
			}
			acts = append(acts, act)
		}
	}
	err = s.auditAll(ctx, acts, func(outcomes []leaderboard.Act) error {
		if changes, err = s.service.PutProfiles(ctx, profiles); err != nil {
			return err
		}
		for i := range outcomes {
			o := &outcomes[i]
			o.Before, o.After = profileObject(&changes[i].Before), profileObject(&changes[i].After)
			o.Failed = changes[i].After.Revision == 0
		}
		return nil
	})
	return changes, err
}

// profileObject returns a profile as JSON for the audit log, or "" if the user has none.
func profileObject(p *leaderboard.Profile) string {
	if !p.Exists() {
		return ""
	}
	return messageJSON(protoconv.FromProfile(p))
}

// displayed returns what entries and results show of a profile.
func displayed(p *leaderboard.Profile) *pb.Profile {
	if p == nil || !p.Exists() {
		return nil
	}
	m := protoconv.FromProfile(p)
	m.UserId, m.Revision, m.UpdatedAt = nil, nil, nil
	return m
}

// addProfiles sets the profiles of results, if include is true.
func (s *Server) addProfiles(ctx context.Context, include bool, results ...*pb.GetResultResponse) error {
	if !include || len(results) == 0 {
		return nil
	}
	users := make([]leaderboard.UserID, len(results))
	for i, r := range results {
		users[i] = leaderboard.UserID(r.GetUserId())
	}
	profiles, err := s.service.Profiles(ctx, users)
	for i := range profiles {
		results[i].Profile = displayed(&profiles[i])
	}
	return err
}

const defaultSearch = 20

// SearchUsers returns a page of the entries of users whose names or ids begin with a text.
func (s *Server) SearchUsers(ctx context.Context, req *pb.SearchUsersRequest) (*pb.SearchUsersResponse, error) {
	q, err := toQuery(ctx, req)
	if err != nil {
		return nil, err
	}
	after, err := base64.RawURLEncoding.DecodeString(req.GetPageToken())
	if err != nil {
		return nil, &leaderboard.FieldError{Field: "page_token", Problem: "must be the next_page_token of an earlier answer"}
	}
	page, err := s.service.Search(ctx, ranking.SearchQuery{Query: q, Prefix: req.GetPrefix(), Limit: orDefault(req.Limit, defaultSearch), After: string(after)})
	if err != nil {
		return nil, err
	}
	list := fromPage(&page.About, page.Lines)
	list.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(page.Next))
	return &pb.SearchUsersResponse{Status: success, Data: list}, nil
}
