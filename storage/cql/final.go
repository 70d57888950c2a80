package cql

import (
	"cmp"
	"context"
	"errors"
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

// isGenerationOf reports whether p is this generation.
func (f finalSet) isGenerationOf(p pendingGeneration) bool { return p.Generation == f.generation }

// args returns the arguments of a statement: the partition key of the generation, then the
// other arguments.
func (f finalSet) args(others ...any) []any {
	return append([]any{string(f.seasonKey.Board), string(f.seasonKey.Season), f.generation}, others...)
}

// finalPage is the number of final standings in a partition.
const finalPage = 1000

// pageOf returns the number of the page that contains a position. The first page has number 0.
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

// A ladderWriter writes a ladder of a generation, page by page.
type ladderWriter struct {
	finalSet
	inc      incarnation
	division leaderboard.Division
	page     []leaderboard.Standing // the standings that are not written yet
	count    int64
	last     leaderboard.RankKey // the rank key of the last standing
	tails    []int64             // the tail of each written page: see finalread.go
	tailsSet int                 // the number of tails that are set
}

// writeLadder writes the standings of one ladder from its entries.
func (f finalSet) writeLadder(ctx context.Context, inc incarnation, l leaderboard.Ladder) error {
	w := ladderWriter{finalSet: f, inc: inc, division: l.Division}
	for st, err := range leaderboard.AssignRanks(f.s.Entries(ctx, l, "")) {
		if err != nil {
			return err
		}
		if err := w.add(ctx, st); err != nil {
			return err
		}
	}
	return w.finish(ctx)
}

// add adds the next standing of the ladder. If the page is full, add writes it.
func (w *ladderWriter) add(ctx context.Context, st leaderboard.Standing) error {
	if st.Key != w.last {
		w.endTies()
		w.last = st.Key
	}
	w.count++
	if w.page = append(w.page, st); len(w.page) < finalPage {
		return nil
	}
	return w.flush(ctx)
}

// endTies sets the tails of the written pages that end with the last rank key.
func (w *ladderWriter) endTies() {
	for ; w.tailsSet < len(w.tails); w.tailsSet++ {
		w.tails[w.tailsSet] = w.count
	}
}

// flush writes the standings that are not written yet as a page.
func (w *ladderWriter) flush(ctx context.Context) error {
	// The count is written before the standings, so that removeAll finds all standings. All
	// counts have the same timestamp, so Cassandra keeps the greatest.
	if err := w.s.conn.write(ctx, op{insertFinalLadder, w.args(w.division.String(), w.count)}); err != nil {
		return err
	}
	page := w.page
	w.page = nil
	if len(page) > 0 {
		w.tails = append(w.tails, 0)
	}
	if err := w.writePage(ctx, w.division, page); err != nil {
		return err
	}
	return w.checkOpen(ctx, func() error { return w.removePage(ctx, w.division, page) })
}

// finish writes the last page, and then the tail and the size of the ladder to each page.
func (w *ladderWriter) finish(ctx context.Context) error {
	if err := w.flush(ctx); err != nil {
		return err
	}
	w.endTies()
	err := w.s.forEach(ctx, len(w.tails), func(ctx context.Context, i int) error {
		return w.s.conn.write(ctx, op{setFinalTail, append([]any{w.count, w.tails[i]}, w.args(w.division.String(), i)...)})
	})
	if err != nil {
		return err
	}
	return w.checkOpen(ctx, func() error {
		return w.s.forEach(ctx, len(w.tails), func(ctx context.Context, i int) error {
			return w.s.conn.write(ctx, op{deleteFinalPage, w.args(w.division.String(), i)})
		})
	})
}

// checkOpen returns nil if the incarnation is open. Otherwise it removes the generation,
// calls remove and returns errEnded.
func (w *ladderWriter) checkOpen(ctx context.Context, remove func() error) error {
	live, err := w.s.whileOpen(ctx, w.seasonKey, w.inc, func(context.Context) error { return nil })
	if err != nil || live {
		return err
	}
	if err := w.removeAll(ctx); err != nil {
		return err
	}
	return cmp.Or(remove(), errEnded)
}

// removePage deletes all rows that flush has written for a page.
func (f finalSet) removePage(ctx context.Context, d leaderboard.Division, page []leaderboard.Standing) error {
	err := f.s.forEach(ctx, len(page), func(ctx context.Context, i int) error {
		return f.s.conn.write(ctx, op{deleteFinalPlaces, f.args(string(page[i].User))})
	})
	if err == nil && len(page) > 0 {
		err = f.s.conn.write(ctx, op{deleteFinalPage, f.args(d.String(), pageOf(page[0].Ranks.Ordinal))})
	}
	if err == nil {
		err = f.s.conn.write(ctx, op{deleteFinalFences, f.args(d.String())})
	}
	if err == nil {
		err = f.s.conn.write(ctx, op{deleteFinalLadders, f.args()})
	}
	return err
}

// writePage writes a page of standings, by position and by user, and the page's fence (see
// finalread.go).
func (f finalSet) writePage(ctx context.Context, d leaderboard.Division, page []leaderboard.Standing) error {
	if len(page) == 0 {
		return nil
	}
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
	notWorse := make([]int64, len(page)) // zero means the tail of the page
	for i := len(page) - 2; i >= 0; i-- {
		if notWorse[i] = notWorse[i+1]; page[i].Key != page[i+1].Key {
			notWorse[i] = page[i].Ranks.Ordinal
		}
	}
	if err := f.s.forEach(ctx, len(page), func(ctx context.Context, i int) error {
		st := &page[i]
		return f.s.conn.write(ctx, op{insertFinalPosition, f.args(string(st.User), d.String(), st.Ranks.Ordinal, []byte(st.Key),
			st.AchievedAt.UnixMicro(), st.Ranks.Competition, st.Ranks.Dense, notWorse[i])})
	}); err != nil {
		return err
	}
	return f.s.conn.write(ctx, op{insertFinalFence, f.args(d.String(), []byte(page[0].SortKey()), pageOf(page[0].Ranks.Ordinal))})
}

// A finalSize is the number of standings of a ladder of a generation.
type finalSize struct {
	division string
	written  int64 // the greatest position
	erased   int64 // the number of positions that are missing
}

// sizes returns the sizes of ladders that the query q finds.
func (f finalSet) sizes(ctx context.Context, q op) ([]finalSize, error) {
	var l finalSize
	var erased []int64
	return gather(ctx, f.s.conn, q, []any{&l.division, &l.written, &erased}, func() (finalSize, error) {
		l.erased = int64(len(erased))
		erased = nil
		return l, nil
	})
}

// removeAll deletes all rows of the generation. Reads depend on the order: see finalread.go.
func (f finalSet) removeAll(ctx context.Context) error {
	ladders, err := f.sizes(ctx, op{selectFinalLadders, f.args()})
	if err != nil {
		return err
	}
	for _, l := range ladders {
		for page := 0; page <= pageOf(l.written); page++ {
			// The rows by user need to be deleted for the overall ladder only, because
			// every user in a division is also in the overall ladder.
			if l.division == "" {
				var user string
				users, err := gather(ctx, f.s.conn, op{selectFinalUsers, f.args(l.division, page)}, []any{&user}, func() (string, error) { return user, nil })
				if err != nil {
					return err
				}
				// If all standings of the page were erased, the statement returns one row without a user.
				users = slices.DeleteFunc(users, func(user string) bool { return user == "" })
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
		if err := f.s.conn.write(ctx, op{deleteFinalFences, f.args(l.division)}); err != nil {
			return err
		}
	}
	return f.s.conn.write(ctx, op{deleteFinalLadders, f.args()})
}

// sweepFinal removes all final standings of an ended incarnation. The seal lists every
// generation that may have rows. If a Seal still writes a generation, that Seal removes the
// rows that sweepFinal does not find: see writeAll. Before sweepFinal removes a row, it makes the
// valid generation invalid: see finalread.go.
func (s *Store) sweepFinal(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation) error {
	for {
		_, x, _, err := s.changeSeal(ctx, seasonKey, inc, func(x *seal) bool {
			if !x.sealed() {
				return false
			}
			*x = seal{Overtaken: x.Overtaken, Pending: append(x.Pending, pendingGeneration{Generation: x.Generation})}
			return true
		})
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

// eraseFinal removes a user from the final standings of a season. The other users keep their
// ranks. If a generation is pending, eraseFinal raises Overtaken. Otherwise this is not
// necessary, because every later Seal reads the entries without the user's entry.
func (s *Store) eraseFinal(ctx context.Context, key *userKey) error {
	inc := incarnation{number: key.incarnation}
	_, updated, _, err := s.changeSeal(ctx, key.SeasonKey, inc, func(x *seal) bool { x.Overtaken++; return len(x.Pending) > 0 })
	if err != nil {
		return err
	}
	for _, g := range updated.generations() {
		if err := (finalSet{s, key.SeasonKey, g}).erase(ctx, key.user); err != nil {
			return err
		}
	}
	if !updated.sealed() {
		return nil
	}
	f := finalSet{s, key.SeasonKey, updated.Generation}
	ladders, err := f.sizes(ctx, op{selectFinalLadders, f.args()})
	if err != nil {
		return err
	}
	_, _, _, err = s.changeSeal(ctx, key.SeasonKey, inc, func(x *seal) bool {
		if x.Generation != f.generation {
			return false
		}
		x.setErased(ladders)
		x.Erasures++
		return true
	})
	return err
}

// erase removes a user from the generation.
func (f finalSet) erase(ctx context.Context, user leaderboard.UserID) error {
	type place struct {
		division string
		position int64
		standing leaderboard.SortKey // empty in generations of older versions, which have no fences
	}
	var p place
	var key []byte
	var achieved int64
	places, err := gather(ctx, f.s.conn, op{selectFinalPlaces, f.args(string(user))}, []any{&p.division, &p.position, &key, &achieved}, func() (place, error) {
		if p.standing = ""; len(key) > 0 {
			st := leaderboard.Standing{User: user, Key: leaderboard.RankKey(key), AchievedAt: time.UnixMicro(achieved)}
			p.standing = st.SortKey()
		}
		return p, nil
	})
	if err != nil {
		return err
	}
	for _, p := range places {
		if err := f.s.conn.write(ctx, op{eraseFinalPosition, append([]any{[]int64{p.position}}, f.args(p.division)...)}); err != nil {
			return err
		}
		if p.standing != "" {
			if err := f.eraseFence(ctx, p.division, p.position, p.standing); err != nil {
				return err
			}
		}
		if err := f.s.conn.write(ctx, op{deleteFinalStanding, f.args(p.division, pageOf(p.position), p.position)}); err != nil {
			return err
		}
	}
	return f.s.conn.write(ctx, op{deleteFinalPlaces, f.args(string(user))})
}

// eraseFence removes the fence that contains the id of a user. The next standing of the page
// becomes a fence instead. A page may have several fences.
func (f finalSet) eraseFence(ctx context.Context, division string, position int64, standing leaderboard.SortKey) error {
	page, err := f.rows(ctx, division, position, 2)
	if err != nil {
		return err
	}
	for i := range page {
		if page[i].Ranks.Ordinal > position {
			if err := f.s.conn.write(ctx, op{insertFinalFence, f.args(division, []byte(page[i].SortKey()), pageOf(position))}); err != nil {
				return err
			}
			break
		}
	}
	return f.s.conn.write(ctx, op{deleteFinalFence, f.args(division, []byte(standing))})
}
