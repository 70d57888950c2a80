package finals

import (
	"context"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// A ladderRead reads one ladder: see open.go.
type ladderRead struct {
	*finalRead
	*directory
}

func (r *finalRead) openLadder(ctx context.Context, division string, users []leaderboard.UserID) (*ladderRead, map[leaderboard.UserID][]foundPlace, error) {
	p := &ladderRead{finalRead: r}
	generation := r.seal.directoryOf(division)
	chunks := slices.Collect(slices.Chunk(users, lookupUsers))
	found := make([]foundPlaces, max(len(chunks), 1))
	chunks = append(chunks, nil)
	read := func(ctx context.Context, i int) (err error) {
		found[i], err = p.readPlaces(ctx, division, generation, chunks[i])
		return err
	}
	// the first statement also reads and caches the directory
	if err := read(ctx, 0); err != nil {
		return nil, nil, err
	}
	p.directory = found[0].directory
	err := r.forEach(ctx, len(found)-1, func(ctx context.Context, i int) error { return read(ctx, i+1) })
	if err == nil && p.directory == nil {
		p.directory, err = p.emptyDirectory(ctx, division, r.seal)
	}
	places := found[0].places
	for _, f := range found[1:] {
		for user, list := range f.places {
			places[user] = list
		}
	}
	return p, places, err
}

func (p *ladderRead) load(ctx context.Context, indexes []int) ([][]leaderboard.Standing, error) {
	pages := make([]ladderPage, len(indexes))
	for i, index := range indexes {
		pages[i] = p.directory.pages[index]
	}
	rows, err := p.readPages(ctx, pages)
	if err != nil {
		return nil, err
	}
	lists := make([][]leaderboard.Standing, len(pages))
	for i := range pages {
		for _, r := range rows[pages[i].name] {
			st, err := r.standing(&pages[i])
			if err != nil {
				return nil, err
			}
			lists[i] = append(lists[i], st)
		}
	}
	return lists, nil
}

func interval(first, last int) (numbers []int) {
	for i := first; i <= last; i++ {
		numbers = append(numbers, i)
	}
	return numbers
}

func (p *ladderRead) standingsFrom(ctx context.Context, position int64, n int) (page []leaderboard.Standing, err error) {
	for first := p.pageAt(position); len(page) < n && first < len(p.directory.pages); {
		last := first
		for end := position + int64(n-len(page)); last+1 < len(p.directory.pages) && p.directory.pages[last+1].before+1 < end; {
			last++
		}
		lists, err := p.load(ctx, interval(first, last))
		if err != nil {
			return nil, err
		}
		for _, st := range slices.Concat(lists...) {
			if st.Ranks.Ordinal >= position && len(page) < n {
				page = append(page, st)
			}
		}
		first = last + 1
		position = max(position, p.directory.pages[last].before+p.directory.pages[last].positions+1)
	}
	p.intact = true
	return page, nil
}

func (p *ladderRead) standingsOf(ctx context.Context, places map[leaderboard.UserID][]foundPlace) (map[leaderboard.UserID]leaderboard.Standing, error) {
	standings := map[leaderboard.UserID]leaderboard.Standing{}
	var unknown []soughtPlace
	add := func(r *pageRow, page *ladderPage) error {
		st, err := r.standing(page)
		standings[r.user] = st
		return err
	}
	for user, list := range places {
		for _, place := range list {
			i := p.pageOf(place.key)
			if i < 0 {
				continue
			}
			page := &p.directory.pages[i]
			cached, isCached := p.cache.get(cachedName(page.name)).(rowsOfPage)
			switch {
			// The place names the page that the valid directory lists. This page still has
			// the user, because pages never change.
			case page.name == place.page:
				if err := add(&pageRow{place.key, user, place.inPage}, page); err != nil {
					return nil, err
				}
			case isCached:
				if row, ok := cached.find(place.key); ok {
					if err := add(&cached[row], page); err != nil {
						return nil, err
					}
				}
			default:
				unknown = append(unknown, soughtPlace{place.key, page})
			}
		}
	}
	return standings, p.search(ctx, unknown, add)
}

// A soughtPlace is a sort key and the only page that may contain it.
type soughtPlace struct {
	key  leaderboard.SortKey
	page *ladderPage
}

// search calls found for each sort key that is in its page.
func (p *ladderRead) search(ctx context.Context, sought []soughtPlace, found func(*pageRow, *ladderPage) error) error {
	var pages []ladderPage
	for _, place := range sought {
		if !slices.ContainsFunc(pages, func(q ladderPage) bool { return q.name == place.page.name }) {
			pages = append(pages, *place.page)
		}
	}
	rows, err := p.readPages(ctx, pages)
	if err != nil {
		return err
	}
	for _, place := range sought {
		if i, ok := rows[place.page.name].find(place.key); ok {
			if err := found(&rows[place.page.name][i], place.page); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *ladderRead) lookup(ctx context.Context, users []leaderboard.UserID, places map[leaderboard.UserID][]foundPlace) ([]leaderboard.Standing, error) {
	byUser, err := p.standingsOf(ctx, places)
	if err != nil {
		return nil, err
	}
	p.intact = true
	standings := make([]leaderboard.Standing, len(users))
	for i, u := range users {
		st, ok := byUser[u]
		if !ok {
			st.User = u
			p.intact = false
		}
		standings[i] = st
	}
	return standings, nil
}

func (p *ladderRead) neighborhood(ctx context.Context, user leaderboard.UserID, places []foundPlace, above, below int) (leaderboard.Neighborhood, error) {
	for _, place := range places {
		i := p.pageOf(place.key)
		if i < 0 {
			continue
		}
		from, to, found := p.positionsOf(&place, &p.directory.pages[i])
		if !found {
			continue
		}
		key := (&pageRow{key: place.key, user: user}).rankKey()
		end := p.lastOf(key, i)
		indexes := interval(p.pageAt(max(from-int64(above), 1)), min(p.pageAt(to+int64(below)), len(p.directory.pages)-1))
		if p.directory.pages[end].last != key && end > indexes[len(indexes)-1] {
			indexes = append(indexes, end)
		}
		lists, err := p.load(ctx, indexes)
		if err != nil {
			return leaderboard.Neighborhood{}, err
		}
		n, found := window(slices.Concat(lists...), place.key, above, below)
		if !found {
			continue
		}
		page := &p.directory.pages[end]
		if n.NotWorse = page.before + page.positions; page.last != key {
			n.NotWorse = page.before + page.lastTie - 1 // remains if all standings after the tie were erased
			for _, st := range slices.Backward(lists[slices.Index(indexes, end)]) {
				if st.Key > key {
					n.NotWorse = st.Ranks.Competition - 1
				}
			}
		}
		p.intact = true
		return n, nil
	}
	return leaderboard.Neighborhood{}, errNoStanding(user)
}

// positionsOf returns the first and the last possible position of a place. The result found
// is false if the page is cached and lacks the key.
func (p *ladderRead) positionsOf(place *foundPlace, page *ladderPage) (from, to int64, found bool) {
	if rows, ok := p.cache.get(cachedName(page.name)).(rowsOfPage); ok {
		row, ok := rows.find(place.key)
		if !ok {
			return 0, 0, false
		}
		from = page.before + rows[row].inPage.Ordinal
		return from, from, true
	}
	if page.name == place.page {
		return page.before + place.inPage.Ordinal, page.before + place.inPage.Ordinal, true
	}
	return page.before + 1, page.before + page.positions, true
}

func window(list []leaderboard.Standing, key leaderboard.SortKey, above, below int) (leaderboard.Neighborhood, bool) {
	i := slices.IndexFunc(list, func(st leaderboard.Standing) bool { return st.SortKey() == key })
	if i < 0 {
		return leaderboard.Neighborhood{}, false
	}
	position := list[i].Ranks.Ordinal
	n := leaderboard.Neighborhood{}
	for j := range list {
		if o := list[j].Ranks.Ordinal; o >= position-int64(above) && o <= position+int64(below) {
			if j == i {
				n.Of = len(n.Standings)
			}
			n.Standings = append(n.Standings, list[j])
		}
	}
	return n, true
}

// standingsAfter returns up to n standings that follow a sort key, and the counts of all
// better standings.
func (p *ladderRead) standingsAfter(ctx context.Context, after leaderboard.SortKey, n int) ([]leaderboard.Standing, leaderboard.Counts, error) {
	var following []leaderboard.Standing
	var last leaderboard.Standing
	at, _ := slices.BinarySearch(p.filled, max(p.pageOf(after), 0))
	for at < len(p.filled) && len(following) < max(n, 1) {
		indexes := []int{p.filled[at]}
		expected := 0 // standings on pages indexes[1:]
		for at++; at < len(p.filled) && expected < n; at++ {
			indexes, expected = append(indexes, p.filled[at]), expected+int(p.directory.pages[p.filled[at]].standings)
		}
		lists, err := p.load(ctx, indexes)
		if err != nil {
			return nil, leaderboard.Counts{}, err
		}
		for _, st := range slices.Concat(lists...) {
			if st.SortKey() > after {
				following = append(following, st)
			} else {
				last = st
			}
		}
		// No standing so far follows the key. If the next page has no erased standings, the
		// directory has the counts before its first standing.
		if n == 0 && len(following) == 0 && at < len(p.filled) {
			if next := &p.directory.pages[p.filled[at]]; next.standings == next.positions {
				p.intact = true
				return nil, leaderboard.Counts{Standings: next.better, Distinct: next.betterKeys}, nil
			}
		}
	}
	p.intact = true
	return following[:min(n, len(following))], better(&last, following), nil
}

// better counts the standings whose rank key is better than a given rank key, or prefix of a
// rank key. last is the last standing before the given key, or the zero Standing. page begins
// with the first standing after the given key, or is empty.
func better(last *leaderboard.Standing, page []leaderboard.Standing) leaderboard.Counts {
	if len(page) == 0 {
		return leaderboard.Counts{Standings: last.Ranks.Ordinal, Distinct: last.Ranks.Dense}
	}
	return leaderboard.Counts{Standings: page[0].Ranks.Competition - 1, Distinct: page[0].Ranks.Dense - 1}
}
