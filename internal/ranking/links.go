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
// The Applier applies a result to the source, copies it to the linked boards, and then
// acknowledges it. A linked board keeps a copy in the season that contains the event time. A
// rolling board keeps a copy in each open window that contains the event time. These seasons
// and windows are the places of the result. A newer revision may have other places, or none.
// The places of the older revision must also get the newer revision: it replaces the older
// revision there, but does not count there (see [leaderboard.Board.FromSource]).
//
// A writer is a call of the Applier, of a fill, or of a repair that copies results to linked
// boards. A writer offers a result to a place: it applies the result there, but the place may
// refuse the result. For each match of a user, a writer repeats these steps until step 1 reads
// the result that the writer offered last:
//
//  1. Read the result that stands on the source (the standing result).
//  2. Offer the standing result to every season that has a result of the match, except the
//     places of the standing result.
//  3. Offer the standing result to its own places.
//
// When all writers have finished, no place counts any revision except the standing result S.
// Suppose that a writer W offered another revision X to a place. Next, W does step 1:
//
//   - If W reads another result than X, W offers that result to the place. The offer replaces X.
//   - If W reads X, the writer of S applies S to the source later. That writer does steps 2 and
//     3 afterwards, and one of them replaces X. If that writer dies, another writer repeats its
//     work.
//   - If W dies before step 1, another writer repeats the work of W, and its step 2 or 3
//     replaces X.
//
// Two shortcuts save reads:
//
//   - If the new result has revision 0, and the source had no result of the match, the writer
//     begins with step 3.
//   - If the writer itself applied S to the source, and the first place of S already has S, the
//     writer omits step 2. The writer that offered S to this place had already done step 2. (The
//     fill of a window omits step 2, but never offers S to the first place of S: see
//     findForWindow.) If the writer repeats the work of a dead writer, the dead writer had also
//     applied S before it read the source. So the dead writer offered only S, and no X.
//
// A change of the field Voids counts as a newer revision.
//
// Exception: a place refuses a revision that comes too late, and still counts an older revision
// that came in time.
//
// Before a writer offers a result to a rolling board, the writer opens the windows that the
// result needs (see [leaderboard.Board.NeedsWindow]). If another process opened a window
// meanwhile, the writer begins again: see windows.go.

var errLinkDeleted = errors.New("a linked board was deleted")

type linking struct {
	*shared
	source *leaderboard.Board
	boards []*leaderboard.Board
	// mostMatches means that the caller passes most matches of each user. knownPlaces then
	// reads all results of a user at once.
	mostMatches bool
	window      leaderboard.SeasonID // if not empty, the only place that gets results: see fillWindow
	// copied means that the writer has offered a result. newWindow means that the writer
	// learned of a new window afterwards: see openWindows.
	copied, newWindow bool
	// entries has the users' entries on the linked boards before and after the offers. It is
	// nil if the caller does not need them.
	entries map[leaderboard.EntryKey]*leaderboard.Change
	// damaged has the users whose data on a linked board are damaged. They get no results
	// there. If damaged is nil, a writer that finds damaged data returns an error.
	damaged map[boardUser]bool
}

type linkedMatch struct {
	key      leaderboard.ResultKey
	arrived  []leaderboard.MatchResult // the results that the caller applied to the source
	standing *leaderboard.MatchResult  // the result that stands on the source, as read last
	offered  *leaderboard.MatchResult  // the standing result that was offered last
	// reasons has each season to which a result was offered. The value is the reason why the
	// season refused the standing result, or "".
	reasons map[leaderboard.SeasonKey]leaderboard.Reason
}

type offer struct {
	match  *linkedMatch
	result leaderboard.MatchResult
}

