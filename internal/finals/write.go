package finals

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
	"github.com/open-leaderboard/leaderboard/storage"
)

var errIncomplete = fmt.Errorf("final standings: they were replaced or have not arrived in this data center yet; try again: %w", leaderboard.ErrUnavailable)

// A season is an incarnation with final standings: see directory.go.
type season struct {
	*Store
	inc storage.Incarnation
}

func (p *season) readDirectory(ctx context.Context, division, generation string) (*directory, error) {
	if d, ok := p.cache.get(directoryKey{generation, division}).(*directory); ok {
		return d, nil
	}
	found, err := p.readPlaces(ctx, division, generation, nil)
	return found.directory, err
}

// Keys in Store.cache.
type (
	directoryKey struct{ generation, division string }
	cachedName   string
)

func (x *seal) directoryOf(division string) string {
	return cmp.Or(x.Ladders[division], x.Base)
}

// A foundPlace is a place (see directory.go). Its page and ranks are from the time of its
// write, and may be outdated.
type foundPlace struct {
	key    leaderboard.SortKey
	page   string
	inPage leaderboard.Ranks
}

type foundPlaces struct {
	directory *directory // nil if the backend lacks it
	places    map[leaderboard.UserID][]foundPlace
}

// writeItem writes a place or a directory. item is a sort key or a generation.
func writeItem(list, division, item string, value []byte, version int64) storage.RowWrite {
	return storage.RowWrite{List: list, Row: storage.Row{Key: append(codec.AppendText(nil, division), item...), Value: value}, Version: version}
}

func splitItem(key []byte) (division, item string, err error) {
	d := codec.Decoder{Rest: key}
	division = d.Text()
	if d.Bad {
		err = errFormat("key of a place")
	}
	return division, string(d.Rest), err
}

