package finals

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

// A change is an amendment or an erasure of final standings: see directory.go.
type change struct {
	season
	seal        *seal
	users       []leaderboard.UserID
	erases      bool // erases the only user of users; all others keep their ranks
	directories map[string]*directory
	ladders     map[string]*ladderChange // only those that change
	outdated    []outdatedPlace
}

// An outdatedPlace is a place (see directory.go) that the change replaces.
type outdatedPlace struct {
	user     leaderboard.UserID
	division string
	key      leaderboard.SortKey
}

func (c *change) compute(ctx context.Context) error {
	c.directories, c.ladders, c.outdated = map[string]*directory{}, map[string]*ladderChange{}, nil
	places, entries := make([]map[string][]leaderboard.SortKey, len(c.users)), make([]leaderboard.Entry, len(c.users))
	if err := c.forEach(ctx, len(c.users), func(ctx context.Context, i int) (err error) {
		if places[i], err = c.placesOf(ctx, c.users[i]); err != nil || c.erases {
			return err
		}
		entries[i], err = c.b.Entry(ctx, c.inc.SeasonKey, c.users[i])
		if errors.Is(err, leaderboard.ErrEntryNotFound) {
			err = nil
		}
		return err
	}); err != nil {
		return err
	}
	for i, user := range c.users {
		e := &entries[i]
		wanted := map[string]leaderboard.SortKey{}
		if e.Ranked() {
			wanted[""] = e.SortKey()
			for _, d := range e.Divisions {
				wanted[d.String()] = e.SortKey()
			}
		}
		for division := range wanted {
			if _, ok := places[i][division]; !ok {
				places[i][division] = nil
			}
		}
		for _, division := range slices.Sorted(maps.Keys(places[i])) {
			if err := c.compareLadder(ctx, division, user, wanted[division], places[i][division]); err != nil {
				return err
			}
		}
	}
	return c.closeGaps(ctx)
}

// Erased standings leave gaps in the ranks. If an amendment changes any ladder, closeGaps
// adds the ladders with gaps to c.
func (c *change) closeGaps(ctx context.Context) (err error) {
	if c.erases || len(c.ladders) == 0 {
		return nil
	}
	for division := range c.seal.Erased {
		if c.ladders[division] != nil {
			continue
		}
		if c.directories[division], err = c.currentDirectory(ctx, division, c.seal); err != nil {
			return err
		}
		c.ladders[division] = &ladderChange{}
	}
	return nil
}

func (p *season) placesOf(ctx context.Context, user leaderboard.UserID) (map[string][]leaderboard.SortKey, error) {
	places := map[string][]leaderboard.SortKey{}
	for row, err := range p.b.Rows(ctx, placeList(p.inc.ID, user), nil) {
		if err != nil {
			return nil, err
		}
		division, key, err := splitItem(row.Key)
		if err != nil {
			return nil, err
		}
		places[division] = append(places[division], leaderboard.SortKey(key))
	}
	return places, nil
}

// compareLadder compares a user's standings with the wanted sort key, and adds the
// differences to c. If wanted is empty, the user must have no standing.
func (c *change) compareLadder(ctx context.Context, division string, user leaderboard.UserID, wanted leaderboard.SortKey, places []leaderboard.SortKey) error {
	d := c.directories[division]
	if d == nil {
		var err error
		if d, err = c.currentDirectory(ctx, division, c.seal); err != nil {
			return err
		}
		c.directories[division] = d
	}
	change := ladderChange{}
	stands := false
	for _, key := range places {
		if key != wanted {
			c.outdated = append(c.outdated, outdatedPlace{user, division, key})
		}
		found, err := c.contains(ctx, d, key)
		if err != nil {
			return err
		}
		if found && key == wanted {
			stands = true
		} else if found {
			change.removed = append(change.removed, key)
		}
	}
	if wanted != "" && !stands {
		change.inserted = []pageRow{{key: wanted, user: user}}
	}
	if len(change.removed) == 0 && len(change.inserted) == 0 {
		return nil
	}
	if c.ladders[division] == nil {
		c.ladders[division] = &ladderChange{}
	}
	all := c.ladders[division]
	all.removed, all.inserted = append(all.removed, change.removed...), append(all.inserted, change.inserted...)
	return nil
}

func (p *season) contains(ctx context.Context, d *directory, key leaderboard.SortKey) (bool, error) {
	i := d.pageOf(key)
	if i < 0 {
		return false, nil
	}
	pages, err := p.readPages(ctx, d.pages[i:i+1])
	if err != nil {
		return false, err
	}
	_, found := pages[d.pages[i].name].find(key)
	return found, nil
}

func (p *season) currentDirectory(ctx context.Context, division string, x *seal) (*directory, error) {
	d, err := p.readDirectory(ctx, division, x.directoryOf(division))
	if err != nil || d != nil {
		return d, err
	}
	return p.emptyDirectory(ctx, division, x)
}

