package api

import (
	"fmt"
	"strings"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// scope is what a caller may do. Each includes the ones before it.
type scope int8

const (
	public scope = iota // what needs no credentials
	read                // read rankings: players
	submit              // submit and retract results: game servers
	admin               // everything: operators
)

var scopeNames = []string{"", "read", "submit", "admin"}

func (s scope) String() string { return scopeNames[s] }

// checkScopes returns a [leaderboard.FieldError] unless names is one or more of
// read, submit and admin.
func checkScopes(names []string) error {
	if len(names) == 0 {
		return &leaderboard.FieldError{Field: "scopes", Problem: "is required: one or more of read, submit and admin"}
	}
	for i, name := range names {
		if scopeOf(name) == public {
			return &leaderboard.FieldError{Field: fmt.Sprintf("scopes[%d]", i), Problem: fmt.Sprintf("%.40q is none of read, submit and admin", name)}
		}
	}
	return nil
}

// scopeOf returns the scope of a name, public if it is none.
func scopeOf(name string) scope {
	for s := read; s <= admin; s++ {
		if scopeNames[s] == name {
			return s
		}
	}
	return public
}

// highest returns the scope that includes all of the named ones; unknown names,
// which other services may have put into a JWT, count for nothing.
func highest(names []string) scope {
	best := public
	for _, name := range names {
		best = max(best, scopeOf(strings.TrimPrefix(name, "leaderboard:")))
	}
	return best
}

// needs is the scope that each method needs. A method that is not here is
// refused to everyone.
var needs = map[string]scope{
	pb.LeaderboardService_SubmitScore_FullMethodName:       submit,
	pb.LeaderboardService_BatchSubmitScores_FullMethodName: submit,
	pb.LeaderboardService_RetractResult_FullMethodName:     submit,
	pb.LeaderboardService_GetResult_FullMethodName:         read,
	pb.LeaderboardService_ListScores_FullMethodName:        read,
	pb.LeaderboardService_GetUserScore_FullMethodName:      read,
	pb.LeaderboardService_LookupScores_FullMethodName:      read,
	pb.LeaderboardService_GetStats_FullMethodName:          read,
	pb.LeaderboardService_ListSeasons_FullMethodName:       read,
	pb.LeaderboardService_WatchScores_FullMethodName:       read,
	pb.LeaderboardService_ListBoards_FullMethodName:        read,
	pb.LeaderboardService_GetBoard_FullMethodName:          read,
	pb.LeaderboardService_CreateBoard_FullMethodName:       admin,
	pb.LeaderboardService_UpdateBoard_FullMethodName:       admin,
	pb.LeaderboardService_DeleteBoard_FullMethodName:       admin,
	pb.LeaderboardService_BanUser_FullMethodName:           admin,
	pb.LeaderboardService_UnbanUser_FullMethodName:         admin,
	pb.LeaderboardService_EraseUser_FullMethodName:         admin,
	pb.LeaderboardService_ListUserScores_FullMethodName:    read,

	pb.AdminService_CreateKey_FullMethodName:     admin,
	pb.AdminService_ListKeys_FullMethodName:      admin,
	pb.AdminService_RevokeKey_FullMethodName:     admin,
	pb.AdminService_Verify_FullMethodName:        admin,
	pb.AdminService_Rebuild_FullMethodName:       admin,
	pb.AdminService_Backup_FullMethodName:        admin,
	pb.AdminService_ExportResults_FullMethodName: admin,

	// Probes and the description of the API, which /openapi.json shows too.
	"/grpc.health.v1.Health/Check":                                   public,
	"/grpc.health.v1.Health/List":                                    public,
	"/grpc.health.v1.Health/Watch":                                   public,
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      public,
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": public,
}
