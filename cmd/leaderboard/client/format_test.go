package client

import (
	"bytes"
	"strings"
	"testing"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func TestColorsAreForTerminalsOnly(t *testing.T) {
	current := true
	entries := []*pb.Entry{{UserId: "ada", IsCurrentUser: &current}, {UserId: "bob"}}
	for _, colors := range []bool{false, true} {
		got := (&EntryTable{Colors: colors}).table(entries).Render()
		if strings.Contains(got, "\x1b[") != colors {
			t.Errorf("with Colors %v the table is %q, want color codes: %v", colors, got, colors)
		}
	}
	if (&cli.App{Stdout: &bytes.Buffer{}}).Colors() {
		t.Error("Colors returns true for an output that is not a terminal, want false")
	}
}
