package server

import (
	"cmp"
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// needs maps each method to the scope that it needs. The server refuses all calls of a
// method that is not in the map.
var needs = map[string]auth.Scope{
	pb.LeaderboardService_SubmitScore_FullMethodName:       auth.Submit,
	pb.LeaderboardService_BatchSubmitScores_FullMethodName: auth.Submit,
	pb.LeaderboardService_RetractResult_FullMethodName:     auth.Submit,
	pb.LeaderboardService_GetResult_FullMethodName:         auth.Read,
	pb.LeaderboardService_ListScores_FullMethodName:        auth.Read,
	pb.LeaderboardService_GetUserScore_FullMethodName:      auth.Read,
	pb.LeaderboardService_LookupScores_FullMethodName:      auth.Read,
	pb.LeaderboardService_GetStats_FullMethodName:          auth.Read,
	pb.LeaderboardService_ListSeasons_FullMethodName:       auth.Read,
	pb.LeaderboardService_WatchScores_FullMethodName:       auth.Read,
	pb.LeaderboardService_ListBoards_FullMethodName:        auth.Read,
	pb.LeaderboardService_GetBoard_FullMethodName:          auth.Read,
	pb.LeaderboardService_CreateBoard_FullMethodName:       auth.Admin,
	pb.LeaderboardService_UpdateBoard_FullMethodName:       auth.Admin,
	pb.LeaderboardService_DeleteBoard_FullMethodName:       auth.Admin,
	pb.LeaderboardService_BanUser_FullMethodName:           auth.Admin,
	pb.LeaderboardService_UnbanUser_FullMethodName:         auth.Admin,
	pb.LeaderboardService_EraseUser_FullMethodName:         auth.Admin,
	pb.LeaderboardService_ListUserScores_FullMethodName:    auth.Read,

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

	// Health checks, and the description of the API, which /openapi.json shows too.
	"/grpc.health.v1.Health/Check":                                   auth.Public,
	"/grpc.health.v1.Health/List":                                    auth.Public,
	"/grpc.health.v1.Health/Watch":                                   auth.Public,
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      auth.Public,
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": auth.Public,
}

// scopeOf returns the scope that a method needs.
func scopeOf(method string) auth.Scope {
	if need, ok := needs[method]; ok {
		return need
	}
	return auth.Nobody
}

// admission is the guard's decision about a call, which the guard bases on the
// headers. The REST gateway also sets refusal if the request is invalid. The
// interceptors then refuse the call, so it is counted and logged like any other call.
type admission struct {
	caller  auth.Caller
	request string // the request's id
	source  string // the caller's id, or the caller's address if the id is empty
	refusal error
}

type admissionKey struct{}

// admissionFrom returns the decision about the call of ctx, or nil if the guard has
// not decided yet.
func admissionFrom(ctx context.Context) *admission {
	a, _ := ctx.Value(admissionKey{}).(*admission)
	return a
}

func (a *admission) anonymous() bool { return a == nil || a.caller.ID == "" }

// admit asks the guard about a call with the given Authorization header values.
func (s *Server) admit(ctx context.Context, authorization []string, method string) *admission {
	var addr net.Addr
	if p, ok := peer.FromContext(ctx); ok {
		addr = p.Addr
	}
	caller, err := s.guard.Admit(ctx, addr, authorization, scopeOf(method))
	return &admission{caller: caller, source: cmp.Or(caller.ID, auth.PeerKey(addr)), refusal: err}
}

// enter is the interceptor that asks the guard about a call and refuses the call if
// the guard does. For calls of the gateway, the guard has already decided.
func (s *Server) enter(ctx context.Context) (context.Context, error) {
	a := admissionFrom(ctx)
	if a == nil {
		method, _ := grpc.Method(ctx)
		md, _ := metadata.FromIncomingContext(ctx)
		a = s.admit(ctx, md.Get("authorization"), method)
		a.request = requestID(md.Get(requestIDHeader))
		_ = grpc.SetHeader(ctx, metadata.Pairs(requestIDHeader, a.request)) // fails only if ctx is of no call
		ctx = context.WithValue(ctx, admissionKey{}, a)
	}
	if info := callInfoFrom(ctx); info != nil {
		info.caller = a.caller.ID
	}
	return ctx, a.refusal
}
