package engine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

// # Profiles
//
// A profile is a row of one of the profileBuckets lists. Its key is the SHA-256 of the user's id,
// and its version is the revision. A removal or an erasure replaces the profile by a row with a
// revision only, so that later revisions are greater.
//
// PutProfiles writes the profile, and then reads the time of the user's erasure. Erase writes this
// time, and then reads the profile. So Erase finds the profile, or PutProfiles finds the erasure.
const (
	profileBuckets = 256
	maxCached      = 1 << 15 // profiles
	writeGroups    = 16
)

// A storedProfile is the value of a row.
type storedProfile struct {
	User        leaderboard.UserID `json:"user,omitempty"` // empty if deleted
	DisplayName string             `json:"name,omitempty"`
	AvatarURL   string             `json:"avatar,omitempty"`
	Country     string             `json:"country,omitempty"`
	Attributes  string             `json:"attributes,omitempty"` // JSON inside a text, so that it stays as it is
	UpdatedAt   time.Time          `json:"at"`
	Revision    int64              `json:"revision"`
}

func profileKey(user leaderboard.UserID) storage.RowKey {
	hash := sha256.Sum256([]byte(user))
	return storage.RowKey{List: profileList(int(hash[0])), Key: hash[:]}
}

func profileList(bucket int) string { return fmt.Sprintf("profiles/%02x", bucket) }

// A profileRow is a profile and its stored form, which is nil if no row is stored.
type profileRow struct {
	leaderboard.Profile
	value []byte
}

func newProfileRow(p leaderboard.Profile) (profileRow, error) {
	p.UpdatedAt = leaderboard.Truncate(p.UpdatedAt)
	if p.Deleted {
		p = leaderboard.Profile{User: p.User, UpdatedAt: p.UpdatedAt, Revision: p.Revision, Deleted: true}
	}
	stored := storedProfile{p.User, p.DisplayName, p.AvatarURL, p.Country, p.Attributes, p.UpdatedAt, p.Revision}
	if p.Deleted {
		stored.User = ""
	}
	value, err := json.Marshal(&stored)
	if err != nil {
		return profileRow{}, fmt.Errorf("engine: profile: %w", err)
	}
	return profileRow{p, value}, nil
}

// decodeProfile reads a row of the given user. If the user is empty, the row has the user.
func decodeProfile(user leaderboard.UserID, value []byte) (profileRow, error) {
	row := profileRow{leaderboard.Profile{User: user}, value}
	if value == nil {
		return row, nil
	}
	var stored storedProfile
	if err := decode("profile", value, &stored); err != nil {
		return row, err
	}
	row.Profile = leaderboard.Profile{
		User: cmp.Or(user, stored.User), DisplayName: stored.DisplayName, AvatarURL: stored.AvatarURL, Country: stored.Country, Attributes: stored.Attributes,
		UpdatedAt: stored.UpdatedAt, Revision: stored.Revision, Deleted: stored.User == "",
	}
	return row, nil
}

// beats reports whether r replaces the row old, as the store decides.
func (r *profileRow) beats(old *profileRow) bool {
	if r.Revision != old.Revision {
		return r.Revision > old.Revision
	}
	return bytes.Compare(r.value, old.value) > 0
}

func (s *Store) readProfiles(ctx context.Context, users []leaderboard.UserID) ([]profileRow, error) {
	keys := make([]storage.RowKey, len(users))
	for i, user := range users {
		keys[i] = profileKey(user)
	}
	readAt := time.Now()
	values, err := s.RowValues(ctx, keys...)
	if err != nil {
		return nil, err
	}
	rows := make([]profileRow, len(users))
	for i, value := range values {
		if rows[i], err = decodeProfile(users[i], value); err != nil {
			return nil, err
		}
		rows[i] = s.profiles.add(readAt, rows[i])
	}
	return rows, nil
}

// PutProfiles stores profiles of different users.
func (s *Store) PutProfiles(ctx context.Context, profiles []leaderboard.Profile) ([]leaderboard.ProfileChange, error) {
	users := make([]leaderboard.UserID, len(profiles))
	for i := range profiles {
		users[i] = profiles[i].User
	}
	changes, err := s.putProfiles(ctx, users, profiles)
	if err != nil {
		return nil, err
	}
	err = s.Environment().ForEach(ctx, len(profiles), func(ctx context.Context, i int) error {
		erasedAt, err := s.ErasedAt(ctx, users[i])
		if err != nil || erasedAt.IsZero() || profiles[i].UpdatedAt.After(erasedAt) {
			return err
		}
		changes[i].After = leaderboard.Profile{User: users[i]}
		return s.eraseProfile(ctx, users[i], erasedAt)
	})
	return changes, err
}

func (s *Store) putProfiles(ctx context.Context, users []leaderboard.UserID, profiles []leaderboard.Profile) ([]leaderboard.ProfileChange, error) {
	defer s.profiles.lock(users...)()
	states, err := s.readStates(ctx, users)
	if err != nil {
		return nil, err
	}
	var winners []profileRow
	var writes [writeGroups][]storage.RowWrite // groups have different lists
	changes := make([]leaderboard.ProfileChange, len(profiles))
	for i, p := range profiles {
		old := &states[i]
		changes[i].Before, changes[i].After = old.Profile, old.Profile
		if p.Revision == 0 {
			p.Revision = old.NextRevision(p.UpdatedAt)
		}
		row, err := newProfileRow(p)
		if err != nil {
			return nil, err
		}
		if row.beats(&old.profileRow) {
			group := &writes[profileKey(p.User).Key[0]%writeGroups]
			*group, winners, changes[i].After = append(*group, old.writesOf(&row)...), append(winners, row), row.Profile
		}
	}
	return changes, s.writeProfiles(ctx, writes[:], winners)
}

