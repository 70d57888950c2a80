package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
)

// A season is in doubt if the index may lack its last updates: see [leaderboard.Doubt].

const (
	// doubtInterval is the largest interval between calls of advanceIndex while a season is in
	// doubt.
	doubtInterval = 100 * time.Millisecond
	// repeatTimeout bounds one attempt to bring seasons in doubt up to date. It is less than
	// maxFetchWait: if a broker returns no messages, the attempt fails and is repeated, before the
	// messages count as lost.
	repeatTimeout = 30 * time.Second
	// lastAdvanceTimeout bounds the last call of Advance, for which a rebalance waits.
	lastAdvanceTimeout = 3 * time.Second
)

// followServers records the positions of the session's partitions in the index, until the session
// ends. It repeats updates for seasons in doubt: see cache/redis/doubt.go.
func (h handler) followServers(s sarama.ConsumerGroupSession) {
	ctx := s.Context()
	session := leaderboard.LogSession{Generation: int64(s.GenerationID())}
	for topic := range h.topics {
		partitions, err := h.client.Partitions(topic)
		if err != nil {
			h.o.Log.Warn("cannot list the partitions of a topic; seasons whose Redis server changes will be rebuilt, not brought up to date", "topic", topic, "err", err)
			return
		}
		session.Partitions += len(partitions)
	}
	confirmed := map[leaderboard.SeasonKey]confirmation{}
	timer := time.NewTimer(h.o.advanceInterval)
	defer timer.Stop()
	failed := false
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		inDoubt, err := h.advanceIndex(ctx, session, confirmed)
		if err != nil && !failed && ctx.Err() == nil {
			h.o.Log.Warn("positions not recorded in the rank index", "err", err)
		}
		failed = err != nil
		interval := h.o.advanceInterval
		if inDoubt {
			interval = min(interval, doubtInterval)
		}
		timer.Reset(interval)
	}
}

// confirmation describes a session's last successful call of Confirm for a season.
type confirmation struct {
	server     string
	partitions int // the number of positions, which only grows in a session
}

// advanceIndex records positions, and brings seasons in doubt up to date. It reports whether a season
// is in doubt.
func (h handler) advanceIndex(ctx context.Context, session leaderboard.LogSession, confirmed map[leaderboard.SeasonKey]confirmation) (inDoubt bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, repeatTimeout)
	defer cancel()
	positions, partitions := h.positions.recorded(h.topics)
	if len(positions) == 0 {
		return false, nil
	}
	doubts, err := h.service.Advance(ctx, positions, false)
	if len(doubts) == 0 {
		return false, err
	}
	var pending []leaderboard.Doubt
	for _, d := range doubts {
		if !d.Confirmed || confirmed[d.SeasonKey] != (confirmation{d.Server, len(positions)}) {
			delete(confirmed, d.SeasonKey)
			pending = append(pending, d)
		}
	}
	if len(pending) > 0 {
		h.o.Log.Info("the rank index may lack updates, repeating them", "seasons", len(pending))
		forgotten, repeatErr := h.repeatUpdates(ctx, pending, partitions)
		if err = errors.Join(err, repeatErr); repeatErr != nil {
			return true, err
		}
		doubts = slices.DeleteFunc(doubts, func(d leaderboard.Doubt) bool { return forgotten[d.SeasonKey] })
	}
	for _, d := range doubts {
		confirmErr := h.service.Confirm(ctx, d, positions, session)
		if err = errors.Join(err, confirmErr); confirmErr == nil {
			confirmed[d.SeasonKey] = confirmation{d.Server, len(positions)}
		}
	}
	return true, err
}

// recordLastPositions records the positions of the session's partitions for all seasons, so that
// the next owners need not repeat updates. If this fails, they repeat the updates since the last
// recorded positions.
func (h handler) recordLastPositions(s sarama.ConsumerGroupSession) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), lastAdvanceTimeout)
	defer cancel()
	if positions, _ := h.positions.recorded(h.topics); len(positions) > 0 {
		_, _ = h.service.Advance(ctx, positions, true)
	}
}

