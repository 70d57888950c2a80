package cql

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// deletion is a writer and a deletion of its board that take turns, and another
// writer that runs between two turns.
type deletion struct {
	*writers
	between int  // the other writer runs after this turn
	warm    bool // the season is open before the deletion
}

// run runs the calls by a schedule and returns an error if the outcome is wrong.
func (d *deletion) run(ctx context.Context, first int, order schedule) error {
	seasonKey := leaderboard.SeasonKey{Board: d.board.ID, Season: leaderboard.SeasonAll}
	if d.warm {
		if err := d.apply(ctx, d.stores[0], "warm 1"); err != nil {
			return err
		}
	}
	var applied, deleted, between error
	writer, _ := d.conns[0].walk(func() { applied = d.apply(ctx, d.stores[0], "m 5 red") })
	deleter, _ := d.conns[1].walk(func() { deleted = d.stores[1].DeleteBoard(ctx, d.board.ID) })
	turns := []func(int) bool{writer, deleter}
	if first == 1 {
		turns = []func(int) bool{deleter, writer}
	}
	for i, n := range order {
		turns[i%2](n)
		if i == d.between {
			between = d.apply(ctx, d.third, "n 7 blue")
		}
	}
	for _, turn := range turns {
		for turn(1000) {
		}
	}
	if deleted != nil {
		return fmt.Errorf("DeleteBoard: %w", deleted)
	}
	for _, err := range []error{applied, between} {
		if err != nil && !errors.Is(err, leaderboard.ErrBoardNotFound) {
			return fmt.Errorf("Apply: %w", err)
		}
	}
	// The deleted board accepts no results: neither of a new user nor of a user whose
	// results the deletion removed.
	d.user = "late"
	if err := d.apply(ctx, d.stores[0], "late 1"); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		return fmt.Errorf("Apply of another user's result after the deletion: error %v, want %v", err, leaderboard.ErrBoardNotFound)
	}
	d.user = "u"
	if err := d.apply(ctx, d.stores[0], "late 1"); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		return fmt.Errorf("Apply after the deletion: error %v, want %v", err, leaderboard.ErrBoardNotFound)
	}

	again := *d.board
	again.CreatedAt = again.CreatedAt.Add(time.Hour)
	if err := d.third.CreateBoard(ctx, again); err != nil {
		return err
	}
	old := d.board
	d.board = &again
	for i, s := range []*Store{d.third, d.stores[0]} {
		if seasons, err := s.Seasons(ctx, again.ID); err != nil || len(seasons) > 0 {
			return fmt.Errorf("store %d: seasons of the new board: %v, error %v", i, seasons, err)
		}
		for user, err := range s.Users(ctx, seasonKey) {
			return fmt.Errorf("store %d: user %q of the new board, error %v", i, user, err)
		}
		for e, err := range s.Scan(ctx, seasonKey) {
			return fmt.Errorf("store %d: entry of the new board: %v, error %v", i, e, err)
		}
	}
	r := d.result("x 1")
	if report, err := d.stores[1].Apply(ctx, old, []leaderboard.MatchResult{r}); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		return fmt.Errorf("Apply to the old board: %+v, error %v", report, err)
	}
	for i, s := range []*Store{d.stores[0], d.third, d.stores[1]} {
		if err := d.apply(ctx, s, fmt.Sprintf("new%d %d red", i, 10+i)); err != nil {
			return fmt.Errorf("Apply to the new board: %w", err)
		}
	}
	if e, err := d.third.Entry(ctx, seasonKey, d.user); err != nil || e.Results != 3 {
		return fmt.Errorf("the entry of the new board has %d results, error %v", e.Results, err)
	}
	return d.check(ctx)
}

// In any order of the statements of a deletion and of two writers, nothing is left of the
// deleted board, and a new board with the same id accepts results.
func TestModelOfADeletion(t *testing.T) {
	for _, warm := range []bool{false, true} {
		for between := range 2 {
			t.Run(fmt.Sprintf("season open before: %v, other writer after turn %d", warm, between+1), func(t *testing.T) {
				t.Parallel()
				for _, order := range schedules(2, 8) {
					for first := range 2 {
						w := newWriters(t, sharedModel(newModel(nil)), stepsBoard(leaderboard.Sum), "u")
						d := &deletion{w, between, warm}
						if err := d.run(t.Context(), first, order); err != nil {
							t.Fatalf("%d first, turns of %v statements: %v", first, order, err)
						}
					}
				}
			})
		}
	}
}
