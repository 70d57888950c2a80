package client

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("one call follows another")

func TestErrorTextNamesTLSForEachEndOfAConnection(t *testing.T) {
	c := &Client{Server: "127.0.0.1:7777"}
	for _, message := range []string{
		`connection error: desc = "error reading server preface: EOF"`,
		`connection error: desc = "error reading server preface: read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer"`,
		`connection error: desc = "transport: failed to write client preface: write tcp 127.0.0.1:1->127.0.0.1:2: write: broken pipe"`,
		`last connection error: connection closed before server preface received`,
	} {
		got := ErrorText(c.WrapError(status.Error(codes.Unavailable, message)))
		if !strings.Contains(got, "use --tls") || !strings.Contains(got, c.Server) {
			t.Errorf("ErrorText(%s) = %q, want the server's address and \"use --tls\"", message, got)
		}
	}
}

func TestAdviceAfterVerify(t *testing.T) {
	for _, tt := range []struct {
		kinds  []string
		repair bool
		want   string
	}{
		{[]string{"INDEX_WRONG"}, false, "verify --repair repairs them"},
		{[]string{"INDEX_WRONG", damagedData}, false, "repairs them, except those of the kind DATA_DAMAGED"},
		{[]string{damagedData}, false, "restore it from a backup"},
		{[]string{damagedData}, true, "restore it from a backup"},
		{[]string{"INDEX_WRONG", damagedData}, true, "restore it from a backup"},
		{[]string{"INDEX_WRONG"}, true, "run leaderboard verify again"},
	} {
		kinds := map[string]bool{}
		for _, kind := range tt.kinds {
			kinds[kind] = true
		}
		if err := differencesError(kinds, tt.repair); !errors.Is(err, ErrDifferences) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("after verify with repair %v and the kinds %v: %v, want %q", tt.repair, tt.kinds, err, tt.want)
		}
	}
}
