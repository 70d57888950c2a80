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
// board's retention. Before this, it finishes interrupted voids. It appends
// each seal and each deletion to the audit log before it performs the act. A seal does not
// change answers: it makes a season cheaper to keep and to read.
//
// An administrator may change a board's settings during a sweep. Sweep therefore reads each
// board again when its turn comes, and directly before each act.
func (a *Admin) Sweep(ctx context.Context) error {
	boards, err := a.store.Boards(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range boards {
		b := &boards[i]
		stands, err := a.reread(ctx, b)
		if err == nil && stands {
			err = errors.Join(a.finishVoids(ctx, b), a.sweepBoard(ctx, b))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (a *Admin) sweepBoard(ctx context.Context, b *leaderboard.Board) error {
	records, err := a.store.Seasons(ctx, b.ID)
	if err != nil {
		return err
	}
	var errs []error
	for i := range records {
		errs = append(errs, a.sweepSeason(ctx, b, &records[i]))
	}
	return errors.Join(errs...)
}

// reread sets b to the stored board. It returns false if b was deleted.
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

// sweepSeason seals or deletes a season if that is due. It sets b to the stored board before
// it does so. If b has changed so that the act is no longer due, or due at another time, the
// next sweep decides again.
func (a *Admin) sweepSeason(ctx context.Context, b *leaderboard.Board, r *leaderboard.SeasonRecord) error {
	now := a.now()
	act, err := actDue(b, r, now)
	if err != nil || act.Action == "" {
		return err
	}
	if err := a.store.AppendAct(ctx, act); err != nil {
		return err
	}
	early, ended := b.Season.EarlyEnd(r.Season)
	if ended && act.Action == actSeal {
		// A process with an older version of the board may have counted results after the end.
		if _, _, err := a.afterEnd(ctx, b, b, r.Season, true); err != nil {
			return err
		}
	}
	if stands, err := a.reread(ctx, b); err != nil || !stands {
		return err
	}
	again, err := actDue(b, r, now)
	if err != nil || again.Action != act.Action || !again.At.Equal(act.At) {
		return err
	}
	if e, _ := b.Season.EarlyEnd(r.Season); !e.At.Equal(early.At) {
		return nil // the season ended after the recount
	}
	if act.Action == actSeal {
		if err := a.ranks.seal(ctx, b, r.SeasonKey); err != nil {
			return err
		}
		a.log.InfoContext(ctx, "season sealed", "board", b.ID, "season", r.Season)
		return nil
	}
	if err := a.store.DeleteSeason(ctx, r.SeasonKey, leaderboard.Truncate(now)); err != nil {
		return err
	}
	a.forgetSeason(r.SeasonKey)
	a.log.InfoContext(ctx, "season deleted past its retention", "board", b.ID, "season", r.Season)
	return nil
}

// The acts of a sweep.
const (
	actSeal   = "season.seal"
	actDelete = "season.delete"
)

// actDue returns the act on a season of b that is due, or an empty act.
func actDue(b *leaderboard.Board, r *leaderboard.SeasonRecord, now time.Time) (leaderboard.Act, error) {
	season, err := b.Season.ByID(r.Season)
	if err != nil {
		return leaderboard.Act{}, err
	}
	if b.Filling() || !b.RecountLease.IsZero() {
		return leaderboard.Act{}, nil // each part of the fill would amend the final standings of a sealed season
	}
	if b.FillingSeason(r.Season, now) {
		return leaderboard.Act{}, nil // a window that is opened only now, after its close
	}
	if r.SealedAt.IsZero() {
		if !b.Closed(season, now.Add(-sealDelay)) {
			return leaderboard.Act{}, nil
		}
		return dueAct(actSeal, r.SeasonKey, b.ClosesAt(season).Add(sealDelay), "the season closed"), nil
	}
	removed := removedAt(b, season, r.SealedAt, now)
	if !due(removed, now) || r.Season == b.Rolling.Filled { // the next window is filled from it
		return leaderboard.Act{}, nil
	}
	return dueAct(actDelete, r.SeasonKey, removed, fmt.Sprintf("the retention of the board is %v", b.Retention)), nil
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
