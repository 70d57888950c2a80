package cql

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
)

// # Why no index misses a ban
//
// Bans, erasures and deletions change ranks, but no log contains them. So SetBan and Erase
// first write a row of table rank_changes for each data center. DeleteSeason and
// DeleteBoard write such rows after they end an incarnation, and before they remove its
// data. A process in each data center calls FinishRankChange, which repeats the change,
// updates the index and removes the row. FinishRankChange does the steps of a writer, so
// the argument in state.go holds in each data center.
//
// The row of a ban or an erasure contains data that other tables of a data center may lack:
//
//   - The new element of the account (see account.go) may arrive after the row.
//   - The user's list of seasons may arrive after the row, or be removed by the erasure.
//
// If a process finds further seasons of the user, or completes an interrupted erasure in a
// season, it first writes a row with these seasons for the other data centers.
//
// StartRecount writes rows for the other data centers only. Each data center recounts the
// users itself.
//
// The id of a row is a hash of its content, so a repeated write adds no row. It also
// restores no removed row: the removal has a greater timestamp.

// A storedChange is a row of table rank_changes: a ban or erasures of User, the end of the
// incarnation with number Ended, or a change of the divisions of Board.
type storedChange struct {
	User     leaderboard.UserID      `json:"user,omitempty"`
	Ban      []byte                  `json:"ban,omitempty"`
	Erasures [][]byte                `json:"erasures,omitempty"`
	Seasons  []leaderboard.SeasonKey `json:"seasons,omitempty"`
	Ended    int                     `json:"ended,omitempty"`
	Board    leaderboard.BoardID     `json:"board,omitempty"`
	Made     int64                   `json:"made,omitempty"`  // CreatedAt of Board in Unix microseconds
	Rules    int                     `json:"rules,omitempty"` // of Board, after the change
}

// changeBuckets is the number of partitions of one data center's changes. In
// gc_grace_seconds (4 h), a partition allows fewer than 100,000 removals: Cassandra rejects
// a read of 100,000 tombstones.
const changeBuckets = 8

func replicatedTo(gs *gocql.Session, keyspace string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		var replication map[string]string
		err := gs.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", keyspace).WithContext(ctx).Scan(&replication)
		delete(replication, "class")
		return slices.Sorted(maps.Keys(replication)), wrapError(ctx, "read", err)
	}
}

// announce writes a row for each data center, unless this store has already written it.
func (s *Store) announce(ctx context.Context, c *storedChange, dataCenters []string) error {
	ordered := *c
	ordered.Erasures = slices.SortedFunc(slices.Values(c.Erasures), bytes.Compare)
	ordered.Seasons = slices.SortedFunc(slices.Values(c.Seasons), compareSeasonKeys)
	body, err := json.Marshal(&ordered)
	if err != nil {
		return fmt.Errorf("cql: encode a change: %w", err)
	}
	sum := sha256.Sum256(body)
	id := hex.EncodeToString(sum[:16])
	return s.forEach(ctx, len(dataCenters), func(ctx context.Context, i int) error {
		key := announcement{dataCenters[i], id}
		if s.announced.Contains(key) {
			return nil
		}
		err := s.conn.write(ctx, op{insertRankChange, []any{dataCenters[i], bucketOf(c.User, changeBuckets), id, body}})
		if err == nil {
			s.announced.Add(key, struct{}{})
		}
		return err
	})
}

type announcement struct{ dataCenter, id string }

const maxAnnounced = 10_000

func (s *Store) announceAccount(ctx context.Context, c *storedChange) (err error) {
	if c.Seasons, err = s.UserSeasons(ctx, c.User); err != nil {
		return err
	}
	dataCenters, err := s.dataCenters(ctx)
	if err != nil {
		return err
	}
	return s.announce(ctx, c, dataCenters)
}

func (s *Store) announceElsewhere(ctx context.Context, c *storedChange) error {
	dataCenters, err := s.dataCenters(ctx)
	if err != nil {
		return err
	}
	return s.announce(ctx, c, slices.DeleteFunc(dataCenters, func(name string) bool { return name == s.dc }))
}

func (s *Store) announceEnd(ctx context.Context, key leaderboard.SeasonKey, inc incarnation) error {
	dataCenters, err := s.dataCenters(ctx)
	if err != nil {
		return err
	}
	return s.announce(ctx, &storedChange{Seasons: []leaderboard.SeasonKey{key}, Ended: inc.number}, dataCenters)
}

// RankChanges yields the changes that are stored for this data center.
func (s *Store) RankChanges(ctx context.Context) iter.Seq2[leaderboard.RankChange, error] {
	return func(yield func(leaderboard.RankChange, error) bool) {
		for bucket := range changeBuckets {
			var id string
			var body []byte
			changes, err := gather(ctx, s.conn, op{selectRankChanges, []any{s.dc, bucket}}, []any{&id, &body}, func() (leaderboard.RankChange, error) {
				return leaderboard.RankChange{ID: id, Data: string(take(&body))}, nil
			})
			for i := range changes {
				c := &changes[i]
				stored, err := decodeChange(c)
				c.User, c.Seasons, c.Board = stored.User, stored.Seasons, stored.Board
				if !yield(*c, err) {
					return
				}
			}
			if err != nil && !yield(leaderboard.RankChange{}, err) {
				return
			}
		}
	}
}