// fanOut copies results to the linked boards. The caller has applied the results to the source,
// with the given report. fanOut adds the effects on linked boards to the report's outcomes. If a
// user's data on a linked board are damaged, the user's results are not copied to it: verify
// repairs this.
func (a *Applier) fanOut(ctx context.Context, id leaderboard.BoardID, results []leaderboard.MatchResult, report *leaderboard.ApplyReport) error {
	for {
		l, err := a.linksOf(ctx, id)
		if err != nil || len(l.boards) == 0 {
			return err
		}
		l.entries, l.damaged = map[leaderboard.EntryKey]*leaderboard.Change{}, map[boardUser]bool{}
		var matches, firstMatches []*linkedMatch
		byKey := map[leaderboard.ResultKey]*linkedMatch{}
		for i := range results {
			o := &report.Outcomes[i]
			if o.Err != nil || o.Status == leaderboard.Rejected {
				continue
			}
			r := results[i].Normalize()
			m := byKey[r.ResultKey]
			if m == nil {
				m = &linkedMatch{key: r.ResultKey}
				byKey[r.ResultKey], matches = m, append(matches, m)
			}
			m.arrived = append(m.arrived, r)
			if m.standing = nil; len(m.arrived) == 1 && o.Status == leaderboard.Applied && r.Revision == 0 {
				m.standing = &r
			}
		}
		for _, m := range matches {
			if m.standing != nil {
				firstMatches = append(firstMatches, m)
			}
		}
		if err = l.offerFirst(ctx, firstMatches); err == nil {
			err = l.converge(ctx, matches)
		}
		repeat, err := l.mustRepeat(ctx, err)
		if repeat {
			continue
		}
		for i := range results {
			if m := byKey[results[i].ResultKey]; m != nil {
				report.Outcomes[i].Linked = l.effects(m)
			}
		}
		return err
	}
}

// mustRepeat reports whether the writer must begin again, because a linked board was deleted
// or opened a window. Otherwise, mustRepeat returns err.
func (l *linking) mustRepeat(ctx context.Context, err error) (bool, error) {
	if errors.Is(err, errLinkDeleted) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return l.windowsOpened(ctx)
}

func (l *linking) effects(m *linkedMatch) []leaderboard.LinkedEffect {
	var effects []leaderboard.LinkedEffect
	for key, skipped := range m.reasons {
		change := l.entries[leaderboard.EntryKey{SeasonKey: key, User: m.key.User}]
		effects = append(effects, leaderboard.LinkedEffect{Change: *change, Skipped: skipped})
	}
	slices.SortFunc(effects, func(x, y leaderboard.LinkedEffect) int {
		return cmp.Or(cmp.Compare(x.After.Board, y.After.Board), cmp.Compare(x.After.Season, y.After.Season))
	})
	return effects
}

// linksOf returns boards that were read from the store at most Options.LinkTTL ago. The results
// must be on the source already. They then reach every board that was linked more than LinkTTL
// before the call.
func (s *shared) linksOf(ctx context.Context, id leaderboard.BoardID) (*linking, error) {
	return s.linksSince(ctx, id, time.Now().Add(-s.linkTTL))
}

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

func (l *linking) offerFirst(ctx context.Context, matches []*linkedMatch) error {
	if err := l.openWindows(ctx, matches); err != nil {
		return err
	}
	for _, b := range l.boards {
		if err := l.forIntact(ctx, b, matches, func(matches []*linkedMatch) error {
			var offers []offer
			for _, m := range matches {
				for _, season := range b.LinkedSeasons(m.standing) {
					offers = append(offers, offer{m, b.FromSource(l.source, m.standing, season)})
				}
			}
			return l.offer(ctx, b, offers)
		}); err != nil {
			return err
		}
	}
	for _, m := range matches {
		m.offered = m.standing
	}
	return nil
}

func (l *linking) converge(ctx context.Context, matches []*linkedMatch) error {
	for {
		if err := l.readStanding(ctx, matches); err != nil {
			return err
		}
		matches = slices.DeleteFunc(slices.Clone(matches), func(m *linkedMatch) bool {
			return m.standing == nil || m.offered != nil && sameResult(m.offered, m.standing)
		})
		if len(matches) == 0 {
			return nil
		}
		if err := l.offerStanding(ctx, matches); err != nil {
			return err
		}
	}
}

// readStanding does step 1. It sets standing to nil if the user was erased, or if the source
// or its season was deleted.
func (l *linking) readStanding(ctx context.Context, matches []*linkedMatch) error {
	return eachRead(ctx, len(matches), func(ctx context.Context, i int) error {
		record, err := l.recordOf(ctx, matches[i].key)
		matches[i].standing = record.Result
		return err
	})
}

