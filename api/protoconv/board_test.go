package protoconv

import (
	"testing"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("one call follows another")

func TestOrdersKeepTheirNames(t *testing.T) {
	for o := leaderboard.HigherFirst; o <= leaderboard.LowerFirst; o++ {
		converted, err := toEnum("order", fromOrder(o))
		if got := fromOrder(o).String(); got != o.String() || err != nil || leaderboard.Order(converted) != o {
			t.Errorf("order %v: the message has %s, and toEnum returns %v, error %v; want the same order from both", o, got, leaderboard.Order(converted), err)
		}
	}
}
