package leaderboard

import (
	"cmp"
	"time"
)

// RefusalTime is how long a store keeps a recent refusal: see [Reason.IsRecent]. A store may keep
// it ten days longer.
const RefusalTime = 30 * 24 * time.Hour

// Refusal is the record of a rejected result.
type Refusal struct {
	Revision   int64
	Reason     Reason
	Content    ContentID
	ReceivedAt time.Time
}

// Compare orders refusals by Revision, then by ReceivedAt.
func (f Refusal) Compare(o Refusal) int {
	return cmp.Or(cmp.Compare(f.Revision, o.Revision), f.ReceivedAt.Compare(o.ReceivedAt))
}

// RecentRefusal is a recent refusal of a match result: see [Reason.IsRecent].
type RecentRefusal struct {
	Season SeasonID
	Refusal
}

// Compare orders recent refusals by Season, then by Revision, then by ReceivedAt.
func (f RecentRefusal) Compare(o RecentRefusal) int {
	return cmp.Or(cmp.Compare(f.Season, o.Season), f.Refusal.Compare(o.Refusal))
}
