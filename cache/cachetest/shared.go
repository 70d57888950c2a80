package cachetest

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Shared imitates a rank index that several processes share, for tests of its callers. Each [Process]
// follows the rules of cache/redis/doubt.go. Fail replaces the server of the index by a replica that may
// lack the last writes. The former server still answers processes that have not noticed the change.
type Shared struct {
	open     func() leaderboard.Index
	mu       sync.Mutex
	present  *server
	failures int
	rebuilds int
	kept     int // the number of first writes that every replica has
}

// NewShared returns an empty index. open returns an empty index of one process, which answers reads.
func NewShared(open func() leaderboard.Index) *Shared {
	return &Shared{open: open, present: newServer(0)}
}

// server records its writes, so that a replica can repeat them.
type server struct {
	name    string
	writes  []func(*server)
	seasons map[leaderboard.SeasonKey]*serverSeason
}

func newServer(n int) *server {
	return &server{name: fmt.Sprint("server ", n), seasons: map[leaderboard.SeasonKey]*serverSeason{}}
}

func (s *server) write(w func(*server)) {
	s.writes = append(s.writes, w)
	w(s)
}

// serverSeason is a loaded season on a server. writtenOn names the server that filled or confirmed the
// season. If the season is on another server, the season is in doubt.
type serverSeason struct {
	board     *leaderboard.Board
	entries   map[leaderboard.UserID]leaderboard.Entry
	writtenOn string
	positions map[string]int64
	sure      map[string]bool // the confirmed partitions
	session   int64           // the generation of the consumer group that confirmed them
}

func (s *serverSeason) put(e leaderboard.Entry) {
	if old, ok := s.entries[e.User]; !ok || e.Version > old.Version {
		s.entries[e.User] = e
	}
}

func (s *serverSeason) record(positions []leaderboard.LogPosition) {
	for _, p := range positions {
		s.positions[p.Partition] = max(s.positions[p.Partition], p.Offset)
	}
}

// Keep makes every later replica have all writes so far.
func (s *Shared) Keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = len(s.present.writes)
}

// Fail replaces the server by a replica that lacks the last writes, except those before Keep.
func (s *Shared) Fail(lost int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures++
	writes := s.present.writes
	s.present = newServer(s.failures)
	for _, w := range writes[:max(s.kept, len(writes)-lost)] {
		s.present.write(w)
	}
}

// Rebuilds returns the number of calls of Rebuild and Restore that loaded a season.
func (s *Shared) Rebuilds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rebuilds
}

// Advanced reports whether no season is in doubt, and each season has positions of all partitions that
// add up to at least messages.
func (s *Shared) Advanced(partitions, messages int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, season := range s.present.seasons {
		sum := int64(0)
		for _, offset := range season.positions {
			sum += offset
		}
		if season.writtenOn != s.present.name || sum < int64(messages) || len(season.positions) < partitions {
			return false
		}
	}
	return true
}

// Process is the index as one process sees it.
type Process struct {
	*Shared
	server  *server // the process knows no later server
	cut     bool
	seasons map[leaderboard.SeasonKey]*processSeason
}

var _ leaderboard.Index = (*Process)(nil)

type processSeason struct {
	servers   map[string]bool // the servers that made the process's Updates
	repeating bool            // whether the process has found the season in doubt, and has not confirmed it yet
	confirmed string          // the server on which the process last confirmed the season
	missed    bool            // whether the process could not make an Update
}

// Process returns the index for a new process. It uses the same server as the process other, or the
// present server if other is nil.
func (s *Shared) Process(other *Process) *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &Process{Shared: s, server: s.present, seasons: map[leaderboard.SeasonKey]*processSeason{}}
	if other != nil {
		x.server = other.server
	}
	return x
}

// Follow makes the process notice the present server.
func (x *Process) Follow() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.server = x.present
}

// SetCut disconnects the process from the server, or connects it again. Calls of a disconnected process
// fail. Connected again, the process drops the seasons whose Updates failed.
func (x *Process) SetCut(cut bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cut = cut; cut {
		return
	}
	for key, s := range x.seasons {
		if s.missed {
			s.missed = false
			x.drop(key)
		}
	}
}

