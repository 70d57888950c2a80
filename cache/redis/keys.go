package redis

import (
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/open-leaderboard/leaderboard"
)

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// bucketHash distributes a shard's users over buckets, as lua/update.lua does. A bucket is a Redis hash
// of users' records: see lua/base.lua.
func bucketHash(user string) uint32 {
	sum := sha1.Sum([]byte(user))
	return binary.BigEndian.Uint32(sum[4:])
}

// bucketNumber returns the same number as lua/inline/bucket.lua.
func bucketNumber(hash uint32, buckets int) int {
	m := 1
	for m < buckets {
		m *= 2
	}
	i := int(hash) & (m - 1)
	if i >= buckets {
		i -= m / 2
	}
	return i
}

// escape returns s as a part of a key's hash tag. It encodes slashes, which separate parts, and braces,
// which enclose the tag.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; c {
		case '%', '/', '{', '}':
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// controlKey returns the control key of a shard: the key of its control hash (see lua/base.lua).
// The shard's other keys begin with the control key. Processes read the number of shards from
// shard 0, so the control key of shard 0 does not depend on this number. The slots of a season's
// shards are about equally far apart. Each server owns a range of slots, so servers get about equal
// numbers of these shards.
func controlKey(prefix string, s leaderboard.SeasonKey, shard, shards int) string {
	name := escape(string(s.Board)) + "/" + escape(string(s.Season))
	zero := fmt.Sprintf("%s{%s/0}", prefix, name)
	if shard == 0 {
		return zero
	}
	step := slots / shards
	target := (slot(name+"/0") + shard*step) % slots
	for n := 0; ; n++ {
		tag := fmt.Sprintf("%s/%d.%d", name, shard, n)
		if distance := (slot(tag) - target + slots) % slots; distance < step/4 {
			return prefix + "{" + tag + "}"
		}
	}
}

// slot returns the hash slot of a hash tag, its CRC-16/XMODEM modulo [slots].
func slot(tag string) int {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slots
}
