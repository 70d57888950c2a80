package cql

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
)

var errIncomplete = fmt.Errorf("cql: final standings were replaced or have not arrived in this data center yet; try again: %w", leaderboard.ErrUnavailable)

// A pagedSeason is an incarnation with final standings: see directory.go.
type pagedSeason struct {
	s         *Store
	seasonKey leaderboard.SeasonKey
	inc       incarnation
}

func (p *pagedSeason) args(others ...any) []any {
	return append([]any{string(p.seasonKey.Board), string(p.seasonKey.Season)}, others...)
}

func (p *pagedSeason) placeArgs(others ...any) []any {
	return append(p.args(p.inc.number), others...)
}

// Keys in Store.pages.
type (
	directoryKey struct{ generation, division string }
	cachedName   string
)

func (x *seal) directoryOf(division string) string {
	return cmp.Or(x.Ladders[division], x.Base)
}

func (p *pagedSeason) readDirectory(ctx context.Context, division, generation string) (*directory, error) {
	if d, ok := p.s.pages.get(directoryKey{generation, division}).(*directory); ok {
		return d, nil
	}
	found, err := p.readPlaces(ctx, division, generation, nil)
	return found.directory, err
}

// A foundPlace is a place (see directory.go). Its page and ranks are from the time of its
// write, and may be outdated.
type foundPlace struct {
	key    leaderboard.SortKey
	page   string
	inPage leaderboard.Ranks
}

type foundPlaces struct {
	directory *directory // nil if the table lacks it
	places    map[leaderboard.UserID][]foundPlace
}

