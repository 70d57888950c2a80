package ranking

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
)

// A page token is a format byte, a hash of the ladder and the order, and the sort key of the page's last
// entry.
const (
	tokenFormat    = 1
	tokenHashBytes = 8
	maxTokenBytes  = 1024
)

func (v *view) tokenHash(worst bool) []byte {
	text := fmt.Appendf(nil, "%q/%q/%q", v.ladder.Board, v.ladder.Season, v.ladder.Division.String())
	if worst {
		text = append(text, "/worst"...)
	}
	hash := sha256.Sum256(text)
	return hash[:tokenHashBytes]
}

func (v *view) token(after leaderboard.SortKey, worst bool) string {
	b := append([]byte{tokenFormat}, v.tokenHash(worst)...)
	return base64.RawURLEncoding.EncodeToString(append(b, after...))
}

func (v *view) parseToken(token string, worst bool) (leaderboard.SortKey, error) {
	bad := func(problem string) (leaderboard.SortKey, error) {
		return "", &leaderboard.FieldError{Field: "page_token", Problem: problem + "; omit it to start at the first page"}
	}
	if len(token) > maxTokenBytes {
		return bad("is not a token of this server")
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < 1+tokenHashBytes || b[0] != tokenFormat {
		return bad("is not a token of this server")
	}
	if string(b[1:1+tokenHashBytes]) != string(v.tokenHash(worst)) {
		return bad("belongs to another board, season, division or order")
	}
	after := leaderboard.SortKey(b[1+tokenHashBytes:])
	if _, _, _, err := after.Split(v.board.RankKeyBytes()); err != nil {
		return bad("is not a token of this server")
	}
	return after, nil
}