func (x *Process) season(key leaderboard.SeasonKey) *processSeason {
	if x.seasons[key] == nil {
		x.seasons[key] = &processSeason{servers: map[string]bool{}}
	}
	return x.seasons[key]
}

func (x *Process) drop(key leaderboard.SeasonKey) {
	x.server.write(func(s *server) { delete(s.seasons, key) })
}

func (x *Process) fails(key leaderboard.SeasonKey) error {
	if x.cut || x.season(key).missed {
		return fmt.Errorf("cachetest: the process has no connection: %w", leaderboard.ErrRankUnavailable)
	}
	return nil
}

// Update implements [leaderboard.Index].
func (x *Process) Update(_ context.Context, key leaderboard.SeasonKey, _ time.Time, entries []leaderboard.Entry) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cut {
		x.season(key).missed = true
		return x.fails(key)
	}
	if x.server.seasons[key] == nil {
		return nil
	}
	x.season(key).servers[x.server.name] = true
	x.server.write(func(s *server) {
		for _, e := range entries {
			s.seasons[key].put(e)
		}
	})
	return nil
}

// Rebuild implements [leaderboard.Index].
func (x *Process) Rebuild(_ context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, _ time.Time, entries iter.Seq2[leaderboard.Entry, error]) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.fails(key); err != nil {
		return err
	}
	var all []leaderboard.Entry
	for e, err := range entries {
		if err != nil {
			return err
		}
		all = append(all, e)
	}
	x.rebuilds++
	name := x.server.name
	x.server.write(func(s *server) {
		season := &serverSeason{board: b, writtenOn: name, entries: map[leaderboard.UserID]leaderboard.Entry{}, positions: map[string]int64{}}
		for _, e := range all {
			season.put(e)
		}
		s.seasons[key] = season
	})
	return nil
}

// Restore implements [leaderboard.Index].
func (x *Process) Restore(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, at time.Time, scan func(leaderboard.Part) iter.Seq2[leaderboard.Entry, error]) error {
	return x.Rebuild(ctx, b, key, at, scan(leaderboard.Part{}))
}

// Drop implements [leaderboard.Index].
func (x *Process) Drop(_ context.Context, key leaderboard.SeasonKey) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	err := x.fails(key)
	if err == nil {
		x.drop(key)
	}
	return err
}

// Advance implements [leaderboard.Index].
func (x *Process) Advance(_ context.Context, positions []leaderboard.LogPosition, _ bool) (doubts []leaderboard.Doubt, _ error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key := range x.server.seasons {
		if err := x.fails(key); err != nil {
			return doubts, err
		}
		if d := x.advance(key, positions); d != nil {
			doubts = append(doubts, *d)
		}
	}
	return doubts, nil
}

// advance returns the doubt about a season, or records the season's positions and returns nil.
func (x *Process) advance(key leaderboard.SeasonKey, positions []leaderboard.LogPosition) *leaderboard.Doubt {
	state, season, name := x.season(key), x.server.seasons[key], x.server.name
	elsewhere, gap := state.repeating || len(state.servers) > 1 || len(state.servers) == 1 && !state.servers[name], false
	d := leaderboard.Doubt{SeasonKey: key, Server: name}
	for _, p := range positions {
		offset, ok := season.positions[p.Partition]
		if gap = gap || ok && offset < p.From; !ok {
			offset = -1
		}
		d.Positions = append(d.Positions, leaderboard.LogPosition{Partition: p.Partition, From: p.From, Offset: offset})
	}
	if season.writtenOn == name && !elsewhere && !gap {
		x.server.write(func(s *server) { s.seasons[key].record(positions) })
		return nil
	}
	if season.writtenOn == name && !elsewhere { // without a recorded offset, the partition has no gap
		for i := range d.Positions {
			if d.Positions[i].Offset < 0 {
				d.Positions[i].Offset = positions[i].Offset
			}
		}
	}
	if d.Confirmed = !elsewhere && !gap && state.confirmed == name; !d.Confirmed {
		state.servers, state.repeating = map[string]bool{name: true}, true
	}
	return &d
}

