package memory

import (
	"cmp"
	"context"
	"encoding/binary"
	"iter"
	"slices"
	"strings"

	"github.com/open-leaderboard/leaderboard"
)

// loadChunk is the number of entries that load sorts and inserts together. Successive insertions of
// sorted entries visit the same nodes.
const loadChunk = 1 << 16

func load(ctx context.Context, l layout, entries iter.Seq2[leaderboard.Entry, error]) (*table, error) {
	t := newTable(l)
	t.alloc.loading = true
	defer func() { t.alloc.loading = false }()
	var chunk []leaderboard.Entry
	for e, err := range entries {
		if err != nil {
			return nil, err
		}
		chunk = append(chunk, e)
		if len(chunk)%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if len(chunk) == loadChunk {
			if err := t.applyInOrder(chunk); err != nil {
				return nil, err
			}
			clear(chunk)
			chunk = chunk[:0]
		}
	}
	if err := t.applyInOrder(chunk); err != nil {
		return nil, err
	}
	return t, ctx.Err()
}

func (t *table) applyInOrder(entries []leaderboard.Entry) error {
	type sortItem struct {
		first uint64 // first word of the rank key
		i     int32
	}
	order := make([]sortItem, len(entries))
	for i := range entries {
		var first [wordBytes]byte
		copy(first[:], entries[i].Key)
		order[i] = sortItem{binary.BigEndian.Uint64(first[:]), int32(i)}
	}
	slices.SortFunc(order, func(x, y sortItem) int {
		if x.first != y.first {
			return cmp.Compare(x.first, y.first)
		}
		return compareEntries(&entries[x.i], &entries[y.i])
	})
	var batch [updateChunk]leaderboard.Entry
	for part := range slices.Chunk(order, updateChunk) {
		for i, p := range part {
			batch[i] = entries[p.i]
		}
		if err := t.applyChunk(batch[:len(part)]); err != nil {
			return err
		}
	}
	return nil
}

func compareEntries(x, y *leaderboard.Entry) int {
	if c := strings.Compare(string(x.Key), string(y.Key)); c != 0 {
		return c
	}
	return cmp.Or(x.AchievedAt.Compare(y.AchievedAt), strings.Compare(string(x.User), string(y.User)))
}