// emptyDirectory returns an empty directory if the final standings lack the division.
// Errors: errIncomplete if the directory was removed or has not arrived.
func (p *season) emptyDirectory(ctx context.Context, division string, x *seal) (*directory, error) {
	if division != "" && x.Ladders[division] == "" {
		overall, err := p.readDirectory(ctx, "", x.directoryOf(""))
		if err != nil || overall != nil {
			return newDirectory(nil), err
		}
	}
	return nil, errIncomplete
}

// amend calls changePages if this data center wrote all final standings. Otherwise, rows
// of another data center may be missing, and changePages could leave an old standing. So
// amend only compares standings with entries. If amend returns false, the caller must write
// all final standings again.
func (p *season) amend(ctx context.Context, users []leaderboard.UserID, a *leaderboard.Amendment) (seal, bool, error) {
	x, err := p.readSeal(ctx)
	if err != nil || !x.sealed() {
		return x, false, err
	}
	if x.Writer == p.region() {
		x, err = p.changePages(ctx, users, a)
		return x, x.sealed(), err
	}
	c := change{season: *p, seal: &x, users: users}
	err = c.compute(ctx)
	if errors.Is(err, errIncomplete) {
		return x, false, nil
	}
	if err != nil || len(c.ladders) > 0 {
		return x, false, err
	}
	agreed, err := c.overtakeOthers(ctx)
	return x, agreed, err
}

// overtakeOthers makes running amendments start again, because they may have read older
// entries. If another generation has become valid meanwhile, it returns false, and the
// caller must call compute again.
func (c *change) overtakeOthers(ctx context.Context) (bool, error) {
	runs := func(p pendingGeneration) bool { return !p.isReplaced() }
	if !slices.ContainsFunc(c.seal.Pending, runs) {
		return true, nil // no amendment is running, and later ones read the new entries
	}
	x, _, _, err := c.changeSeal(ctx, func(x *seal) bool {
		x.Overtaken++
		return x.Generation == c.seal.Generation && slices.ContainsFunc(x.Pending, runs)
	})
	return x.Generation == c.seal.Generation, err
}

// changePages makes the final standings agree with the entries of users, and adds the
// amendment a to the seal. If a is nil, it erases the only user, and the other users keep
// their ranks. If the season is not sealed, it does nothing. Errors: errEnded.
//
// changePages adds its generation to the seal's Pending, and then reads the entries. A
// later erasure finds the generation and raises Overtaken, so changePages starts again. Of
// two amendments, the one that swaps the seal second starts again.
func (p *season) changePages(ctx context.Context, users []leaderboard.UserID, a *leaderboard.Amendment) (seal, error) {
	for {
		x, err := p.readSeal(ctx)
		if err != nil || !x.sealed() {
			return x, err
		}
		c := change{season: *p, seal: &x, users: users, erases: a == nil}
		if err = c.compute(ctx); err == nil && len(c.ladders) == 0 {
			agreed, err := c.overtakeOthers(ctx)
			if err == nil && !agreed {
				continue
			}
			if err == nil && x.hasReplaced() {
				err = p.collect(ctx)
			}
			return x, err
		}
		done := false
		if err == nil {
			x, done, err = c.try(ctx, a)
		}
		if done {
			return x, err
		}
		if err != nil {
			if err := p.unlessReplaced(ctx, x.Generation, err); err != nil {
				return x, err
			}
		}
	}
}

func (p *season) unlessReplaced(ctx context.Context, generation string, err error) error {
	if !errors.Is(err, errIncomplete) {
		return err
	}
	x, readErr := p.readSeal(ctx)
	if readErr != nil {
		return readErr
	}
	if x.Generation == generation {
		return err
	}
	return nil
}

// try writes the change as a new generation, and calls validate. If try returns false, it
// has removed its pages and directories, and the caller must start again or handle the
// error.
func (c *change) try(ctx context.Context, a *leaderboard.Amendment) (seal, bool, error) {
	before, w, err := c.newPageWriter(ctx, (*seal).sealed)
	if err != nil || w == nil {
		return before, false, err
	}
	c.seal = &before
	err = w.checkOpen(ctx)
	if err == nil {
		err = c.compute(ctx)
	}
	if err == nil {
		err = c.write(ctx, w)
	}
	if errors.Is(err, errEnded) {
		return before, true, cmp.Or(w.unlist(ctx), errEnded)
	}
	if err != nil && !errors.Is(err, errIncomplete) {
		return before, true, err
	}
	if err == nil {
		x, ok, swapErr := c.validate(ctx, w, a)
		if ok || swapErr != nil {
			return x, true, swapErr
		}
	}
	if removeErr := c.removePending(ctx, w.generation); removeErr != nil {
		return before, true, removeErr
	}
	return before, false, err
}

func (c *change) write(ctx context.Context, w *pageWriter) error {
	pages := map[string][]newPage{}
	for _, division := range slices.Sorted(maps.Keys(c.ladders)) {
		var err error
		if pages[division], err = c.newPages(ctx, division, w.nextName); err != nil {
			return err
		}
	}
	if err := w.writeCount(ctx); err != nil {
		return err
	}
	for _, division := range slices.Sorted(maps.Keys(pages)) {
		inserted := map[leaderboard.SortKey]bool{}
		for _, r := range c.ladders[division].inserted {
			inserted[r.key] = true
		}
		if err := w.writePages(ctx, division, pages[division], func(r *pageRow) bool { return !inserted[r.key] }); err != nil {
			return err
		}
		if err := w.writeDirectory(ctx, division, pages[division]); err != nil {
			return err
		}
	}
	return w.checkOpen(ctx)
}

