package ranking

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// sealDelay is the shortest time between the close of a season and its seal. In this time,
// results that arrived before the close are applied.
const sealDelay = time.Minute

// Sweep seals every closed season that has entries, deletes each sealed season after the retention of its
// board, and finishes interrupted calls of [Admin.SetVoid]. Before each seal or deletion (an
// act), it appends the act to the audit log. It also drops sealed seasons from the index.
//
// Several processes may sweep, but only one performs each act: see withLease. Sweep reads each
// board again before an act, because an administrator may change the settings meanwhile.
func (a *Admin) Sweep(ctx context.Context) error {
	boards, err := a.store.Boards(ctx)
	if err != nil {
		return err
	}
	a.plans.keepOnly(boards)
	var errs []error
	for i := range boards {
		b := &boards[i]
		if !b.Matches && !a.plans.isDue(b, a.now()) {
			continue
		}
		exists, err := a.reread(ctx, b)
		if err == nil && exists {
			err = a.sweepBoard(ctx, b)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, a.index.dropSealed(ctx))...)
}

func (a *Admin) sweepBoard(ctx context.Context, b *leaderboard.Board) error {
	isDue := a.plans.isDue(b, a.now())
	errs := []error{a.finishVoids(ctx, b, isDue)}
	if !isDue {
		return errors.Join(errs...)
	}
	plan, err := a.newPlan(ctx, b)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	updated := *plan
	updated.due = time.Time{}
	visit := func(id leaderboard.SeasonID, sealedAt time.Time) {
		r := leaderboard.SeasonRecord{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: id}, SealedAt: sealedAt}
		dueAt, err := a.sweepSeason(ctx, b, &r)
		errs = append(errs, err)
		if !dueAt.IsZero() && (updated.due.IsZero() || dueAt.Before(updated.due)) {
			updated.due = dueAt
		}
	}
	for _, id := range plan.unsealed {
		visit(id, time.Time{})
	}
	for _, id := range slices.Sorted(maps.Keys(plan.sealed)) {
		visit(id, plan.sealed[id])
	}
	if hasCome(updated.due, a.now()) {
		updated.listedAt = time.Time{} // the seasons may have changed, so the next sweep makes a new plan
	}
	a.plans.put(&updated)
	return errors.Join(errs...)
}

// reread returns false if b was deleted.
func (s *shared) reread(ctx context.Context, b *leaderboard.Board) (bool, error) {
	stored, err := s.store.Board(ctx, b.ID)
	if errors.Is(err, leaderboard.ErrBoardNotFound) || err == nil && !stored.CreatedAt.Equal(b.CreatedAt) {
		return false, nil
	}
	if err == nil {
		*b = stored
	}
	return err == nil, err
}

// sweepSeason performs the due act on a season, unless another process has the lease. It uses
// only the key and the SealedAt of r. dueAt is when a sweep must look at the season again; zero
// means not before the board changes.
func (a *Admin) sweepSeason(ctx context.Context, b *leaderboard.Board, r *leaderboard.SeasonRecord) (dueAt time.Time, err error) {
	now := a.now()
	act, err := dueAct(b, r, now)
	if err != nil {
		return now, err
	}
	if act.Action == "" {
		nextDue, err := nextAct(b, r, now)
		if hasCome(nextDue, now) {
			nextDue = time.Time{} // a fill delays the act, and its end changes the board
		}
		return nextDue, err
	}
	if act.Action == actSeal {
		if found, err := a.hasEntries(ctx, r.SeasonKey); err != nil || !found {
			return time.Time{}, err
		}
	}
	_, err = a.withLease(ctx, r.SeasonKey, func(ctx context.Context) error {
		stored, err := a.store.Season(ctx, r.SeasonKey)
		if err != nil || !stored.SealedAt.Equal(r.SealedAt) {
			return err
		}
		return a.perform(ctx, b, r, act, now)
	})
	return now, err
}

// hasEntries reports whether a season has an entry, which may be hidden. A season that has only rejected
// or retracted results is not sealed.
func (a *Admin) hasEntries(ctx context.Context, key leaderboard.SeasonKey) (bool, error) {
	for _, err := range a.store.Scan(ctx, key, leaderboard.Part{}) {
		return err == nil, err
	}
	return false, nil
}

func nextAct(b *leaderboard.Board, r *leaderboard.SeasonRecord, now time.Time) (time.Time, error) {
	season, err := b.Season.ByID(r.Season)
	if err != nil {
		return time.Time{}, err
	}
	if !r.SealedAt.IsZero() {
		return removedAt(b, season, r.SealedAt, now), nil
	}
	closes := b.ClosesAt(season)
	if closes.IsZero() {
		return closes, nil
	}
	return closes.Add(sealDelay), nil
}

