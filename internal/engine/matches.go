package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

// # Why no result misses a void
//
// The Voids of a result are a part of the user's state. So it remains to show that each result gets
// the Voids of its match (see [leaderboard.MatchState]). On a board with Matches, the writer W of a
// result:
//
//  1. Applies the result, with the Voids of its match ([storage.Matches]).
//  2. Adds the user to the match.
//  3. Reads the Voids of the match again. If the match was ever voided, W applies a VoidOnly result.
//
// The writer V of a void or a restoration:
//
//  1. Writes the state of the match (SetMatch).
//  2. Reads the users of the match (MatchUsers).
//  3. Applies a VoidOnly result for each of these users.
//
// Each step begins after the previous one is durable, in Cassandra on a quorum. There are two cases:
//
//   - Step 3 of W reads the state that V wrote: W applies the Voids.
//   - Step 3 of W began before step 1 of V ended. So steps 1 and 2 of W ended before steps 2
//     and 3 of V began: V reads the user, and finds the result.
//
// If W dies, the sender sends the result again. Before the repetition, the result may count
// although its match is void. If V dies, Applied of the match is less than Voids, so another
// process repeats the steps of V.
//
// Each region has a writer W of each result, and a writer V. V repeats the steps until the region's
// Applied equals Voids. So the argument holds for each region alone. V also updates the index there.
//
// # Why no erased user stays in a match
//
// The version of a user's row in a match is that of the user's entry after step 1 of W. An erasure begins a
// greater base of versions (see account.go), and then removes the user from the matches of the user's results
// at this base. A backend applies no result of before the erasure after it has read these results. So the
// removal prevails over each row of such a result, even if W does step 2 later.

// The lists of an incarnation's matches.
const (
	matchIDLists   = 16
	matchUserLists = 256
	listsOfMatch   = 16 // the lists that have users of one match
)

const (
	maxMatchIDs = 1 << 16
	pageOfMatch = 256
	// maxTries bounds the attempts of a call. An attempt fails if the season is deleted meanwhile.
	maxTries = 8
)

// The list has the state of each match that was voided, with Voids as version. The key is the match id. After the
// id and a zero byte, a key has the name of a region: this row has the region's Applied, which is also the version.
func matchStates(i *storage.Incarnation) string { return "match states/" + i.ID }

func matchIDList(i *storage.Incarnation, n uint64) string {
	return "match ids/" + strconv.FormatUint(n, 10) + "/" + i.ID
}

func matchUserList(i *storage.Incarnation, n uint64) string {
	return "match users/" + strconv.FormatUint(n, 10) + "/" + i.ID
}

// RowRanges needs a prefix, so all keys of a matchIDList begin with this byte.
const matchIDKey = 'm'

// hashOfMatch distributes matches over lists.
func hashOfMatch(id leaderboard.MatchID) uint64 { return leaderboard.UserHash(leaderboard.UserID(id)) }

// userOfMatch returns the list and the key of a user in a match. The key remains after an erasure, so it has a hash of
// the user's id. The value is the user's id.
func userOfMatch(i *storage.Incarnation, match leaderboard.MatchID, user leaderboard.UserID) (list string, key []byte) {
	return listOfMatch(i, match, leaderboard.UserHash(user)), append(usersPrefix(match), hashOf(user)[:16]...)
}

func listOfMatch(i *storage.Incarnation, match leaderboard.MatchID, userHash uint64) string {
	return matchUserList(i, (hashOfMatch(match)+userHash%listsOfMatch)%matchUserLists)
}

func usersPrefix(match leaderboard.MatchID) []byte { return append([]byte(match), 0) }

