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
)

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

func (s *Server) admit(ctx context.Context, authorization []string, d *door) *admission {
	required := d.scope
	if d.ownUser && s.options.SelfEdit {
		required = auth.Read // the handler calls checkEditor
	}
	addr := peerAddr(ctx)
	caller, err := s.guard.Admit(ctx, addr, authorization, required)
	return &admission{caller: caller, source: cmp.Or(caller.ID, auth.PeerKey(addr)), refusal: err}
}

func peerAddr(ctx context.Context) net.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr
	}
	return nil
}

// enter adds the admission of a call to ctx, and returns the refusal. The gateway has already
// admitted its calls.
func (s *Server) enter(ctx context.Context) (context.Context, error) {
	a := admissionFrom(ctx)
	if a == nil && ctx.Value(localKey{}) != nil {
		a = &admission{caller: auth.Caller{ID: leaderboard.SystemActor, Scope: auth.Admin}, source: leaderboard.SystemActor, request: requestID(nil)}
		ctx = context.WithValue(ctx, admissionKey{}, a)
	}
	if a == nil {
		method, _ := grpc.Method(ctx)
		md, _ := metadata.FromIncomingContext(ctx)
		a = s.admit(ctx, md.Get("authorization"), doorOf(method))
		a.request = requestID(md.Get(requestIDHeader))
		_ = grpc.SetHeader(ctx, metadata.Pairs(requestIDHeader, a.request))
		ctx = context.WithValue(ctx, admissionKey{}, a)
	}
	if info := callInfoFrom(ctx); info != nil {
		info.caller, info.request = a.caller.ID, a.request
	}
	return ctx, a.refusal
}
