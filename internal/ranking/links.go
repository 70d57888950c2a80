package ranking

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// # Linked boards
//
// The Applier applies each result of a source to the boards linked to it, before it
// acknowledges the result. A linked board keeps its own copy of a result in the season that
// contains the event time, and a rolling board in each open window that contains it. These
// are the result's places. A revision may have other places than the revision that it
// replaces, or none. The older revision's places must then get the newer revision, which
// does not count there (see [leaderboard.Board.FromSource]).
//
// For each match, a writer therefore repeats these steps until step 1 reads the result
// that the writer offered last:
//
//  1. Read the result that stands on the source.
//  2. Offer it to every other place in which the linked board has the match.
//  3. Offer it to its own places.
//
// Let S be the result that stands on the source in the end. In the end, no place counts
// another revision X:
//
//   - The writer W that offered X to the place read the source afterwards. If it read
//     another result than X, it offered that result to the place too.
//   - Otherwise, S was written to the source after this read. The writer of S, or the
//     writer that repeats the work of a dead writer, does step 2 after that, and finds X.
//   - W may have died before it read the source. The writer that repeats the work of W then
//     does step 2, and finds X.
//
// Two shortcuts save reads:
//
//   - If a match had no result before, and the new result has revision 0, its writer begins
//     with step 3.
//   - If the writer itself applied S to the source, and the first place of S has S, the
//     writer omits step 2. Whoever offered S there had done step 2: the fill of a window, which
//     omits step 2, offers no result to its first place (see fillWindow). And if the writer repeats the
//     work of a dead writer, that writer offered nothing but S, because it had applied S
//     before it read the source.
//
// A void of a match, or its end, changes the Voids of the result that stands on the source,
// as a newer revision would: its writer repeats the same steps.
//
// A linked board refuses a result that comes too late for its season there. An older
// revision that came in time then still counts.
//
// Before a writer offers a result to a rolling board, it opens the windows that the result
// needs (see [leaderboard.Board.NeedsWindow]). Afterwards it checks that no window has been
// opened meanwhile, or begins again: see windows.go.

// errLinkGone means that a linked board was deleted.
var errLinkGone = errors.New("a linked board was deleted")

// linking applies results of a source to linked boards.
type linking struct {
	*shared
	source *leaderboard.Board
	boards []*leaderboard.Board
	whole  bool                 // the matches are all or most matches of their users
	window leaderboard.SeasonID // if not empty, the only place that gets results: see fillWindow
	// entries are the users' entries on the linked boards before and after the offers so
	// far. It is nil if nobody reads them.
	entries map[leaderboard.EntryKey]*leaderboard.Change
}

// linkedMatch is a match of the source whose results must reach the linked boards.
type linkedMatch struct {
	key     leaderboard.ResultKey
	arrived []leaderboard.MatchResult // the results that the caller applied to the source
	stands  *leaderboard.MatchResult  // the result that stands on the source, as read last
	offered *leaderboard.MatchResult  // the result that was offered last
	// places are the seasons of linked boards to which a result was offered. The value is
	// the reason why the season refused the result that stands, or empty.
	places map[leaderboard.SeasonKey]leaderboard.Reason
}

// offer is a result of a match for a linked board.
type offer struct {
	match  *linkedMatch
	result leaderboard.MatchResult
}

// fanOut applies results, which were applied to a source with the given report, to the
// linked boards. It adds the effects on the linked boards to the outcomes of the report.
func (a *Applier) fanOut(ctx context.Context, id leaderboard.BoardID, results []leaderboard.MatchResult, report *leaderboard.ApplyReport) error {
	for {
		l, err := a.linksOf(ctx, id)
		if err != nil || len(l.boards) == 0 {
			return err
		}
		l.entries = map[leaderboard.EntryKey]*leaderboard.Change{}
		var matches, single []*linkedMatch
		of := map[leaderboard.ResultKey]*linkedMatch{}
		for i := range results {
			o := &report.Outcomes[i]
			if o.Err != nil || o.Status == leaderboard.Rejected {
				continue
			}
			r := results[i].Normalize()
			m := of[r.ResultKey]
			if m == nil {
				m = &linkedMatch{key: r.ResultKey}
				of[r.ResultKey], matches = m, append(matches, m)
			}
			m.arrived = append(m.arrived, r)
			if m.stands = nil; len(m.arrived) == 1 && o.Status == leaderboard.Applied && r.Revision == 0 {
				m.stands = &r // the match's first result
			}
		}
		for _, m := range matches {
			if m.stands != nil {
				single = append(single, m)
			}
		}
		if err = l.offerFirst(ctx, single); err == nil {
			err = l.converge(ctx, matches)
		}
		again, err := l.again(ctx, err)
		if again {
			continue
		}
		for i := range results {
			if m := of[results[i].ResultKey]; m != nil {
				report.Outcomes[i].Linked = l.effects(m)
			}
		}
		return err
	}
}

