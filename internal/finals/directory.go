package finals

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
)

// # Final standings in pages
//
// A page has consecutive standings of a ladder, with their ranks within the page. Pages
// never change. The directory of a ladder lists its pages in standing order, with the
// numbers that turn ranks in a page into ranks in the ladder. So a change of one standing
// leaves all other pages valid.
//
// An amendment writes the changed pages under new names, new directories, and last the
// seal, which names the directories.
//
// A place is a sort key that a user may have in a ladder. Each user has a list of places.
// Readers ignore a place if the page for its sort key lacks the key.

type ladderPage struct {
	name string
	// fence is the first sort key, or empty if all standings were erased.
	fence leaderboard.SortKey
	// rank keys of the first and the last position
	first, last leaderboard.RankKey
	positions   int64 // an erased standing keeps its position
	standings   int64
	keys        int64 // different rank keys
	lastTie     int64 // first position in the page with the rank key last

	// newDirectory computes the following fields from the pages before this page.
	before     int64 // positions
	better     int64 // positions with a better rank key than first
	betterKeys int64 // better rank keys than first
}

type directory struct {
	pages  []ladderPage
	size   int64 // in positions
	total  int64 // in standings
	filled []int // indexes of the pages with standings
}

func newDirectory(pages []ladderPage) *directory {
	d := &directory{pages: pages}
	for i := range pages {
		p := &pages[i]
		p.before, p.better, p.betterKeys = d.size, d.size, 0
		if i > 0 {
			q := &pages[i-1]
			p.betterKeys = q.betterKeys + q.keys
			if p.first == q.last { // the last tie of page q continues on page p
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

func (p *ladderPage) ranks(inPage leaderboard.Ranks) leaderboard.Ranks {
	r := leaderboard.Ranks{Ordinal: p.before + inPage.Ordinal, Competition: p.before + inPage.Competition, Dense: p.betterKeys + inPage.Dense}
	if inPage.Dense == 1 { // the tie may begin on an earlier page
		r.Competition = p.better + 1
	}
	return r
}

// pageOf returns the index of the only page that can contain the key, or -1.
func (d *directory) pageOf(key leaderboard.SortKey) int {
	i := sort.Search(len(d.filled), func(i int) bool { return d.pages[d.filled[i]].fence > key })
	if i == 0 {
		return -1
	}
	return d.filled[i-1]
}

// pageAt returns the index of the page with a position, or the number of pages if the
// position is beyond the ladder.
func (d *directory) pageAt(position int64) int {
	return sort.Search(len(d.pages), func(i int) bool { return d.pages[i].before+d.pages[i].positions >= position })
}

// lastOf returns the index of the last page with a rank key. Page i must contain the rank
// key.
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

func (d *directory) append(dst []byte) []byte {
	var generations []string
	for i := range d.pages {
		if g, _ := splitPageName(d.pages[i].name); !slices.Contains(generations, g) {
			generations = append(generations, g)
		}
	}
	dst = binary.AppendUvarint(append(dst, directoryFormat), uint64(len(generations)))
	for _, g := range generations {
		dst = codec.AppendText(dst, g)
	}
	dst = binary.AppendUvarint(dst, uint64(len(d.pages)))
	for i := range d.pages {
		p := &d.pages[i]
		g, number := splitPageName(p.name)
		dst = binary.AppendUvarint(dst, uint64(slices.Index(generations, g)))
		dst = codec.AppendText(codec.AppendText(codec.AppendText(codec.AppendText(dst, number), p.fence), p.first), p.last)
		for _, n := range []int64{p.positions, p.standings, p.keys, p.lastTie} {
			dst = binary.AppendUvarint(dst, uint64(n))
		}
	}
	return dst
}

func decodeDirectory(b []byte) (*directory, error) {
	d := codec.Decoder{Rest: b}
	format := d.Byte()
	var generations []string
	for n := d.Uvarint(); n > 0 && !d.Bad; n-- {
		generations = append(generations, d.Text())
	}
	var pages []ladderPage
	for n := d.Uvarint(); n > 0 && !d.Bad; n-- {
		g := d.Uvarint()
		if g >= uint64(len(generations)) {
			d.Bad = true
			break
		}
		p := ladderPage{name: generations[g] + "/" + d.Text(), fence: leaderboard.SortKey(d.Text()), first: leaderboard.RankKey(d.Text()), last: leaderboard.RankKey(d.Text())}
		for _, field := range []*int64{&p.positions, &p.standings, &p.keys, &p.lastTie} {
			*field = int64(d.Uvarint() & math.MaxInt64)
		}
		pages = append(pages, p)
	}
	dir := newDirectory(pages)
	if d.Bad || len(d.Rest) > 0 || format != directoryFormat || !bytes.Equal(dir.append(nil), b) {
		return nil, errFormat("directory")
	}
	return dir, nil
}

func pageName(generation string, number int) string { return fmt.Sprintf("%s/%d", generation, number) }

func splitPageName(name string) (generation, number string) {
	i := bytes.LastIndexByte([]byte(name), '/')
	return name[:max(i, 0)], name[i+1:]
}

const directoryFormat = 1

const (
	leastPage = 100
	mostPage  = 500
)

// pageStandings returns how many standings a page should have in a ladder of n standings.
// About the square root of n keeps a page and the directory small: an amendment writes
// both.
func pageStandings(n int64) int {
	return min(max(int(math.Sqrt(float64(n))), leastPage), mostPage)
}

type pageRow struct {
	key    leaderboard.SortKey
	user   leaderboard.UserID
	inPage leaderboard.Ranks
}

// rankKey returns the sort key without 8 bytes of time and the user id.
func (r *pageRow) rankKey() leaderboard.RankKey {
	return leaderboard.RankKey(r.key[:max(len(r.key)-8-len(r.user), 0)])
}

func (r *pageRow) standing(p *ladderPage) (leaderboard.Standing, error) {
	key, at, user, err := r.key.Split(len(r.rankKey()))
	if err == nil && user != r.user {
		err = errFormat("row of a page")
	}
	return leaderboard.Standing{User: user, Key: key, AchievedAt: at, Ranks: p.ranks(r.inPage)}, err
}

type newPage struct {
	ladderPage
	rows []pageRow
}

// makePage returns a page of rows in standing order, and sets the ranks in the page.
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

// withoutUser returns page p under a new name, without an erased user.
func (p *ladderPage) withoutUser(name string, rows []pageRow, user leaderboard.UserID) newPage {
	n := newPage{*p, slices.DeleteFunc(slices.Clone(rows), func(r pageRow) bool { return r.user == user })}
	n.name, n.standings, n.fence = name, int64(len(n.rows)), ""
	if len(n.rows) > 0 {
		n.fence = n.rows[0].key
	}
	return n
}

type ladderChange struct {
	removed  []leaderboard.SortKey
	inserted []pageRow
}

func (c *ladderChange) apply(rows []pageRow) []pageRow {
	rows = slices.DeleteFunc(rows, func(r pageRow) bool { return slices.Contains(c.removed, r.key) })
	rows = append(rows, c.inserted...)
	slices.SortFunc(rows, func(x, y pageRow) int { return bytes.Compare([]byte(x.key), []byte(y.key)) })
	return rows
}

// changed splits c by pages. A page with erased standings has a part too, so that amend
// removes its gaps.
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

// amend returns all pages of the ladder after a change, in standing order. The caller must
// write the pages that have rows. The function load returns the rows of a page. In a large
// ladder, a new page has between half and one and a half times pageStandings.
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
	for i := range max(len(d.pages), len(parts)) { // a directory without pages has one part
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
