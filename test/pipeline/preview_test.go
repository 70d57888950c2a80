package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/redis"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/storage/cql"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// The preview of an act (a ban, a change of a board or a retraction) must return exactly the act's
// changes.
func TestPreviewsListTheChangesOfActs(t *testing.T) {
	eachEngine(t, func(t *testing.T, store leaderboard.Store, index leaderboard.Index, cheap bool) {
		p := newPreviews(t, store, index)
		acts := []func(){p.submit, p.submit, p.submit, p.passTime, p.ban, p.amend, p.retract, p.retract}
		p.run(cheap, needs.More(t, 600), acts...)
		for extra := 0; cheap && p.rarest() == 0 && extra < 50; extra++ {
			p.run(cheap, 100, acts...)
		}
		t.Logf("bans: %d entries appeared and %d disappeared; changes of boards: %d seasons changed, %d of them are new; %d seasons were deleted, %d of them because of a change; "+
			"retractions: %d entries changed, %d of them in sealed seasons, %d on linked boards; %d retractions were duplicates; %d acts returned an error",
			p.appeared, p.disappeared, p.seasons, p.added, p.removed, p.removedNext,
			p.retracted, p.retractedSealed, p.retractedLinked, p.retractedAgain, p.refused)
		if cheap && p.rarest() == 0 {
			t.Error("one of the logged numbers is 0, want at least 1 for each kind of change")
		}
		t.Run("early end", func(t *testing.T) { testEarlyEnd(t, store, index) }) // here, because it needs the same servers
	})
}

// eachEngine runs a test on both engines. If cheap is true, the test can make many calls.
func eachEngine(t *testing.T, test func(t *testing.T, store leaderboard.Store, index leaderboard.Index, cheap bool)) {
	t.Run("embedded", func(t *testing.T) {
		store, index := embedded.Open(t)
		test(t, store, index, true)
	})
	t.Run("distributed", func(t *testing.T) {
		d := deployment.New(t, deployment.Options{Fresh: true})
		store, err := cql.Open(t.Context(), cql.Options{Hosts: d.Cassandra, DataCenter: d.DataCenter, Keyspace: d.Keyspace, Buckets: 4})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		index, err := redis.Open(t.Context(), redis.Options{Redis: &goredis.UniversalOptions{Addrs: d.Redis}, Prefix: d.RedisPrefix})
		if err != nil {
			t.Fatal(err)
		}
		defer index.Close()
		test(t, engine.New(store), index, false)
	})
}

type previews struct {
	*ranking.Service
	t     *testing.T
	store leaderboard.Store
	rng   *rand.Rand
	now   atomic.Pointer[time.Time]

	// Counts of the changes, so that the test cannot pass without changes.
	appeared, disappeared, seasons, added, removed, removedNext, refused int
	retracted, retractedSealed, retractedLinked, retractedAgain          int
}

