package client

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func TestColorsAreForTerminalsOnly(t *testing.T) {
	current := true
	entries := []*pb.Entry{{UserId: "ada", IsCurrentUser: &current}, {UserId: "bob"}}
	for _, colors := range []bool{false, true} {
		got := (&EntryTable{Colors: colors}).table(entries).String()
		if strings.Contains(got, "\x1b[") != colors {
			t.Errorf("with Colors %v the table is %q, want color codes: %v", colors, got, colors)
		}
	}
	if (&cli.App{Stdout: &bytes.Buffer{}}).Colors() {
		t.Error("Colors returns true for an output that is not a terminal, want false")
	}
}

func TestBoardsAreShownInAFixedOrder(t *testing.T) {
	low, high := int64(1), int64(9)
	for range 20 {
		var out bytes.Buffer
		writeBoard(&out, &pb.Board{BoardId: "b", MinScore: &low, MaxScore: &high, Floor: &low})
		var order []int
		for _, name := range []string{"min ", "max ", "floor "} {
			order = append(order, strings.Index(out.String(), name))
		}
		if !slices.IsSorted(order) || order[0] < 0 {
			t.Fatalf("writeBoard wrote\n%s\nwant the rows min, max and floor in this order", &out)
		}
	}
}