// writeProfiles makes groups of writes at the same time, and caches the written rows.
func (s *Store) writeProfiles(ctx context.Context, groups [][]storage.RowWrite, rows []profileRow) error {
	err := s.Environment().ForEach(ctx, len(groups), func(ctx context.Context, i int) error {
		if len(groups[i]) == 0 {
			return nil
		}
		return s.WriteRows(ctx, groups[i]...)
	})
	if err != nil {
		return err
	}
	writtenAt := time.Now()
	for i := range rows {
		s.profiles.add(writtenAt, rows[i])
	}
	return nil
}

// eraseProfile deletes the profile of a user who was erased, unless it is from after the erasure. It also
// removes the rows that an interrupted PutProfiles has left, so it writes even if there is no profile.
func (s *Store) eraseProfile(ctx context.Context, user leaderboard.UserID, erasedAt time.Time) error {
	defer s.profiles.lock(user)()
	states, err := s.readStates(ctx, []leaderboard.UserID{user})
	if err != nil {
		return err
	}
	state := &states[0]
	if state.UpdatedAt.After(erasedAt) || state.Deleted && state.UpdatedAt.Equal(erasedAt) && len(state.names) == 0 {
		return nil
	}
	row, err := newProfileRow(leaderboard.Profile{User: user, UpdatedAt: erasedAt, Revision: state.NextRevision(erasedAt), Deleted: true})
	if err != nil {
		return err
	}
	return s.writeProfiles(ctx, [][]storage.RowWrite{state.writesOf(&row)}, []profileRow{row})
}

// Profile returns the stored profile of a user.
func (s *Store) Profile(ctx context.Context, user leaderboard.UserID) (leaderboard.Profile, error) {
	rows, err := s.readProfiles(ctx, []leaderboard.UserID{user})
	if err != nil {
		return leaderboard.Profile{}, err
	}
	if !rows[0].Exists() {
		return leaderboard.Profile{}, fmt.Errorf("engine: user %q: %w", user, leaderboard.ErrProfileNotFound)
	}
	return rows[0].Profile, nil
}

// CachedProfiles returns profiles from the cache, and reads the others together.
func (s *Store) CachedProfiles(ctx context.Context, users []leaderboard.UserID) ([]leaderboard.Profile, error) {
	profiles := make([]leaderboard.Profile, len(users))
	var missing []leaderboard.UserID
	var indexes []int
	now := time.Now()
	for i, user := range users {
		var ok bool
		if profiles[i], ok = s.profiles.get(now, user); !ok {
			missing, indexes = append(missing, user), append(indexes, i)
		}
	}
	if len(missing) == 0 {
		return profiles, nil
	}
	rows, err := s.readProfiles(ctx, missing)
	for i := range rows {
		profiles[indexes[i]] = rows[i].Profile
	}
	return profiles, err
}

// AllProfiles yields every profile that exists.
func (s *Store) AllProfiles(ctx context.Context) iter.Seq2[leaderboard.Profile, error] {
	return func(yield func(leaderboard.Profile, error) bool) {
		for bucket := range profileBuckets {
			for stored, err := range s.Rows(ctx, profileList(bucket), nil) {
				if len(stored.Key) > sha256.Size { // a note
					continue
				}
				var row profileRow
				if err == nil {
					row, err = decodeProfile("", stored.Value)
				}
				if err == nil && row.Deleted {
					continue
				}
				if !yield(row.Profile, err) || err != nil {
					return
				}
			}
		}
	}
}

// A profileCache has the newest rows that this process has read or written.
type profileCache struct {
	mu      sync.Mutex
	rows    *lru.Cache[leaderboard.UserID, cachedProfile]
	writers [profileBuckets]sync.Mutex
}

// lock makes changes of one user follow each other. It takes the locks in ascending order.
func (c *profileCache) lock(users ...leaderboard.UserID) (unlock func()) {
	var buckets []byte
	for _, user := range users {
		buckets = append(buckets, profileKey(user).Key[0])
	}
	slices.Sort(buckets)
	buckets = slices.Compact(buckets)
	for _, b := range buckets {
		c.writers[b].Lock()
	}
	return func() {
		for _, b := range buckets {
			c.writers[b].Unlock()
		}
	}
}

type cachedProfile struct {
	profileRow
	at time.Time
}

func newProfileCache() *profileCache {
	rows, _ := lru.New[leaderboard.UserID, cachedProfile](maxCached) // New only fails if the size is below 1
	return &profileCache{rows: rows}
}

// add adds a row that was stored at a time, and returns the newest row of the user: a read that
// began before a write of this process may end after it.
func (c *profileCache) add(at time.Time, row profileRow) profileRow {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cached, ok := c.rows.Get(row.User); ok && cached.beats(&row) {
		return cached.profileRow
	}
	c.rows.Add(row.User, cachedProfile{row, at})
	return row
}

func (c *profileCache) get(now time.Time, user leaderboard.UserID) (leaderboard.Profile, bool) {
	cached, ok := c.rows.Get(user)
	return cached.Profile, ok && now.Sub(cached.at) < leaderboard.ProfileStaleness
}
