package ranking

import (
	"errors"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

func TestReadConsistentlyReturnsAnError(t *testing.T) {
	err := readConsistently(func() (bool, error) { return false, nil })
	if !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("error %v, want ErrUnavailable", err)
	}
}
