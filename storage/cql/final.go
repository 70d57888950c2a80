package cql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// A finalSet is a generation: one complete set of the final standings of all ladders of a
// season. Each Seal writes a new generation. Only the generation that the season's seal
// names is valid.
type finalSet struct {
	s          *Store
	seasonKey  leaderboard.SeasonKey
	generation string
}

func (f finalSet) is(l pendingGeneration) bool { return l.Generation == f.generation }

// args returns the arguments of a statement: the partition key of the generation, then the
// other arguments.
func (f finalSet) args(others ...any) []any {
	return append([]any{string(f.seasonKey.Board), string(f.seasonKey.Season), f.generation}, others...)
}

// finalPage is the number of final standings in a partition.
const finalPage = 1000

func pageOf(position int64) int { return int((position - 1) / finalPage) }

// errEnded means that the incarnation ended while its final standings were written.
var errEnded = errors.New("cql: the season was deleted while it was sealed")

// writeAll writes the generation. If the incarnation inc ends while writeAll runs, writeAll
// removes the rows of the generation and returns errEnded.
//
// After each page that it writes, writeAll reads the season's row. If inc is still open, a
// later deletion of the season finds and removes this page. If inc has ended, the
// deletion may have missed this page. The method removeAll may miss it too, because it
// finds pages by their count, and the deletion may have removed the count. So writeAll
// calls removeAll, and then removePage for this page.
func (f finalSet) writeAll(ctx context.Context, inc incarnation) error {
	divisions := map[leaderboard.Division]bool{{}: true}
	for e, err := range f.s.Scan(ctx, f.seasonKey) {
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
		if err := f.writeLadder(ctx, inc, leaderboard.Ladder{SeasonKey: f.seasonKey, Division: d}); err != nil {
			return err
		}
	}
	return nil
}