// again reports whether the writer must begin again, because a linked board was deleted or
// opened a window. Otherwise it returns err, the error of the writer's work.
func (l *linking) again(ctx context.Context, err error) (bool, error) {
	if errors.Is(err, errLinkGone) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return l.windowsOpened(ctx)
}

// effects returns the effects of a match on linked boards, ordered by board and season.
func (l *linking) effects(m *linkedMatch) []leaderboard.LinkedEffect {
	var effects []leaderboard.LinkedEffect
	for key, skipped := range m.places {
		change := l.entries[leaderboard.EntryKey{SeasonKey: key, User: m.key.User}]
		effects = append(effects, leaderboard.LinkedEffect{Change: *change, Skipped: skipped})
	}
	slices.SortFunc(effects, func(x, y leaderboard.LinkedEffect) int {
		return cmp.Or(cmp.Compare(x.After.Board, y.After.Board), cmp.Compare(x.After.Season, y.After.Season))
	})
	return effects
}

// linksOf returns the boards that are linked to a board. They were read from the store at
// most Options.LinkTTL ago. If the store does not answer, linksOf returns its error instead
// of older boards. So each result that is applied to the source more than LinkTTL after the
// creation of a linked board reaches this board.
func (s *shared) linksOf(ctx context.Context, id leaderboard.BoardID) (*linking, error) {
	return s.linksSince(ctx, id, time.Now().Add(-s.linkTTL))
}

// linksSince does the work of linksOf with boards that were read after since.
func (s *shared) linksSince(ctx context.Context, id leaderboard.BoardID, since time.Time) (*linking, error) {
	l := &linking{shared: s}
	source, err := s.BoardSince(ctx, id, since)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return l, nil // the source was deleted after the results were applied
	}
	if err != nil {
		return nil, err
	}
	l.source = &source
	l.boards, err = linkedTo(&source, func(id leaderboard.BoardID) (*leaderboard.Board, error) {
		b, err := s.BoardSince(ctx, id, since)
		return &b, err
	})
	return l, err
}