func newPreviews(t *testing.T, store leaderboard.Store, index leaderboard.Index) *previews {
	p := &previews{t: t, store: store, rng: rand.New(rand.NewPCG(seed.New(t), 0))}
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	p.now.Store(&start)
	p.Service = ranking.New(store, index, ranking.Options{Now: func() time.Time { return *p.now.Load() }})
	for _, b := range []leaderboard.Board{
		{ID: "all", Policy: leaderboard.Sum},
		{ID: "days", Order: leaderboard.LowerFirst, Season: leaderboard.Schedule{Kind: leaderboard.Daily, Grace: time.Hour}, Retention: 48 * time.Hour},
		{ID: "fading", Policy: leaderboard.Decay, HalfLife: 24 * time.Hour, Season: leaderboard.Schedule{Kind: leaderboard.Weekly}},
		{ID: "windows", Policy: leaderboard.Latest, Season: leaderboard.Schedule{
			Kind: leaderboard.Explicit, Windows: []leaderboard.Season{{ID: "w0", Start: start, End: start.Add(24 * time.Hour)}},
		}},
		{ID: "linked", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Weekly}, Source: &leaderboard.Source{Board: "days"}},
	} {
		if _, err := p.CreateBoard(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *previews) rarest() int {
	return min(p.appeared, p.disappeared, p.seasons, p.added, p.removed, p.removedNext,
		p.retracted, p.retractedSealed, p.retractedLinked, p.retractedAgain, p.refused)
}

// If cheap is false, run does only a fiftieth of the steps.
func (p *previews) run(cheap bool, steps int, acts ...func()) {
	if !cheap {
		steps /= 50
	}
	for range steps {
		acts[p.rng.IntN(len(acts))]()
		if p.t.Failed() {
			return
		}
	}
}

func (p *previews) user() leaderboard.UserID {
	return leaderboard.UserID(fmt.Sprint("u", p.rng.IntN(5)))
}

func (p *previews) boards() []leaderboard.Board {
	boards, err := p.Boards(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return boards
}

func (p *previews) board() *leaderboard.Board {
	boards := p.boards()
	return &boards[p.rng.IntN(len(boards))]
}

// The board may reject some results.
func (p *previews) submit() {
	for range 5 {
		b := p.board()
		if b.Source != nil {
			continue
		}
		r := leaderboard.MatchResult{
			ResultKey: leaderboard.ResultKey{User: p.user(), Match: leaderboard.MatchID(fmt.Sprint("m", p.rng.IntN(50)))},
			Score:     leaderboard.Score(p.rng.IntN(6)), Revision: int64(p.rng.IntN(3)),
			AchievedAt: p.now.Load().Add(-time.Duration(p.rng.IntN(20)) * time.Hour),
		}
		if _, err := p.Submit(p.t.Context(), b, []leaderboard.MatchResult{r}); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *previews) passTime() {
	now := p.now.Load().Add(time.Duration(p.rng.IntN(40*60)) * time.Minute)
	p.now.Store(&now)
	p.sweep()
}

// Sweep must delete exactly the seasons whose time RemovedAt has passed.
func (p *previews) sweep() {
	p.t.Helper()
	var want []leaderboard.SeasonKey
	sealed := p.seasonStates()
	for key, s := range p.allSeasons() {
		if !s.RemovedAt.IsZero() && !s.RemovedAt.After(*p.now.Load()) {
			want = append(want, key)
		}
	}
	if err := p.Sweep(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	var got []leaderboard.SeasonKey
	remaining := p.seasonStates()
	for key := range sealed {
		if _, ok := remaining[key]; !ok {
			got = append(got, key)
		}
	}
	sortKeys(got)
	sortKeys(want)
	if diff := gocmp.Diff(want, got); diff != "" {
		p.t.Errorf("deleted seasons (-RemovedAt +deleted):\n%s", diff)
	}
	p.removed += len(got)
}

func compareKeys(x, y leaderboard.SeasonKey) int {
	return slices.Compare([]string{string(x.Board), string(x.Season)}, []string{string(y.Board), string(y.Season)})
}

func sortKeys(keys []leaderboard.SeasonKey) { slices.SortFunc(keys, compareKeys) }

// seasonStates maps each stored season to whether it is sealed.
func (p *previews) seasonStates() map[leaderboard.SeasonKey]bool {
	sealed := map[leaderboard.SeasonKey]bool{}
	for _, b := range p.boards() {
		records, err := p.store.Seasons(p.t.Context(), b.ID)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, r := range records {
			sealed[r.SeasonKey] = !r.SealedAt.IsZero()
		}
	}
	return sealed
}

func (p *previews) allSeasons() map[leaderboard.SeasonKey]ranking.SeasonInfo {
	all := map[leaderboard.SeasonKey]ranking.SeasonInfo{}
	for _, b := range p.boards() {
		page, err := p.Seasons(p.t.Context(), &b, ranking.SeasonsQuery{Limit: ranking.MaxSeasons})
		if err != nil || page.Next != "" {
			p.t.Fatalf("the seasons of board %q have the next page %q, error %v; want one page", b.ID, page.Next, err)
		}
		for _, s := range page.Seasons {
			all[leaderboard.SeasonKey{Board: b.ID, Season: s.ID}] = s
		}
	}
	return all
}

type place struct {
	Score leaderboard.Score
	Rank  int64
}

type snapshot struct {
	Boards  []leaderboard.Board
	Bans    []leaderboard.Ban
	Acts    []leaderboard.Act
	Seasons map[leaderboard.SeasonKey]bool
	Places  map[leaderboard.SeasonKey]map[leaderboard.UserID]place
}

func (p *previews) snapshot() snapshot {
	p.t.Helper()
	s := snapshot{Boards: p.boards(), Seasons: p.seasonStates(), Places: map[leaderboard.SeasonKey]map[leaderboard.UserID]place{}}
	for key := range s.Seasons {
		q := ranking.Query{Board: key.Board, Season: key.Season}
		page, err := p.Page(p.t.Context(), ranking.PageQuery{Query: q, Limit: 100})
		if err != nil {
			p.t.Fatal(err)
		}
		s.Places[key] = map[leaderboard.UserID]place{}
		for _, l := range page.Lines {
			s.Places[key][l.User] = place{l.Score, l.Rank}
		}
	}
	bans, err := p.Bans(p.t.Context(), ranking.BanQuery{Lifted: true, Limit: 100})
	if err != nil {
		p.t.Fatal(err)
	}
	acts, err := p.Acts(p.t.Context(), ranking.ActQuery{Limit: 100})
	if err != nil {
		p.t.Fatal(err)
	}
	s.Bans, s.Acts = bans.Bans, acts.Acts
	return s
}

func (p *previews) compareErrors(preview, act error) bool {
	p.t.Helper()
	if fmt.Sprint(preview) != fmt.Sprint(act) {
		p.t.Errorf("the preview returned the error %v and the act %v, want equal errors", preview, act)
	}
	if act != nil {
		p.refused++
	}
	return act == nil && preview == nil
}

func (p *previews) ban() {
	p.t.Helper()
	ban := leaderboard.Ban{User: p.user(), Banned: p.rng.IntN(2) == 0}
	if p.rng.IntN(2) == 0 {
		ban.Board = p.board().ID
	}
	if p.rng.IntN(10) == 0 {
		ban.Board = "unknown"
	}
	if p.rng.IntN(3) == 0 {
		ban.Until = p.now.Load().Add(time.Hour)
	}
	before := p.snapshot()
	preview, err := p.PreviewBan(p.t.Context(), ban)
	if diff := gocmp.Diff(before, p.snapshot()); diff != "" {
		p.t.Errorf("the preview of %+v changed what is stored, want no change (-before +after):\n%s", ban, diff)
	}
	stored, actErr := p.SetBan(p.t.Context(), ban)
	if !p.compareErrors(err, actErr) {
		return
	}
	want := ranking.BanPreview{Ban: stored, AsOf: preview.AsOf, Seasons: map[leaderboard.BoardID]int{}}
	after := p.snapshot()
	for key := range before.Seasons {
		previous, current := before.Places[key][ban.User], after.Places[key][ban.User]
		if previous == current {
			continue
		}
		want.Entries = append(want.Entries, ranking.EntryEffect{SeasonKey: key, Score: max(previous.Score, current.Score), RankBefore: previous.Rank, RankAfter: current.Rank})
		want.Seasons[key.Board]++
		if previous.Rank == 0 {
			p.appeared++
		} else {
			p.disappeared++
		}
	}
	slices.SortFunc(want.Entries, func(x, y ranking.EntryEffect) int { return compareKeys(x.SeasonKey, y.SeasonKey) })
	if diff := gocmp.Diff(want, preview); diff != "" {
		p.t.Errorf("%+v (-act +preview):\n%s", ban, diff)
	}
}

// The service refuses some of these changes.
func (p *previews) randomChange() func(*leaderboard.Board) error {
	n, grace := p.rng.IntN(6), time.Duration(p.rng.IntN(60))*time.Hour
	return func(b *leaderboard.Board) error {
		switch n {
		case 0:
			b.Title += "x"
		case 1:
			b.Season.Grace = grace
		case 2:
			b.Retention = grace / 4 // short, so that the retention of some seasons has ended
		case 3:
			minScore := leaderboard.Score(3)
			b.MinScore = &minScore
		case 4:
			b.Policy = leaderboard.Sum
		case 5:
			start := *p.now.Load()
			if n := len(b.Season.Windows); n > 0 && b.Season.Windows[n-1].End.After(start) {
				start = b.Season.Windows[n-1].End
			}
			b.Season.Windows = append(b.Season.Windows, leaderboard.Season{
				ID: leaderboard.SeasonID(fmt.Sprint("w", len(b.Season.Windows))), Start: start, End: start.Add(30 * time.Hour),
			})
		}
		return nil
	}
}

func (p *previews) amend() {
	p.t.Helper()
	id, change := p.board().ID, p.randomChange()
	before, seasons := p.snapshot(), p.allSeasons()
	preview, err := p.PreviewAmendment(p.t.Context(), id, change)
	if diff := gocmp.Diff(before, p.snapshot()); diff != "" {
		p.t.Errorf("the preview of a change to board %s changed what is stored, want no change (-before +after):\n%s", id, diff)
	}
	board, actErr := p.AmendBoard(p.t.Context(), id, change)
	if !p.compareErrors(err, actErr) {
		return
	}
	if diff := gocmp.Diff(before.Places, p.snapshot().Places); diff != "" {
		p.t.Errorf("a change of settings changed ranks, want no change (-before +after):\n%s", diff)
	}
	want := ranking.BoardPreview{Board: board, AsOf: preview.AsOf}
	for key, s := range p.allSeasons() {
		previous, ok := seasons[key]
		if ok && previous.ClosesAt.Equal(s.ClosesAt) && previous.RemovedAt.Equal(s.RemovedAt) {
			continue
		}
		want.Seasons = append(want.Seasons, ranking.SeasonEffect{
			Season: s.Season, Added: !ok, ClosesBefore: previous.ClosesAt, ClosesAfter: s.ClosesAt, RemovedBefore: previous.RemovedAt, RemovedAfter: s.RemovedAt, Total: s.Total,
		})
		p.seasons++
		if !ok {
			p.added++
		}
	}
	slices.SortFunc(want.Seasons, func(x, y ranking.SeasonEffect) int { return x.Start.Compare(y.Start) })
	stored := p.seasonStates()
	p.sweep()
	remaining := p.seasonStates()
	for i := range want.Seasons {
		s := &want.Seasons[i]
		key := leaderboard.SeasonKey{Board: id, Season: s.ID}
		_, remains := remaining[key]
		_, existed := stored[key]
		if s.RemovedNext = existed && !remains; s.RemovedNext {
			want.Removed++
			p.removedNext++
		}
	}
	want.Changed = len(want.Seasons)
	if diff := gocmp.Diff(want, preview); diff != "" {
		p.t.Errorf("board %s (-act +preview):\n%s", id, diff)
	}
}

func (p *previews) results() map[leaderboard.EntryKey][]leaderboard.MatchResult {
	p.t.Helper()
	all := map[leaderboard.EntryKey][]leaderboard.MatchResult{}
	for key := range p.seasonStates() {
		for user, err := range p.store.Users(p.t.Context(), key) {
			if err != nil {
				p.t.Fatal(err)
			}
			entry := leaderboard.EntryKey{SeasonKey: key, User: user}
			for r, err := range p.store.Results(p.t.Context(), key, user) {
				if err != nil {
					p.t.Fatal(err)
				}
				all[entry] = append(all[entry], r)
			}
		}
	}
	return all
}

// entries includes entries that a ban hides.
func (p *previews) entries(user leaderboard.UserID) map[leaderboard.SeasonKey]leaderboard.Entry {
	p.t.Helper()
	entries := map[leaderboard.SeasonKey]leaderboard.Entry{}
	for key := range p.seasonStates() {
		e, err := p.store.Entry(p.t.Context(), key, user)
		if err != nil && !errors.Is(err, leaderboard.ErrEntryNotFound) {
			p.t.Fatal(err)
		}
		entries[key] = e
	}
	return entries
}

// randomMatch returns the key of a result, mostly of a stored result.
func (p *previews) randomMatch(stored map[leaderboard.EntryKey][]leaderboard.MatchResult) leaderboard.ResultKey {
	if len(stored) == 0 || p.rng.IntN(8) == 0 {
		return leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: p.board().ID}, User: p.user(), Match: "unknown"}
	}
	users := slices.SortedFunc(maps.Keys(stored), func(x, y leaderboard.EntryKey) int {
		return cmp.Or(compareKeys(x.SeasonKey, y.SeasonKey), cmp.Compare(x.User, y.User))
	})
	results := stored[users[p.rng.IntN(len(users))]]
	return results[p.rng.IntN(len(results))].ResultKey
}

func (p *previews) retract() {
	p.t.Helper()
	// A deleted season rejects results received at or before its deletion. So the retraction must be
	// later than the last sweep.
	now := p.now.Load().Add(time.Second)
	p.now.Store(&now)
	results := p.results()
	key := p.randomMatch(results)
	var revision *int64
	if p.rng.IntN(4) == 0 {
		n := int64(p.rng.IntN(5) - 1)
		revision = &n
	}
	b, err := p.Board(p.t.Context(), key.Board)
	if err != nil {
		p.t.Fatal(err)
	}
	before, entries := p.snapshot(), p.entries(key.User)
	preview, err := p.PreviewRetraction(p.t.Context(), &b, key, revision)
	if diff := gocmp.Diff(before, p.snapshot()) + gocmp.Diff(results, p.results()) + gocmp.Diff(entries, p.entries(key.User)); diff != "" {
		p.t.Errorf("the preview of the retraction of %+v changed what is stored, want no change (-before +after):\n%s", key, diff)
	}
	receipt, actErr := p.Retract(p.t.Context(), &b, key, revision)
	if !p.compareErrors(err, actErr) {
		return
	}
	receipt.Replaced = nil // for the audit log; previews do not have it
	want := ranking.RetractionPreview{Receipt: receipt}
	after := p.snapshot()
	for season, e := range p.entries(key.User) {
		if e.Key == entries[season].Key {
			continue
		}
		previous, current := before.Places[season][key.User], after.Places[season][key.User]
		want.Entries = append(want.Entries, ranking.ScoreEffect{
			SeasonKey: season, User: key.User, ScoreBefore: p.scoreOf(season, entries[season].Key), ScoreAfter: p.scoreOf(season, e.Key), RankBefore: previous.Rank, RankAfter: current.Rank,
		})
		if want.Changed == nil {
			want.Changed = map[leaderboard.BoardID]int{}
		}
		want.Changed[season.Board]++
		p.retracted++
		if before.Seasons[season] {
			p.retractedSealed++
		}
		if season.Board != b.ID {
			p.retractedLinked++
		}
	}
	if receipt.Status == leaderboard.Duplicate {
		p.retractedAgain++
	}
	slices.SortFunc(want.Entries, func(x, y ranking.ScoreEffect) int { return compareKeys(x.SeasonKey, y.SeasonKey) })
	if diff := gocmp.Diff(want, preview, cmpopts.IgnoreUnexported(ranking.Receipt{}), cmpopts.IgnoreFields(ranking.Receipt{}, "AsOf"), cmpopts.IgnoreFields(ranking.Effects{}, "AsOf")); diff != "" {
		p.t.Errorf("retraction of %+v (-act +preview):\n%s", key, diff)
	}
}

// scoreOf computes the score at the present time, or at the season's end if that is earlier.
func (p *previews) scoreOf(season leaderboard.SeasonKey, key leaderboard.RankKey) *leaderboard.Score {
	if key == "" {
		return nil
	}
	b, err := p.Board(p.t.Context(), season.Board)
	if err != nil {
		p.t.Fatal(err)
	}
	at := *p.now.Load()
	if s, err := b.Season.ByID(season.Season); err == nil && !s.End.IsZero() && s.End.Before(at) {
		at = s.End
	}
	score := b.ScoreOf(key, at)
	return &score
}
