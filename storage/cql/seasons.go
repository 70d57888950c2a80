package cql

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
)

// seasonOf is a row of table seasons.
type seasonOf struct {
	season leaderboard.SeasonID
	edition
}

// seasonRows returns the seasons of a board by id, also those that were deleted.
func (s *Store) seasonRows(ctx context.Context, id leaderboard.BoardID) ([]seasonOf, error) {
	var season string
	var r seasonRow
	return gather(ctx, s.conn, op{selectSeasons, []any{string(id)}}, append([]any{&season}, r.dest()...), func() (seasonOf, error) {
		return seasonOf{leaderboard.SeasonID(season), r.edition()}, nil
	})
}

// Seasons returns the seasons of a board that have results or final standings.
func (s *Store) Seasons(ctx context.Context, id leaderboard.BoardID) ([]leaderboard.SeasonRecord, error) {
	rows, err := s.seasonRows(ctx, id)
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(r seasonOf) bool { return !r.open })
	records := make([]leaderboard.SeasonRecord, len(rows))
	found := make([]bool, len(rows))
	err = s.each(ctx, len(rows), func(ctx context.Context, i int) error {
		scope := leaderboard.Scope{Board: id, Season: rows[i].season}
		seal, err := s.readSeal(ctx, scope, rows[i].edition)
		if err != nil {
			return err
		}
		records[i] = seal.record(scope)
		found[i] = seal.sealed()
		if !found[i] {
			found[i], err = s.anyUser(ctx, scope, rows[i].edition)
		}
		return err
	})
	var out []leaderboard.SeasonRecord
	for i, r := range records {
		if found[i] {
			out = append(out, r)
		}
	}
	return out, err
}

// Season returns what is known of a season.
func (s *Store) Season(ctx context.Context, scope leaderboard.Scope) (leaderboard.SeasonRecord, error) {
	var x seal
	e, err := s.editions.fresh(ctx, scope)
	if err == nil && e.open {
		x, err = s.readSeal(ctx, scope, e)
	}
	return x.record(scope), err
}

// anyUser says whether a season has a user: it has none before its first result,
// and after its only users were erased.
func (s *Store) anyUser(ctx context.Context, scope leaderboard.Scope, e edition) (bool, error) {
	found := false
	var user string
	for bucket := 0; bucket < e.buckets && !found; bucket++ {
		q := op{selectAnyUser, []any{string(scope.Board), string(scope.Season), e.number, bucket}}
		if err := s.conn.read(ctx, q, []any{&user}, func() bool { found = true; return false }); err != nil {
			return false, err
		}
	}
	return found, nil
}

// DeleteSeason removes all that is kept of a scope. Cut short, it is gone on
// with by the next DeleteSeason of the scope.
func (s *Store) DeleteSeason(ctx context.Context, scope leaderboard.Scope) error {
	e, err := s.editions.fresh(ctx, scope)
	if err != nil {
		return err
	}
	if e, err = s.endEdition(ctx, scope, e); err != nil {
		return err
	}
	return s.sweep(ctx, scope, e)
}

// endEdition makes a scope empty: what is in its edition is not looked at again.
func (s *Store) endEdition(ctx context.Context, scope leaderboard.Scope, e edition) (edition, error) {
	if !e.open {
		return e, nil
	}
	next := e.number + 1
	err := s.conn.write(ctx, op{endEdition, []any{int64(next), next, string(scope.Board), string(scope.Season)}})
	if err != nil {
		return e, err
	}
	return s.editions.fresh(ctx, scope)
}

// endEditions makes every season of a board empty that is being deleted; if
// another is there by now, whoever made that has done so.
func (s *Store) endEditions(ctx context.Context, id leaderboard.BoardID) error {
	rows, err := s.seasonRows(ctx, id)
	if err != nil {
		return err
	}
	// The rows are of boards before one that is found after them, or of that one.
	if k, err := s.readBoard(ctx, id); k.body != "" || err != nil && !errors.Is(err, leaderboard.ErrBoardNotFound) {
		return err
	}
	return s.each(ctx, len(rows), func(ctx context.Context, i int) error {
		_, err := s.endEdition(ctx, leaderboard.Scope{Board: id, Season: rows[i].season}, rows[i].edition)
		return err
	})
}