func (f finalSet) writeLadder(ctx context.Context, inc incarnation, l leaderboard.Ladder) error {
	var page []leaderboard.Standing
	count := int64(0)
	flush := func() error {
		// The count is written before the standings, so that removeAll finds all of
		// them.
		// All counts have the same timestamp, so Cassandra keeps the greatest.
		if err := f.s.conn.write(ctx, op{insertFinalLadder, f.args(l.Division.String(), count)}); err != nil {
			return err
		}
		done := page
		page = page[:0]
		if err := f.writePage(ctx, l.Division, done); err != nil {
			return err
		}
		live, err := f.s.whileOpen(ctx, f.seasonKey, inc, func(context.Context) error { return nil })
		if err != nil || live {
			return err
		}
		return cmp.Or(f.removeAll(ctx), f.removePage(ctx, l.Division, done), errEnded)
	}
	for st, err := range leaderboard.AssignRanks(f.s.Entries(ctx, l, "")) {
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

// removePage deletes all rows that writeLadder has written for a page.
func (f finalSet) removePage(ctx context.Context, d leaderboard.Division, page []leaderboard.Standing) error {
	err := f.s.forEach(ctx, len(page), func(ctx context.Context, i int) error {
		return f.s.conn.write(ctx, op{deleteFinalPlaces, f.args(string(page[i].User))})
	})
	if err == nil && len(page) > 0 {
		err = f.s.conn.write(ctx, op{deleteFinalPage, f.args(d.String(), pageOf(page[0].Ranks.Ordinal))})
	}
	if err == nil {
		err = f.s.conn.write(ctx, op{deleteFinalLadders, f.args()})
	}
	return err
}

// writePage writes a page of standings, by position and by user.
func (f finalSet) writePage(ctx context.Context, d leaderboard.Division, page []leaderboard.Standing) error {
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
	return f.s.forEach(ctx, len(page), func(ctx context.Context, i int) error {
		return f.s.conn.write(ctx, op{insertFinalPosition, f.args(string(page[i].User), d.String(), page[i].Ranks.Ordinal)})
	})
}

// removeAll deletes all rows of the generation.
func (f finalSet) removeAll(ctx context.Context) error {
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
			// The rows by user need to be deleted for the overall ladder only, because
			// every user in a division is also in the overall ladder.
			if l.division == "" {
				var user string
				users, err := gather(ctx, f.s.conn, op{selectFinalUsers, f.args(l.division, page)}, []any{&user}, func() (string, error) { return user, nil })
				if err != nil {
					return err
				}
				err = f.s.forEach(ctx, len(users), func(ctx context.Context, i int) error {
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

// sweepFinal removes all final standings of an ended incarnation. The seal lists every
// generation that may have rows. If a Seal still writes a generation, it removes the rows
// that sweepFinal does not find: see writeAll.
func (s *Store) sweepFinal(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation) error {
	for {
		x, err := s.readSeal(ctx, seasonKey, inc)
		if err != nil || x.body == "" {
			return err
		}
		for _, g := range x.generations() {
			if err := (finalSet{s, seasonKey, g}).removeAll(ctx); err != nil {
				return err
			}
		}
		if ok, err := s.dropSeal(ctx, seasonKey, inc, &x); ok || err != nil {
			return err
		}
	}
}

// eraseFinal removes a user from the final standings of a season. The other users
// keep their ranks.
func (s *Store) eraseFinal(ctx context.Context, key *userKey) error {
	inc := incarnation{number: key.incarnation}
	_, next, _, err := s.changeSeal(ctx, key.SeasonKey, inc, func(x *seal) bool { x.Overtaken++; return true })
	for _, g := range next.generations() {
		if err == nil {
			err = finalSet{s, key.SeasonKey, g}.erase(ctx, key.user)
		}
	}
	return err
}

func (f finalSet) erase(ctx context.Context, user leaderboard.UserID) error {
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

// inFinal runs f with the valid generation of final standings. A Seal or a deletion may
// remove this generation while f reads it. But before it removes any standing, a Seal
// replaces the generation in the seal, and a deletion ends the incarnation. So inFinal
// reads the season's row and the seal again after f. If both are unchanged, f has read
// complete standings. Otherwise inFinal runs f again with the new generation.
func (s *Store) inFinal(ctx context.Context, seasonKey leaderboard.SeasonKey, f func(context.Context, finalSet) error) error {
	inc, err := s.incarnations.cachedOrRead(ctx, seasonKey)
	for err == nil && inc.open {
		tried := inc
		have, err := s.readSeal(ctx, seasonKey, tried)
		if err != nil {
			return err
		}
		var next seal
		failed := notSealed(seasonKey)
		if have.sealed() {
			failed = f(ctx, finalSet{s, seasonKey, have.Generation})
		}
		err = s.forEach(ctx, 2, func(ctx context.Context, i int) (err error) {
			if i == 0 {
				inc, err = s.incarnations.readAgain(ctx, seasonKey)
			} else if have.sealed() {
				next, err = s.readSeal(ctx, seasonKey, tried)
			}
			return err
		})
		if err != nil {
			return err
		}
		if inc.same(&tried) && have.Generation == next.Generation {
			return failed
		}
	}
	return cmp.Or(err, notSealed(seasonKey))
}

// FinalStandings returns up to n final standings, starting at a position.
func (s *Store) FinalStandings(ctx context.Context, l leaderboard.Ladder, position int64, n int) (page []leaderboard.Standing, total int64, err error) {
	err = s.inFinal(ctx, l.SeasonKey, func(ctx context.Context, f finalSet) (err error) {
		page, total, err = f.page(ctx, l.Division.String(), max(position, 1), n)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return page, total, nil
}

func (f finalSet) page(ctx context.Context, division string, position int64, n int) (page []leaderboard.Standing, total int64, err error) {
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
	err := s.inFinal(ctx, l.SeasonKey, func(ctx context.Context, f finalSet) error {
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
