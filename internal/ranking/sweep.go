package ranking

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// sealDelay is the shortest time between the close of a season and its seal by Sweep.
// During that time, results that arrived before the close are applied, so the final
// standings include them.
const sealDelay = time.Minute

// Sweep seals every closed season, and deletes sealed seasons that are past their
// board's retention. Before this, it finishes the board's interrupted voids. It appends
// each seal and each deletion to the audit log before it performs the act. A seal does not
// change answers: it makes a season cheaper to keep and to read.
func (a *Admin) Sweep(ctx context.Context) error {
	boards, err := a.store.Boards(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range boards {
		errs = append(errs, a.finishVoids(ctx, &boards[i]), a.sweepBoard(ctx, &boards[i]))
	}
	return errors.Join(errs...)
}

func (a *Admin) sweepBoard(ctx context.Context, b *leaderboard.Board) error {
	if b.Filling() || !b.RecountLease.IsZero() {
		return nil // each part of the fill would amend the final standings of a sealed season
	}
	records, err := a.store.Seasons(ctx, b.ID)
	if err != nil {
		return err
	}
	now := a.now()
	var errs []error
	for i := range records {
		errs = append(errs, a.sweepSeason(ctx, b, &records[i], now))
	}
	return errors.Join(errs...)
}

func (a *Admin) sweepSeason(ctx context.Context, b *leaderboard.Board, r *leaderboard.SeasonRecord, now time.Time) error {
	season, err := b.Season.ByID(r.Season)
	if err != nil {
		return err
	}
	if b.FillingSeason(r.Season, now) {
		return nil // a window that is opened only now, after its close
	}
	switch {
	case r.SealedAt.IsZero():
		if !b.Closed(season, now.Add(-sealDelay)) {
			return nil
		}
		// The divisions may have changed since the sweep began.
		if fresh, err := a.store.Board(ctx, b.ID); err != nil || !fresh.RecountLease.IsZero() {
			return err
		}
		act := dueAct("season.seal", r.SeasonKey, b.ClosesAt(season).Add(sealDelay), "the season closed")
		if err := a.store.AppendAct(ctx, act); err != nil {
			return err
		}
		if _, ended := b.Season.EarlyEnd(r.Season); ended {
			// A process with an older version of the board may have counted results after the end.
			if _, _, err := a.afterEnd(ctx, b, b, r.Season, true); err != nil {
				return err
			}
		}
		if err := a.ranks.seal(ctx, b, r.SeasonKey); err != nil {
			return err
		}
		a.log.InfoContext(ctx, "season sealed", "board", b.ID, "season", r.Season)
	case due(removedAt(b, season, r.SealedAt, now), now) && r.Season != b.Rolling.Filled: // the next window is filled from it
		act := dueAct("season.delete", r.SeasonKey, removedAt(b, season, r.SealedAt, now), fmt.Sprintf("the retention of the board is %v", b.Retention))
		if err := a.store.AppendAct(ctx, act); err != nil {
			return err
		}
		if err := a.store.DeleteSeason(ctx, r.SeasonKey, leaderboard.Truncate(now)); err != nil {
			return err
		}
		a.forgetSeason(r.SeasonKey)
		a.log.InfoContext(ctx, "season deleted past its retention", "board", b.ID, "season", r.Season)
	}
	return nil
}

// removedAt returns the time from which a sweep deletes a season with results: the
// board's retention after the season was sealed. If the season is not sealed yet,
// removedAt assumes that a sweep seals it as early as possible. The zero time means
// never.
func removedAt(b *leaderboard.Board, season leaderboard.Season, sealedAt, now time.Time) time.Time {
	closes := b.ClosesAt(season)
	if b.Retention <= 0 || closes.IsZero() {
		return time.Time{}
	}
	sealable := closes.Add(sealDelay)
	if sealedAt.IsZero() {
		sealedAt = later(sealable, now)
	}
	return later(sealedAt.Add(b.Retention), sealable)
}

func later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// due reports whether t has come. The zero time never comes.
func due(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

// dueAct returns the audit log's record of an act on a season that the service performs by
// itself. The parameter at is the time when the act is due, not the time of the sweep. So
// the records of several processes, or of repeated sweeps, are equal, and the log keeps
// one.
func dueAct(action string, key leaderboard.SeasonKey, at time.Time, reason string) leaderboard.Act {
	sum := sha256.Sum256([]byte(action + "\n" + string(key.Board) + "\n" + string(key.Season)))
	return leaderboard.Act{
		ID: fmt.Sprintf("due-%x", sum[:16]), At: leaderboard.Truncate(at), Actor: leaderboard.SystemActor,
		Action: action, Board: key.Board, Season: key.Season, ActDetail: leaderboard.ActDetail{Reason: reason},
	}
}
