package engine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

// # Why no index misses a ban
//
// Bans, erasures and deletions change ranks, but no log contains them. So SetBan and Erase
// first write a row for each region. DeleteSeason and DeleteBoard write such rows after they end
// an incarnation, and before they remove its data. A process in each region calls
// FinishRankChange, which repeats the change, updates the index and removes the row.
// FinishRankChange does the steps of a writer, so the argument in storage/cql/state.go holds in each region.
//
// The row of a ban or an erasure contains data that other lists and tables of a region may lack:
//
//   - The new row of the account (see account.go) may arrive after it.
//   - The user's list of seasons may arrive after it, or be removed by the erasure.
//
// If a process finds further seasons of the user, or completes an interrupted erasure in a
// season, it first writes a row with these seasons for the other regions.
//
// StartRecount writes rows for the other regions only. Each region recounts the users itself.
//
// The key of a row is a hash of its content, so a repeated write adds no row. It also
// restores no removed row: the removal has a greater version.

// A storedChange is the value of a row: a ban or erasures of User, the end of the incarnation after
// Ended deletions, or a change of the divisions of Board.
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

const (
	// changeBuckets is the number of lists of one region's changes. In four hours, after which
	// Cassandra forgets the removals, a list allows fewer than 100,000 of them.
	changeBuckets = 8

	changeAdded   = int64(1) // versions of rows
	changeRemoved = int64(2)

	maxAnnounced = 10_000
)

func changeList(region string, bucket int) string {
	return storage.Transient + "rank changes/" + strconv.Itoa(bucket) + "/" + region
}

func changeBucket(user leaderboard.UserID) int {
	return int(leaderboard.UserHash(user) % changeBuckets)
}

// regions returns nil if only one process uses the database.
func (s *Store) regions(ctx context.Context) ([]string, error) {
	if env := s.Environment(); env.Regions != nil {
		return env.Regions(ctx)
	}
	return nil, nil
}

type announcement struct{ region, id string }

// announce writes a row for each region, unless this process has already written it.
func (s *Store) announce(ctx context.Context, c *storedChange, regions []string) error {
	ordered := *c
	ordered.Erasures = slices.SortedFunc(slices.Values(c.Erasures), bytes.Compare)
	ordered.Seasons = slices.SortedFunc(slices.Values(c.Seasons), compareSeasonKeys)
	body, err := json.Marshal(&ordered)
	if err != nil {
		return fmt.Errorf("engine: encode a change: %w", err)
	}
	sum := sha256.Sum256(body)
	id := hex.EncodeToString(sum[:16])
	var writes []storage.RowWrite
	for _, region := range regions {
		if !s.announced.Contains(announcement{region, id}) {
			row := storage.Row{Key: []byte(id), Value: body}
			writes = append(writes, storage.RowWrite{List: changeList(region, changeBucket(c.User)), Row: row, Version: changeAdded})
		}
	}
	if len(writes) == 0 {
		return nil
	}
	if err := s.WriteAll(ctx, writes...); err != nil {
		return err
	}
	for _, region := range regions {
		s.announced.Add(announcement{region, id}, struct{}{})
	}
	return nil
}

func compareSeasonKeys(x, y leaderboard.SeasonKey) int {
	return cmp.Or(cmp.Compare(x.Board, y.Board), cmp.Compare(x.Season, y.Season))
}

func (s *Store) announceAccount(ctx context.Context, c *storedChange) error {
	regions, err := s.regions(ctx)
	if err != nil || regions == nil {
		return err
	}
	if c.Seasons, err = s.UserSeasons(ctx, c.User); err != nil {
		return err
	}
	return s.announce(ctx, c, regions)
}

func (s *Store) announceElsewhere(ctx context.Context, c *storedChange) error {
	regions, err := s.regions(ctx)
	if err != nil {
		return err
	}
	own := s.Environment().Region
	return s.announce(ctx, c, slices.DeleteFunc(slices.Clone(regions), func(name string) bool { return name == own }))
}

// addSeasons adds missing seasons of the user to c, and writes the new c for the other regions.
func (c *accountChange) addSeasons(ctx context.Context, ofUser []leaderboard.SeasonKey) ([]leaderboard.SeasonKey, error) {
	added := false
	for _, key := range ofUser {
		if !slices.Contains(c.Seasons, key) {
			c.Seasons, added = append(c.Seasons, key), true
		}
	}
	if added && (c.Ban != nil || c.Erasures != nil) {
		return c.Seasons, c.announceElsewhere(ctx, &c.storedChange)
	}
	return c.Seasons, nil
}

