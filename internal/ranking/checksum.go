package ranking

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/open-leaderboard/leaderboard"
)

const (
	finalPage    = 1000
	maxChecksums = 10_000
)

type checksums struct {
	cached *lru.Cache[checksumKey, string]
	// turn holds a value while a checksum is computed. Checksums are computed one after
	// another, because each computation scans a season.
	turn chan struct{}
}

// checksumKey identifies the final standings of a season. Each amendment and erasure changes
// the key.
type checksumKey struct {
	leaderboard.SeasonKey
	createdAt, sealedAt, amendedAt int64 // microseconds
	amendments                     int
	total                          int64
}

func newChecksums() *checksums {
	cached, _ := lru.New[checksumKey, string](maxChecksums)
	return &checksums{cached: cached, turn: make(chan struct{}, 1)}
}

// Checksum returns the SHA-256, in hexadecimal digits, of the final standings of a season's
// overall ladder. The hash is over one line for each standing, in standing order, ended by a
// line feed. Tabs separate the fields: user id, score, tie-breakers joined by commas,
// the event time in RFC 3339 without trailing zeros (empty if the board orders equal users by their ids), and the status
// if entries on the board may have no rank. Errors: [leaderboard.ErrNotSealed].
func (r *Reader) Checksum(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID) (sum string, err error) {
	err = readConsistently(func() (bool, error) {
		key, err := r.checksumKey(ctx, b, season)
		if err != nil {
			return false, err
		}
		var ok bool
		if sum, ok = r.checksums.cached.Get(key); ok {
			return true, nil
		}
		select {
		case r.checksums.turn <- struct{}{}:
		case <-ctx.Done():
			return false, ctx.Err()
		}
		if sum, ok = r.checksums.cached.Get(key); ok {
			<-r.checksums.turn
			return true, nil
		}
		done := make(chan error, 1)
		// If the caller leaves, the computation continues: the next caller needs the result.
		r.tasks.running.Go(func() {
			defer func() { <-r.checksums.turn }()
			done <- r.cacheChecksum(r.tasks.ctx, b, key)
		})
		select {
		case err := <-done:
			sum, ok = r.checksums.cached.Get(key)
			return ok, err
		case <-ctx.Done():
			return false, ctx.Err()
		}
	})
	return sum, err
}

func (r *Reader) cacheChecksum(ctx context.Context, b *leaderboard.Board, key checksumKey) error {
	sum, err := r.hashStandings(ctx, b, key.SeasonKey)
	if err != nil {
		return err
	}
	after, err := r.checksumKey(ctx, b, key.Season)
	if err == nil && after == key {
		r.checksums.cached.Add(key, sum)
	}
	return err
}

func (r *Reader) checksumKey(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID) (checksumKey, error) {
	key := leaderboard.SeasonKey{Board: b.ID, Season: season}
	record, err := r.store.Season(ctx, key)
	if err != nil {
		return checksumKey{}, err
	}
	_, total, err := r.store.FinalStandings(ctx, leaderboard.Ladder{SeasonKey: key}, 1, 1)
	if err != nil {
		return checksumKey{}, err
	}
	k := checksumKey{SeasonKey: key, createdAt: b.CreatedAt.UnixMicro(), sealedAt: record.SealedAt.UnixMicro(), amendments: len(record.Amendments), total: total}
	if k.amendments > 0 {
		k.amendedAt = record.Amendments[k.amendments-1].At.UnixMicro()
	}
	return k, nil
}

func (r *Reader) hashStandings(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey) (string, error) {
	h := sha256.New()
	scoredAt := scoreTime(b, key.Season, r.now())
	err := eachFinalStanding(ctx, r.store, leaderboard.Ladder{SeasonKey: key}, func(st *leaderboard.Standing) error {
		writeStanding(h, b, st, scoredAt)
		return nil
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// eachFinalStanding calls f for each of the final standings of a ladder, in standing order.
func eachFinalStanding(ctx context.Context, store leaderboard.Store, l leaderboard.Ladder, f func(*leaderboard.Standing) error) error {
	for position := int64(1); ; {
		page, _, err := store.FinalStandings(ctx, l, position, finalPage)
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			if err := f(&page[i]); err != nil {
				return err
			}
		}
		position = page[len(page)-1].Ranks.Ordinal + 1
	}
}

// User ids are printable, so they contain neither tabs nor line feeds.
func writeStanding(h hash.Hash, b *leaderboard.Board, st *leaderboard.Standing, scoredAt time.Time) {
	line := append([]byte(st.User), '\t')
	line = append(strconv.AppendInt(line, int64(b.ScoreOf(st.Key, scoredAt)), 10), '\t')
	for i, tie := range b.TieBreakersOf(st.Key) {
		if i > 0 {
			line = append(line, ',')
		}
		line = strconv.AppendInt(line, tie, 10)
	}
	line = append(line, '\t')
	if at := b.AchievedAt(st.AchievedAt); !at.IsZero() {
		line = at.UTC().AppendFormat(line, time.RFC3339Nano)
	}
	if b.HasUnranked() {
		line = append(append(line, '\t'), b.FinishOf(st.Key).String()...)
	}
	h.Write(append(line, '\n'))
}

// SeasonInfo returns a season of a board, with its total. The id may be
// [leaderboard.SeasonLatest].
func (r *Reader) SeasonInfo(ctx context.Context, b *leaderboard.Board, id leaderboard.SeasonID) (SeasonInfo, error) {
	season, err := r.season(ctx, b, id)
	if err != nil {
		return SeasonInfo{}, err
	}
	record, err := r.store.Season(ctx, leaderboard.SeasonKey{Board: b.ID, Season: season.ID})
	if err != nil {
		return SeasonInfo{}, err
	}
	info := seasonInfo(b, season, &record, r.now())
	if info.ChangedAt, err = r.store.ChangedAt(ctx, record.SeasonKey); err != nil {
		return SeasonInfo{}, err
	}
	info.Total, info.AsOf, err = r.total(ctx, b, season.ID)
	return info, err
}
