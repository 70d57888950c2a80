package cql

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/open-leaderboard/leaderboard"
)

// # Final standings in pages
//
// The final standings of a ladder are in pages. A page never changes. Its rows have the ranks
// that their standings would have if the page were the whole ladder. The directory of the
// ladder lists the pages in standing order, with the numbers from which a reader computes the
// ranks in the ladder. So after a change of one standing, all other pages stay valid, although
// the ranks in the ladder change.
//
// An amendment writes the pages that contain a change under new names, and a new directory of
// each ladder with such a page. Then it swaps the seal, which names the directories. Table
// final_places has, for each user and ladder, the sort keys that the user may have there. For
// each sort key, the directory names the only page that can contain the sort key. If that page does
// not contain it, a reader ignores this sort key.

// A ladderPage is a page in a directory.
type ladderPage struct {
	name string
	// fence is the sort key of the first standing. It is empty if all standings were erased.
	fence leaderboard.SortKey
	// first and last are the rank keys of the first and the last position.
	first, last leaderboard.RankKey
	positions   int64 // the number of positions; an erased standing keeps its position
	standings   int64 // the number of standings, without erased standings
	keys        int64 // the number of different rank keys of the positions
	lastTie     int64 // the first position in the page with the rank key last

	// The following fields are computed by newDirectory. All are numbers of positions or of
	// different rank keys before the page.
	before     int64 // positions
	better     int64 // positions with a better rank key than first
	betterKeys int64 // different rank keys that are better than first
}

// A directory lists the pages of a ladder.
type directory struct {
	pages  []ladderPage
	size   int64 // the number of positions
	total  int64 // the number of standings
	filled []int // the indexes of the pages that have standings
}

// newDirectory returns the directory of the given pages, in standing order.
func newDirectory(pages []ladderPage) *directory {
	d := &directory{pages: pages}
	for i := range pages {
		p := &pages[i]
		p.before, p.better, p.betterKeys = d.size, d.size, 0
		if i > 0 {
			q := &pages[i-1]
			p.betterKeys = q.betterKeys + q.keys
			if p.first == q.last { // a tie across the end of page q
				p.betterKeys--
				if p.better = q.before + q.lastTie - 1; q.keys == 1 {
					p.better = q.better
				}
			}
		}
		d.size += p.positions
		d.total += p.standings
		if p.standings > 0 {
			d.filled = append(d.filled, i)
		}
	}
	return d
}

// ranks returns the ranks in the ladder of a standing that has the given ranks in the page.
func (p *ladderPage) ranks(inPage leaderboard.Ranks) leaderboard.Ranks {
	r := leaderboard.Ranks{Ordinal: p.before + inPage.Ordinal, Competition: p.before + inPage.Competition, Dense: p.betterKeys + inPage.Dense}
	if inPage.Dense == 1 { // the tie may begin on an earlier page
		r.Competition = p.better + 1
	}
	return r
}

// pageOf returns the index of the page that contains the sort key if any page does, or -1. It
// is the last page that has a standing at the key or before it.
func (d *directory) pageOf(key leaderboard.SortKey) int {
	i := sort.Search(len(d.filled), func(i int) bool { return d.pages[d.filled[i]].fence > key })
	if i == 0 {
		return -1
	}
	return d.filled[i-1]
}

// pageAt returns the index of the page with a position. If the position is beyond the ladder,
// it returns the number of pages.
func (d *directory) pageAt(position int64) int {
	return sort.Search(len(d.pages), func(i int) bool { return d.pages[i].before+d.pages[i].positions >= position })
}

// lastOf returns the index of the last page that contains a rank key. The page with index i must
// contain the rank key.
func (d *directory) lastOf(key leaderboard.RankKey, i int) int {
	for d.pages[i].last == key && i+1 < len(d.pages) && d.pages[i+1].first == key {
		i++
	}
	return i
}

func (d *directory) bytes() (n int) {
	for i := range d.pages {
		p := &d.pages[i]
		n += 160 + len(p.fence) + len(p.first) + len(p.last)
	}
	return n + 128
}

