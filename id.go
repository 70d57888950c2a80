package leaderboard

import (
	"crypto/sha256"
	"encoding/hex"
)

// MaxIDBytes is the largest length of a board, user or match id and of a division value.
const MaxIDBytes = 128

type (
	// BoardID identifies a board. Board, user and match ids have 1 to [MaxIDBytes] bytes of
	// printable UTF-8, and compare byte by byte. The only space is U+0020. A zero-width joiner
	// or non-joiner is allowed where a script or an emoji needs it: see [RFC 5892], appendices
	// A.1 and A.2, and [UTS #51].
	//
	// [RFC 5892]: https://www.rfc-editor.org/rfc/rfc5892#appendix-A
	// [UTS #51]: https://www.unicode.org/reports/tr51/#def_emoji_zwj_sequence
	BoardID string
	// UserID identifies a user. A user has the same id on all boards.
	UserID string
	// MatchID identifies a match result within its board, season and user.
	MatchID string
)

// SeasonID identifies a season within its board: 1 to 64 bytes of printable UTF-8. The
// board's schedule determines its form:
//
//	None      all            [SeasonAll]
//	Hourly    2026112013     year, month, day, hour
//	Daily     20261120       year, month, day
//	Weekly    2026W47        ISO 8601 week
//	Monthly   202611         year, month
//	Quarterly 2026Q4         year, quarter
//	Yearly    2026           year
//	Every     20261120T0400  the season's start
//	Explicit                 the window's own id
//	Rolling   20261120       the window's last day
//
// Years are 1 to 9999.
type SeasonID string

// DefaultBoard is the board that the service creates when it first starts.
const DefaultBoard BoardID = "default"

// Digest returns the SHA-256 of the id, in 64 hexadecimal digits. Records that outlive an erasure name the user by it.
func (id UserID) Digest() string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}
