package consumer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/cenkalti/backoff/v5"

	"github.com/open-leaderboard/leaderboard"
)

// gap is a range of offsets in a partition. Its messages are applied, but the index may lack their
// updates.
type gap struct {
	from, to int64 // offsets; to is not part of the gap
	lost     bool  // the log lacks some of these messages
}

// followIndex brings the index up to date with the messages before the first offset of claim, an
// assigned partition. It retries until ctx is done. It closes the channel found once it has read the
// position from Kafka (see position.go).
func (h handler) followIndex(ctx context.Context, claim sarama.ConsumerGroupClaim, found chan<- struct{}) {
	p := partition{claim.Topic(), claim.Partition()}
	intervals := backoff.NewExponentialBackOff()
	intervals.InitialInterval, intervals.MaxInterval = 100*time.Millisecond, 5*time.Second
	var g *gap
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		if g == nil {
			missing, err := h.findGap(p, claim.InitialOffset())
			if err != nil {
				return struct{}{}, err
			}
			upToDate := !missing.lost && missing.from == missing.to
			if upToDate {
				h.positions.catchUp(p, missing.to, h.topics[p.topic])
			}
			close(found)
			if upToDate {
				return struct{}{}, nil
			}
			h.o.Log.Info("bringing the rank index up to date with applied messages", "topic", p.topic, "partition", p.id,
				"position", missing.from, "offset", missing.to, "messages_lost", missing.lost)
			g = &missing
		}
		err := h.closeGap(ctx, p, g)
		if err == nil {
			h.positions.catchUp(p, g.to, h.topics[p.topic])
		}
		return struct{}{}, err
	}, backoff.WithBackOff(intervals), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(err error, wait time.Duration) {
		h.o.Log.Warn("rank index not brought up to date with applied messages", "topic", p.topic, "partition", p.id, "err", err, "in", wait)
	}))
}

// storedPositions returns the positions in Kafka. It returns nil if their group does not exist or
// cannot be accessed.
func (c *Consumer) storedPositions(admin sarama.ClusterAdmin, partitions map[string][]int32) (*sarama.OffsetFetchResponse, error) {
	response, err := admin.ListConsumerGroupOffsets(PositionGroup(c.o.Group), partitions)
	if errors.Is(err, sarama.ErrGroupIDNotFound) || errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
		return nil, nil
	}
	return response, err
}

// markLostMessages gives the positions of partitions that lost messages the metadata lostMessages.
// committed has the committed offsets of these partitions.
func (h handler) markLostMessages(admin sarama.ClusterAdmin, committed map[partition]int64) error {
	if len(committed) == 0 {
		return nil
	}
	partitions := map[string][]int32{}
	for p := range committed {
		partitions[p.topic] = append(partitions[p.topic], p.id)
	}
	response, err := h.storedPositions(admin, partitions)
	if response == nil || err != nil {
		return err
	}
	marks := map[string]map[int32]sarama.OffsetAndMetadata{}
	for p, offset := range committed {
		stored := response.GetBlock(p.topic, p.id)
		if stored == nil || stored.Offset < 0 {
			continue
		}
		if !errors.Is(stored.Err, sarama.ErrNoError) {
			return stored.Err
		}
		if stored.Offset < offset {
			if marks[p.topic] == nil {
				marks[p.topic] = map[int32]sarama.OffsetAndMetadata{}
			}
			marks[p.topic][p.id] = sarama.OffsetAndMetadata{Offset: stored.Offset, Metadata: lostMessages}
		}
	}
	if len(marks) == 0 {
		return nil
	}
	stored, err := h.sendPositions(marks)
	if err != nil {
		return err
	}
	var errs []error
	for topic, offsets := range marks {
		for id := range offsets {
			errs = append(errs, positionError(stored, topic, id))
		}
	}
	return errors.Join(errs...)
}

// findGap returns the gap between the position in Kafka and start, the first offset of the claim. If
// start is negative, no offset is committed, and the claim begins with the oldest message.
func (h handler) findGap(p partition, start int64) (gap, error) {
	oldest, err := h.client.GetOffset(p.topic, p.id, sarama.OffsetOldest)
	if err != nil {
		return gap{}, err
	}
	newest, err := h.client.GetOffset(p.topic, p.id, sarama.OffsetNewest)
	if err != nil {
		return gap{}, err
	}
	admin, err := sarama.NewClusterAdminFromClient(h.client) // closing it would close the client
	if err != nil {
		return gap{}, err
	}
	response, err := h.storedPositions(admin, map[string][]int32{p.topic: {p.id}})
	if err != nil {
		return gap{}, err
	}
	stored := &sarama.OffsetFetchResponseBlock{Offset: -1}
	if response != nil {
		if b := response.GetBlock(p.topic, p.id); b != nil {
			stored = b
		}
	}
	if !errors.Is(stored.Err, sarama.ErrNoError) {
		return gap{}, stored.Err
	}
	id, committed := h.topics[p.topic], start >= 0
	if !committed {
		start = oldest
	}
	if stored.Offset < 0 {
		// If old messages are gone, Kafka may have removed the position and the committed offset too.
		g := gap{from: start, to: start, lost: !committed && oldest > 0}
		if g.lost {
			id = lostMessages
		}
		h.positions.begin(p, start, -1, start, id)
		return g, nil
	}
	recreated := stored.Metadata != "" && id != "" && stored.Metadata != id
	g := gap{from: min(stored.Offset, start), to: start}
	if g.lost = recreated || stored.Metadata == lostMessages || g.from < oldest || !committed && stored.Offset > newest; g.lost {
		h.positions.begin(p, stored.Offset, stored.Offset, start, lostMessages)
		return g, nil
	}
	h.positions.begin(p, g.from, stored.Offset, start, id)
	return g, nil
}