func decodeChange(c *leaderboard.RankChange) (storedChange, error) {
	var stored storedChange
	if c.Data == "" {
		return stored, nil
	}
	if err := json.Unmarshal([]byte(c.Data), &stored); err != nil {
		return stored, fmt.Errorf("cql: change of ranks: %w: %w", leaderboard.ErrFormat, err)
	}
	return stored, nil
}

// FinishRankChange repeats a change, calls update, and removes the change.
func (s *Store) FinishRankChange(ctx context.Context, c leaderboard.RankChange, update func([]leaderboard.Entry) error) error {
	stored, err := decodeChange(&c)
	if err != nil {
		return err
	}
	var entries []leaderboard.Entry
	switch {
	case stored.User != "":
		entries, err = s.repeatChange(ctx, &stored)
	case stored.Board != "":
		err = s.repeatStartRecount(ctx, &stored)
	default:
		err = s.checkEnded(ctx, &stored)
	}
	if err != nil {
		return err
	}
	if err := update(entries); err != nil {
		return err
	}
	return s.conn.write(ctx, op{deleteRankChange, []any{s.dc, bucketOf(stored.User, changeBuckets), c.ID}})
}

func (s *Store) checkEnded(ctx context.Context, c *storedChange) error {
	for _, key := range c.Seasons {
		inc, err := s.incarnations.readAgain(ctx, key)
		if err == nil && inc.number <= c.Ended {
			err = fmt.Errorf("cql: the deletion of season %q of board %q has not arrived in this data center yet; try again: %w", key.Season, key.Board, leaderboard.ErrUnavailable)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// repeatStartRecount raises the rules of a board's seasons after another data center has
// changed the divisions. Errors: [leaderboard.ErrUnavailable] if the changed board has not
// arrived.
func (s *Store) repeatStartRecount(ctx context.Context, c *storedChange) error {
	stored, err := s.readBoard(ctx, c.Board)
	made, rules := stored.board.CreatedAt.UnixMicro(), stored.board.Rules()
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		var deleted time.Time
		deleted, err = s.deletedAt(ctx, leaderboard.SeasonKey{Board: c.Board})
		made, rules = deleted.UnixMicro(), c.Rules
	}
	if err == nil && (made < c.Made || made == c.Made && rules < c.Rules) {
		err = fmt.Errorf("cql: board %q: a change of its divisions has not arrived in this data center yet; try again: %w", c.Board, leaderboard.ErrUnavailable)
	}
	if err != nil || made != c.Made {
		return err
	}
	_, err = s.raiseAllRules(ctx, &stored.board)
	return err
}

func (s *Store) repeatChange(ctx context.Context, c *storedChange) ([]leaderboard.Entry, error) {
	unlock, err := s.lock(ctx, c.User)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var acc userAccount
	if c.Ban != nil {
		acc, err = s.repeatBan(ctx, c.User, c.Ban)
	} else {
		acc, err = s.addErasures(ctx, c.User, c.Erasures)
	}
	if err != nil {
		return nil, err
	}
	if c.Erasures != nil {
		// EraseMarks may also remove marks that are newer than the erasure. The caller of
		// FinishRankChange writes marks again, for each season whose final standings
		// disagree with an entry.
		if err := errors.Join(s.finals.EraseMarks(ctx, c.User), s.eraseRecent(ctx, c.User, &acc.account)); err != nil {
			return nil, err
		}
	}
	keys, err := s.seasonsOf(ctx, c)
	if err != nil {
		return nil, err
	}
	entries := make([]leaderboard.Entry, len(keys))
	err = s.forEach(ctx, len(keys), func(ctx context.Context, i int) error {
		change, err := s.updateSeason(ctx, &keys[i], &leaderboard.Ban{User: c.User}, &acc, c.Erasures != nil)
		entries[i] = change.After
		if err != nil || change.After.User != "" {
			return err
		}
		// The user has no data in the season, or data from after a later erasure. A stored
		// entry with a smaller version than the account is from before an erasure.
		entries[i], err = s.Entry(ctx, keys[i].SeasonKey, c.User)
		if errors.Is(err, leaderboard.ErrEntryNotFound) || err == nil && entries[i].Version < acc.version() {
			entries[i], err = leaderboard.Entry{SeasonKey: keys[i].SeasonKey, User: c.User, Version: acc.version()}, nil
		}
		return err
	})
	return entries, err
}

// seasonsOf returns the seasons of c and of the user. It adds missing seasons of the user
// to c, and writes the new c for the other data centers.
func (s *Store) seasonsOf(ctx context.Context, c *storedChange) ([]userKey, error) {
	keys, err := s.userSeasons(ctx, c.User)
	if err != nil {
		return nil, err
	}
	added := false
	for i := range keys {
		if !slices.Contains(c.Seasons, keys[i].SeasonKey) {
			c.Seasons, added = append(c.Seasons, keys[i].SeasonKey), true
		}
	}
	if added && (c.Ban != nil || c.Erasures != nil) {
		if err := s.announceElsewhere(ctx, c); err != nil {
			return nil, err
		}
	}
	for _, season := range c.Seasons {
		if slices.ContainsFunc(keys, func(k userKey) bool { return k.SeasonKey == season }) {
			continue
		}
		inc, err := s.incarnations.readAgain(ctx, season)
		if err != nil {
			return nil, err
		}
		keys = append(keys, userKey{season, inc.number, c.User})
	}
	return keys, nil
}