func (l *linking) offerStanding(ctx context.Context, matches []*linkedMatch) error {
	if err := l.openWindows(ctx, matches); err != nil {
		return err
	}
	known := l.newKnownPlaces()
	for _, b := range l.boards {
		if err := l.forIntact(ctx, b, matches, func(matches []*linkedMatch) error { return l.offerStandingTo(ctx, b, matches, known) }); err != nil {
			return err
		}
	}
	for _, m := range matches {
		m.offered = m.standing
	}
	return nil
}

func (l *linking) offerStandingTo(ctx context.Context, b *leaderboard.Board, matches []*linkedMatch, known *knownPlaces) error {
	offersOf := make([]matchOffers, len(matches))
	if err := eachRead(ctx, len(matches), func(ctx context.Context, i int) (err error) {
		o := &offersOf[i]
		o.linking, o.b, o.m = l, b, matches[i]
		if l.window != "" {
			return o.findForWindow(ctx)
		}
		return o.find(ctx, known)
	}); err != nil {
		return err
	}
	var replaced, replacing, own []offer
	for i := range offersOf {
		replaced, replacing, own = append(replaced, offersOf[i].replaced...), append(replacing, offersOf[i].replacing...), append(own, offersOf[i].own...)
	}
	for _, offers := range [][]offer{replaced, replacing, own} {
		if err := l.offer(ctx, b, offers); err != nil {
			return err
		}
	}
	return nil
}

// forIntact adds users with damaged data on b to l.damaged, and calls f with the matches of the
// other users.
func (l *linking) forIntact(ctx context.Context, b *leaderboard.Board, matches []*linkedMatch, f func([]*linkedMatch) error) error {
	if l.damaged == nil {
		return f(matches)
	}
	matches = slices.DeleteFunc(slices.Clone(matches), func(m *linkedMatch) bool { return l.damaged[boardUser{b.ID, m.key.User}] })
	if len(matches) == 0 {
		return nil
	}
	slices.SortStableFunc(matches, func(x, y *linkedMatch) int { return cmp.Compare(x.key.User, y.key.User) })
	return eachIntact(matches, func(m *linkedMatch) leaderboard.UserID { return m.key.User }, f, func(user leaderboard.UserID, err error) {
		l.damaged[boardUser{b.ID, user}] = true
		l.metrics.damagedCopies.Inc()
		l.leaveOut(ctx, leaderboard.SeasonKey{Board: b.ID}, user, err)
	})
}

type matchOffers struct {
	*linking
	b *leaderboard.Board
	m *linkedMatch

	replaced  []offer // offers of replaced results to unfilled windows: see addReplaced
	replacing []offer // step 2
	own       []offer // step 3
}

