package server

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

const forwardedFor = "X-Forwarded-For"

// client returns the address of the client behind trusted proxies. Each proxy appends its caller's
// address to X-Forwarded-For, so the client is the right-most address that is not a trusted proxy.
// The client may have forged the addresses left of its own.
func (s *Server) client(remote net.Addr, forwarded []string) net.Addr {
	if len(s.options.TrustedProxies) == 0 || len(forwarded) == 0 || remote == nil {
		return remote
	}
	ip, ok := parseAddr(remote.String())
	if !ok {
		return remote
	}
	client := remote
	for _, hop := range slices.Backward(strings.Split(strings.Join(forwarded, ","), ",")) {
		if !s.trusts(ip) {
			break
		}
		if ip, ok = parseAddr(strings.TrimSpace(hop)); !ok {
			break // hop is not an address: the trusted proxy that sent hop counts as the client
		}
		client = httpAddr(netip.AddrPortFrom(ip, 0).String())
	}
	return client
}

func (s *Server) trusts(ip netip.Addr) bool {
	return slices.ContainsFunc(s.options.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(ip) })
}

func parseAddr(text string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	ip, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return ip.Unmap().WithZone(""), err == nil
}

// withClient makes the client of a gRPC call the peer of ctx. The context of a REST call already
// has this peer.
func (s *Server) withClient(ctx context.Context) context.Context {
	p, ok := peer.FromContext(ctx)
	if !ok || len(s.options.TrustedProxies) == 0 || admissionFrom(ctx) != nil {
		return ctx
	}
	md, _ := metadata.FromIncomingContext(ctx)
	client := *p
	client.Addr = s.client(p.Addr, md.Get(forwardedFor))
	return peer.NewContext(ctx, &client)
}

func clientOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	if ip, ok := parseAddr(p.Addr.String()); ok {
		return ip.String()
	}
	return p.Addr.String()
}

func (s *Server) withClientUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	return next(s.withClient(ctx), req)
}

func (s *Server) withClientStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	wrapped := middleware.WrapServerStream(ss)
	wrapped.WrappedContext = s.withClient(ss.Context())
	return next(srv, wrapped)
}