func appendRanks(dst []byte, r *leaderboard.Ranks) []byte {
	for _, n := range []int64{r.Ordinal, r.Competition, r.Dense} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

func readRanks(d *codec.Decoder) leaderboard.Ranks {
	return leaderboard.Ranks{Ordinal: int64(d.Uvarint()), Competition: int64(d.Uvarint()), Dense: int64(d.Uvarint())}
}

func (p *season) readPlaces(ctx context.Context, division, generation string, users []leaderboard.UserID) (foundPlaces, error) {
	found := foundPlaces{places: map[leaderboard.UserID][]foundPlace{}}
	lists := map[string]leaderboard.UserID{}
	if d, ok := p.cache.get(directoryKey{generation, division}).(*directory); ok {
		found.directory = d
	} else {
		lists[directoryList(p.inc.ID)] = ""
	}
	for _, u := range users {
		lists[placeList(p.inc.ID, u)] = u
	}
	if len(lists) == 0 {
		return found, nil
	}
	prefix := codec.AppendText(nil, division)
	for row, err := range p.b.ListRows(ctx, slices.Sorted(maps.Keys(lists)), prefix) {
		if err != nil {
			return found, err
		}
		user, item := lists[row.List], string(row.Key[len(prefix):])
		switch {
		case user != "":
			d := codec.Decoder{Rest: row.Value}
			inPage, page := readRanks(&d), string(d.Rest)
			if d.Bad {
				return found, errFormat("place")
			}
			found.places[user] = append(found.places[user], foundPlace{leaderboard.SortKey(item), page, inPage})
		case item == generation:
			if found.directory, err = decodeDirectory(row.Value); err != nil {
				return found, err
			}
			p.cache.add(directoryKey{generation, division}, found.directory)
		}
	}
	return found, nil
}

type rowsOfPage []pageRow

func (rows rowsOfPage) bytes() (n int) {
	for i := range rows {
		n += 96 + len(rows[i].key) + len(rows[i].user)
	}
	return n + 64
}

func (rows rowsOfPage) find(key leaderboard.SortKey) (int, bool) {
	return slices.BinarySearchFunc(rows, key, func(r pageRow, key leaderboard.SortKey) int { return cmp.Compare(r.key, key) })
}

// readRows bounds the rows that one call of the backend reads, unless one page has more.
const readRows = 2000

// readPages returns rows by page name. Errors: errIncomplete if rows are missing.
func (p *season) readPages(ctx context.Context, pages []ladderPage) (map[string]rowsOfPage, error) {
	found := map[string]rowsOfPage{}
	var chunks [][]string
	rows := int64(readRows)
	for i := range pages {
		q := &pages[i]
		if cached, ok := p.cache.get(cachedName(q.name)).(rowsOfPage); ok {
			found[q.name] = cached
			continue
		}
		if q.standings == 0 {
			found[q.name] = nil
			continue
		}
		if rows += q.standings; rows > readRows {
			chunks, rows = append(chunks, nil), q.standings
		}
		chunks[len(chunks)-1] = append(chunks[len(chunks)-1], q.name)
	}
	lists := make([]map[string]rowsOfPage, len(chunks))
	if err := p.forEach(ctx, len(chunks), func(ctx context.Context, i int) (err error) {
		lists[i], err = p.readRows(ctx, chunks[i])
		return err
	}); err != nil {
		return nil, err
	}
	for _, list := range lists {
		maps.Copy(found, list)
	}
	for i := range pages {
		q := &pages[i]
		if int64(len(found[q.name])) != q.standings {
			return nil, errIncomplete
		}
		p.cache.add(cachedName(q.name), found[q.name])
	}
	return found, nil
}

func (p *season) readRows(ctx context.Context, pages []string) (map[string]rowsOfPage, error) {
	found, names := map[string]rowsOfPage{}, map[string]string{}
	for _, page := range pages {
		names[pageList(page)] = page
	}
	for row, err := range p.b.ListRows(ctx, slices.Sorted(maps.Keys(names)), nil) {
		if err != nil {
			return nil, err
		}
		d := codec.Decoder{Rest: row.Value}
		r := pageRow{key: leaderboard.SortKey(row.Key), inPage: readRanks(&d), user: leaderboard.UserID(d.Rest)}
		if d.Bad {
			return nil, errFormat("row of a page")
		}
		page := names[row.List]
		found[page] = append(found[page], r)
	}
	return found, nil
}

type pageWriter struct {
	season
	generation string
	number     int64 // seal.Writes, with this generation
	pages      int
	divisions  []string
}

// Versions of rows. A place has the version 2*pageWriter.number+1, and its removal by the same
// generation 2*pageWriter.number.
const (
	written = 1
	removed = 2
)

// newPageWriter adds a new generation to the seal's Pending, and returns the previous seal.
// If allow returns false, it adds nothing, and the writer is nil.
func (p *season) newPageWriter(ctx context.Context, allow func(*seal) bool) (seal, *pageWriter, error) {
	w := &pageWriter{season: *p, generation: rand.Text()}
	oldSeal, newSeal, listed, err := p.changeSeal(ctx, func(x *seal) bool {
		x.Pending = append(x.Pending, pendingGeneration{w.generation, p.b.Environment().Now().UTC()})
		x.Writes++
		return allow(x)
	})
	if err != nil || !listed {
		return oldSeal, nil, err
	}
	w.number = newSeal.Writes
	return oldSeal, w, nil
}

func (w *pageWriter) nextName() string {
	w.pages++
	return pageName(w.generation, w.pages-1)
}

var countKey = []byte("pages")

// writeCount writes the number of pages, so that removeOwn finds the pages. Of several
// numbers, the backend keeps the greatest.
func (w *pageWriter) writeCount(ctx context.Context) error {
	value := binary.BigEndian.AppendUint64(nil, uint64(w.pages))
	return w.b.WriteRows(ctx, storage.RowWrite{List: generationList(w.generation), Row: storage.Row{Key: countKey, Value: value}, Version: written})
}

func (w *pageWriter) placeTime() int64 { return 2*w.number + 1 }

// writePages writes places, and then pages. It must be called after writeCount. hasPlace reports
// whether the row's place is stored already.
func (w *pageWriter) writePages(ctx context.Context, division string, pages []newPage, hasPlace func(*pageRow) bool) error {
	var places, rows []storage.RowWrite
	for i := range pages {
		name := pages[i].name
		for j := range pages[i].rows {
			r := &pages[i].rows[j]
			ranks := slices.Clip(appendRanks(nil, &r.inPage))
			if !hasPlace(r) {
				places = append(places, writeItem(placeList(w.inc.ID, r.user), division, string(r.key), append(ranks, name...), w.placeTime()))
			}
			rows = append(rows, storage.RowWrite{List: pageList(name), Row: storage.Row{Key: []byte(r.key), Value: append(ranks, r.user...)}, Version: written})
		}
	}
	if err := w.b.WriteAll(ctx, places...); err != nil {
		return err
	}
	return w.b.WriteAll(ctx, rows...)
}

// writeDirectory must be called after all calls of writePages.
func (w *pageWriter) writeDirectory(ctx context.Context, division string, pages []newPage) error {
	list := make([]ladderPage, len(pages))
	for i := range pages {
		list[i] = pages[i].ladderPage
	}
	w.divisions = append(w.divisions, division)
	return w.b.WriteRows(ctx, writeItem(directoryList(w.inc.ID), division, w.generation, newDirectory(list).append(nil), written))
}

// isOpen reports whether the incarnation is still open, with unchanged rules.
func (p *season) isOpen(ctx context.Context) (bool, error) {
	current, err := p.b.Incarnation(ctx, p.inc.SeasonKey, false)
	return current.Open && current.ID == p.inc.ID && current.Rules == p.inc.Rules, err
}

// checkOpen returns nil if the incarnation is still open, so that a deletion finds the pages.
// If the incarnation has ended, checkOpen removes the generation and returns errEnded.
func (w *pageWriter) checkOpen(ctx context.Context) error {
	open, err := w.isOpen(ctx)
	if err != nil || open {
		return err
	}
	return cmp.Or(w.removeOwn(ctx, w.generation, int64(w.pages), w.divisions), errEnded)
}

// writeAll writes the final standings of all ladders. If the incarnation ends meanwhile,
// writeAll removes the generation and returns errEnded.
func (w *pageWriter) writeAll(ctx context.Context) error {
	sizes := map[string]int64{"": 0}
	divisions := map[string]leaderboard.Division{"": {}}
	for e, err := range w.b.Scan(ctx, w.inc.SeasonKey, leaderboard.Part{}) {
		if err != nil {
			return err
		}
		if !e.Ranked() {
			continue
		}
		sizes[""]++
		for _, d := range e.Divisions {
			sizes[d.String()]++
			divisions[d.String()] = d
		}
	}
	// collect needs a valid directory even of a ladder that has lost all standings
	stored, err := w.directories(ctx)
	if err != nil {
		return err
	}
	for _, d := range stored {
		sizes[d.division] += 0
	}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		d, ok := divisions[name]
		if err := w.writeLadder(ctx, name, d, ok, sizes[name]); err != nil {
			return err
		}
	}
	return nil
}