// RankChanges yields the changes that are stored for this region.
func (s *Store) RankChanges(ctx context.Context) iter.Seq2[leaderboard.RankChange, error] {
	return func(yield func(leaderboard.RankChange, error) bool) {
		for bucket := range changeBuckets {
			changes, err := s.changesIn(ctx, bucket)
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

func (s *Store) changesIn(ctx context.Context, bucket int) (changes []leaderboard.RankChange, err error) {
	for row, err := range s.Rows(ctx, changeList(s.Environment().Region, bucket), nil) {
		if err != nil {
			return changes, err
		}
		changes = append(changes, leaderboard.RankChange{ID: string(row.Key), Data: string(row.Value)})
	}
	return changes, nil
}

func decodeChange(c *leaderboard.RankChange) (stored storedChange, err error) {
	if c.Data != "" {
		err = decode("change of ranks", []byte(c.Data), &stored)
	}
	return stored, err
}

// FinishRankChange repeats a change, calls update, and removes the change. It also repeats the erasure
// of a profile, which another region may have written during the erasure.
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
	return s.WriteRows(ctx, storage.RowWrite{List: changeList(s.Environment().Region, changeBucket(stored.User)), Row: storage.Row{Key: []byte(c.ID)}, Version: changeRemoved, Forget: true})
}

func (s *Store) checkEnded(ctx context.Context, c *storedChange) error {
	for _, key := range c.Seasons {
		i, err := s.Incarnation(ctx, key, false)
		if err == nil && i.Deletions <= c.Ended {
			err = fmt.Errorf("engine: the deletion of season %q of board %q has not arrived in this region yet; try again: %w", key.Season, key.Board, leaderboard.ErrUnavailable)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// StartRecount makes the seasons of this region follow the divisions of b. Other regions repeat it.
func (s *Store) StartRecount(ctx context.Context, b *leaderboard.Board) ([]leaderboard.SeasonID, error) {
	if err := s.checkBoard(ctx, b); err != nil {
		return nil, err
	}
	if err := s.announceElsewhere(ctx, &storedChange{Board: b.ID, Made: b.CreatedAt.UnixMicro(), Rules: b.Rules()}); err != nil {
		return nil, err
	}
	return s.Backend.StartRecount(ctx, b)
}

// checkBoard returns [leaderboard.ErrBoardNotFound] if b was deleted, even if a new board has its id.
func (s *Store) checkBoard(ctx context.Context, b *leaderboard.Board) error {
	stored, err := s.Board(ctx, b.ID)
	if err == nil && !stored.CreatedAt.Equal(leaderboard.Truncate(b.CreatedAt)) {
		err = fmt.Errorf("engine: board %q: %w", b.ID, leaderboard.ErrBoardNotFound)
	}
	return err
}

// repeatStartRecount repeats a StartRecount of another region. Errors: [leaderboard.ErrUnavailable] if
// the changed board has not arrived.
func (s *Store) repeatStartRecount(ctx context.Context, c *storedChange) error {
	stored, err := s.Board(ctx, c.Board)
	made, rules := stored.CreatedAt.UnixMicro(), stored.Rules()
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		var deleted time.Time
		deleted, err = s.DeletedAt(ctx, leaderboard.SeasonKey{Board: c.Board})
		made, rules = deleted.UnixMicro(), c.Rules
	}
	if err == nil && (made < c.Made || made == c.Made && rules < c.Rules) {
		err = fmt.Errorf("engine: board %q: a change of its divisions has not arrived in this region yet; try again: %w", c.Board, leaderboard.ErrUnavailable)
	}
	if err != nil || made != c.Made {
		return err
	}
	_, err = s.Backend.StartRecount(ctx, &stored)
	return err
}

// repeatChange repeats a ban or erasures that another process has announced, and returns the user's entries.
func (s *Store) repeatChange(ctx context.Context, stored *storedChange) ([]leaderboard.Entry, error) {
	c := accountChange{Store: s, storedChange: *stored, erases: stored.Erasures != nil, repeated: true}
	if err := c.repeat(ctx); err != nil {
		return nil, err
	}
	changes, err := c.run(ctx)
	if err != nil {
		return nil, err
	}
	if c.erases {
		// EraseMarks may also remove marks that are newer than the erasure. The caller of
		// FinishRankChange writes marks again, for each season whose final standings
		// disagree with an entry.
		if err := s.EraseMarks(ctx, c.User); err != nil {
			return nil, err
		}
	}
	if !c.acc.ErasedAt.IsZero() {
		if err := s.eraseProfile(ctx, c.User, c.acc.ErasedAt); err != nil {
			return nil, err
		}
	}
	entries := make([]leaderboard.Entry, len(c.Seasons))
	return entries, s.Environment().ForEach(ctx, len(entries), func(ctx context.Context, i int) (err error) {
		key := c.Seasons[i]
		if n := slices.IndexFunc(changes, func(change leaderboard.Change) bool { return change.After.SeasonKey == key }); n >= 0 {
			entries[i] = changes[n].After
			return nil
		}
		// The user has no data in the season, or data from after a later erasure. A stored
		// entry with a smaller version than the base is from before an erasure.
		entries[i], err = s.Entry(ctx, key, c.User)
		if errors.Is(err, leaderboard.ErrEntryNotFound) || err == nil && entries[i].Version < c.acc.Base {
			entries[i], err = leaderboard.Entry{SeasonKey: key, User: c.User, Version: c.acc.Version()}, nil
		}
		return err
	})
}

// repeat adds the writes of an announced change. The serial depends on all states of a ban, so
// repeat adds a state even if a greater one stands. It ignores a state of an earlier epoch.
func (c *accountChange) repeat(ctx context.Context) error {
	for _, value := range c.Erasures {
		e, err := decodeErasure(value)
		if err != nil {
			return err
		}
		c.at = e.at
		c.add(newElement(erasureKind, value))
	}
	if c.Ban == nil {
		return nil
	}
	epoch, ban, err := decodeBanElement(c.Ban)
	if err != nil {
		return err
	}
	acc, err := c.account(ctx, hashOf(c.User))
	if err == nil && acc.Epoch <= epoch {
		c.setBan(&acc, &ban, newElement(banKind, c.Ban))
	}
	return err
}
