package ranking

import (
	"errors"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

func FuzzParseToken(f *testing.F) {
	v := &view{board: &leaderboard.Board{ID: "b"}, ladder: leaderboard.Ladder{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: "all"}}}
	f.Add(v.token("12345678"+"12345678"+"user", false))
	f.Add("")
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, token string) {
		after, err := v.parseToken(token, false)
		if err != nil {
			if !errors.Is(err, leaderboard.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if v.token(after, false) != token {
			t.Fatalf("token %q, parsed and encoded again, is %q, want the same token", token, v.token(after, false))
		}
	})
}
