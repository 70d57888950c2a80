package redis

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/open-leaderboard/leaderboard"
)

// held contains entries of one shard in a compact form, for a bulk load (see bulk.go).
type held struct {
	names    *ladderNames
	users    []heldUser
	chunks   [][]byte // for each user: the id and the record (see lua/base.lua), each preceded by its length
	keyBytes int
	sorted   bool
	bytes    int64
}

type heldUser struct {
	head uint64 // the first 8 bytes of the sort key; 0 if the user is not ranked
	hash uint32 // see bucketHash
	at   uint32 // position in chunks: the number of the chunk, and in the low chunkBits bits the offset
}

const chunkBits = 20

func newHeld(keyBytes int, names *ladderNames) *held {
	return &held{keyBytes: keyBytes, names: names, sorted: true}
}

// ladderNames numbers the ladders of a generation.
type ladderNames struct {
	names   []string // by number
	numbers map[string]int
}

func newLadderNames() *ladderNames {
	return &ladderNames{names: []string{""}, numbers: map[string]int{"": 0}}
}

// number returns the number of a ladder. It adds the ladder if needed.
func (l *ladderNames) number(name string) int {
	n, ok := l.numbers[name]
	if !ok {
		n = len(l.names)
		l.names = append(l.names, name)
		l.numbers[name] = n
	}
	return n
}

func (h *held) add(e *leaderboard.Entry) {
	version := strings.TrimLeft(bigEndian(e.Version), "\x00")
	record := append(append(make([]byte, 0, 64), byte(len(version))), version...)
	if e.Ranked() {
		record = append(append(record, e.Key...), instant(e.AchievedAt)...)
		for _, d := range e.Divisions {
			n := h.names.number(ladderName(d))
			record = append(record, byte(n>>16), byte(n>>8), byte(n))
		}
	}
	h.addSorted([]byte(e.User), record)
}

// addSorted adds a user and the user's record. If this user belongs before an earlier one,
// addSorted sets sorted to false.
func (h *held) addSorted(user, record []byte) {
	h.addRecord(user, record)
	if n := len(h.users); h.sorted && n > 1 {
		h.sorted = h.compare(h.users[n-2], h.users[n-1]) <= 0
	}
}

// addRecord adds a user and the user's record. It does not check the order.
func (h *held) addRecord(user, record []byte) {
	total := len(user) + len(record) + 2*binary.MaxVarintLen32
	if n := len(h.chunks); n == 0 || len(h.chunks[n-1])+total > 1<<chunkBits {
		h.chunks = append(h.chunks, make([]byte, 0, max(1<<chunkBits, total)))
	}
	last := len(h.chunks) - 1
	b := h.chunks[last]
	u := heldUser{hash: bucketHash(string(user)), at: uint32(last)<<chunkBits | uint32(len(b))}
	if prefix, _ := h.split(record); prefix != nil {
		u.head = binary.BigEndian.Uint64(prefix)
	}
	h.chunks[last] = appendRecord(b, user, record)
	h.bytes += int64(total) + 24
	h.users = append(h.users, u)
}

// appendRecord appends a user and the user's record, each after its length.
func appendRecord(b, user, record []byte) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(user))), user...)
	return append(binary.AppendUvarint(b, uint64(len(record))), record...)
}

// cutRecord reads a user and a record that appendRecord has appended. It also returns the remaining bytes.
func cutRecord(b []byte) (user, record, rest []byte) {
	n, k := binary.Uvarint(b)
	user, b = b[k:k+int(n)], b[k+int(n):]
	n, k = binary.Uvarint(b)
	return user, b[k : k+int(n)], b[k+int(n):]
}

func (h *held) read(u heldUser) (user, record []byte) {
	user, record, _ = cutRecord(h.chunks[u.at>>chunkBits][u.at&(1<<chunkBits-1):])
	return user, record
}

// split returns two parts of a record: the prefix, which is the sort key without the user, and the
// numbers of the divisions' ladders. If the user is not ranked, the prefix is nil.
func (h *held) split(record []byte) (prefix, ladders []byte) {
	rest := record[1+record[0]:]
	if len(rest) == 0 {
		return nil, nil
	}
	return rest[:h.keyBytes+8], rest[h.keyBytes+8:]
}

// compare compares the sort keys of two users. Users who are not ranked come first.
func (h *held) compare(a, b heldUser) int {
	if a.head != b.head {
		if a.head < b.head {
			return -1
		}
		return 1
	}
	x, r := h.read(a)
	y, s := h.read(b)
	p, _ := h.split(r)
	q, _ := h.split(s)
	if c := bytes.Compare(p, q); c != 0 {
		return c
	}
	return bytes.Compare(x, y)
}

func (h *held) sort() {
	if !h.sorted {
		slices.SortFunc(h.users, h.compare)
		h.sorted = true
	}
}

// byBucket groups the users by bucket (see lua/base.lua). order has indexes of h.users, bucket
// by bucket. ends has the end of each bucket, as an index of order.
func (h *held) byBucket(buckets int) (order []uint32, ends []int) {
	ends = make([]int, buckets+1)
	for _, u := range h.users {
		ends[bucketNumber(u.hash, buckets)+1]++
	}
	for i := range buckets {
		ends[i+1] += ends[i]
	}
	order = make([]uint32, len(h.users))
	for i, u := range h.users {
		n := bucketNumber(u.hash, buckets)
		order[ends[n]] = uint32(i)
		ends[n]++
	}
	return order, ends[:buckets]
}

// countBuckets returns the number of buckets of a shard with the given number of users.
func countBuckets(users int) int { return max(1, (users+treeSizes.users-1)/treeSizes.users) }
