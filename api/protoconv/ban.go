package protoconv

import (
	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// FromBan converts a ban to a message.
func FromBan(b *leaderboard.Ban) *pb.Ban {
	return &pb.Ban{
		UserId: string(b.User), Board: string(b.Board), Banned: b.Banned, Reason: b.Reason, Actor: b.Actor,
		At: Timestamp(b.At), Until: Timestamp(b.Until), Revision: b.Revision,
	}
}

// ToBan is the inverse of [FromBan]. It returns a [leaderboard.FieldError] if a time is
// invalid.
func ToBan(b *pb.Ban) (leaderboard.Ban, error) {
	at, err := ToTime("at", b.GetAt())
	if err != nil {
		return leaderboard.Ban{}, err
	}
	until, err := ToTime("until", b.GetUntil())
	return leaderboard.Ban{
		User: leaderboard.UserID(b.GetUserId()), Board: leaderboard.BoardID(b.GetBoard()), Banned: b.GetBanned(),
		Reason: b.GetReason(), Actor: b.GetActor(), At: at, Until: until, Revision: b.GetRevision(),
	}, err
}