// sweep removes what is in the editions that have ended. Nobody reads those, nor
// writes to them but who began before, so their deletions cover every timestamp.
func (s *Store) sweep(ctx context.Context, scope leaderboard.Scope, e edition) error {
	for number := e.swept; number < e.number; number++ {
		old := e
		old.number = number
		if err := s.sweepEdition(ctx, scope, old); err != nil {
			return err
		}
		err := s.conn.write(ctx, op{sweptSeason, []any{int64(number) + 1, number + 1, string(scope.Board), string(scope.Season)}})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) sweepEdition(ctx context.Context, scope leaderboard.Scope, e edition) error {
	if err := s.sweepFinal(ctx, scope, e); err != nil {
		return err
	}
	partition := func(division string, bucket int) []any {
		return []any{sweepTime, string(scope.Board), string(scope.Season), e.number, division, bucket}
	}
	for bucket := range e.buckets {
		users, err := s.usersIn(ctx, scope, e, bucket)
		if err != nil {
			return err
		}
		divisions, err := s.divisionsBy(ctx, scope, e, users)
		if err != nil {
			return err
		}
		// Divisions are known by their users: those go when no rows are left in them.
		names := slices.Sorted(maps.Keys(divisions))
		err = s.each(ctx, len(names), func(ctx context.Context, i int) error {
			return s.conn.write(ctx, op{deleteRows, partition(names[i], bucket)})
		})
		if err != nil {
			return err
		}
		err = s.each(ctx, len(users), func(ctx context.Context, i int) error {
			key := userKey{scope, e.number, users[i]}
			if err := s.conn.write(ctx, op{deleteUser, key.args(sweepTime)}); err != nil {
				return err
			}
			return s.conn.write(ctx, op{deleteUserScope, []any{sweepTime, userHash(users[i]), string(scope.Board), string(scope.Season), e.number}})
		})
		if err != nil {
			return err
		}
	}
	for bucket := range e.buckets {
		if err := s.conn.write(ctx, op{deleteRows, partition("", bucket)}); err != nil {
			return err
		}
		if err := s.conn.write(ctx, op{deleteEntries, []any{sweepTime, string(scope.Board), string(scope.Season), e.number, bucket}}); err != nil {
			return err
		}
	}
	return nil
}

// seal is a row of table seals: which final standings of a season count.
type seal struct {
	Generation string                  `json:"generation,omitempty"` // a UUID; empty if the season is not sealed
	SealedAt   time.Time               `json:"sealed_at,omitzero"`
	Amendments []leaderboard.Amendment `json:"amendments,omitempty"`
	// Overtaken counts the changes that final standings may lack that were being
	// made meanwhile, so that those do not count: erasures, and those that Amend
	// was called for.
	Overtaken int `json:"erasures,omitempty"`
	// Loose are generations that are being made, or removed, or whose maker died.
	Loose []loose `json:"loose,omitempty"`

	body string // as it is in the table
}

// loose is a generation that does not count, and since when.
type loose struct {
	Generation string    `json:"generation"`
	Since      time.Time `json:"since"`
}

// looseAfter is how long a generation may be in the making before its maker is
// taken for dead. If that lives, its work is lost, and not more.
const looseAfter = 24 * time.Hour

func (x *seal) sealed() bool { return x.Generation != "" }

func (x *seal) record(scope leaderboard.Scope) leaderboard.SeasonRecord {
	return leaderboard.SeasonRecord{Scope: scope, SealedAt: x.SealedAt, Amendments: x.Amendments}
}

func (s *Store) readSeal(ctx context.Context, scope leaderboard.Scope, e edition) (seal, error) {
	var x seal
	q := op{selectSeal, []any{string(scope.Board), string(scope.Season), e.number}}
	err := s.conn.read(ctx, q, []any{&x.body}, func() bool { return true })
	if err == nil && x.body != "" {
		if err = json.Unmarshal([]byte(x.body), &x); err != nil {
			err = fmt.Errorf("cql: seal: %w: %w", leaderboard.ErrFormat, err)
		}
	}
	return x, err
}

// swapSeal replaces a seal by the next, and says whether it was still as read.
func (s *Store) swapSeal(ctx context.Context, scope leaderboard.Scope, e edition, have, next *seal) (bool, error) {
	text, err := json.Marshal(next)
	if err != nil {
		return false, fmt.Errorf("cql: seal: %w", err)
	}
	next.body = string(text)
	key := []any{string(scope.Board), string(scope.Season), e.number}
	if have.body == "" {
		return s.conn.swap(ctx, op{createSeal, append(key, next.body)}, map[string]any{})
	}
	return s.conn.swap(ctx, op{changeSeal, append(append([]any{next.body}, key...), have.body)}, map[string]any{})
}

// changeSeal replaces a seal by what change makes of it, and returns both; change
// may be called several times. It stops if change returns false.
func (s *Store) changeSeal(ctx context.Context, scope leaderboard.Scope, e edition, change func(*seal) bool) (have, next seal, ok bool, err error) {
	for {
		if have, err = s.readSeal(ctx, scope, e); err != nil {
			return have, next, false, err
		}
		next = have
		next.Amendments, next.Loose = slices.Clone(have.Amendments), slices.Clone(have.Loose)
		if !change(&next) {
			return have, next, false, nil
		}
		if ok, err = s.swapSeal(ctx, scope, e, &have, &next); ok || err != nil {
			return have, next, ok, err
		}
	}
}

// Seal makes the final standings of a scope: as a new generation, which counts
// once the seal names it. If another process changed meanwhile what counts, which
// may have had newer entries, or noted that entries changed, they are made anew. Each generation is noted as loose
// before it is made and until it is removed, so that what a process left that died
// is removed by a Seal a day later, or with the season.
func (s *Store) Seal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (leaderboard.SeasonRecord, error) {
	scope := leaderboard.Scope{Board: b.ID, Season: season}
	a.At = leaderboard.Truncate(a.At)
	for {
		e, err := s.opened(ctx, b, season)
		if err != nil {
			return leaderboard.SeasonRecord{}, err
		}
		generation, err := gocql.RandomUUID()
		if err != nil {
			return leaderboard.SeasonRecord{}, fmt.Errorf("cql: seal: %w", err)
		}
		f := final{s, scope, generation.String()}
		was, _, _, err := s.changeSeal(ctx, scope, e, func(x *seal) bool {
			x.Loose = append(x.Loose, loose{f.generation, s.now().UTC()})
			return true
		})
		if err == nil {
			err = f.make(ctx)
		}
		if err != nil {
			return leaderboard.SeasonRecord{}, err
		}
		_, sealed, ok, err := s.changeSeal(ctx, scope, e, func(x *seal) bool {
			if x.Generation != was.Generation || x.Overtaken != was.Overtaken || !slices.ContainsFunc(x.Loose, f.is) {
				return false
			}
			switch {
			case !x.sealed():
				x.SealedAt = a.At
			case !a.At.Equal(x.SealedAt) && !slices.ContainsFunc(x.Amendments, func(o leaderboard.Amendment) bool {
				return o.At.Equal(a.At) && o.Reason == a.Reason
			}):
				x.Amendments = append(x.Amendments, a)
			}
			x.Loose = slices.DeleteFunc(x.Loose, f.is)
			if x.sealed() {
				x.Loose = append(x.Loose, loose{Generation: x.Generation}) // to be removed at once
			}
			x.Generation = f.generation
			return true
		})
		switch {
		case err != nil: // it may count
			return leaderboard.SeasonRecord{}, err
		case ok:
			for _, l := range sealed.Loose {
				if err == nil && s.now().Sub(l.Since) > looseAfter {
					err = s.removeLoose(ctx, scope, e, l.Generation)
				}
			}
			return sealed.record(scope), err
		}
		if err := s.removeLoose(ctx, scope, e, f.generation); err != nil {
			return leaderboard.SeasonRecord{}, err
		}
	}
}

// Amend makes the final standings of a sealed season again.
//
// Take a writer that changes an entry and then calls Amend, and a Seal beside it.
// Seal notes its generation in the seal, then reads the entries, then makes the
// generation count; the seal changes by one swap after another. If Amend finds
// no generation that is being made, whoever makes one reads the entries later,
// and finds the change. If it finds one, it notes that it is overtaken. Either
// this comes before the swap that would make the generation count, and Seal
// begins anew; or it fails, and finds the season sealed.
//
// A writer that dies before Amend is done has acknowledged nothing. When what it
// did is done again, Amend is called again.
func (s *Store) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (leaderboard.SeasonRecord, error) {
	scope := leaderboard.Scope{Board: b.ID, Season: season}
	e, err := s.editions.last(ctx, scope) // the one that the writer has worked in
	if err != nil || !e.of(b) {
		return leaderboard.SeasonRecord{}, cmp.Or(err, notSealed(scope))
	}
	have, _, _, err := s.changeSeal(ctx, scope, e, func(x *seal) bool {
		x.Overtaken++
		return !x.sealed() && len(x.Loose) > 0
	})
	if err != nil {
		return leaderboard.SeasonRecord{}, err
	}
	if !have.sealed() {
		return leaderboard.SeasonRecord{}, notSealed(scope)
	}
	record, err := s.Seal(ctx, b, season, a)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		err = notSealed(scope)
	}
	return record, err
}