// Apply does the steps of a writer W.
func (s *Store) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	report, hasMatches, err := s.Backend.Apply(ctx, b, results)
	if err != nil || !hasMatches {
		return report, err
	}
	bySeason := map[leaderboard.SeasonKey][]int{}
	for n := range results {
		if o := &report.Outcomes[n]; o.Err == nil && o.Status != leaderboard.Rejected && !results[n].VoidOnly {
			bySeason[results[n].SeasonKey] = append(bySeason[results[n].SeasonKey], n)
		}
	}
	failed := 0
	for key, indexes := range bySeason {
		if err = s.addToMatches(context.WithoutCancel(ctx), b, key, results, indexes, &report); err != nil {
			for _, n := range indexes {
				report.Outcomes[n] = leaderboard.Outcome{Err: err}
			}
			failed += len(indexes)
		}
	}
	if failed > 0 && failed == len(results) {
		return leaderboard.ApplyReport{}, err
	}
	return report, nil
}

// addToMatches does steps 2 and 3 of W for results of one season. If the season has been deleted since step 1, the
// results have too.
func (s *Store) addToMatches(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey,
	results []leaderboard.MatchResult, indexes []int, report *leaderboard.ApplyReport,
) error {
	i, err := s.Incarnation(ctx, key, true)
	if err != nil || !i.Open {
		return err
	}
	var ids []leaderboard.MatchID
	l := listing{}
	for _, n := range indexes {
		s.addToMatch(l, &i, results[n].Match, results[n].User, report.Outcomes[n].Entry.Version)
		ids = append(ids, results[n].Match)
	}
	if err := s.writeListing(ctx, l); err != nil {
		return err
	}
	voids, err := matches{s}.Voids(ctx, &i, ids)
	if err != nil || len(voids) == 0 {
		return err
	}
	var again []leaderboard.MatchResult
	for _, n := range indexes {
		if voids[results[n].Match] > 0 {
			again = append(again, leaderboard.MatchResult{ResultKey: results[n].ResultKey, VoidOnly: true})
		}
	}
	second, _, err := s.Backend.Apply(ctx, b, again)
	for n := range second.Outcomes {
		err = errors.Join(err, second.Outcomes[n].Err)
	}
	for _, c := range second.Changes {
		for _, n := range indexes {
			if results[n].User == c.After.User {
				report.Outcomes[n].Entry = c.After
			}
		}
		isSame := func(o leaderboard.Change) bool { return o.After.SeasonKey == key && o.After.User == c.After.User }
		if n := slices.IndexFunc(report.Changes, isSame); n >= 0 {
			report.Changes[n].After = c.After
		} else {
			report.Changes = append(report.Changes, c)
		}
	}
	return err
}

// A listing has rows to write, by list and key.
type listing map[string]storage.RowWrite

func (l listing) put(list string, key, value []byte, version uint64) {
	l[list+"\n"+string(key)] = storage.RowWrite{List: list, Row: storage.Row{Key: key, Value: value}, Version: int64(version)}
}

func (s *Store) addToMatch(l listing, i *storage.Incarnation, match leaderboard.MatchID, user leaderboard.UserID, version uint64) {
	s.addMatchID(l, i, match)
	list, key := userOfMatch(i, match, user)
	l.put(list, key, []byte(user), version)
}

// addMatchID adds nothing if this process has written the row before: only the end of the incarnation removes it.
func (s *Store) addMatchID(l listing, i *storage.Incarnation, match leaderboard.MatchID) {
	list, key := matchIDList(i, hashOfMatch(match)%matchIDLists), append([]byte{matchIDKey}, match...)
	if !s.matchIDs.Contains(list + "\n" + string(key)) {
		l.put(list, key, []byte{1}, 1)
	}
}

func (s *Store) writeListing(ctx context.Context, l listing) error {
	if err := s.WriteAll(ctx, slices.Collect(maps.Values(l))...); err != nil {
		return err
	}
	for id, w := range l {
		if w.Key[0] == matchIDKey && strings.HasPrefix(w.List, "match ids/") {
			s.matchIDs.Add(id, struct{}{})
		}
	}
	return nil
}

