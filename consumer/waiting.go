package consumer

import (
	"errors"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	// At one of these bounds, the consumer stops reading the partition.
	maxWaiting      = 4096 // items
	maxWaitingBytes = 16 << 20

	boardPoll = time.Second // interval of looking for missing boards
)

// waitingItems has the items of a partition whose boards are missing, in order of offset. A result
// from another region may arrive before its board. The consumer commits no offset beyond the first
// waiting item.
type waitingItems struct {
	items []*item
	bytes int
	dueAt time.Time // when to look for the boards again
}

func (w *waitingItems) full() bool { return len(w.items) >= maxWaiting || w.bytes >= maxWaitingBytes }

func (w *waitingItems) timer() *time.Timer {
	if len(w.items) == 0 {
		return nil
	}
	return time.NewTimer(time.Until(w.dueAt))
}

// admit returns the items to apply now. Until dueAt, an item of batch waits if an earlier item of its
// board waits, so each board's items stay in order.
func (w *waitingItems) admit(batch []*item) []*item {
	var items []*item
	missing := map[leaderboard.BoardID]bool{}
	if time.Now().Before(w.dueAt) {
		for _, i := range w.items {
			missing[i.boardID()] = true
		}
	} else {
		items = w.items
		*w = waitingItems{}
	}
	for _, i := range batch {
		if i.record != nil && missing[i.boardID()] {
			w.add(i)
		} else {
			items = append(items, i)
		}
	}
	return items
}

func (w *waitingItems) add(i *item) {
	if len(w.items) == 0 {
		w.dueAt = time.Now().Add(boardPoll)
	}
	w.items = append(w.items, i)
	w.bytes += len(i.message.Value)
}

// keepWaiting adds to w the items that must still wait, and returns the other items. An item waits
// until its board has been missing for limit.
func (w *waitingItems) keepWaiting(items []*item, limit time.Duration) (done []*item) {
	now := time.Now()
	for _, i := range items {
		if i.cause != causeBoard || !errors.Is(i.detail, leaderboard.ErrBoardNotFound) {
			done = append(done, i)
			continue
		}
		if i.missingAt.IsZero() {
			i.missingAt = now
		}
		if now.Sub(i.missingAt) >= limit {
			done = append(done, i)
			continue
		}
		i.cause, i.detail, i.board, i.boardSince = "", nil, nil, time.Time{}
		w.add(i)
		if end := i.missingAt.Add(limit); end.Before(w.dueAt) {
			w.dueAt = end
		}
	}
	return done
}

// nextOffset returns the offset to commit. last is the offset of the last message that was read.
func (w *waitingItems) nextOffset(last int64) int64 {
	if len(w.items) > 0 {
		return w.items[0].message.Offset
	}
	return last + 1
}