// removeLoose removes a generation, and then the note of it.
func (s *Store) removeLoose(ctx context.Context, scope leaderboard.Scope, e edition, generation string) error {
	f := final{s, scope, generation}
	if err := f.remove(ctx); err != nil {
		return err
	}
	_, _, _, err := s.changeSeal(ctx, scope, e, func(x *seal) bool {
		before := len(x.Loose)
		x.Loose = slices.DeleteFunc(x.Loose, f.is)
		return len(x.Loose) < before
	})
	return err
}

// generations returns all that there may be.
func (x *seal) generations() (all []string) {
	for _, l := range x.Loose {
		all = append(all, l.Generation)
	}
	if x.sealed() {
		all = append(all, x.Generation)
	}
	return all
}

// final is a generation of final standings.
type final struct {
	s          *Store
	scope      leaderboard.Scope
	generation string
}

func (f final) is(l loose) bool { return l.Generation == f.generation }

// args returns the generation, before others.
func (f final) args(others ...any) []any {
	return append([]any{string(f.scope.Board), string(f.scope.Season), f.generation}, others...)
}

// finalPage is how many final standings are in a partition.
const finalPage = 1000

func pageOf(position int64) int { return int((position - 1) / finalPage) }

func (f final) make(ctx context.Context) error {
	divisions := map[leaderboard.Division]bool{{}: true}
	for e, err := range f.s.Scan(ctx, f.scope) {
		if err != nil {
			return err
		}
		if e.Ranked() {
			for _, d := range e.Divisions {
				divisions[d] = true
			}
		}
	}
	for _, d := range slices.SortedFunc(maps.Keys(divisions), func(x, y leaderboard.Division) int {
		return cmp.Compare(x.String(), y.String())
	}) {
		if err := f.makeLadder(ctx, leaderboard.Ladder{Scope: f.scope, Division: d}); err != nil {
			return err
		}
	}
	return nil
}