// append appends the encoding of d. A page's name is a generation and a number. Each
// generation is encoded once.
func (d *directory) append(dst []byte) []byte {
	var generations []string
	for i := range d.pages {
		if g, _ := splitPageName(d.pages[i].name); !slices.Contains(generations, g) {
			generations = append(generations, g)
		}
	}
	dst = binary.AppendUvarint(append(dst, codecFormat), uint64(len(generations)))
	for _, g := range generations {
		dst = appendString(dst, g)
	}
	dst = binary.AppendUvarint(dst, uint64(len(d.pages)))
	for i := range d.pages {
		p := &d.pages[i]
		g, number := splitPageName(p.name)
		dst = binary.AppendUvarint(dst, uint64(slices.Index(generations, g)))
		dst = appendString(appendString(appendString(appendString(dst, number), p.fence), p.first), p.last)
		for _, n := range []int64{p.positions, p.standings, p.keys, p.lastTie} {
			dst = binary.AppendUvarint(dst, uint64(n))
		}
	}
	return dst
}

// decodeDirectory is the inverse of append.
func decodeDirectory(b []byte) (*directory, error) {
	d := decoder{b: b}
	format := d.byte()
	var generations []string
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		generations = append(generations, d.string())
	}
	var pages []ladderPage
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		g := d.uvarint()
		if g >= uint64(len(generations)) {
			d.bad = true
			break
		}
		p := ladderPage{name: generations[g] + "/" + d.string(), fence: leaderboard.SortKey(d.string()), first: leaderboard.RankKey(d.string()), last: leaderboard.RankKey(d.string())}
		for _, field := range []*int64{&p.positions, &p.standings, &p.keys, &p.lastTie} {
			*field = int64(d.uvarint() & math.MaxInt64)
		}
		pages = append(pages, p)
	}
	dir := newDirectory(pages)
	if d.bad || len(d.b) > 0 || format != codecFormat || !bytes.Equal(dir.append(nil), b) {
		return nil, errFormat("directory of final standings")
	}
	return dir, nil
}

// pageName returns the name of a page of a generation.
func pageName(generation string, number int) string { return fmt.Sprintf("%s/%d", generation, number) }

// splitPageName returns the generation and the number of a page.
func splitPageName(name string) (generation, number string) {
	i := bytes.LastIndexByte([]byte(name), '/')
	return name[:max(i, 0)], name[i+1:]
}

// The bounds of pageStandings. A page may have half to one and a half of the number that
// pageStandings returns: see [directory.amend].
const (
	leastPage = 100
	mostPage  = 500
)

// pageStandings returns how many standings a page should have in a ladder of n standings. An
// amendment writes at least one page and the directory. With the square root of n standings on each
// page, both the page and the directory are small.
func pageStandings(n int64) int {
	return min(max(int(math.Sqrt(float64(n))), leastPage), mostPage)
}

// A pageRow is a standing in a page.
type pageRow struct {
	key    leaderboard.SortKey
	user   leaderboard.UserID
	inPage leaderboard.Ranks
}

// rankKey returns the rank key of r. In the sort key, 8 bytes of time and the user id follow the
// rank key.
func (r *pageRow) rankKey() leaderboard.RankKey {
	return leaderboard.RankKey(r.key[:max(len(r.key)-8-len(r.user), 0)])
}

// standing returns the standing of r on the page p.
func (r *pageRow) standing(p *ladderPage) (leaderboard.Standing, error) {
	key, at, user, err := r.key.Split(len(r.rankKey()))
	if err == nil && user != r.user {
		err = errFormat("row of a page of final standings")
	}
	return leaderboard.Standing{User: user, Key: key, AchievedAt: at, Ranks: p.ranks(r.inPage)}, err
}

// A newPage is a page that has to be written.
type newPage struct {
	ladderPage
	rows []pageRow
}

// makePage returns a page of rows in standing order. It sets their ranks in the page.
func makePage(name string, rows []pageRow) newPage {
	var previous leaderboard.Standing
	for i := range rows {
		st := leaderboard.Standing{Key: rows[i].rankKey()}
		st.RankAfter(&previous)
		rows[i].inPage = st.Ranks
		previous = st
	}
	p := ladderPage{
		name: name, fence: rows[0].key, first: rows[0].rankKey(), last: previous.Key, positions: int64(len(rows)), standings: int64(len(rows)),
		keys: previous.Ranks.Dense, lastTie: previous.Ranks.Competition,
	}
	return newPage{p, rows}
}

