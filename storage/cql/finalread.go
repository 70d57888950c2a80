package cql

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/finals"
)

// # How a sealed season in fencedLayout is read
//
// For the present layout, see pagedread.go. The tables of fencedLayout:
//
//   - final_standings: a partition is a page, with 1,000 consecutive positions of a ladder.
//     It also has the size of the ladder and a tail: the last position with the rank key of
//     the page's last standing.
//   - final_fences: a row is a fence, the first standing of a page.
//   - final_positions: the standings of each user.
//   - final_ladders: the sizes of the ladders.
//
// A read has up to three statements:
//
//  1. Read the seal, which names the valid generation.
//  2. Unless the position is known, find the page: by the user's row of final_positions, or
//     by the last fence at or before a sort key.
//  3. Read one or two pages.
//
// # Why a read finds a complete generation
//
// An amendment or a deletion may remove the generation during a read. It removes, in this
// order:
//
//  1. The generation from the seal.
//  2. For each ladder, the pages, each after its users' rows. Then the fences.
//  3. The sizes of all ladders, by one statement.
//
// Each page is removed at once, because it is one partition. Therefore:
//
//   - If a read finds all expected pages, the fences were complete when it read them. If it
//     lacks a user's row, the last case applies.
//   - If a read finds the overall ladder's size but not that of a division, the generation
//     has no ladder of this division.
//   - In all other cases, inFinal reads the seal again. If the seal names the same
//     generation, nothing was removed before this second read. Otherwise the whole read
//     starts again.
//
// If the cached incarnation has ended, a read returns the final standings from before the
// deletion, until the deletion changes the seal.
//
// An erasure adds positions to the column `erased` of the ladder, removes the user's rows,
// and then changes Erased and Erasures in the seal. The keys of cached pages contain
// Erasures, so later reads use no page from before the erasure. Rows of another data center
// may arrive late, so no page is cached for longer than pageAge.

type finalRead struct {
	finalSet
	seal *seal
	inc  incarnation
	// intact means that the read found every row that it needs
	intact bool
}

// inFinal calls f with the valid generation. If f does not set intact, inFinal reads the
// seal again. If the generation has changed, inFinal calls f again. If the season is not
// sealed, it also reads the season's row: a later incarnation may be sealed. In
// positionLayout, it always reads this row: older programs delete a season without changing
// its seal first.
func (s *Store) inFinal(ctx context.Context, seasonKey leaderboard.SeasonKey, f func(context.Context, *finalRead) error) error {
	inc, err := s.incarnations.cachedOrRead(ctx, seasonKey)
	for err == nil && inc.open {
		previous := inc
		sealBefore, err := s.readSeal(ctx, seasonKey, previous)
		if err != nil {
			return err
		}
		readErr := errNotSealed(seasonKey)
		sealAfter := sealBefore
		if sealBefore.sealed() {
			r := finalRead{finalSet: finalSet{s, seasonKey, sealBefore.Generation}, seal: &sealBefore, inc: previous}
			readErr = f(ctx, &r)
			if r.intact {
				return readErr
			}
			if sealAfter, err = s.readSeal(ctx, seasonKey, previous); err != nil {
				return err
			}
		}
		if !sealAfter.sealed() || sealAfter.Layout == positionLayout {
			if inc, err = s.incarnations.readAgain(ctx, seasonKey); err != nil {
				return err
			}
		}
		if inc.same(&previous) && sealBefore.Generation == sealAfter.Generation {
			return readErr
		}
	}
	return cmp.Or(err, errNotSealed(seasonKey))
}