func (f final) makeLadder(ctx context.Context, l leaderboard.Ladder) error {
	var page []leaderboard.Standing
	count := int64(0)
	flush := func() error {
		// How many there are is there before they are, so that remove finds them.
		// Under one timestamp the greater number stands.
		if err := f.s.conn.write(ctx, op{insertFinalLadder, f.args(l.Division.String(), count)}); err != nil {
			return err
		}
		done := page
		page = page[:0]
		return f.write(ctx, l.Division, done)
	}
	for st, err := range leaderboard.Number(f.s.Entries(ctx, l, "")) {
		if err != nil {
			return err
		}
		count++
		if page = append(page, st); len(page) == finalPage {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// write writes a page of standings, by position and by user.
func (f final) write(ctx context.Context, d leaderboard.Division, page []leaderboard.Standing) error {
	rows := make([]op, len(page))
	for i, st := range page {
		rows[i] = op{insertFinalStanding, f.args(d.String(), pageOf(st.Ranks.Ordinal), st.Ranks.Ordinal, string(st.User), []byte(st.Key),
			st.AchievedAt.UnixMicro(), st.Ranks.Competition, st.Ranks.Dense)}
	}
	const batch = 200
	for part := range slices.Chunk(rows, batch) {
		if err := f.s.conn.write(ctx, part...); err != nil {
			return err
		}
	}
	return f.s.each(ctx, len(page), func(ctx context.Context, i int) error {
		return f.s.conn.write(ctx, op{insertFinalPosition, f.args(string(page[i].User), d.String(), page[i].Ranks.Ordinal)})
	})
}

// remove deletes the generation.
func (f final) remove(ctx context.Context) error {
	type ladder struct {
		division string
		count    int64
	}
	var l ladder
	ladders, err := gather(ctx, f.s.conn, op{selectFinalLadders, f.args()}, []any{&l.division, &l.count}, func() (ladder, error) { return l, nil })
	if err != nil {
		return err
	}
	for _, l := range ladders {
		for page := 0; page <= pageOf(l.count); page++ {
			// Whoever is in a ladder is in the overall one too.
			if l.division == "" {
				var user string
				users, err := gather(ctx, f.s.conn, op{selectFinalUsers, f.args(l.division, page)}, []any{&user}, func() (string, error) { return user, nil })
				if err != nil {
					return err
				}
				err = f.s.each(ctx, len(users), func(ctx context.Context, i int) error {
					return f.s.conn.write(ctx, op{deleteFinalPlaces, f.args(users[i])})
				})
				if err != nil {
					return err
				}
			}
			if err := f.s.conn.write(ctx, op{deleteFinalPage, f.args(l.division, page)}); err != nil {
				return err
			}
		}
	}
	return f.s.conn.write(ctx, op{deleteFinalLadders, f.args()})
}

func (s *Store) sweepFinal(ctx context.Context, scope leaderboard.Scope, e edition) error {
	x, err := s.readSeal(ctx, scope, e)
	if err != nil || x.body == "" {
		return err
	}
	for _, g := range x.generations() {
		if err := (final{s, scope, g}).remove(ctx); err != nil {
			return err
		}
	}
	_, err = s.conn.swap(ctx, op{removeSeal, []any{string(scope.Board), string(scope.Season), e.number}}, map[string]any{})
	return err
}

// eraseFinal takes a user out of the final standings of a season, of which the
// others keep their ranks.
func (s *Store) eraseFinal(ctx context.Context, key *userKey) error {
	e := edition{number: key.edition}
	_, next, _, err := s.changeSeal(ctx, key.Scope, e, func(x *seal) bool { x.Overtaken++; return true })
	for _, g := range next.generations() {
		if err == nil {
			err = final{s, key.Scope, g}.erase(ctx, key.user)
		}
	}
	return err
}

func (f final) erase(ctx context.Context, user leaderboard.UserID) error {
	type place struct {
		division string
		position int64
	}
	var p place
	places, err := gather(ctx, f.s.conn, op{selectFinalPlaces, f.args(string(user))}, []any{&p.division, &p.position}, func() (place, error) { return p, nil })
	if err != nil {
		return err
	}
	for _, p := range places {
		if err := f.s.conn.write(ctx, op{eraseFinalPosition, append([]any{[]int64{p.position}}, f.args(p.division)...)}); err != nil {
			return err
		}
		if err := f.s.conn.write(ctx, op{deleteFinalStanding, f.args(p.division, pageOf(p.position), p.position)}); err != nil {
			return err
		}
	}
	return f.s.conn.write(ctx, op{deleteFinalPlaces, f.args(string(user))})
}

// inFinal runs f with the final standings that count. If others come to count
// meanwhile, it runs f again: the old ones may have been removed under it.
func (s *Store) inFinal(ctx context.Context, scope leaderboard.Scope, f func(context.Context, final) error) error {
	found := false
	err := s.within(ctx, scope, func(ctx context.Context, e edition) error {
		have, err := s.readSeal(ctx, scope, e)
		for {
			if err != nil || !have.sealed() {
				return cmp.Or(err, notSealed(scope))
			}
			failed := f(ctx, final{s, scope, have.Generation})
			was := have.Generation
			if have, err = s.readSeal(ctx, scope, e); err == nil && have.Generation == was {
				found = true
				return failed
			}
		}
	})
	if err == nil && !found {
		return notSealed(scope)
	}
	return err
}

func notSealed(s leaderboard.Scope) error {
	return fmt.Errorf("cql: season %q of board %q: %w", s.Season, s.Board, leaderboard.ErrNotSealed)
}

// FinalStandings returns standings from a position on.
func (s *Store) FinalStandings(ctx context.Context, l leaderboard.Ladder, position int64, n int) (page []leaderboard.Standing, total int64, err error) {
	err = s.inFinal(ctx, l.Scope, func(ctx context.Context, f final) (err error) {
		page, total, err = f.page(ctx, l.Division.String(), max(position, 1), n)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return page, total, nil
}

func (f final) page(ctx context.Context, division string, position int64, n int) (page []leaderboard.Standing, total int64, err error) {
	var last int64
	var erased []int64
	err = f.s.conn.read(ctx, op{selectFinalLadder, f.args(division)}, []any{&last, &erased}, func() bool { return true })
	for err == nil && len(page) < n && position <= last {
		number := pageOf(position)
		var st leaderboard.Standing
		var user string
		var key []byte
		var achieved int64
		var part []leaderboard.Standing
		part, err = gather(ctx, f.s.conn, op{selectFinalPage, f.args(division, number, position, n-len(page))},
			[]any{&st.Ranks.Ordinal, &user, &key, &achieved, &st.Ranks.Competition, &st.Ranks.Dense}, func() (leaderboard.Standing, error) {
				st.User, st.Key, st.AchievedAt = leaderboard.UserID(user), leaderboard.RankKey(key), time.UnixMicro(achieved).UTC()
				return st, nil
			})
		page = append(page, part...)
		position = int64(number+1)*finalPage + 1
	}
	return page, last - int64(len(erased)), err
}

// FinalStanding returns a user's final standing.
func (s *Store) FinalStanding(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID) (leaderboard.Standing, error) {
	var out leaderboard.Standing
	err := s.inFinal(ctx, l.Scope, func(ctx context.Context, f final) error {
		var position int64
		q := op{selectFinalPosition, f.args(string(user), l.Division.String())}
		if err := s.conn.read(ctx, q, []any{&position}, func() bool { return true }); err != nil {
			return err
		}
		var page []leaderboard.Standing
		var err error
		if position > 0 {
			page, _, err = f.page(ctx, l.Division.String(), position, 1)
		}
		if err == nil && (len(page) == 0 || page[0].User != user) {
			err = fmt.Errorf("cql: final standing of user %q: %w", user, leaderboard.ErrEntryNotFound)
		}
		if err == nil {
			out = page[0]
		}
		return err
	})
	return out, err
}
