package leaderboard_test

import (
	"fmt"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

func TestUserHashIsStable(t *testing.T) {
	for user, want := range map[leaderboard.UserID]uint64{
		// the first 16 digits of: printf ada | sha256sum
		"ada": 0xfdee430d40bd57de, "": 0xe3b0c44298fc1c14, "日本": 0xcf2abf0c5be326cb,
	} {
		if got := leaderboard.UserHash(user); got != want {
			t.Errorf("UserHash(%q) = %#x, want %#x", user, got, want)
		}
	}
}

func TestPartsContainEveryUserOnce(t *testing.T) {
	for _, of := range []int{1, 2, 3, 64, 100} {
		sizes := make([]int, of)
		const users = 10_000
		for i := range users {
			user, parts := leaderboard.UserID(fmt.Sprint("user ", i)), 0
			for index := range of {
				if (leaderboard.Part{Index: index, Of: of}).Contains(user) {
					parts++
					sizes[index]++
				}
			}
			if parts != 1 || !(leaderboard.Part{}).Contains(user) {
				t.Fatalf("user %q is in %d of %d parts, want 1; in the zero Part: %v, want true", user, parts, of, (leaderboard.Part{}).Contains(user))
			}
		}
		for index, n := range sizes {
			if mean := users / of; n < mean/2 || n > 2*mean {
				t.Errorf("part %d of %d has %d of %d users, want at least half and at most twice the mean", index, of, n, users)
			}
		}
	}
}