// withoutUser returns the page p with the given rows under a new name, without an erased user.
// The other standings keep their positions.
func (p *ladderPage) withoutUser(name string, rows []pageRow, user leaderboard.UserID) newPage {
	n := newPage{*p, slices.DeleteFunc(slices.Clone(rows), func(r pageRow) bool { return r.user == user })}
	n.name, n.standings, n.fence = name, int64(len(n.rows)), ""
	if len(n.rows) > 0 {
		n.fence = n.rows[0].key
	}
	return n
}

// A ladderChange is what an amendment changes in a ladder.
type ladderChange struct {
	removed  []leaderboard.SortKey
	inserted []pageRow
}

// apply returns the standings of a page after the change. The argument rows has the standings
// before the change.
func (c *ladderChange) apply(rows []pageRow) []pageRow {
	rows = slices.DeleteFunc(rows, func(r pageRow) bool { return slices.Contains(c.removed, r.key) })
	rows = append(rows, c.inserted...)
	slices.SortFunc(rows, func(x, y pageRow) int { return bytes.Compare([]byte(x.key), []byte(y.key)) })
	return rows
}

// changed splits c by the pages of the directory that contain, or will contain, the changes. A
// page with erased standings gets an empty change, so that the amendment writes the page again.
func (d *directory) changed(c *ladderChange) map[int]*ladderChange {
	parts := map[int]*ladderChange{}
	part := func(key leaderboard.SortKey) *ladderChange {
		i := max(d.pageOf(key), 0)
		if parts[i] == nil {
			parts[i] = &ladderChange{}
		}
		return parts[i]
	}
	for _, key := range c.removed {
		part(key).removed = append(part(key).removed, key)
	}
	for _, r := range c.inserted {
		part(r.key).inserted = append(part(r.key).inserted, r)
	}
	for i := range d.pages {
		if p := &d.pages[i]; p.standings < p.positions && parts[i] == nil {
			parts[i] = &ladderChange{}
		}
	}
	return parts
}

// amend returns the pages of the ladder after a change, in standing order. A returned page with
// rows is new, and the caller must write it. Function load returns the rows of a page. Function
// name returns the name of the next new page. If the ladder has enough standings, a new page has
// half to one and a half of the number that pageStandings returns.
func (d *directory) amend(c *ladderChange, load func(*ladderPage) ([]pageRow, error), name func() string) ([]newPage, error) {
	standings := pageStandings(d.total + int64(len(c.inserted)) - int64(len(c.removed)))
	parts := d.changed(c)
	var pages []newPage
	var run []pageRow // standings that are on no page yet
	inRun := false
	flush := func() {
		count := 1
		if len(run) > standings*3/2 {
			count = (len(run) + standings - 1) / standings
		}
		for i := range count {
			if rows := slices.Clone(run[len(run)*i/count : len(run)*(i+1)/count]); len(rows) > 0 {
				pages = append(pages, makePage(name(), rows))
			}
		}
		run, inRun = nil, false
	}
	for i := range max(len(d.pages), len(parts)) { // an empty directory has one part
		part := parts[i]
		if part == nil && (!inRun || len(run) >= standings/2) {
			if inRun {
				flush()
			}
			pages = append(pages, newPage{ladderPage: d.pages[i]})
			continue
		}
		var rows []pageRow
		if i < len(d.pages) {
			var err error
			if rows, err = load(&d.pages[i]); err != nil {
				return nil, err
			}
		}
		if part != nil {
			rows = part.apply(slices.Clone(rows))
		}
		run, inRun = append(run, rows...), true
	}
	// The last run may be too short for a page. It then joins the page before it.
	for inRun && len(run) < standings/2 && len(pages) > 0 {
		last := pages[len(pages)-1]
		pages = pages[:len(pages)-1]
		rows := last.rows
		if rows == nil {
			var err error
			if rows, err = load(&last.ladderPage); err != nil {
				return nil, err
			}
		}
		run = append(slices.Clone(rows), run...)
	}
	if inRun {
		flush()
	}
	return pages, nil
}
