package leaderboard

import (
	"crypto/sha256"
	"encoding/binary"
)

// UserHash returns the first 8 bytes of the SHA-256 of a user id. UserHash must not change,
// because stored data depends on it.
func UserHash(user UserID) uint64 {
	sum := sha256.Sum256([]byte(user))
	return binary.BigEndian.Uint64(sum[:8])
}

// Part is a share of all users: those whose [UserHash] modulo Of is Index. The zero Part
// contains all users.
type Part struct {
	Index int // 0 to Of-1
	Of    int // the number of parts; 0 means 1
}

// Contains reports whether a user belongs to the part.
func (p Part) Contains(user UserID) bool {
	return p.Of <= 1 || UserHash(user)%uint64(p.Of) == uint64(p.Index)
}
