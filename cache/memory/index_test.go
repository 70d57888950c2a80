package memory

import (
	"testing"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/cachetest"
)

func TestIndex(t *testing.T) {
	cachetest.Run(t, func(tb testing.TB) leaderboard.Index {
		x := New()
		tb.Cleanup(func() {
			if err := x.Close(); err != nil {
				tb.Error(err)
			}
		})
		return x
	}, cachetest.Limits{})
}
