package consumer

import (
	"errors"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	// maxWaiting and maxWaitingBytes bound the messages of one partition that wait for
	// their boards. When one of the bounds is reached, the consumer reads no further
	// messages of the partition until some of them are done.
	maxWaiting      = 4096
	maxWaitingBytes = 16 << 20
	// boardPoll is the interval at which the consumer looks for missing boards.
	boardPoll = time.Second
)

// waiting holds the items of one partition whose board is not in the store, in the
// order of their offsets. A result may arrive before its board, because the log and
// the store are copied between regions separately.
//
// The results of other boards are applied meanwhile. But no offset from the first
// waiting item on is committed, so a crash loses no waiting item.
type waiting struct {
	items []*item
	bytes int
	dueAt time.Time // when to look for the boards again
}

func (w *waiting) full() bool { return len(w.items) >= maxWaiting || w.bytes >= maxWaitingBytes }

// timer returns a timer for the time to look for the boards again, or nil if no item
// waits.
func (w *waiting) timer() *time.Timer {
	if len(w.items) == 0 {
		return nil
	}
	return time.NewTimer(time.Until(w.dueAt))
}

// admit returns the items to apply now, given the new items, which are decoded. If it
// is time to look for the missing boards, these include all waiting items. Otherwise
// new items for missing boards join the waiting items, which keeps their order and costs
// no read.
func (w *waiting) admit(batch []*item) []*item {
	var items []*item
	missing := map[leaderboard.BoardID]bool{}
	if time.Now().Before(w.dueAt) {
		for _, i := range w.items {
			missing[i.boardID()] = true
		}
	} else {
		items = w.items
		*w = waiting{}
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

func (w *waiting) add(i *item) {
	if len(w.items) == 0 {
		w.dueAt = time.Now().Add(boardPoll)
	}
	w.items = append(w.items, i)
	w.bytes += len(i.message.Value)
}

// keep takes the items that wait further for their board, and returns the others. An
// item waits until its board has been missing for the given time. The time in which
// the store does not answer does not count.
func (w *waiting) keep(items []*item, wait time.Duration) (done []*item) {
	now := time.Now()
	for _, i := range items {
		if i.cause != causeBoard || !errors.Is(i.detail, leaderboard.ErrBoardNotFound) {
			done = append(done, i)
			continue
		}
		if i.missingAt.IsZero() {
			i.missingAt = now
		}
		if now.Sub(i.missingAt) >= wait {
			done = append(done, i)
			continue
		}
		i.cause, i.detail, i.board, i.boardSince = "", nil, nil, time.Time{}
		w.add(i)
		if end := i.missingAt.Add(wait); end.Before(w.dueAt) {
			w.dueAt = end
		}
	}
	return done
}

// next returns the offset up to which all messages are done, if last is the offset of
// the last message that was read.
func (w *waiting) next(last int64) int64 {
	if len(w.items) > 0 {
		return w.items[0].message.Offset
	}
	return last + 1
}