func (c *change) newPages(ctx context.Context, division string, name func() string) ([]newPage, error) {
	d, change := c.directories[division], c.ladders[division]
	load := func(p *ladderPage) ([]pageRow, error) {
		pages, err := c.readPages(ctx, []ladderPage{*p})
		return pages[p.name], err
	}
	if !c.erases {
		return d.amend(change, load, name)
	}
	pages := make([]newPage, len(d.pages))
	for i := range d.pages {
		pages[i].ladderPage = d.pages[i]
	}
	for _, key := range change.removed {
		i := d.pageOf(key)
		rows, err := load(&d.pages[i])
		if err != nil {
			return nil, err
		}
		pages[i] = d.pages[i].withoutUser(name(), rows, c.users[0])
	}
	return pages, nil
}

// validate makes the generation of w valid, unless another generation has become valid or
// Overtaken has grown since c.seal was read.
func (c *change) validate(ctx context.Context, w *pageWriter, a *leaderboard.Amendment) (seal, bool, error) {
	_, x, ok, err := c.changeSeal(ctx, func(x *seal) bool {
		i := slices.IndexFunc(x.Pending, func(p pendingGeneration) bool { return p.Generation == w.generation })
		if x.Generation != c.seal.Generation || x.Overtaken != c.seal.Overtaken || i < 0 {
			return false
		}
		x.Pending[i] = pendingGeneration{Generation: x.Generation}
		if a != nil {
			x.addAmendment(a)
		}
		if x.Writer != c.region() {
			x.Writer = parts
		}
		if x.Generation = w.generation; x.Ladders == nil {
			x.Ladders = map[string]string{}
		}
		for division, change := range c.ladders {
			if x.Ladders[division] = w.generation; c.erases {
				x.addErased(division, int64(len(change.removed)))
			} else {
				delete(x.Erased, division)
			}
		}
		return true
	})
	if err != nil || !ok {
		return x, false, err // after an error, the generation may be valid and must not be removed
	}
	removals := make([]storage.RowWrite, len(c.outdated))
	for i := range c.outdated {
		o := &c.outdated[i]
		removals[i] = writeItem(placeList(c.inc.ID, o.user), o.division, string(o.key), nil, w.placeTime()-1)
	}
	if err = c.b.WriteAll(ctx, removals...); err == nil {
		err = c.removeOld(ctx, &x)
	}
	return x, true, err
}

// erase removes a user from valid, pending and replaced final standings. The caller must
// have raised Overtaken.
func (p *season) erase(ctx context.Context, x *seal, user leaderboard.UserID) error {
	places, err := p.placesOf(ctx, user)
	if err != nil {
		return err
	}
	keys := map[leaderboard.SortKey]bool{}
	for _, list := range places {
		for _, key := range list {
			keys[key] = true
		}
	}
	for _, g := range x.Pending {
		if !g.isReplaced() {
			if err := p.erasePending(ctx, g.Generation, keys); err != nil {
				return err
			}
		}
	}
	current, err := p.b.Incarnation(ctx, p.inc.SeasonKey, false)
	if err != nil || !current.Open || current.ID != p.inc.ID {
		return err
	}
	p.inc = current
	if _, err := p.changePages(ctx, []leaderboard.UserID{user}, nil); err != nil {
		if errors.Is(err, errEnded) {
			err = nil
		}
		return err
	}
	now, err := p.readSeal(ctx)
	if err != nil || len(places) == 0 && len(now.Pending) == 0 {
		return err
	}
	// the timestamp also covers the places that a pending generation writes
	if err := p.b.RemoveRows(ctx, 2*now.Writes+1, placeList(p.inc.ID, user)); err != nil {
		return err
	}
	return p.collect(ctx)
}

// erasePending removes standings from a pending generation. It also removes the
// directories, because the fence of a page (see directory.go) may contain the user's id.
// The caller has raised Overtaken, so the generation cannot become valid.
func (p *season) erasePending(ctx context.Context, generation string, keys map[leaderboard.SortKey]bool) error {
	pages, err := p.ownPages(ctx, generation)
	if err != nil {
		return err
	}
	var removals []storage.RowWrite
	for key := range keys {
		for i := range int(pages) {
			removals = append(removals, storage.RowWrite{List: pageList(pageName(generation, i)), Row: storage.Row{Key: []byte(key)}, Version: removed})
		}
	}
	stored, err := p.directories(ctx)
	if err != nil {
		return err
	}
	for _, d := range stored {
		if d.generation == generation {
			removals = append(removals, writeItem(directoryList(p.inc.ID), d.division, generation, nil, removed))
		}
	}
	return p.b.WriteAll(ctx, removals...)
}