// ListMatches adds the user's results to the lists of matches.
func (s *Store) ListMatches(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) error {
	if err := s.checkBoard(ctx, b); err != nil {
		return err
	}
	key := leaderboard.SeasonKey{Board: b.ID, Season: season}
	i, err := s.Incarnation(ctx, key, false)
	if err == nil && i.Of(b) {
		i, err = s.OpenIncarnation(ctx, b, season)
	}
	if err != nil || !i.Of(b) {
		return err
	}
	// Read the version before the results: results that an erasure removes meanwhile must not get a version of after
	// the erasure.
	e, err := s.Entry(ctx, key, user)
	if errors.Is(err, leaderboard.ErrEntryNotFound) { // only a recount returns the version of an entry without results
		var change leaderboard.Change
		change, err = s.Recount(ctx, b, season, user)
		e = change.After
	}
	if err != nil {
		return err
	}
	l := listing{}
	for r, err := range s.Results(ctx, key, user) {
		if err != nil {
			return err
		}
		s.addToMatch(l, &i, r.Match, user, e.Version)
	}
	return s.writeListing(ctx, l)
}

// matches implements [storage.Matches].
type matches struct{ *Store }

// Unlist implements [storage.Matches].
func (matches) Unlist(i *storage.Incarnation, user leaderboard.UserID, ids []leaderboard.MatchID, acc *storage.Account) []storage.RowWrite {
	var writes []storage.RowWrite
	for _, match := range ids {
		list, key := userOfMatch(i, match, user)
		writes = append(writes, storage.RowWrite{List: list, Row: storage.Row{Key: key}, Version: int64(acc.Base)})
	}
	return writes
}

// Voids implements [storage.Matches].
func (s matches) Voids(ctx context.Context, i *storage.Incarnation, all []leaderboard.MatchID) (map[leaderboard.MatchID]int64, error) {
	voids := map[leaderboard.MatchID]int64{}
	const chunk = 100
	for ids := range slices.Chunk(all, chunk) {
		keys := make([]storage.RowKey, len(ids))
		for n, id := range ids {
			keys[n] = storage.RowKey{List: matchStates(i), Key: []byte(id)}
		}
		values, err := s.RowValues(ctx, keys...)
		if err != nil {
			return nil, err
		}
		for n, value := range values {
			var m leaderboard.MatchState
			if err := decodeMatchState(&m, value); err != nil {
				return nil, err
			}
			if m.Voids > 0 {
				voids[ids[n]] = m.Voids
			}
		}
	}
	return voids, nil
}

// SetMatch merges m into the stored state. A deletion writes its time before it ends the incarnation. So if
// the incarnation has ended, SetMatch finds the time.
func (s *Store) SetMatch(ctx context.Context, b *leaderboard.Board, m leaderboard.MatchState) (leaderboard.MatchState, error) {
	m.At = leaderboard.Truncate(m.At)
	for range maxTries {
		i, err := s.Incarnation(ctx, m.SeasonKey, true)
		if err == nil && !i.Of(b) {
			var deleted bool
			// The deletion of the season also deletes m, so m must not open the season.
			if deleted, err = s.isDeleted(ctx, &m); err == nil && deleted {
				return leaderboard.MatchState{MatchKey: m.MatchKey}, s.checkBoard(ctx, b)
			}
		}
		if err == nil {
			i, err = s.OpenIncarnation(ctx, b, m.Season)
		}
		if err == nil {
			err = s.writeMatch(ctx, &i, &m)
		}
		if err != nil {
			return leaderboard.MatchState{}, err
		}
		stored, err := s.matchState(ctx, &i, m.Match)
		if err != nil {
			return leaderboard.MatchState{}, err
		}
		if current, err := s.Incarnation(ctx, m.SeasonKey, false); err != nil || current.Open && current.ID == i.ID {
			return stored, err
		}
	}
	return leaderboard.MatchState{}, fmt.Errorf("engine: match %q: in each of %d attempts, the season was deleted; repeat the call: %w",
		m.Match, maxTries, leaderboard.ErrUnavailable)
}