// linkedTo returns the boards in the list of links of a source that exist and have this
// source. It reads each board by read.
func linkedTo(source *leaderboard.Board, read func(leaderboard.BoardID) (*leaderboard.Board, error)) (linked []*leaderboard.Board, err error) {
	for _, id := range source.Links {
		b, err := read(id)
		if errors.Is(err, leaderboard.ErrBoardNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if b.Source != nil && b.Source.Board == source.ID {
			linked = append(linked, b)
		}
	}
	return linked, nil
}

// offerFirst offers results that are the first of their matches.
func (l *linking) offerFirst(ctx context.Context, matches []*linkedMatch) error {
	if err := l.openWindows(ctx, matches); err != nil {
		return err
	}
	for _, b := range l.boards {
		var offers []offer
		for _, m := range matches {
			for _, season := range b.LinkedSeasons(m.stands) {
				offers = append(offers, offer{m, b.FromSource(l.source, m.stands, season)})
			}
		}
		if err := l.offer(ctx, b, offers); err != nil {
			return err
		}
	}
	for _, m := range matches {
		m.offered = m.stands
	}
	return nil
}

// converge repeats the three steps until every match is done.
func (l *linking) converge(ctx context.Context, matches []*linkedMatch) error {
	for {
		if err := l.readStanding(ctx, matches); err != nil {
			return err
		}
		matches = slices.DeleteFunc(slices.Clone(matches), func(m *linkedMatch) bool {
			return m.stands == nil || m.offered != nil && sameResult(m.offered, m.stands)
		})
		if len(matches) == 0 {
			return nil
		}
		if err := l.offerStanding(ctx, matches); err != nil {
			return err
		}
	}
}

// readStanding does step 1: it sets stands of each match. If the user was erased, or the
// source or its season was deleted, stands is nil.
func (l *linking) readStanding(ctx context.Context, matches []*linkedMatch) error {
	return eachRead(ctx, len(matches), func(ctx context.Context, i int) error {
		record, err := l.record(ctx, matches[i].key)
		matches[i].stands = record.Result
		return err
	})
}

// offerStanding does steps 2 and 3.
func (l *linking) offerStanding(ctx context.Context, matches []*linkedMatch) error {
	if err := l.openWindows(ctx, matches); err != nil {
		return err
	}
	known := l.newKnownPlaces()
	for _, b := range l.boards {
		found := make([]matchOffers, len(matches))
		if err := eachRead(ctx, len(matches), func(ctx context.Context, i int) (err error) {
			o := &found[i]
			o.linking, o.b, o.m = l, b, matches[i]
			if l.window != "" {
				return o.findForWindow(ctx)
			}
			return o.find(ctx, known)
		}); err != nil {
			return err
		}
		var older, away, own []offer
		for i := range found {
			older, away, own = append(older, found[i].older...), append(away, found[i].away...), append(own, found[i].own...)
		}
		for _, offers := range [][]offer{older, away, own} {
			if err := l.offer(ctx, b, offers); err != nil {
				return err
			}
		}
	}
	for _, m := range matches {
		m.offered = m.stands
	}
	return nil
}

// matchOffers are the results about a match that must be offered to a linked board, in this
// order.
type matchOffers struct {
	*linking
	b *leaderboard.Board
	m *linkedMatch

	older []offer // results that step 2 replaces, for other places: see keep
	away  []offer // step 2
	own   []offer // step 3
}

// find finds the offers of steps 2 and 3.
func (o *matchOffers) find(ctx context.Context, known *knownPlaces) error {
	ownPlaces := o.b.LinkedSeasons(o.m.stands)
	done := false
	for i, place := range ownPlaces {
		r := o.b.FromSource(o.source, o.m.stands, place)
		o.own = append(o.own, offer{o.m, r})
		if i > 0 {
			continue
		}
		record, err := o.record(ctx, r.ResultKey)
		if err != nil {
			return err
		}
		done = record.Result != nil && sameResult(record.Result, &r) &&
			slices.ContainsFunc(o.m.arrived, func(a leaderboard.MatchResult) bool { return sameResult(&a, o.m.stands) })
	}
	var places []leaderboard.SeasonID
	if !done {
		found, err := known.of(ctx, o.b, o.m.key.User, o.b.FromSource(o.source, o.m.stands, "").Match)
		if err != nil {
			return err
		}
		places = append(places, found...)
	}
	for i := range o.m.arrived {
		r := &o.m.arrived[i]
		places = append(places, o.b.LinkedSeasons(r)...)
		if err := o.addOlder(ctx, r, ownPlaces); err != nil {
			return err
		}
	}
	if o.m.offered != nil {
		places = append(places, o.b.LinkedSeasons(o.m.offered)...)
	}
	slices.Sort(places)
	for _, p := range slices.Compact(places) {
		if slices.Contains(ownPlaces, p) {
			continue
		}
		replaced, err := o.addAway(ctx, p)
		if err == nil && replaced != nil {
			err = o.keep(replaced, ownPlaces)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addOlder adds r, which arrived and is older than the standing result, to the offers to the
// places of the standing result. A place may refuse the standing result as late. Then r
// stands there, or, if it does not count there, replaces an even older one.
func (o *matchOffers) addOlder(ctx context.Context, r *leaderboard.MatchResult, places []leaderboard.SeasonID) error {
	if sameResult(r, o.m.stands) {
		return nil
	}
	for _, p := range places {
		older := o.b.FromSource(o.source, r, p)
		if !o.b.Counts(&older) {
			record, err := o.record(ctx, older.ResultKey)
			if err != nil {
				return err
			}
			if record.Result == nil {
				continue
			}
			// Both the standing result and r may be late in other places, where the result
			// that r replaces then counts.
			own := o.b.LinkedSeasons(r)
			both := slices.DeleteFunc(slices.Clone(places), func(p leaderboard.SeasonID) bool { return !slices.Contains(own, p) })
			if err := o.keep(record.Result, both); err != nil {
				return err
			}
		}
		older.Voids = max(older.Voids, o.m.stands.Voids) // it must not count while the match is void
		o.own = append(o.own, offer{o.m, older})
	}
	return nil
}

// addAway adds an offer of the standing result to the place p, if the place has the match.
// It returns the result that p has, or nil.
func (o *matchOffers) addAway(ctx context.Context, p leaderboard.SeasonID) (*leaderboard.MatchResult, error) {
	r := o.b.FromSource(o.source, o.m.stands, p)
	record, err := o.record(ctx, r.ResultKey)
	if err == nil && record.Result != nil {
		o.away = append(o.away, offer{o.m, r})
	}
	return record.Result, err
}

// keep adds offers of a result that another offer replaces to those places that are windows and
// not filled yet. If no process was up for days, such a window may refuse the standing result as
// late. The replaced result then counts there, and its fill would not find it.
func (o *matchOffers) keep(replaced *leaderboard.MatchResult, places []leaderboard.SeasonID) error {
	for _, p := range places {
		if o.b.Season.Kind != leaderboard.Rolling || p <= o.b.Rolling.Filled {
			continue
		}
		original, err := o.b.ToSource(o.source, replaced)
		if err != nil {
			return err
		}
		if r := o.b.FromSource(o.source, &original, p); o.b.Counts(&r) {
			o.older = append(o.older, offer{o.m, r})
		}
	}
	return nil
}

// knownPlaces finds the places in which linked boards have matches. It reads each user's
// places once, so it must be created after step 1.
type knownPlaces struct {
	*linking
	mu      sync.Mutex // held while the maps are used, not while a function reads
	seasons map[leaderboard.UserID]func() ([]leaderboard.SeasonKey, error)
	// results return the seasons of each match that a linked board has of a user.
	results map[boardUser]func() (map[leaderboard.MatchID][]leaderboard.SeasonID, error)
}

type boardUser struct {
	board leaderboard.BoardID
	user  leaderboard.UserID
}

func (l *linking) newKnownPlaces() *knownPlaces {
	return &knownPlaces{
		linking: l,
		seasons: map[leaderboard.UserID]func() ([]leaderboard.SeasonKey, error){},
		results: map[boardUser]func() (map[leaderboard.MatchID][]leaderboard.SeasonID, error){},
	}
}

// once calls the function that the map has for a key. If there is none, it adds read, which
// it calls only once.
func once[K comparable, V any](mu *sync.Mutex, of map[K]func() (V, error), key K, read func() (V, error)) (V, error) {
	mu.Lock()
	if of[key] == nil {
		of[key] = sync.OnceValues(read)
	}
	f := of[key]
	mu.Unlock()
	return f()
}

// of returns the seasons in which a linked board has a match, and maybe others.
func (k *knownPlaces) of(ctx context.Context, b *leaderboard.Board, user leaderboard.UserID, match leaderboard.MatchID) (places []leaderboard.SeasonID, err error) {
	keys, err := once(&k.mu, k.seasons, user, func() ([]leaderboard.SeasonKey, error) { return k.store.UserSeasons(ctx, user) })
	if err != nil {
		return nil, err
	}
	keys = slices.DeleteFunc(slices.Clone(keys), func(key leaderboard.SeasonKey) bool { return key.Board != b.ID })
	if k.whole {
		// To read all results of the user saves reads, because most of them are needed.
		seasons, err := once(&k.mu, k.results, boardUser{b.ID, user}, func() (map[leaderboard.MatchID][]leaderboard.SeasonID, error) {
			return k.seasonsOfMatches(ctx, keys, user)
		})
		return seasons[match], err
	}
	for _, key := range keys {
		places = append(places, key.Season)
	}
	return places, nil
}

// seasonsOfMatches returns the seasons of each match that a user has in the given seasons of
// a board.
func (k *knownPlaces) seasonsOfMatches(ctx context.Context, keys []leaderboard.SeasonKey, user leaderboard.UserID) (map[leaderboard.MatchID][]leaderboard.SeasonID, error) {
	seasons := map[leaderboard.MatchID][]leaderboard.SeasonID{}
	for _, key := range keys {
		for r, err := range k.store.Results(ctx, key, user) {
			if err != nil {
				return nil, err
			}
			seasons[r.Match] = append(seasons[r.Match], key.Season)
		}
	}
	return seasons, nil
}

// record returns what the store has about a match result, or an empty record.
func (s *shared) record(ctx context.Context, key leaderboard.ResultKey) (leaderboard.Record, error) {
	record, err := s.store.Result(ctx, key)
	if errors.Is(err, leaderboard.ErrResultNotFound) {
		err = nil
	}
	return record, err
}

// offer applies results to a linked board. Their users' ranks are updated even if the
// board has the results already: an earlier process may have died before it updated them.
func (l *linking) offer(ctx context.Context, b *leaderboard.Board, offers []offer) error {
	for offers := range slices.Chunk(offers, MaxBatch) {
		results := make([]leaderboard.MatchResult, len(offers))
		for i := range offers {
			results[i] = offers[i].result
		}
		report, err := l.applyTo(ctx, b, results)
		if errors.Is(err, leaderboard.ErrBoardNotFound) {
			return errLinkGone
		}
		if err != nil {
			return err
		}
		for i := range report.Outcomes {
			if err := report.Outcomes[i].Err; err != nil {
				return err
			}
		}
		if l.entries != nil {
			l.note(offers, &report)
		}
	}
	return nil
}

// note keeps the effects of offers, which were applied with the given report.
func (l *linking) note(offers []offer, report *leaderboard.ApplyReport) {
	for _, change := range report.Changes {
		key := leaderboard.EntryKey{SeasonKey: change.After.SeasonKey, User: change.After.User}
		if have := l.entries[key]; have != nil {
			have.After = change.After
		} else {
			l.entries[key] = &change
		}
	}
	for i := range offers {
		r, m, o := &offers[i].result, offers[i].match, &report.Outcomes[i]
		key := leaderboard.EntryKey{SeasonKey: r.SeasonKey, User: r.User}
		if l.entries[key] == nil {
			e := o.Entry
			e.SeasonKey, e.User = r.SeasonKey, r.User // absent if the user has no entry
			l.entries[key] = &leaderboard.Change{Before: e, After: e}
		}
		if m.places == nil {
			m.places = map[leaderboard.SeasonKey]leaderboard.Reason{}
		}
		if _, known := m.places[r.SeasonKey]; !known || sameResult(r, m.stands) {
			m.places[r.SeasonKey] = o.Reason
		}
	}
}

// sameResult reports whether x and y are the same revision, with the same content, event
// time and Voids.
func sameResult(x, y *leaderboard.MatchResult) bool {
	return x.Revision == y.Revision && x.Voids == y.Voids && x.AchievedAt.Equal(y.AchievedAt) && x.ContentID() == y.ContentID()
}

// refreshLinked offers the results of a user in a season of a source to the linked boards.
func (s *shared) refreshLinked(ctx context.Context, key leaderboard.EntryKey) error {
	for {
		l, err := s.linksOf(ctx, key.Board)
		if err != nil || len(l.boards) == 0 {
			return err
		}
		var matches []*linkedMatch
		for r, err := range s.store.Results(ctx, key.SeasonKey, key.User) {
			if err != nil {
				return err
			}
			matches = append(matches, &linkedMatch{key: r.ResultKey, stands: &r})
		}
		l.whole = true
		if err = l.offerStanding(ctx, matches); err == nil {
			err = l.converge(ctx, matches)
		}
		if again, err := l.again(ctx, err); !again {
			return err
		}
	}
}