// writtenTogether is how many standings writeLadder writes together. More take more memory.
const writtenTogether = 5000

func (w *pageWriter) writeLadder(ctx context.Context, name string, d leaderboard.Division, exists bool, n int64) error {
	var pages []newPage // of the ladder; those before next are written, and have no rows
	var rows []pageRow  // on no page yet
	next, unwritten := 0, 0
	write := func() error {
		err := w.writeCount(ctx)
		if err == nil {
			err = w.writePages(ctx, name, pages[next:], func(*pageRow) bool { return false })
		}
		for ; next < len(pages); next++ {
			pages[next].rows = nil
		}
		unwritten = 0
		return cmp.Or(err, w.checkOpen(ctx))
	}
	endPage := func() error {
		if len(rows) == 0 {
			return nil
		}
		pages, unwritten, rows = append(pages, makePage(w.nextName(), rows)), unwritten+len(rows), nil
		if unwritten < writtenTogether {
			return nil
		}
		return write()
	}
	if exists {
		for e, err := range w.b.Entries(ctx, leaderboard.Ladder{SeasonKey: w.inc.SeasonKey, Division: d}, "") {
			if err != nil {
				return err
			}
			if rows = append(rows, pageRow{key: e.SortKey(), user: e.User}); len(rows) == pageStandings(n) {
				if err := endPage(); err != nil {
					return err
				}
			}
		}
	}
	err := endPage()
	if err == nil && next < len(pages) {
		err = write()
	}
	if err == nil {
		err = w.writeDirectory(ctx, name, pages)
	}
	return cmp.Or(err, w.checkOpen(ctx))
}

type storedDirectory struct{ division, generation string }

func (p *season) directories(ctx context.Context) ([]storedDirectory, error) {
	var stored []storedDirectory
	for row, err := range p.b.Rows(ctx, directoryList(p.inc.ID), nil) {
		if err != nil {
			return nil, err
		}
		division, generation, err := splitItem(row.Key)
		if err != nil {
			return nil, err
		}
		stored = append(stored, storedDirectory{division, generation})
	}
	return stored, nil
}

// removeOwn removes the pages and directories of a generation whose pages no valid
// directory lists. The places stay: readers ignore outdated places, and the next generation
// often needs the same places.
func (p *season) removeOwn(ctx context.Context, generation string, pages int64, divisions []string) error {
	stored, err := p.ownPages(ctx, generation)
	if err != nil {
		return err
	}
	directories, err := p.directories(ctx)
	if err != nil {
		return err
	}
	for _, d := range directories {
		if d.generation == generation {
			divisions = append(divisions, d.division)
		}
	}
	for _, d := range divisions {
		if err := p.removeDirectory(ctx, d, generation); err != nil {
			return err
		}
	}
	var lists []string
	for i := range int(max(pages, stored)) {
		lists = append(lists, pageList(pageName(generation, i)))
	}
	if err := p.b.RemoveRows(ctx, storage.Last, lists...); err != nil {
		return err
	}
	return p.b.RemoveRows(ctx, storage.Last, generationList(generation))
}