func (s *Store) isDeleted(ctx context.Context, m *leaderboard.MatchState) (bool, error) {
	at, err := s.DeletedAt(ctx, m.SeasonKey)
	return m.DeletedBy(at), err
}

// writeMatch writes m, unless the last deletion before the incarnation also deletes m.
func (s *Store) writeMatch(ctx context.Context, i *storage.Incarnation, m *leaderboard.MatchState) error {
	if deleted, err := s.isDeleted(ctx, m); deleted || err != nil {
		return err
	}
	l := listing{}
	s.addMatchID(l, i, m.Match)
	l.put(matchStates(i), []byte(m.Match), appendMatchState(nil, m), uint64(m.Voids))
	if m.Applied > 0 {
		l.put(matchStates(i), s.appliedKey(m.Match), strconv.AppendInt(nil, m.Applied, 10), uint64(m.Applied))
	}
	return s.writeListing(ctx, l)
}

func (s *Store) appliedKey(match leaderboard.MatchID) []byte {
	return append(usersPrefix(match), s.Environment().Region...)
}

// Match returns the state of a match.
func (s *Store) Match(ctx context.Context, key leaderboard.MatchKey) (leaderboard.MatchState, error) {
	i, err := s.Incarnation(ctx, key.SeasonKey, false)
	if err != nil || !i.Open {
		return leaderboard.MatchState{MatchKey: key}, err
	}
	return s.matchState(ctx, &i, key.Match)
}

func (s *Store) matchState(ctx context.Context, i *storage.Incarnation, match leaderboard.MatchID) (leaderboard.MatchState, error) {
	m := leaderboard.MatchState{MatchKey: leaderboard.MatchKey{SeasonKey: i.SeasonKey, Match: match}}
	list := matchStates(i)
	values, err := s.RowValues(ctx, storage.RowKey{List: list, Key: []byte(match)}, storage.RowKey{List: list, Key: s.appliedKey(match)})
	if err == nil {
		err = decodeMatchState(&m, values[0])
	}
	if err == nil && values[1] != nil {
		err = decode("state of a match", values[1], &m.Applied)
	}
	return m, err
}

// Matches yields the states of a season.
func (s *Store) Matches(ctx context.Context, key leaderboard.SeasonKey) iter.Seq2[leaderboard.MatchState, error] {
	return func(yield func(leaderboard.MatchState, error) bool) {
		i, err := s.Incarnation(ctx, key, false)
		var states []leaderboard.MatchState
		if err == nil && i.Open {
			states, err = s.matchesOf(ctx, &i)
		}
		for n := range states {
			if !yield(states[n], nil) {
				return
			}
		}
		if err != nil {
			yield(leaderboard.MatchState{}, err)
		}
	}
}

