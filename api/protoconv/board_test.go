package protoconv

import (
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

func TestOrdersKeepTheirNames(t *testing.T) {
	for o := leaderboard.HigherFirst; o <= leaderboard.LowerFirst; o++ {
		back, err := toEnum("order", fromOrder(o))
		if got := fromOrder(o).String(); got != o.String() || err != nil || leaderboard.Order(back) != o {
			t.Errorf("order %v: the message has %s, and toEnum returns %v, %v; want the same order twice", o, got, leaderboard.Order(back), err)
		}
	}
}