func (o *matchOffers) find(ctx context.Context, known *knownPlaces) error {
	ownPlaces := o.b.LinkedSeasons(o.m.standing)
	done := false // the second shortcut applies: omit step 2
	for i, place := range ownPlaces {
		r := o.b.FromSource(o.source, o.m.standing, place)
		o.own = append(o.own, offer{o.m, r})
		if i > 0 {
			continue
		}
		record, err := o.recordOf(ctx, r.ResultKey)
		if err != nil {
			return err
		}
		done = record.Result != nil && sameResult(record.Result, &r) &&
			slices.ContainsFunc(o.m.arrived, func(a leaderboard.MatchResult) bool { return sameResult(&a, o.m.standing) })
	}
	var places []leaderboard.SeasonID
	// unfilled means that some open windows are not filled yet: see windows.go.
	unfilled := !done && o.m.standing.Revision > 0 && o.b.Season.Kind == leaderboard.Rolling && o.b.Rolling.Filled < o.b.Rolling.Opened
	if unfilled {
		places = append(places, ownPlaces...)
	}
	if !done {
		matchPlaces, err := known.places(ctx, o.b, o.m.key.User, o.b.FromSource(o.source, o.m.standing, "").Match)
		if err != nil {
			return err
		}
		places = append(places, matchPlaces...)
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
	return o.findReplaced(ctx, slices.Compact(places), ownPlaces, unfilled)
}

// findReplaced finds the offers of step 2. The seasons in places may have a result of the match.
// If unfilled is true, findReplaced also finds offers to unfilled windows.
func (o *matchOffers) findReplaced(ctx context.Context, places, ownPlaces []leaderboard.SeasonID, unfilled bool) error {
	for _, p := range places {
		var replaced *leaderboard.MatchResult
		var err error
		if !slices.Contains(ownPlaces, p) {
			if replaced, err = o.addReplacing(ctx, p); err == nil && replaced != nil {
				err = o.addReplaced(replaced, ownPlaces)
			}
		} else if unfilled {
			var record leaderboard.Record
			record, err = o.recordOf(ctx, o.b.FromSource(o.source, o.m.standing, p).ResultKey)
			replaced = record.Result
		}
		if err == nil && replaced != nil && unfilled {
			err = o.addNewer(replaced)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addNewer gets older, a revision that the linked board has. It offers each newer revision to
// the unfilled windows that contain the time of older, but not the time of the newer revision.
// If all windows of the newer revision refuse it as late, the board keeps older. Another writer
// could then copy older to an unfilled window (see addReplaced), and older must not count there.
func (o *matchOffers) addNewer(older *leaderboard.MatchResult) error {
	original, err := o.b.ToSource(o.source, older)
	if err != nil {
		return err
	}
	newer := []*leaderboard.MatchResult{o.m.standing}
	for i := range o.m.arrived {
		newer = append(newer, &o.m.arrived[i])
	}
	for _, r := range newer {
		for _, p := range o.b.LinkedSeasons(&original) {
			if p > o.b.Rolling.Filled && r.Revision > older.Revision && !slices.Contains(o.b.LinkedSeasons(r), p) {
				o.replacing = append(o.replacing, offer{o.m, o.b.FromSource(o.source, r, p)})
			}
		}
	}
	return nil
}

// addOlder offers r, an older result than the standing result, to places, the places of the
// standing result. If a place refuses the standing result as late, r must stand there. Even if r
// does not count in a place, r replaces an older result there.
func (o *matchOffers) addOlder(ctx context.Context, r *leaderboard.MatchResult, places []leaderboard.SeasonID) error {
	if sameResult(r, o.m.standing) {
		return nil
	}
	for _, p := range places {
		older := o.b.FromSource(o.source, r, p)
		if !o.b.Counts(&older) {
			record, err := o.recordOf(ctx, older.ResultKey)
			if err != nil {
				return err
			}
			if record.Result == nil {
				continue
			}
			// r replaces record.Result in p. But if another place refuses both r and the
			// standing result as late, record.Result must count there.
			own := o.b.LinkedSeasons(r)
			both := slices.DeleteFunc(slices.Clone(places), func(p leaderboard.SeasonID) bool { return !slices.Contains(own, p) })
			if err := o.addReplaced(record.Result, both); err != nil {
				return err
			}
		}
		older.Voids = max(older.Voids, o.m.standing.Voids) // the older result must not count while the match is void
		o.own = append(o.own, offer{o.m, older})
	}
	return nil
}

func (o *matchOffers) addReplacing(ctx context.Context, p leaderboard.SeasonID) (*leaderboard.MatchResult, error) {
	r := o.b.FromSource(o.source, o.m.standing, p)
	record, err := o.recordOf(ctx, r.ResultKey)
	if err == nil && record.Result != nil {
		o.replacing = append(o.replacing, offer{o.m, r})
	}
	return record.Result, err
}

// addReplaced offers a replaced result to the unfilled windows among places. If a window refuses
// the standing result as late, the window must count the replaced result. The fill of the window
// cannot copy the replaced result, because fills read only results that stand.
func (o *matchOffers) addReplaced(replaced *leaderboard.MatchResult, places []leaderboard.SeasonID) error {
	for _, p := range places {
		if o.b.Season.Kind != leaderboard.Rolling || p <= o.b.Rolling.Filled {
			continue
		}
		original, err := o.b.ToSource(o.source, replaced)
		if err != nil {
			return err
		}
		if r := o.b.FromSource(o.source, &original, p); o.b.Counts(&r) {
			o.replaced = append(o.replaced, offer{o.m, r})
		}
	}
	return nil
}

// knownPlaces caches the seasons of each user. A writer must create the cache after step 1: an
// older cache may lack seasons.
type knownPlaces struct {
	*linking
	mu      sync.Mutex // held while the maps are used, not during reads
	seasons map[leaderboard.UserID]func() ([]leaderboard.SeasonKey, error)
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

func once[K comparable, V any](mu *sync.Mutex, answers map[K]func() (V, error), key K, read func() (V, error)) (V, error) {
	mu.Lock()
	if answers[key] == nil {
		answers[key] = sync.OnceValues(read)
	}
	f := answers[key]
	mu.Unlock()
	return f()
}

// places returns the seasons of b that may have a result of the match. If mostMatches is true,
// each of them has one.
func (k *knownPlaces) places(ctx context.Context, b *leaderboard.Board, user leaderboard.UserID, match leaderboard.MatchID) (places []leaderboard.SeasonID, err error) {
	keys, err := once(&k.mu, k.seasons, user, func() ([]leaderboard.SeasonKey, error) { return k.store.UserSeasons(ctx, user) })
	if err != nil {
		return nil, err
	}
	keys = slices.DeleteFunc(slices.Clone(keys), func(key leaderboard.SeasonKey) bool { return key.Board != b.ID })
	if k.mostMatches {
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

func (s *shared) recordOf(ctx context.Context, key leaderboard.ResultKey) (leaderboard.Record, error) {
	record, err := s.store.Result(ctx, key)
	if errors.Is(err, leaderboard.ErrResultNotFound) {
		err = nil
	}
	return record, err
}

// offer updates the ranks even if the place has the result already: the process that stored
// the result may have died before it updated the ranks.
func (l *linking) offer(ctx context.Context, b *leaderboard.Board, offers []offer) error {
	l.copied = true
	for offers := range slices.Chunk(offers, MaxBatch) {
		results := make([]leaderboard.MatchResult, len(offers))
		for i := range offers {
			results[i] = offers[i].result
		}
		report, err := l.applyTo(ctx, b, results)
		if errors.Is(err, leaderboard.ErrBoardNotFound) {
			return errLinkDeleted
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
			l.addEffects(offers, &report)
		}
	}
	return nil
}

func (l *linking) addEffects(offers []offer, report *leaderboard.ApplyReport) {
	for _, change := range report.Changes {
		key := leaderboard.EntryKey{SeasonKey: change.After.SeasonKey, User: change.After.User}
		if recorded := l.entries[key]; recorded != nil {
			recorded.After = change.After
		} else {
			l.entries[key] = &change
		}
	}
	for i := range offers {
		r, m, o := &offers[i].result, offers[i].match, &report.Outcomes[i]
		key := leaderboard.EntryKey{SeasonKey: r.SeasonKey, User: r.User}
		if l.entries[key] == nil {
			e := o.Entry
			e.SeasonKey, e.User = r.SeasonKey, r.User
			l.entries[key] = &leaderboard.Change{Before: e, After: e}
		}
		if m.reasons == nil {
			m.reasons = map[leaderboard.SeasonKey]leaderboard.Reason{}
		}
		if _, known := m.reasons[r.SeasonKey]; !known || sameResult(r, m.standing) {
			m.reasons[r.SeasonKey] = o.Reason
		}
	}
}

func sameResult(x, y *leaderboard.MatchResult) bool {
	return x.Revision == y.Revision && x.Voids == y.Voids && x.AchievedAt.Equal(y.AchievedAt) && x.ContentID() == y.ContentID()
}

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
			matches = append(matches, &linkedMatch{key: r.ResultKey, standing: &r})
		}
		l.mostMatches, l.damaged = true, map[boardUser]bool{}
		if err = l.offerStanding(ctx, matches); err == nil {
			err = l.converge(ctx, matches)
		}
		if repeat, err := l.mustRepeat(ctx, err); !repeat {
			return err
		}
	}
}
