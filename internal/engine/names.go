package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/names"
	"github.com/open-leaderboard/leaderboard/storage"
)

// # Names
//
// The name and the id of each user with a profile are rows of one of the nameBuckets lists. A key has
// the folded text, a zero byte, the kind, and the user's id. So a bucket has its texts in order, and one
// range of keys has the texts that begin with a prefix.
//
// Beside the profile, its list has a note for each folded name with a row: the key of the profile, and
// the name. PutProfiles writes the note, the row of the name, and the profile, and then removes the rows
// and notes of other names. All have the profile's revision as version. So of concurrent calls, the rows
// of the greatest revision remain, in any order of their writes. A call that stops in between may leave
// the row of another name. Readers compare rows with the profile, and the next PutProfiles or Erase finds
// the row by its note. Calls of one process for one user follow each other, so a backend of one process may
// forget removed rows: their keys have names.
const (
	nameBuckets = 64
	nameOfUser  = 'n' // kinds
	idOfUser    = 'i'
	maxNotes    = 64 // of a user that one call reads
)

func nameList(bucket int) string { return fmt.Sprintf("names/%02x", bucket) }

// nameKey returns the key of the row of a folded text.
func nameKey(user leaderboard.UserID, kind byte, folded string) storage.RowKey {
	hash := sha256.Sum256([]byte(user))
	return storage.RowKey{List: nameList(int(hash[0]) % nameBuckets), Key: append(append([]byte(folded), 0, kind), user...)}
}

func noteKey(user leaderboard.UserID, folded string) storage.RowKey {
	key := profileKey(user)
	return storage.RowKey{List: key.List, Key: append(key.Key, folded...)}
}

// A profileState is the stored profile of a user, and the folded names with a note.
type profileState struct {
	profileRow
	names []string
}

// readStates reads profiles and notes from the store.
func (s *Store) readStates(ctx context.Context, users []leaderboard.UserID) ([]profileState, error) {
	ranges := make([]storage.RowRange, len(users))
	for i, user := range users {
		key := profileKey(user)
		ranges[i] = storage.RowRange{List: key.List, Prefix: key.Key, Limit: maxNotes}
	}
	read, err := s.RowRanges(ctx, ranges...)
	if err != nil {
		return nil, err
	}
	states := make([]profileState, len(users))
	for i, rows := range read {
		state := &states[i]
		state.profileRow = profileRow{Profile: leaderboard.Profile{User: users[i]}}
		for _, row := range rows {
			if name := row.Key[len(ranges[i].Prefix):]; len(name) > 0 {
				state.names = append(state.names, string(name))
			} else if state.profileRow, err = decodeProfile(users[i], row.Value); err != nil {
				return nil, err
			}
		}
	}
	return states, nil
}

// writesOf returns the writes that replace a state by a profile, in the order that Names describes.
func (st *profileState) writesOf(p *profileRow) []storage.RowWrite {
	var writes []storage.RowWrite
	write := func(key storage.RowKey, value []byte) {
		writes = append(writes, storage.RowWrite{List: key.List, Row: storage.Row{Key: key.Key, Value: value}, Version: p.Revision, Forget: true})
	}
	present := []byte{1}
	name := names.Index(p.DisplayName)
	if name != "" {
		write(noteKey(p.User, name), present)
		write(nameKey(p.User, nameOfUser, name), present)
	}
	id := nameKey(p.User, idOfUser, names.Index(string(p.User)))
	if !p.Deleted {
		write(id, present)
	}
	write(profileKey(p.User), p.value)
	if p.Deleted {
		write(id, nil)
	}
	for _, old := range st.names {
		if old != name {
			write(nameKey(p.User, nameOfUser, old), nil)
			write(noteKey(p.User, old), nil)
		}
	}
	return writes
}

// FindNames reads from each bucket at the same time. It returns the texts up to the first one that a
// bucket may lack, because the bucket has more rows than were read.
func (s *Store) FindNames(ctx context.Context, prefix, after string, n int) (found []leaderboard.NameMatch, more bool, err error) {
	ranges := make([]storage.RowRange, nameBuckets)
	for i := range ranges {
		ranges[i] = storage.RowRange{List: nameList(i), Prefix: []byte(prefix), After: []byte(after), Limit: max(n/(nameBuckets/2), 4)}
	}
	read, err := s.RowRanges(ctx, ranges...)
	if err != nil {
		return nil, false, err
	}
	var keys [][]byte
	var end []byte // the last key that the answer may have; nil for no bound
	for i, rows := range read {
		for _, row := range rows {
			keys = append(keys, row.Key)
		}
		if len(rows) == ranges[i].Limit {
			if last := rows[len(rows)-1].Key; end == nil || bytes.Compare(last, end) < 0 {
				end = last
			}
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	for _, key := range keys {
		if end != nil && bytes.Compare(key, end) > 0 {
			break
		}
		folded, rest, ok := bytes.Cut(key, []byte{0})
		if !ok || len(rest) < 2 {
			return nil, false, fmt.Errorf("engine: name: %w", leaderboard.ErrFormat)
		}
		found = append(found, leaderboard.NameMatch{User: leaderboard.UserID(rest[1:]), Folded: string(folded), IsID: rest[0] == idOfUser, Position: string(key)})
	}
	return found, end != nil, nil
}
