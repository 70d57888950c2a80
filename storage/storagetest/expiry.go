package storagetest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// RunExpiry tests that recent refusals expire. The function now returns the time of the store.
func RunExpiry(t *testing.T, newStore func(t testing.TB, now func() time.Time) leaderboard.Store) {
	var elapsed atomic.Int64
	store := newStore(t, func() time.Time { return epoch.Add(time.Duration(elapsed.Load())) })
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	f := &fixture{T: t, Store: store, ctx: t.Context(), clock: epoch.Add(time.Hour)}
	b := f.create(bestBoard("b"))
	late := f.result(b, "u", "m", 0, 7)
	late.AchievedAt, late.ReceivedAt = b.Season.Windows[0].Start, b.Season.Windows[0].End.Add(grace+time.Hour)
	check := func(when string, wantRepeated bool, wantRefusals int) {
		t.Helper()
		f.ok("FinishDeletions", f.FinishDeletions(f.ctx))
		got, err := f.RecentRefusals(f.ctx, b, late.ResultKey)
		f.ok("RecentRefusals", err)
		f.equal("refusals "+when, wantRefusals, len(got))
		o := f.apply(b, late).Outcomes[0]
		f.equal("outcome "+when, []any{leaderboard.Rejected, leaderboard.ReasonClosed, wantRepeated}, []any{o.Status, o.Reason, o.Repeated})
	}
	check("at first", false, 0)
	const most = 10 * 24 * time.Hour                               // how much longer a store may keep a refusal
	for _, start := range []time.Duration{0, 4 * 24 * time.Hour} { // the refusal is stored at different times of a period
		elapsed.Add(int64(start))
		if start > 0 {
			check("after the expiry of the earlier refusal", false, 0)
		}
		check("on the same day", true, 1)
		elapsed.Add(int64(leaderboard.RefusalTime - time.Second))
		check("directly before the end of the time", true, 1)
		elapsed.Add(int64(most + time.Second))
	}
	check("after the end of the time", false, 0)
	floor := leaderboard.Score(0)
	floored := sumBoard("floored")
	floored.Floor = &floor
	sum := f.create(floored)
	below := f.result(sum, "u", "m", 0, -1)
	f.apply(sum, below)
	elapsed.Add(int64(leaderboard.RefusalTime + most + time.Second))
	f.ok("FinishDeletions", f.FinishDeletions(f.ctx))
	o := f.apply(sum, below).Outcomes[0]
	f.equal("a refusal because of the floor", []any{leaderboard.ReasonFloor, true}, []any{o.Reason, o.Repeated})
	// After its expiry, the result is judged by the amended rules.
	amended, err := f.AmendBoard(f.ctx, "b", func(b *leaderboard.Board) error {
		b.Season.Grace += 24 * time.Hour
		b.WidenedAt = late.ReceivedAt
		return nil
	})
	f.ok("AmendBoard", err)
	f.equal("an expired refusal after an amendment", leaderboard.Applied, f.apply(&amended, late).Outcomes[0].Status)
}