// FinalStandings returns up to n final standings, beginning at a position.
func (s *Store) FinalStandings(ctx context.Context, l leaderboard.Ladder, position int64, n int) (page []leaderboard.Standing, total int64, err error) {
	err = s.inFinal(ctx, l.SeasonKey, func(ctx context.Context, r *finalRead) (err error) {
		if r.seal.Layout == pagedLayout {
			p, _, err := r.openLadder(ctx, l.Division.String(), nil)
			if err == nil {
				total = p.total
				page, err = p.standingsFrom(ctx, max(position, 1), n)
			}
			return err
		}
		if r.seal.Layout == fencedLayout {
			page, total, err = r.standingsFrom(ctx, l.Division.String(), max(position, 1), n)
			return err
		}
		old, size, err := r.ladderByPosition(ctx, l.Division.String())
		if total = size; err == nil && n > 0 {
			page, err = old.From(ctx, max(position, 1), n)
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return page, total, nil
}

// FinalLookup returns the final standings of users.
func (s *Store) FinalLookup(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID) (standings []leaderboard.Standing, total int64, err error) {
	err = s.inFinal(ctx, l.SeasonKey, func(ctx context.Context, r *finalRead) (err error) {
		if r.seal.Layout == pagedLayout {
			p, places, err := r.openLadder(ctx, l.Division.String(), users)
			if err == nil {
				total = p.total
				standings, err = p.lookup(ctx, users, places)
			}
			return err
		}
		if r.seal.Layout == fencedLayout {
			standings, total, err = r.standingsOf(ctx, l.Division.String(), users)
			return err
		}
		if _, total, err = r.ladderByPosition(ctx, l.Division.String()); err != nil {
			return err
		}
		standings = make([]leaderboard.Standing, len(users))
		return s.forEach(ctx, len(users), func(ctx context.Context, i int) (err error) {
			standings[i], err = r.standingByPosition(ctx, l.Division.String(), users[i])
			return err
		})
	})
	return standings, total, err
}

// FinalAround returns a user's final standing with its neighbors.
func (s *Store) FinalAround(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int) (n leaderboard.Neighborhood, total int64, err error) {
	err = s.inFinal(ctx, l.SeasonKey, func(ctx context.Context, r *finalRead) (err error) {
		if r.seal.Layout == pagedLayout {
			p, places, err := r.openLadder(ctx, l.Division.String(), []leaderboard.UserID{user})
			if err == nil {
				n, err = p.neighborhood(ctx, user, places[user], above, below)
			}
			if err == nil {
				total = p.total
			}
			return err
		}
		if r.seal.Layout == fencedLayout {
			n, total, err = r.neighborhood(ctx, l.Division.String(), user, above, below)
			return err
		}
		st, err := r.standingByPosition(ctx, l.Division.String(), user)
		if err == nil && st.Key == "" {
			err = errNoStanding(user)
		}
		var old finals.Ladder
		if err == nil {
			old, total, err = r.ladderByPosition(ctx, l.Division.String())
		}
		if err == nil {
			n, err = old.Around(ctx, &st, above, below)
		}
		return err
	})
	return n, total, err
}

func errNoStanding(user leaderboard.UserID) error {
	return fmt.Errorf("cql: final standing of user %q: %w", user, leaderboard.ErrEntryNotFound)
}

// FinalAfter returns up to n final standings that follow a sort key.
func (s *Store) FinalAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int) (page []leaderboard.Standing, better leaderboard.Counts, total int64, err error) {
	err = s.inFinal(ctx, l.SeasonKey, func(ctx context.Context, r *finalRead) (err error) {
		if r.seal.Layout == pagedLayout {
			p, _, err := r.openLadder(ctx, l.Division.String(), nil)
			if err == nil {
				total = p.total
				page, better, err = p.standingsAfter(ctx, after, n)
			}
			return err
		}
		if r.seal.Layout == fencedLayout {
			page, better, total, err = r.standingsAfter(ctx, l.Division.String(), after, n)
			return err
		}
		old, size, err := r.ladderByPosition(ctx, l.Division.String())
		if total = size; err == nil {
			page, better, err = old.After(ctx, after, n)
		}
		return err
	})
	return page, better, total, err
}

func (f finalSet) ladderByPosition(ctx context.Context, division string) (finals.Ladder, int64, error) {
	sizes, err := f.sizes(ctx, op{selectFinalSizes, f.args([]string{division})})
	if err != nil || len(sizes) == 0 {
		return finals.Ladder{From: func(context.Context, int64, int) ([]leaderboard.Standing, error) { return nil, nil }}, 0, err
	}
	l := finals.Ladder{Last: sizes[0].written}
	l.From = func(ctx context.Context, position int64, n int) (page []leaderboard.Standing, err error) {
		for err == nil && len(page) < n && position <= l.Last {
			var part []leaderboard.Standing
			part, err = f.rows(ctx, division, position, n-len(page))
			page = append(page, part...)
			position = int64(pageOf(position)+1)*finalPage + 1
		}
		return page, err
	}
	return l, l.Last - sizes[0].erased, err
}

func (f finalSet) rows(ctx context.Context, division string, position int64, n int) ([]leaderboard.Standing, error) {
	var st standingRow
	return gather(ctx, f.s.conn, op{selectFinalPage, f.args(division, pageOf(position), position, n)},
		st.dest(), func() (leaderboard.Standing, error) { return st.standing(), nil })
}

// standingByPosition returns a user's standing in positionLayout. If the user has none, Key
// is empty.
func (f finalSet) standingByPosition(ctx context.Context, division string, user leaderboard.UserID) (leaderboard.Standing, error) {
	var position int64
	err := f.s.conn.read(ctx, op{selectFinalPosition, f.args(string(user), division)}, []any{&position}, func() bool { return true })
	if err == nil && position > 0 {
		var page []leaderboard.Standing
		if page, err = f.rows(ctx, division, position, 1); err == nil && len(page) > 0 && page[0].User == user {
			return page[0], nil
		}
	}
	return leaderboard.Standing{User: user}, err
}

type standingRow struct {
	position           *int64 // nil if the page has no standings
	user               string
	key                []byte
	achieved           int64
	competition, dense int64
}

func (r *standingRow) dest() []any {
	return []any{&r.position, &r.user, &r.key, &r.achieved, &r.competition, &r.dense}
}

func (r *standingRow) standing() leaderboard.Standing {
	return leaderboard.Standing{
		User: leaderboard.UserID(r.user), Key: leaderboard.RankKey(r.key), AchievedAt: time.UnixMicro(r.achieved).UTC(),
		Ranks: leaderboard.Ranks{Ordinal: orZero(r.position), Competition: r.competition, Dense: r.dense},
	}
}

// A sealedPage has all or some standings of a page.
type sealedPage struct {
	size, tail int64 // see the top of the file; zero if the page does not exist
	standings  []leaderboard.Standing
}

func (p *sealedPage) bytes() (n int) {
	for i := range p.standings {
		n += 96 + len(p.standings[i].User) + len(p.standings[i].Key)
	}
	return n + 64
}

func (r *finalRead) readPages(ctx context.Context, q op) (map[int]*sealedPage, error) {
	pages := map[int]*sealedPage{}
	var number int
	var size, tail *int64
	var st standingRow
	err := r.s.conn.read(ctx, q, append([]any{&number, &size, &tail}, st.dest()...), func() bool {
		p := pages[number]
		if p == nil {
			p = &sealedPage{size: orZero(size), tail: orZero(tail)}
			pages[number] = p
		}
		if st.position != nil {
			p.standings = append(p.standings, st.standing())
		}
		st = standingRow{}
		return true
	})
	return pages, err
}

func (r *finalRead) pages(ctx context.Context, division string, first, last int) (map[int]*sealedPage, error) {
	pages := map[int]*sealedPage{}
	var missing []int
	for number := first; number <= last; number++ {
		if p, ok := r.s.pages.get(r.pageKey(division, number)).(*sealedPage); ok {
			pages[number] = p
		} else {
			missing = append(missing, number)
		}
	}
	if len(missing) == 0 {
		return pages, nil
	}
	found, err := r.readPages(ctx, op{selectFinalPages, r.args(division, missing)})
	for number, p := range found {
		if pages[number] = p; p.size > 0 {
			r.s.pages.add(r.pageKey(division, number), p)
		}
	}
	return pages, err
}

// standingsBetween returns the standings of an interval of positions, by page. The interval
// must span at most two pages.
func (r *finalRead) standingsBetween(ctx context.Context, division string, from, to int64) (map[int]*sealedPage, error) {
	const few = 110 // a neighborhood has fewer standings, a page more
	first, last := pageOf(from), pageOf(to)
	cached := r.s.pages.get(r.pageKey(division, first)) != nil && r.s.pages.get(r.pageKey(division, last)) != nil
	if first == 0 || cached || to-from >= few {
		pages, err := r.pages(ctx, division, first, last)
		inRange := make(map[int]*sealedPage, len(pages))
		for number, p := range pages {
			c := *p
			c.standings = slices.DeleteFunc(slices.Clone(p.standings), func(st leaderboard.Standing) bool {
				return st.Ranks.Ordinal < from || st.Ranks.Ordinal > to
			})
			inRange[number] = &c
		}
		return inRange, err
	}
	numbers := []int{first}
	if last > first {
		numbers = append(numbers, last)
	}
	return r.readPages(ctx, op{selectFinalRange, r.args(division, numbers, from, to)})
}

// size returns the size of a ladder. If it finds the size of the overall ladder, it sets
// intact, because sizes are removed last.
func (r *finalRead) size(ctx context.Context, division string) (finalSize, error) {
	names := []string{""}
	if division != "" {
		names = append(names, division)
	}
	sizes, err := r.sizes(ctx, op{selectFinalSizes, r.args(names)})
	r.intact = slices.ContainsFunc(sizes, func(l finalSize) bool { return l.division == "" })
	for _, l := range sizes {
		if l.division == division {
			return l, err
		}
	}
	return finalSize{}, err
}

func (r *finalRead) standingsFrom(ctx context.Context, division string, position int64, n int) (page []leaderboard.Standing, total int64, err error) {
	size := int64(-1)
	r.intact = true
	for len(page) < n && (size < 0 || position <= size) {
		to := position + min(int64(n-len(page)), finalPage) - 1
		pages, err := r.standingsBetween(ctx, division, position, to)
		if err != nil {
			return nil, 0, err
		}
		for _, p := range pages {
			size = max(size, p.size)
		}
		if size < 0 { // the interval is beyond the ladder, or its users are erased or removed
			break
		}
		for number := pageOf(position); number <= pageOf(min(to, size)) && position <= size; number++ {
			if pages[number] == nil || len(pages[number].standings) == 0 {
				r.intact = false
			} else {
				page = append(page, pages[number].standings...)
			}
		}
		position = to + 1
	}
	if size >= 0 {
		return page, size - r.seal.Erased[division], nil
	}
	l, err := r.size(ctx, division)
	if err == nil && position <= l.written && n > 0 {
		r.intact = false
		var old finals.Ladder
		if old, _, err = r.ladderByPosition(ctx, division); err == nil {
			page, err = old.From(ctx, position, n)
		}
	}
	return page, l.written - l.erased, err
}

const lookupUsers = 25

type userPlace struct {
	leaderboard.Standing
	notWorse int64 // the last position with the user's rank key; 0 means the page's tail
}

func (r *finalRead) places(ctx context.Context, division string, users []leaderboard.UserID) ([]userPlace, error) {
	names := make([]string, len(users))
	for i, u := range users {
		names[i] = string(u)
	}
	var user string
	var row standingRow
	var notWorse int64
	return gather(ctx, r.s.conn, op{selectFinalOf, r.args(names, division)},
		[]any{&user, &row.position, &row.key, &row.achieved, &row.competition, &row.dense, &notWorse}, func() (userPlace, error) {
			row.user = user
			return userPlace{row.standing(), notWorse}, nil
		})
}

func (r *finalRead) standingsOf(ctx context.Context, division string, users []leaderboard.UserID) ([]leaderboard.Standing, int64, error) {
	chunks := slices.Collect(slices.Chunk(users, lookupUsers))
	lists := make([][]userPlace, len(chunks))
	var size finalSize
	if err := r.s.forEach(ctx, len(chunks)+1, func(ctx context.Context, i int) (err error) {
		if i == len(chunks) {
			size, err = r.size(ctx, division)
		} else {
			lists[i], err = r.places(ctx, division, chunks[i])
		}
		return err
	}); err != nil {
		return nil, 0, err
	}
	byUser := map[leaderboard.UserID]leaderboard.Standing{}
	for _, p := range slices.Concat(lists...) {
		byUser[p.User] = p.Standing
	}
	standings := make([]leaderboard.Standing, len(users))
	for i, u := range users {
		st, ok := byUser[u]
		if !ok {
			st.User = u
			r.intact = false
		}
		standings[i] = st
	}
	return standings, size.written - size.erased, nil
}

func (r *finalRead) neighborhood(ctx context.Context, division string, user leaderboard.UserID, above, below int) (leaderboard.Neighborhood, int64, error) {
	places, err := r.places(ctx, division, []leaderboard.UserID{user})
	if err == nil && len(places) == 0 {
		err = errNoStanding(user)
	}
	if err != nil {
		return leaderboard.Neighborhood{}, 0, err
	}
	position := places[0].Ranks.Ordinal
	from, to := max(position-int64(above), 1), position+int64(below)
	pages, err := r.standingsBetween(ctx, division, from, to)
	if err != nil {
		return leaderboard.Neighborhood{}, 0, err
	}
	n := leaderboard.Neighborhood{Of: -1, NotWorse: places[0].notWorse}
	size := int64(0)
	r.intact = true
	for number := pageOf(from); number <= pageOf(to); number++ {
		p := pages[number]
		if p == nil || len(p.standings) == 0 {
			r.intact = r.intact && int64(number)*finalPage >= size && number > pageOf(position)
			continue
		}
		size = p.size
		if i := slices.IndexFunc(p.standings, func(st leaderboard.Standing) bool { return st.User == user }); i >= 0 {
			n.Of = len(n.Standings) + i
			n.NotWorse = cmp.Or(n.NotWorse, p.tail)
		}
		n.Standings = append(n.Standings, p.standings...)
	}
	if n.Of < 0 { // the generation is being removed, or the user erased
		r.intact = false
		return leaderboard.Neighborhood{}, 0, errNoStanding(user)
	}
	return n, size - r.seal.Erased[division], nil
}

func (r *finalRead) standingsAfter(ctx context.Context, division string, after leaderboard.SortKey, n int) ([]leaderboard.Standing, leaderboard.Counts, int64, error) {
	number := 0 // the last page whose fence is at the key or before it
	if err := r.s.conn.read(ctx, op{selectFinalFence, r.args(division, []byte(after))}, []any{&number}, func() bool { return true }); err != nil {
		return nil, leaderboard.Counts{}, 0, err
	}
	var following []leaderboard.Standing
	var last leaderboard.Standing
	size, firstMissing := int64(0), math.MaxInt
	for enough := false; !enough; {
		lastPage := number + min(n, 1)
		pages, err := r.pages(ctx, division, number, lastPage)
		if err != nil {
			return nil, leaderboard.Counts{}, 0, err
		}
		for ; number <= lastPage; number++ {
			p := pages[number]
			if p == nil || p.size == 0 {
				firstMissing = min(firstMissing, number)
				continue
			}
			size = p.size
			i := sort.Search(len(p.standings), func(i int) bool { return p.standings[i].SortKey() > after })
			if i > 0 {
				last = p.standings[i-1]
			}
			following = append(following, p.standings[i:]...)
		}
		end := int64(number) * finalPage
		enough = end >= size || len(following) >= n && (len(following) > 0 || last.Ranks.Ordinal == end)
	}
	r.intact = firstMissing > pageOf(size)
	if size == 0 { // the ladder has no standings, or the generation was removed
		l, err := r.size(ctx, division)
		r.intact = r.intact && l.written == 0
		return nil, leaderboard.Counts{}, 0, err
	}
	return following[:min(n, len(following))], finals.Better(&last, following), size - r.seal.Erased[division], nil
}

type pageKey struct {
	generation, division string
	number               int
	erasures             int
}

func (r *finalRead) pageKey(division string, number int) pageKey {
	return pageKey{r.generation, division, number, r.seal.Erasures}
}

const pageCacheBytes = 64 << 20

const pageAge = time.Minute

// A cached value must not be changed.
type cached interface{ bytes() int }

type pageCache struct {
	mu    sync.Mutex
	lru   *simplelru.LRU[any, cachedAt]
	bytes int
}

type cachedAt struct {
	cached
	at time.Time
}

func newPageCache() *pageCache {
	c := &pageCache{}
	c.lru, _ = simplelru.NewLRU(pageCacheBytes, func(_ any, v cachedAt) { c.bytes -= v.cached.bytes() })
	return c
}

func (c *pageCache) get(key any) cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, found := c.lru.Get(key)
	if found && time.Since(v.at) > pageAge {
		c.lru.Remove(key)
		return nil
	}
	return v.cached
}

func (c *pageCache) add(key any, v cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lru.Contains(key) {
		return
	}
	c.lru.Add(key, cachedAt{v, time.Now()})
	for c.bytes += v.bytes(); c.bytes > pageCacheBytes; {
		c.lru.RemoveOldest()
	}
}
