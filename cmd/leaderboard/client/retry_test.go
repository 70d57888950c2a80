package client

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestRetryEndsWithSuccessAPermanentErrorOrTheTimeLimit(t *testing.T) {
	limited, err := status.New(codes.ResourceExhausted, "slow down").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(7 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name     string
		failures int
		err      error
		code     codes.Code    // code of the error that Retry returns
		min, max time.Duration // bounds of the time that Retry takes
	}{
		{"success needs no wait", 0, nil, codes.OK, 0, 0},
		{"a permanent error is returned immediately", 1000, status.Error(codes.PermissionDenied, "no"), codes.PermissionDenied, 0, 0},
		{"a temporary error is retried", 3, status.Error(codes.Unavailable, "not now"), codes.OK, time.Millisecond, 5 * time.Second},
		{"a retry waits as long as the server suggests", 2, limited.Err(), codes.OK, 14 * time.Second, 15 * time.Second},
		{"retries end after two minutes", 1000, status.Error(codes.Unavailable, "down"), codes.Unavailable, retryFor - 10*time.Second, retryFor},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				started, calls := time.Now(), 0
				err := Retry(t.Context(), func() error {
					if calls++; calls <= tt.failures {
						return tt.err
					}
					return nil
				})
				if took := time.Since(started); status.Code(err) != tt.code || took < tt.min || took > tt.max {
					t.Errorf("Retry returned %v after %v, want the code %v after %v to %v", err, took, tt.code, tt.min, tt.max)
				}
			})
		})
	}
}
