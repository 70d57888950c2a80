package server

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// healthServices are the services with a health status. "" is the whole server.
var healthServices = []string{"", pb.LeaderboardService_ServiceDesc.ServiceName, pb.AdminService_ServiceDesc.ServiceName}

const healthInterval = time.Second

// health is the gRPC health service. Its callers need no key. If health stored data of requests,
// these callers could fill the memory.
type health struct {
	healthpb.UnimplementedHealthServer
	*Server
}

func (h health) status() healthpb.HealthCheckResponse_ServingStatus {
	if h.options.Ready() != nil {
		return healthpb.HealthCheckResponse_NOT_SERVING
	}
	return healthpb.HealthCheckResponse_SERVING
}

func checkService(name string) error {
	for _, known := range healthServices {
		if name == known {
			return nil
		}
	}
	return status.Error(codes.NotFound, "unknown service; leave the name empty to check the whole server")
}

// Check returns the status of a service.
func (h health) Check(_ context.Context, req *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if err := checkService(req.GetService()); err != nil {
		return nil, err
	}
	return &healthpb.HealthCheckResponse{Status: h.status()}, nil
}

// List returns the status of every service.
func (h health) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	res := &healthpb.HealthListResponse{Statuses: map[string]*healthpb.HealthCheckResponse{}}
	for _, name := range healthServices {
		res.Statuses[name] = &healthpb.HealthCheckResponse{Status: h.status()}
	}
	return res, nil
}

// Watch sends the status of a service now and after each change.
func (h health) Watch(req *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	if err := checkService(req.GetService()); err != nil {
		return err
	}
	ctx, send, stop := prepareStream(h.Server, stream, "")
	defer stop()
	ticker := time.NewTicker(healthInterval)
	defer ticker.Stop()
	last := healthpb.HealthCheckResponse_UNKNOWN
	for {
		if now := h.status(); now != last {
			if err := send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return streamError(ctx, err)
			}
			last = now
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return streamError(ctx, ctx.Err())
		}
	}
}