// Confirm implements [leaderboard.Index].
func (x *Process) Confirm(_ context.Context, _ *leaderboard.Board, d leaderboard.Doubt, positions []leaderboard.LogPosition, session leaderboard.LogSession) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	state, season, name := x.season(d.SeasonKey), x.server.seasons[d.SeasonKey], x.server.name
	if season == nil || name != d.Server || len(state.servers) > 1 || season.writtenOn != name && session.Generation < season.session {
		return nil
	}
	x.server.write(func(s *server) {
		season := s.seasons[d.SeasonKey]
		if session.Generation > season.session {
			season.session, season.sure = session.Generation, map[string]bool{}
		}
		season.record(positions)
		for _, p := range positions {
			season.sure[p.Partition] = true
		}
		if len(season.sure) == session.Partitions {
			season.writtenOn, season.sure, season.session = name, nil, 0
		}
	})
	state.repeating, state.confirmed = false, d.Server
	return nil
}

// Loaded implements [leaderboard.Index].
func (x *Process) Loaded(_ context.Context, key leaderboard.SeasonKey) (bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cut {
		return false, x.fails(key)
	}
	return !x.season(key).missed && x.server.seasons[key] != nil, nil
}

// Fits implements [leaderboard.Index].
func (x *Process) Fits(*leaderboard.Board, leaderboard.SeasonKey) bool { return true }

// Synced implements [leaderboard.Index].
func (x *Process) Synced(seasons ...leaderboard.SeasonKey) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(seasons) == 0 {
		seasons = slices.Collect(maps.Keys(x.seasons))
	}
	return !slices.ContainsFunc(seasons, func(key leaderboard.SeasonKey) bool { return x.season(key).missed })
}

// Invalidate implements [leaderboard.Index].
func (x *Process) Invalidate(key leaderboard.SeasonKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.season(key).missed = x.cut; !x.cut {
		x.drop(key)
	}
}

// Close implements [leaderboard.Index].
func (x *Process) Close() error { return nil }

// reads returns an index with the season, or an empty index if reads of the season must fail.
func (x *Process) reads(ctx context.Context, key leaderboard.SeasonKey) leaderboard.Index {
	x.mu.Lock()
	defer x.mu.Unlock()
	index, season := x.open(), x.server.seasons[key]
	if x.fails(key) == nil && season != nil && season.writtenOn == x.server.name {
		_ = index.Rebuild(ctx, season.board, key, time.Now(), func(yield func(leaderboard.Entry, error) bool) {
			for _, e := range season.entries {
				if !yield(e, nil) {
					return
				}
			}
		})
	}
	return index
}

// Standings implements [leaderboard.Index].
func (x *Process) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return x.reads(ctx, l.SeasonKey).Standings(ctx, l, users, methods...)
}

// Page implements [leaderboard.Index].
func (x *Process) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return x.reads(ctx, l.SeasonKey).Page(ctx, l, position, n, methods...)
}

// PageAfter implements [leaderboard.Index].
func (x *Process) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return x.reads(ctx, l.SeasonKey).PageAfter(ctx, l, after, n, methods...)
}

// Around implements [leaderboard.Index].
func (x *Process) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int, methods ...leaderboard.Method) (leaderboard.Neighborhood, leaderboard.View, error) {
	return x.reads(ctx, l.SeasonKey).Around(ctx, l, user, above, below, methods...)
}

// Count implements [leaderboard.Index].
func (x *Process) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey, methods ...leaderboard.Method) ([]leaderboard.Counts, leaderboard.View, error) {
	return x.reads(ctx, l.SeasonKey).Count(ctx, l, keys, methods...)
}

// Survey implements [leaderboard.Index].
func (x *Process) Survey(ctx context.Context, l leaderboard.Ladder, q leaderboard.SurveyQuery, methods ...leaderboard.Method) (leaderboard.Survey, leaderboard.View, error) {
	return x.reads(ctx, l.SeasonKey).Survey(ctx, l, q, methods...)
}
