package cql

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// This file writes final standings in fencedLayout (see finalread.go), as an older program did.

// If the incarnation ends meanwhile, writeAll removes its rows and returns errEnded.
//
// If the incarnation is open after the write of a page, a later deletion finds the page. If
// not, the deletion may have missed the page. removeAll may miss the page too: it finds pages by
// the ladder's number of standings, which the deletion may have removed. So writeAll also calls
// removePage.
func (f finalSet) writeAll(ctx context.Context, inc incarnation) error {
	divisions := map[leaderboard.Division]bool{{}: true}
	for e, err := range f.s.Scan(ctx, f.seasonKey, leaderboard.Part{}) {
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

type ladderWriter struct {
	finalSet
	inc      incarnation
	division leaderboard.Division
	page     []leaderboard.Standing // not written yet
	count    int64
	last     leaderboard.RankKey // of the last standing
	// tails has, for each written page, the tail: the last position with the rank key of the page's
	// last standing (see finalread.go).
	tails    []int64
	tailsSet int // the number of tails that are set
}

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

// endTies is called when no further standing has the rank key w.last. It sets the tail of each
// written page that ends with this key.
func (w *ladderWriter) endTies() {
	for ; w.tailsSet < len(w.tails); w.tailsSet++ {
		w.tails[w.tailsSet] = w.count
	}
}

func (w *ladderWriter) flush(ctx context.Context) error {
	// The number of standings is written first, so that removeAll finds all of them. All numbers
	// have the same timestamp, so Cassandra keeps the greatest.
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

// If the incarnation is not open, checkOpen removes the generation, calls remove and returns
// errEnded.
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

func (f finalSet) removePage(ctx context.Context, d leaderboard.Division, page []leaderboard.Standing) error {
	err := f.s.forEach(ctx, len(page), func(ctx context.Context, i int) error {
		return f.s.conn.write(ctx, op{deleteUserPositions, f.args(string(page[i].User))})
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
	// notWorse has, for each standing, the last position with its rank key. Zero means the tail of
	// the page, which is not known yet.
	notWorse := make([]int64, len(page))
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

func (s *Store) sealFenced(ctx context.Context, b *leaderboard.Board) error {
	key := leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}
	inc, err := s.openIncarnation(ctx, b, key.Season)
	if err != nil {
		return err
	}
	f := finalSet{s, key, "5ea1ed00-0000-4000-8000-000000000000"}
	if err := f.writeAll(ctx, inc); err != nil {
		return err
	}
	_, _, _, err = s.changeSeal(ctx, key, inc, func(x *seal) bool {
		x.Generation, x.SealedAt, x.Layout = f.generation, stepsEpoch, fencedLayout
		return true
	})
	return err
}