// matchesOf returns all states: the caller may write states while it works.
func (s *Store) matchesOf(ctx context.Context, i *storage.Incarnation) (states []leaderboard.MatchState, err error) {
	region := s.Environment().Region
	for row, err := range s.Rows(ctx, matchStates(i), nil) {
		if err != nil {
			return nil, err
		}
		id, of, isApplied := strings.Cut(string(row.Key), "\x00")
		m := leaderboard.MatchState{MatchKey: leaderboard.MatchKey{SeasonKey: i.SeasonKey, Match: leaderboard.MatchID(id)}}
		if last := len(states) - 1; !isApplied {
			err = decodeMatchState(&m, row.Value)
			states = append(states, m)
		} else if of == region && last >= 0 && states[last].Match == m.Match {
			err = decode("state of a match", row.Value, &states[last].Applied)
		}
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}

// MatchUsers yields the users of a match.
func (s *Store) MatchUsers(ctx context.Context, key leaderboard.MatchKey) iter.Seq2[leaderboard.UserID, error] {
	return func(yield func(leaderboard.UserID, error) bool) {
		i, err := s.Incarnation(ctx, key.SeasonKey, false)
		if err != nil {
			yield("", err)
			return
		}
		var lists []string
		for n := range uint64(listsOfMatch) {
			if i.Open {
				lists = append(lists, listOfMatch(&i, key.Match, n))
			}
		}
		for row, err := range s.ListRows(ctx, lists, usersPrefix(key.Match)) {
			if !yield(leaderboard.UserID(row.Value), err) {
				return
			}
		}
	}
}

// MatchIDs reads a page of each list, and yields the ids up to the last id of the page that ends
// first.
func (s *Store) MatchIDs(ctx context.Context, k leaderboard.SeasonKey, prefix, after leaderboard.MatchID) iter.Seq2[leaderboard.MatchID, error] {
	return func(yield func(leaderboard.MatchID, error) bool) {
		i, err := s.Incarnation(ctx, k, false)
		ranges := make([]storage.RowRange, matchIDLists)
		for n := range ranges {
			list := matchIDList(&i, uint64(n))
			ranges[n] = storage.RowRange{List: list, Prefix: append([]byte{matchIDKey}, prefix...), Limit: pageOfMatch}
		}
		for err == nil && i.Open {
			for n := range ranges {
				ranges[n].After = append([]byte{matchIDKey}, after...)
			}
			var pages [][]storage.Row
			if pages, err = s.RowRanges(ctx, ranges...); err != nil {
				break
			}
			var ids []leaderboard.MatchID
			var last leaderboard.MatchID // "" if the pages have all ids
			for _, page := range pages {
				for _, row := range page {
					ids = append(ids, leaderboard.MatchID(row.Key[1:]))
				}
				if len(page) == pageOfMatch && (last == "" || ids[len(ids)-1] < last) {
					last = ids[len(ids)-1]
				}
			}
			slices.Sort(ids)
			for _, id := range ids {
				if last != "" && id > last {
					break
				}
				if !yield(id, nil) {
					return
				}
			}
			if last == "" {
				return
			}
			after = last
		}
		if err != nil {
			yield("", err)
		}
	}
}

// remove removes the matches of an ended incarnation. It removes the lists that it reads last, because a repeated
// call must find them.
func (s matches) remove(ctx context.Context, i *storage.Incarnation) error {
	lists := []string{matchStates(i)}
	for n := range uint64(matchIDLists) {
		lists = append(lists, matchIDList(i, n))
	}
	for _, err := range s.ListRows(ctx, lists, nil) {
		var userLists []string
		for n := range uint64(matchUserLists) {
			userLists = append(userLists, matchUserList(i, n))
		}
		if err == nil {
			err = s.RemoveRows(ctx, storage.Last, userLists...)
		}
		if err == nil {
			err = s.RemoveRows(ctx, storage.Last, lists...)
		}
		return err
	}
	return nil
}

// appendMatchState appends m without Applied. Of two states with equal Voids, the greater one by
// [leaderboard.MatchState.Compare] has the greater bytes.
func appendMatchState(dst []byte, m *leaderboard.MatchState) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, elementFormat), uint64(m.Voids))
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.At.UnixMicro())^1<<63)
	return append(append(append(dst, m.Actor...), 0), m.Reason...)
}

// decodeMatchState leaves m unchanged if b is nil.
func decodeMatchState(m *leaderboard.MatchState, b []byte) error {
	const headBytes = 1 + 8 + 8
	if b == nil {
		return nil
	}
	actor, reason, ok := strings.Cut(string(b[min(headBytes, len(b)):]), "\x00")
	if !ok || b[0] != elementFormat {
		return fmt.Errorf("engine: state of match %q: %w", m.Match, leaderboard.ErrFormat)
	}
	m.Voids = int64(binary.BigEndian.Uint64(b[1:]))
	m.At = time.UnixMicro(int64(binary.BigEndian.Uint64(b[9:]) ^ 1<<63)).UTC()
	m.Actor, m.Reason = actor, reason
	return nil
}
