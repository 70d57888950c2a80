package ranking

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
)

// A page token is the sort key that the page ended with, behind a format byte
// and a mark of the ladder, so that one of another ladder is refused.
const (
	tokenFormat    = 1
	tokenMarkBytes = 8
	maxTokenBytes  = 1024
)

func (v *view) tokenMark() []byte {
	mark := sha256.Sum256(fmt.Appendf(nil, "%q/%q/%q", v.ladder.Board, v.ladder.Season, v.ladder.Division.String()))
	return mark[:tokenMarkBytes]
}

func (v *view) token(after leaderboard.SortKey) string {
	b := append([]byte{tokenFormat}, v.tokenMark()...)
	return base64.RawURLEncoding.EncodeToString(append(b, after...))
}

func (v *view) parseToken(token string) (leaderboard.SortKey, error) {
	bad := func(problem string) (leaderboard.SortKey, error) {
		return "", &leaderboard.FieldError{Field: "page_token", Problem: problem + "; begin again without one"}
	}
	if len(token) > maxTokenBytes {
		return bad("is no token of this server")
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < 1+tokenMarkBytes || b[0] != tokenFormat {
		return bad("is no token of this server")
	}
	if string(b[1:1+tokenMarkBytes]) != string(v.tokenMark()) {
		return bad("is of another board, season or division")
	}
	after := leaderboard.SortKey(b[1+tokenMarkBytes:])
	if _, _, _, err := after.Split(v.board.RankKeyBytes()); err != nil {
		return bad("is no token of this server")
	}
	return after, nil
}
