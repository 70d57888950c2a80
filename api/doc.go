// Package api serves the leaderboard over gRPC and REST.
package api
