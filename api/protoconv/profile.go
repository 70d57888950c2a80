package protoconv

import (
	"errors"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// ToProfile converts a message to the profile of a user, without UpdatedAt. Its error joins a
// [leaderboard.FieldError] for each fault.
func ToProfile(user leaderboard.UserID, m *pb.Profile) (leaderboard.Profile, error) {
	p := leaderboard.Profile{User: user, DisplayName: m.GetDisplayName(), AvatarURL: m.GetAvatarUrl(), Country: m.GetCountry(), Revision: m.GetRevision()}
	var errs []error
	if m != nil && m.Revision != nil && p.Revision < 1 {
		errs = append(errs, &leaderboard.FieldError{Field: "revision", Problem: "must be at least 1"})
	}
	var err error
	p.Attributes, err = toObject("attributes", m.GetAttributes(), leaderboard.MaxProfileAttributesBytes)
	return p, errors.Join(append(errs, err)...)
}

// FromProfile is the inverse of [ToProfile].
func FromProfile(p *leaderboard.Profile) *pb.Profile {
	user := string(p.User)
	m := &pb.Profile{
		UserId: &user, DisplayName: textOrNil(p.DisplayName), AvatarUrl: textOrNil(p.AvatarURL), Country: textOrNil(p.Country),
		Attributes: FromMetadata(p.Attributes), UpdatedAt: Timestamp(p.UpdatedAt),
	}
	if p.Revision > 0 {
		m.Revision = &p.Revision
	}
	return m
}

func textOrNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