func (p *season) removeDirectory(ctx context.Context, division, generation string) error {
	removal := writeItem(directoryList(p.inc.ID), division, generation, nil, removed)
	removal.Forget = true
	return p.b.WriteRows(ctx, removal)
}

func (p *season) ownPages(ctx context.Context, generation string) (n int64, err error) {
	for row, err := range p.b.Rows(ctx, generationList(generation), nil) {
		if err != nil {
			return 0, err
		}
		if len(row.Value) != 8 {
			return 0, errFormat("number of pages")
		}
		n = int64(binary.BigEndian.Uint64(row.Value))
	}
	return n, nil
}

// collect removes replaced directories, and their pages that no valid directory lists.
//
// A replaced page never becomes valid again, so collect may use an outdated seal. But
// collect must list the directories before it reads the seal. A directory that is written
// after this read may become valid, and the outdated seal does not name it.
func (p *season) collect(ctx context.Context) error {
	for {
		stored, err := p.directories(ctx)
		if err != nil {
			return err
		}
		x, err := p.readSeal(ctx)
		if err != nil || !x.hasReplaced() {
			return err
		}
		if err = p.collectOf(ctx, &x, stored); err == nil {
			return nil
		}
		if err := p.unlessReplaced(ctx, x.Generation, err); err != nil {
			return err
		}
	}
}

func (p *season) collectOf(ctx context.Context, x *seal, stored []storedDirectory) error {
	for _, d := range stored {
		isWritten := slices.ContainsFunc(x.Pending, func(g pendingGeneration) bool { return g.Generation == d.generation && !g.isReplaced() })
		if d.generation == x.directoryOf(d.division) || isWritten {
			continue
		}
		if err := p.removeReplaced(ctx, x, d); err != nil {
			return err
		}
	}
	var lists []string
	for _, g := range x.Pending {
		if g.isReplaced() {
			lists = append(lists, generationList(g.Generation))
		}
	}
	if err := p.b.RemoveRows(ctx, storage.Last, lists...); err != nil {
		return err
	}
	_, _, _, err := p.changeSeal(ctx, func(now *seal) bool {
		now.Pending = slices.DeleteFunc(now.Pending, func(g pendingGeneration) bool { return g.isReplaced() && slices.Contains(x.Pending, g) })
		return true
	})
	return err
}

func (p *season) removeReplaced(ctx context.Context, x *seal, d storedDirectory) error {
	old, err := p.readDirectory(ctx, d.division, d.generation)
	if err != nil || old == nil {
		return err // nil if another process has removed the directory
	}
	current, err := p.readDirectory(ctx, d.division, x.directoryOf(d.division))
	if err == nil && current == nil {
		err = errIncomplete
	}
	if err != nil {
		return err
	}
	kept := map[string]bool{}
	for i := range current.pages {
		kept[current.pages[i].name] = true
	}
	var replaced []string
	for i := range old.pages {
		if name := old.pages[i].name; !kept[name] {
			replaced = append(replaced, pageList(name))
		}
	}
	if err := p.b.RemoveRows(ctx, storage.Last, replaced...); err != nil {
		return err
	}
	return p.removeDirectory(ctx, d.division, d.generation)
}

// removeAll removes all pages and directories of an ended incarnation. The seal must not
// name a valid generation.
func (p *season) removeAll(ctx context.Context, x *seal) error {
	stored, err := p.directories(ctx)
	if err != nil {
		return err
	}
	for _, d := range stored {
		dir, err := p.readDirectory(ctx, d.division, d.generation)
		if err != nil {
			return err
		}
		if dir == nil {
			continue
		}
		lists := make([]string, len(dir.pages))
		for i := range dir.pages {
			lists[i] = pageList(dir.pages[i].name)
		}
		if err := p.b.RemoveRows(ctx, storage.Last, lists...); err != nil {
			return err
		}
	}
	for _, g := range x.Pending {
		if err := p.removeOwn(ctx, g.Generation, 0, nil); err != nil {
			return err
		}
	}
	return p.b.RemoveRows(ctx, storage.Last, directoryList(p.inc.ID))
}