func (p *pagedSeason) readPlaces(ctx context.Context, division, generation string, users []leaderboard.UserID) (foundPlaces, error) {
	found := foundPlaces{places: map[leaderboard.UserID][]foundPlace{}}
	var names []string
	if d, ok := p.s.pages.get(directoryKey{generation, division}).(*directory); ok {
		found.directory = d
	} else {
		names = append(names, "") // the rows without a user have the directories
	}
	for _, u := range users {
		names = append(names, string(u))
	}
	if len(names) == 0 {
		return found, nil
	}
	var user, page string
	var item, body []byte
	var ordinal, competition, dense *int64
	var decodeErr error
	err := p.s.conn.read(ctx, op{selectPlaces, p.placeArgs(names, division)}, []any{&user, &item, &page, &ordinal, &competition, &dense, &body}, func() bool {
		switch {
		case user != "":
			ranks := leaderboard.Ranks{Ordinal: orZero(ordinal), Competition: orZero(competition), Dense: orZero(dense)}
			found.places[leaderboard.UserID(user)] = append(found.places[leaderboard.UserID(user)], foundPlace{leaderboard.SortKey(item), page, ranks})
		case string(item) == generation:
			found.directory, decodeErr = decodeDirectory(take(&body))
		}
		return decodeErr == nil
	})
	if err = cmp.Or(err, decodeErr); err == nil && found.directory != nil {
		p.s.pages.add(directoryKey{generation, division}, found.directory)
	}
	return found, err
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

// statementRows bounds the rows that one statement reads, unless one page has more.
const statementRows = pageRows

// readPages returns rows by page name. Errors: errIncomplete if rows are missing.
func (p *pagedSeason) readPages(ctx context.Context, pages []ladderPage) (map[string]rowsOfPage, error) {
	found := map[string]rowsOfPage{}
	var chunks [][]string
	rows := int64(statementRows)
	for i := range pages {
		q := &pages[i]
		if cached, ok := p.s.pages.get(cachedName(q.name)).(rowsOfPage); ok {
			found[q.name] = cached
			continue
		}
		if q.standings == 0 {
			found[q.name] = nil
			continue
		}
		if rows += q.standings; rows > statementRows {
			chunks, rows = append(chunks, nil), q.standings
		}
		chunks[len(chunks)-1] = append(chunks[len(chunks)-1], q.name)
	}
	lists := make([]map[string]rowsOfPage, len(chunks))
	if err := p.s.forEach(ctx, len(chunks), func(ctx context.Context, i int) (err error) {
		lists[i], err = p.readRows(ctx, op{selectPages, p.args(chunks[i])})
		return err
	}); err != nil {
		return nil, err
	}
	for _, list := range lists {
		for name, rows := range list {
			found[name] = rows
		}
	}
	for i := range pages {
		q := &pages[i]
		if int64(len(found[q.name])) != q.standings {
			return nil, errIncomplete
		}
		p.s.pages.add(cachedName(q.name), found[q.name])
	}
	return found, nil
}

func (p *pagedSeason) readRows(ctx context.Context, q op) (map[string]rowsOfPage, error) {
	found := map[string]rowsOfPage{}
	var name, user string
	var key []byte
	var r leaderboard.Ranks
	err := p.s.conn.read(ctx, q, []any{&name, &key, &user, &r.Ordinal, &r.Competition, &r.Dense}, func() bool {
		found[name] = append(found[name], pageRow{leaderboard.SortKey(key), leaderboard.UserID(user), r})
		return true
	})
	return found, err
}

type pageWriter struct {
	pagedSeason
	generation string
	number     int64 // seal.Writes, with this generation
	pages      int
	divisions  []string
}

// newPageWriter adds a new generation to the seal's Pending, and returns the previous seal.
// If allow returns false, it adds nothing, and the writer is nil.
func (p *pagedSeason) newPageWriter(ctx context.Context, allow func(*seal) bool) (seal, *pageWriter, error) {
	id, err := gocql.RandomUUID()
	if err != nil {
		return seal{}, nil, fmt.Errorf("cql: seal: %w", err)
	}
	w := &pageWriter{pagedSeason: *p, generation: id.String()}
	oldSeal, newSeal, listed, err := p.s.changeSeal(ctx, p.seasonKey, p.inc, func(x *seal) bool {
		x.Pending = append(x.Pending, pendingGeneration{w.generation, p.s.now().UTC()})
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

// writeCount writes the number of pages, so that removeOwn finds the pages. Of several
// numbers, Cassandra keeps the greatest.
func (w *pageWriter) writeCount(ctx context.Context) error {
	return w.s.conn.write(ctx, op{insertFinalGeneration, w.args(w.generation, int64(w.pages))})
}

// writePage writes places, and then a page. It must be called after writeCount.
func (w *pageWriter) writePage(ctx context.Context, division string, page *newPage, places []pageRow) error {
	if err := w.s.forEach(ctx, len(places), func(ctx context.Context, i int) error {
		r := &places[i]
		return w.s.conn.write(ctx, op{insertPlace, w.placeArgs(string(r.user), division, []byte(r.key),
			page.name, r.inPage.Ordinal, r.inPage.Competition, r.inPage.Dense, 2*w.number+1)})
	}); err != nil {
		return err
	}
	rows := make([]op, len(page.rows))
	for i := range page.rows {
		r := &page.rows[i]
		rows[i] = op{insertPageRow, w.args(page.name, []byte(r.key), string(r.user), r.inPage.Ordinal, r.inPage.Competition, r.inPage.Dense)}
	}
	const batch = 200
	for part := range slices.Chunk(rows, batch) {
		if err := w.s.conn.write(ctx, part...); err != nil {
			return err
		}
	}
	return nil
}

// writeDirectory must be called after all calls of writePage.
func (w *pageWriter) writeDirectory(ctx context.Context, division string, pages []newPage) error {
	list := make([]ladderPage, len(pages))
	for i := range pages {
		list[i] = pages[i].ladderPage
	}
	w.divisions = append(w.divisions, division)
	return w.s.conn.write(ctx, op{insertDirectory, w.placeArgs(division, []byte(w.generation), newDirectory(list).append(nil))})
}

// checkOpen returns nil if the incarnation is still open, so that a deletion finds the pages.
// If the incarnation has ended, checkOpen removes the generation and returns errEnded.
func (w *pageWriter) checkOpen(ctx context.Context) error {
	live, err := w.s.whileOpen(ctx, w.seasonKey, w.inc, func(context.Context) error { return nil })
	if err != nil || live {
		return err
	}
	return cmp.Or(w.removeOwn(ctx, w.generation, int64(w.pages), w.divisions), errEnded)
}

// writeAll writes the final standings of all ladders. If the incarnation ends meanwhile,
// writeAll removes the generation and returns errEnded.
func (w *pageWriter) writeAll(ctx context.Context) error {
	sizes := map[string]int64{"": 0}
	divisions := map[string]leaderboard.Division{"": {}}
	for e, err := range w.s.Scan(ctx, w.seasonKey, leaderboard.Part{}) {
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

func (w *pageWriter) writeLadder(ctx context.Context, name string, d leaderboard.Division, exists bool, n int64) error {
	var pages []newPage
	var rows []pageRow
	flush := func() error {
		if len(rows) == 0 {
			return nil
		}
		page := makePage(w.nextName(), rows)
		err := w.writeCount(ctx)
		if err == nil {
			err = w.writePage(ctx, name, &page, page.rows)
		}
		pages, rows = append(pages, newPage{ladderPage: page.ladderPage}), nil
		return cmp.Or(err, w.checkOpen(ctx))
	}
	if exists {
		for e, err := range w.s.Entries(ctx, leaderboard.Ladder{SeasonKey: w.seasonKey, Division: d}, "") {
			if err != nil {
				return err
			}
			if rows = append(rows, pageRow{key: e.SortKey(), user: e.User}); len(rows) == pageStandings(n) {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return cmp.Or(w.writeDirectory(ctx, name, pages), w.checkOpen(ctx))
}

type storedDirectory struct{ division, generation string }

func (p *pagedSeason) directories(ctx context.Context) ([]storedDirectory, error) {
	var division string
	var item []byte
	return gather(ctx, p.s.conn, op{selectUserPlaces, p.placeArgs("")}, []any{&division, &item}, func() (storedDirectory, error) {
		return storedDirectory{division, string(item)}, nil
	})
}

// removeOwn removes the pages and directories of a generation whose pages no valid
// directory lists. The places stay: readers ignore outdated places, and the next generation
// often needs the same places.
func (p *pagedSeason) removeOwn(ctx context.Context, generation string, pages int64, divisions []string) error {
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
		if err := p.s.conn.write(ctx, op{deletePlace, p.placeArgsAt(2, "", d, []byte(generation))}); err != nil {
			return err
		}
	}
	err = p.s.forEach(ctx, int(max(pages, stored)), func(ctx context.Context, i int) error {
		return p.s.conn.write(ctx, op{deletePage, p.args(pageName(generation, i))})
	})
	if err != nil {
		return err
	}
	return p.s.conn.write(ctx, op{deleteFinalGeneration, p.args(generation)})
}

func (p *pagedSeason) placeArgsAt(timestamp int64, others ...any) []any {
	return append([]any{timestamp}, p.placeArgs(others...)...)
}

func (p *pagedSeason) ownPages(ctx context.Context, generation string) (n int64, err error) {
	err = p.s.conn.read(ctx, op{selectFinalGeneration, p.args(generation)}, []any{&n}, func() bool { return true })
	return n, err
}

// collect removes replaced directories, and their pages that no valid directory lists.
//
// A replaced page never becomes valid again, so collect may use an outdated seal. But
// collect must list the directories before it reads the seal. A directory that is written
// after this read may become valid, and the outdated seal does not name it.
func (p *pagedSeason) collect(ctx context.Context) error {
	for {
		stored, err := p.directories(ctx)
		if err != nil {
			return err
		}
		x, err := p.s.readSeal(ctx, p.seasonKey, p.inc)
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

func (p *pagedSeason) collectOf(ctx context.Context, x *seal, stored []storedDirectory) error {
	for _, d := range stored {
		isWritten := slices.ContainsFunc(x.Pending, func(g pendingGeneration) bool { return g.Generation == d.generation && !g.isReplaced() })
		if d.generation == x.directoryOf(d.division) || isWritten {
			continue
		}
		if err := p.removeReplaced(ctx, x, d); err != nil {
			return err
		}
	}
	_, _, _, err := p.s.changeSeal(ctx, p.seasonKey, p.inc, func(now *seal) bool {
		now.Pending = slices.DeleteFunc(now.Pending, func(g pendingGeneration) bool { return g.isReplaced() && slices.Contains(x.Pending, g) })
		return true
	})
	return err
}

func (p *pagedSeason) removeReplaced(ctx context.Context, x *seal, d storedDirectory) error {
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
			replaced = append(replaced, name)
		}
	}
	err = p.s.forEach(ctx, len(replaced), func(ctx context.Context, i int) error {
		return p.s.conn.write(ctx, op{deletePage, p.args(replaced[i])})
	})
	if err != nil {
		return err
	}
	return p.s.conn.write(ctx, op{deletePlace, p.placeArgsAt(2, "", d.division, []byte(d.generation))})
}

// removeAll removes all pages and directories of an ended incarnation. The seal must not
// name a valid generation.
func (p *pagedSeason) removeAll(ctx context.Context, x *seal) error {
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
		if err := p.s.forEach(ctx, len(dir.pages), func(ctx context.Context, i int) error {
			return p.s.conn.write(ctx, op{deletePage, p.args(dir.pages[i].name)})
		}); err != nil {
			return err
		}
	}
	for _, g := range x.Pending {
		if err := p.removeOwn(ctx, g.Generation, 0, nil); err != nil {
			return err
		}
	}
	return p.s.conn.write(ctx, op{deletePlaces, p.placeArgsAt(sweepTime, "")})
}
