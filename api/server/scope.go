package server

import (
	"cmp"
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// requiredScopes maps each method to the scope that its callers need. The server refuses calls of
// methods without a scope here.
var requiredScopes = map[string]auth.Scope{
	pb.LeaderboardService_SubmitScore_FullMethodName:         auth.Submit,
	pb.LeaderboardService_BatchSubmitScores_FullMethodName:   auth.Submit,
	pb.LeaderboardService_BatchSubmitResults_FullMethodName:  auth.Submit,
	pb.LeaderboardService_RetractResult_FullMethodName:       auth.Submit,
	pb.LeaderboardService_BatchRetractResults_FullMethodName: auth.Submit,
	pb.LeaderboardService_PurgeResults_FullMethodName:        auth.Submit,
	pb.LeaderboardService_VoidMatch_FullMethodName:           auth.Admin,
	pb.LeaderboardService_RestoreMatch_FullMethodName:        auth.Admin,
	pb.LeaderboardService_CorrectResult_FullMethodName:       auth.Submit,
	pb.LeaderboardService_GetResult_FullMethodName:           auth.Read,
	pb.LeaderboardService_ListUserResults_FullMethodName:     auth.Read,
	pb.LeaderboardService_ListScores_FullMethodName:          auth.Read,
	pb.LeaderboardService_GetUserScore_FullMethodName:        auth.Read,
	pb.LeaderboardService_LookupScores_FullMethodName:        auth.Read,
	pb.LeaderboardService_GetStats_FullMethodName:            auth.Read,
	pb.LeaderboardService_ListSeasons_FullMethodName:         auth.Read,
	pb.LeaderboardService_WatchScores_FullMethodName:         auth.Read,
	pb.LeaderboardService_ListBoards_FullMethodName:          auth.Read,
	pb.LeaderboardService_GetBoard_FullMethodName:            auth.Read,
	pb.LeaderboardService_CreateBoard_FullMethodName:         auth.Admin,
	pb.LeaderboardService_UpdateBoard_FullMethodName:         auth.Admin,
	pb.LeaderboardService_DeleteBoard_FullMethodName:         auth.Admin,
	pb.LeaderboardService_BanUser_FullMethodName:             auth.Admin,
	pb.LeaderboardService_UnbanUser_FullMethodName:           auth.Admin,
	pb.LeaderboardService_EraseUser_FullMethodName:           auth.Admin,
	pb.LeaderboardService_ListUserScores_FullMethodName:      auth.Read,
	pb.LeaderboardService_GetSeason_FullMethodName:           auth.Read,
	pb.LeaderboardService_EndSeason_FullMethodName:           auth.Admin,

	pb.AdminService_CreateKey_FullMethodName:     auth.Admin,
	pb.AdminService_ListKeys_FullMethodName:      auth.Admin,
	pb.AdminService_RevokeKey_FullMethodName:     auth.Admin,
	pb.AdminService_Verify_FullMethodName:        auth.Admin,
	pb.AdminService_Rebuild_FullMethodName:       auth.Admin,
	pb.AdminService_Backup_FullMethodName:        auth.Admin,
	pb.AdminService_ExportResults_FullMethodName: auth.Admin,
	pb.AdminService_ListBans_FullMethodName:      auth.Admin,
	pb.AdminService_ListActs_FullMethodName:      auth.Admin,
	pb.AdminService_ImportBans_FullMethodName:    auth.Admin,

	"/grpc.health.v1.Health/Check":                                   auth.Public,
	"/grpc.health.v1.Health/List":                                    auth.Public,
	"/grpc.health.v1.Health/Watch":                                   auth.Public,
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      auth.Public,
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": auth.Public,
}

func scopeOf(method string) auth.Scope {
	if scope, ok := requiredScopes[method]; ok {
		return scope
	}
	return auth.Nobody
}

// admission is the guard's decision about a call. For an invalid REST request, the gateway sets
// refusal and still makes the call, so that the call is counted and logged.
type admission struct {
	caller  auth.Caller
	request string             // the id of the request
	source  string             // the caller's id, or the address of a caller without an id
	refusal error              // nil if the call may proceed
	board   *leaderboard.Board // of the request, if checkBoards has read it
	// encode returns the encoding of the answer over REST, or of the last event of a watch. If encode is
	// nil, the gateway encodes the answer, otherwise it does not receive the answer. The handler sets encode
	// before it returns or sends an answer.
	encode func() ([]byte, error)
}

type admissionKey struct{}

func admissionFrom(ctx context.Context) *admission {
	a, _ := ctx.Value(admissionKey{}).(*admission)
	return a
}

func (a *admission) anonymous() bool { return a == nil || a.caller.ID == "" }

func (s *Server) admit(ctx context.Context, authorization []string, method string) *admission {
	var addr net.Addr
	if p, ok := peer.FromContext(ctx); ok {
		addr = p.Addr
	}
	caller, err := s.guard.Admit(ctx, addr, authorization, scopeOf(method))
	return &admission{caller: caller, source: cmp.Or(caller.ID, auth.PeerKey(addr)), refusal: err}
}

// enter adds the admission of a call to ctx, and returns the refusal. The gateway has already
// admitted its calls.
func (s *Server) enter(ctx context.Context) (context.Context, error) {
	a := admissionFrom(ctx)
	if a == nil {
		method, _ := grpc.Method(ctx)
		md, _ := metadata.FromIncomingContext(ctx)
		a = s.admit(ctx, md.Get("authorization"), method)
		a.request = requestID(md.Get(requestIDHeader))
		_ = grpc.SetHeader(ctx, metadata.Pairs(requestIDHeader, a.request))
		ctx = context.WithValue(ctx, admissionKey{}, a)
	}
	if info := callInfoFrom(ctx); info != nil {
		info.caller, info.request = a.caller.ID, a.request
	}
	return ctx, a.refusal
}