// perform appends an act to the audit log, and reads the board again. If the act is still due
// at act.At, perform seals or deletes the season.
func (a *Admin) perform(ctx context.Context, b *leaderboard.Board, r *leaderboard.SeasonRecord, act leaderboard.Act, now time.Time) error {
	if err := a.store.AppendAct(ctx, act); err != nil {
		return err
	}
	early, hasEarlyEnd := b.Season.EarlyEnd(r.Season)
	if hasEarlyEnd && act.Action == actSeal {
		// A process that did not know the early end may have counted results with later times.
		if _, _, err := a.recountAfterEnd(ctx, b, b, r.Season, true); err != nil {
			return err
		}
	}
	if exists, err := a.reread(ctx, b); err != nil || !exists {
		return err
	}
	current, err := dueAct(b, r, now)
	if err != nil || current.Action != act.Action || !current.At.Equal(act.At) {
		return err
	}
	if e, _ := b.Season.EarlyEnd(r.Season); !e.At.Equal(early.At) {
		return nil // an administrator ended the season early meanwhile; the next sweep recounts it
	}
	if act.Action == actSeal {
		if err := a.ranks.seal(ctx, b, r.SeasonKey); err != nil {
			return err
		}
		a.log.InfoContext(ctx, "season sealed", "board", b.ID, "season", r.Season)
		a.sealed(r.SeasonKey)
		return nil
	}
	if err := a.store.DeleteSeason(ctx, r.SeasonKey, leaderboard.Truncate(now)); err != nil {
		return err
	}
	a.forgetSeason(r.SeasonKey)
	a.log.InfoContext(ctx, "season deleted past its retention", "board", b.ID, "season", r.Season)
	return nil
}

const (
	actSeal   = "season.seal"
	actDelete = "season.delete"
)

func dueAct(b *leaderboard.Board, r *leaderboard.SeasonRecord, now time.Time) (leaderboard.Act, error) {
	season, err := b.Season.ByID(r.Season)
	if err != nil {
		return leaderboard.Act{}, err
	}
	if b.Filling() || !b.RecountDue.IsZero() {
		return leaderboard.Act{}, nil // after a seal, each part of the fill would amend the final standings
	}
	if b.FillingSeason(r.Season, now) {
		return leaderboard.Act{}, nil
	}
	if r.SealedAt.IsZero() {
		if !b.Closed(season, now.Add(-sealDelay)) {
			return leaderboard.Act{}, nil
		}
		return newSweepAct(actSeal, r.SeasonKey, b.ClosesAt(season).Add(sealDelay), "the season closed"), nil
	}
	removed := removedAt(b, season, r.SealedAt, now)
	if !hasCome(removed, now) || r.Season == b.Rolling.Filled { // the next window is filled from this window
		return leaderboard.Act{}, nil
	}
	return newSweepAct(actDelete, r.SeasonKey, removed, fmt.Sprintf("the retention of the board is %v", b.Retention)), nil
}

// removedAt returns when a sweep may delete a season: the retention after sealedAt or, if
// sealedAt is zero, after the earliest possible seal. Zero means never.
func removedAt(b *leaderboard.Board, season leaderboard.Season, sealedAt, now time.Time) time.Time {
	closes := b.ClosesAt(season)
	if b.Retention <= 0 || closes.IsZero() {
		return time.Time{}
	}
	sealable := closes.Add(sealDelay)
	if sealedAt.IsZero() {
		sealedAt = laterOf(sealable, now)
	}
	return laterOf(sealedAt.Add(b.Retention), sealable)
}

func laterOf(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

func hasCome(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

// orphanShare is the reciprocal of the share of time in which a process reads ladders to find
// orphan rows.
const orphanShare = 30

func (a *Admin) removeOrphans(ctx context.Context, interval time.Duration) {
	removed, err := a.store.RemoveOrphanRows(ctx, interval/orphanShare)
	a.metrics.orphans.Add(float64(removed))
	if removed > 0 {
		a.log.InfoContext(ctx, "orphan rows removed", "rows", removed)
	}
	if err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "ladders not searched for orphan rows; the next sweep continues", "err", err)
	}
}

// dueAt is when the act is due, not the time of the sweep. So several processes or sweeps make
// equal acts, and the audit log keeps one.
func newSweepAct(action string, key leaderboard.SeasonKey, dueAt time.Time, reason string) leaderboard.Act {
	sum := sha256.Sum256([]byte(action + "\n" + string(key.Board) + "\n" + string(key.Season)))
	return leaderboard.Act{
		ID: fmt.Sprintf("due-%x", sum[:16]), At: leaderboard.Truncate(dueAt), Actor: leaderboard.SystemActor,
		Action: action, Board: key.Board, Season: key.Season, ActDetail: leaderboard.ActDetail{Reason: reason},
	}
}