// closeGap brings the index up to date with g. After an error, g is the part that was not read.
func (h handler) closeGap(ctx context.Context, p partition, g *gap) error {
	if !g.lost && g.from < g.to {
		if err := h.readGap(ctx, p, g, h.addUsers); err != nil {
			return err
		}
	}
	if g.lost {
		h.positions.gaps.addAll()
	}
	if err := h.positions.gaps.catchUp(ctx, h.service); err != nil {
		return err
	}
	return h.waitUntilSynced(ctx)
}

// waitUntilSynced waits until the index has all updates of this process. Only this process knows
// that an update is missing.
func (h handler) waitUntilSynced(ctx context.Context) error {
	tick := time.NewTicker(syncPoll)
	defer tick.Stop()
	for !h.service.Synced() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (h handler) addUsers(ctx context.Context, items []*item) error {
	if err := h.resolve(ctx, items); err != nil {
		return err
	}
	for _, i := range items {
		if i.cause == "" {
			h.positions.gaps.add(i.result.SeasonKey, i.result.User)
		}
	}
	return nil
}

// gapUsers are the users in all gaps of a session, by season.
type gapUsers struct {
	max int // bounds n: see shrink

	mu      sync.Mutex
	all     bool                                                      // all users of all seasons
	seasons map[leaderboard.SeasonKey]map[leaderboard.UserID]struct{} // a nil map of users stands for all users
	n       int                                                       // number of seasons and of users in seasons, plus number of dropped seasons
	// dropped are the seasons that the session has dropped from the index. The next fill of a dropped
	// season reads the store, which has the results of all gaps. So add ignores dropped seasons.
	dropped    map[leaderboard.SeasonKey]struct{}
	allDropped bool // the session has dropped all seasons

	catchingUp sync.Mutex
}

// add adds users of a season. A nil list stands for all users.
func (u *gapUsers) add(key leaderboard.SeasonKey, users ...leaderboard.UserID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, dropped := u.dropped[key]; dropped || u.all || u.allDropped {
		return
	}
	if u.seasons == nil {
		u.seasons = map[leaderboard.SeasonKey]map[leaderboard.UserID]struct{}{}
	}
	set, ok := u.seasons[key]
	switch {
	case !ok:
		u.n++
		if users != nil {
			set = make(map[leaderboard.UserID]struct{}, len(users))
		}
		u.seasons[key] = set
	case users == nil:
		u.n -= len(set)
		u.seasons[key] = nil
		return
	case set == nil:
		return
	}
	u.n -= len(set)
	for _, user := range users {
		set[user] = struct{}{}
	}
	if u.n += len(set); u.n > u.max {
		u.shrink()
	}
}

// shrink replaces the users of a season by "all users", the largest season first, until n is at most
// max/2. If there are too many seasons, u stands for all users of all seasons.
func (u *gapUsers) shrink() {
	for _, key := range slices.SortedFunc(maps.Keys(u.seasons), func(a, b leaderboard.SeasonKey) int {
		return len(u.seasons[b]) - len(u.seasons[a])
	}) {
		if u.n <= u.max/2 {
			return
		}
		u.n -= len(u.seasons[key])
		u.seasons[key] = nil
	}
	if u.n > u.max/2 {
		u.all, u.seasons, u.n = true, nil, len(u.dropped)
	}
}

func (u *gapUsers) addAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.allDropped {
		u.all, u.seasons, u.n = true, nil, len(u.dropped)
	}
}

// catchUp brings the index up to date for the users in u, and removes them from u. After an error,
// users that are not up to date stay in u.
func (u *gapUsers) catchUp(ctx context.Context, s service) error {
	u.catchingUp.Lock()
	defer u.catchingUp.Unlock()
	u.mu.Lock()
	all, seasons := u.all, u.seasons
	u.all, u.seasons, u.n = false, nil, len(u.dropped)
	u.mu.Unlock()
	if all {
		if err := s.CatchUpAll(ctx); err != nil {
			u.addAll()
			return err
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.allDropped, u.all, u.seasons, u.dropped, u.n = true, false, nil, nil, 0
		return nil
	}
	var errs []error
	for key, set := range seasons {
		var users []leaderboard.UserID
		if set != nil {
			users = slices.Collect(maps.Keys(set))
		}
		rest, dropped, err := s.CatchUp(ctx, key, users)
		if err != nil {
			errs = append(errs, err)
			u.add(key, rest...)
		}
		if dropped {
			u.markDropped(key)
		}
	}
	return errors.Join(errs...)
}

func (u *gapUsers) markDropped(key leaderboard.SeasonKey) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if set, ok := u.seasons[key]; ok {
		u.n -= 1 + len(set)
		delete(u.seasons, key)
	}
	if u.dropped == nil {
		u.dropped = map[leaderboard.SeasonKey]struct{}{}
	}
	u.dropped[key] = struct{}{}
	u.n++
}