// repeatUpdates brings seasons in doubt up to date with the messages of partitions, from the
// seasons' recorded positions to the present end of the log. It drops seasons if the log lacks
// messages or there are too many users, and returns the dropped seasons.
func (h handler) repeatUpdates(ctx context.Context, doubts []leaderboard.Doubt, partitions []partition) (forgotten map[leaderboard.SeasonKey]bool, err error) {
	r := repetition{handler: h, seasons: map[leaderboard.SeasonKey][]leaderboard.LogPosition{}, sources: map[leaderboard.BoardID][]leaderboard.LogPosition{}, users: map[leaderboard.SeasonKey]map[leaderboard.UserID]bool{}}
	forgotten = map[leaderboard.SeasonKey]bool{}
	forget := func(key leaderboard.SeasonKey) error {
		if forgotten[key] {
			return nil
		}
		forgotten[key] = true
		h.o.Log.Warn("the log lacks updates that the rank index may have lost; the season will be rebuilt", "board", key.Board, "season", key.Season)
		return h.service.Forget(ctx, key)
	}
	gaps := make([]gap, len(partitions))
	for i, p := range partitions {
		var oldest int64
		if gaps[i], oldest, err = h.gapSince(p, doubts, i); err != nil {
			return nil, err
		}
		for _, d := range doubts {
			if max(d.Positions[i].Offset, 0) < oldest {
				if err := forget(d.SeasonKey); err != nil {
					return nil, err
				}
			}
		}
		// Wait for the batch that is being applied. Its updates may go to the former server.
		_ = h.positions.apply(p, func() error { return nil })
	}
	for _, d := range doubts {
		if !forgotten[d.SeasonKey] {
			if err := r.add(ctx, d); err != nil {
				return nil, err
			}
		}
	}
	for i, p := range partitions {
		if len(r.seasons) == 0 {
			return forgotten, nil
		}
		for gaps[i].from < gaps[i].to && !gaps[i].lost && r.count <= h.o.maxGapUsers {
			if err := h.readGap(ctx, p, &gaps[i], func(ctx context.Context, items []*item) error { return r.collect(ctx, i, items) }); err != nil {
				return nil, err
			}
		}
		if gaps[i].lost || r.count > h.o.maxGapUsers {
			for key := range r.seasons {
				if err := forget(key); err != nil {
					return nil, err
				}
			}
			return forgotten, nil
		}
	}
	for key, users := range r.users {
		if err := h.service.Repeat(ctx, key, slices.Collect(maps.Keys(users))); err != nil {
			return nil, err
		}
	}
	return forgotten, h.waitUntilSynced(ctx)
}

// gapSince returns the part of a partition at and after the smallest recorded position of the
// seasons, and the offset of the log's oldest message. index is the partition's index in
// Doubt.Positions.
func (h handler) gapSince(p partition, doubts []leaderboard.Doubt, index int) (g gap, oldest int64, err error) {
	if oldest, err = h.client.GetOffset(p.topic, p.id, sarama.OffsetOldest); err != nil {
		return gap{}, 0, err
	}
	newest, err := h.client.GetOffset(p.topic, p.id, sarama.OffsetNewest)
	if err != nil {
		return gap{}, 0, err
	}
	g = gap{from: newest, to: newest}
	for _, d := range doubts {
		if from := max(d.Positions[index].Offset, 0); from >= oldest {
			g.from = min(g.from, from)
		}
	}
	return g, oldest, nil
}

// repetition collects the users whose updates are repeated.
type repetition struct {
	handler
	// seasons has the recorded positions of each season in doubt. sources has positions by source
	// board: results of a source also change the seasons of its linked boards.
	seasons map[leaderboard.SeasonKey][]leaderboard.LogPosition
	sources map[leaderboard.BoardID][]leaderboard.LogPosition
	users   map[leaderboard.SeasonKey]map[leaderboard.UserID]bool
	count   int // the number of users in users
}

func (r *repetition) add(ctx context.Context, d leaderboard.Doubt) error {
	r.seasons[d.SeasonKey] = d.Positions
	b, err := r.service.Board(ctx, d.Board)
	switch {
	case errors.Is(err, leaderboard.ErrBoardNotFound): // Confirm drops the season
	case err != nil:
		return fmt.Errorf("consumer: board of a season in doubt: %w", err)
	case b.Source != nil:
		first := slices.Clone(d.Positions)
		for i, p := range r.sources[b.Source.Board] {
			first[i].Offset = min(first[i].Offset, p.Offset)
		}
		r.sources[b.Source.Board] = first
	}
	return nil
}

// collect adds the users of items that concern the seasons in doubt. index is the index of the
// items' partition in Doubt.Positions.
func (r *repetition) collect(ctx context.Context, index int, items []*item) error {
	if err := r.resolve(ctx, items); err != nil {
		return err
	}
	for _, i := range items {
		key := i.result.SeasonKey
		concerns := func(first []leaderboard.LogPosition) bool {
			return first != nil && i.message.Offset >= first[index].Offset
		}
		if i.cause != "" || i.record.GetFetch() || !concerns(r.seasons[key]) && !concerns(r.sources[key.Board]) {
			continue
		}
		if r.users[key] == nil {
			r.users[key] = map[leaderboard.UserID]bool{}
		}
		if !r.users[key][i.result.User] {
			r.users[key][i.result.User] = true
			r.count++
		}
	}
	return nil
}
