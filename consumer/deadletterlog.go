package consumer

import (
	"log/slog"
	"sync"
	"time"
)

const deadLetterLogInterval = 10 * time.Second

// deadLetterLog logs at most one line per deadLetterLogInterval. The line has the latest dead letter,
// and the number of dead letters since the previous line.
type deadLetterLog struct {
	log *slog.Logger

	mu     sync.Mutex
	count  int
	last   *item
	nextAt time.Time
}

func (l *deadLetterLog) add(i *item) {
	l.mu.Lock()
	l.count++
	l.last = i
	l.mu.Unlock()
	l.flush()
}

func (l *deadLetterLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.count == 0 || now.Before(l.nextAt) {
		return
	}
	m := l.last.message
	l.log.Warn("messages moved to the dead letters", "count", l.count, "topic", m.Topic, "partition", m.Partition,
		"offset", m.Offset, "cause", l.last.cause, "err", truncate(l.last.detail.Error(), maxDetailBytes))
	l.count, l.last, l.nextAt = 0, nil, now.Add(deadLetterLogInterval)
}
