package ranking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Admin administers boards, seasons and users.
type Admin struct {
	*shared
	reader *Reader
}

// CreateBoard creates a board and returns it as stored. It sets no defaults: a Grace of 0
// means no grace. Errors: [leaderboard.FieldError], [leaderboard.ErrBoardExists].
func (a *Admin) CreateBoard(ctx context.Context, b leaderboard.Board) (leaderboard.Board, error) {
	b, _, err := a.newBoard(ctx, b)
	if err != nil {
		return leaderboard.Board{}, err
	}
	if b.Source != nil {
		if err := a.addLink(ctx, &b); err != nil {
			return leaderboard.Board{}, err
		}
		defer a.planFill()
	}
	err = a.store.CreateBoard(ctx, b)
	if errors.Is(err, leaderboard.ErrBoardExists) {
		return leaderboard.Board{}, a.addDifferences(ctx, &b, err)
	}
	if err != nil {
		return leaderboard.Board{}, err
	}
	a.forgetBoard(b.ID)
	return a.Board(ctx, b.ID)
}

// CheckNewBoard returns the errors of CreateBoard, and changes nothing. If the same board exists,
// CheckNewBoard returns it, otherwise nil.
func (a *Admin) CheckNewBoard(ctx context.Context, b leaderboard.Board) (*leaderboard.Board, error) {
	_, stored, err := a.newBoard(ctx, b)
	return stored, err
}

func (a *Admin) newBoard(ctx context.Context, b leaderboard.Board) (_ leaderboard.Board, stored *leaderboard.Board, err error) {
	b.BoardState = leaderboard.BoardState{}
	b.CreatedAt, b.Season.Ends = leaderboard.Truncate(a.now()), nil
	if err := b.Validate(); err != nil {
		return b, nil, err
	}
	if b.Source != nil {
		b.FillDue = b.CreatedAt
		if b.Season.Kind == leaderboard.Rolling {
			if err := b.OpenWindows(); err != nil {
				return b, nil, err
			}
		}
		if err := a.checkLink(ctx, &b); err != nil {
			return b, nil, err
		}
	}
	existing, err := a.store.Board(ctx, b.ID)
	switch {
	case errors.Is(err, leaderboard.ErrBoardNotFound):
		return b, nil, nil
	case err == nil && !existing.SameAs(&b):
		err = a.addDifferences(ctx, &b, fmt.Errorf("ranking: board %q: %w", b.ID, leaderboard.ErrBoardExists))
	}
	return b, &existing, err
}

func (a *Admin) addDifferences(ctx context.Context, b *leaderboard.Board, err error) error {
	stored, readErr := a.store.Board(ctx, b.ID)
	if readErr != nil {
		return err
	}
	if differences := stored.Differences(b); len(differences) > 0 {
		err = fmt.Errorf("ranking: board %q differs in %s: %w", b.ID, strings.Join(differences, ", "), leaderboard.ErrBoardExists)
	}
	return err
}

// EnsureDefaultBoard creates the default board if no board has its id.
func (a *Admin) EnsureDefaultBoard(ctx context.Context) error {
	if _, err := a.store.Board(ctx, leaderboard.DefaultBoard); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		return err
	}
	_, err := a.CreateBoard(ctx, leaderboard.Board{
		ID: leaderboard.DefaultBoard, Title: "Leaderboard", Policy: leaderboard.Sum, Unit: "points",
		Season: leaderboard.Schedule{Kind: leaderboard.Monthly, TimeZone: "UTC", Grace: leaderboard.DefaultGrace},
	})
	if errors.Is(err, leaderboard.ErrBoardExists) {
		return nil
	}
	return err
}

// AmendBoard changes settings of a board. It calls the function change with a copy of the stored
// board. Errors: [leaderboard.ErrBoardNotFound]; the errors of [leaderboard.Board.Amend]; a
// [leaderboard.FieldError] if a sealed season would accept results again, if a season with
// results would close at once, or if a window would end less than MaxAhead from now and earlier
// than before.
func (a *Admin) AmendBoard(ctx context.Context, id leaderboard.BoardID, change func(*leaderboard.Board) error) (leaderboard.Board, error) {
	seasons, err := a.store.Seasons(ctx, id)
	if err != nil {
		return leaderboard.Board{}, err
	}
	defer a.forgetBoard(id)
	b, err := a.store.AmendBoard(ctx, id, a.checkedChange(seasons, change))
	if err == nil && b.Source != nil && len(b.PastDivisions) > 0 {
		err = a.acceptOnSource(ctx, &b)
	}
	if err == nil && (b.Filling() || !b.RecountDue.IsZero()) {
		a.planFill()
	}
	wake(a.newShards)
	return b, err
}

// acceptOnSource adds the attributes of b to the accepted attributes of the source. A server
// that has the source but not b can then import results with these attributes.
func (a *Admin) acceptOnSource(ctx context.Context, b *leaderboard.Board) error {
	defer a.forgetBoard(b.Source.Board)
	_, err := a.store.AmendBoard(ctx, b.Source.Board, func(source *leaderboard.Board) error {
		source.Accept(b.Declared())
		return nil
	})
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return nil
	}
	return err
}

// Changed windows of a linked board start a fill, because the source may have results in these windows.
// New divisions start a recount of all users.
func (a *Admin) checkedChange(seasons []leaderboard.SeasonRecord, change func(*leaderboard.Board) error) func(*leaderboard.Board) error {
	return func(b *leaderboard.Board) error {
		before := b.Clone()
		if err := change(b); err != nil {
			return err
		}
		b.NoteWidening(&before, a.now())
		if amended, err := before.Amend(*b); err != nil {
			return err
		} else if amended.Rules() != before.Rules() {
			b.RecountDue = a.nextDue(before.RecountDue)
		}
		if err := checkWindowEnds(&before, b, a.now()); err != nil {
			return err
		}
		if b.Source != nil && !slices.EqualFunc(b.Season.Windows, before.Season.Windows, sameWindow) {
			b.FillDue = a.nextDue(before.FillDue)
		}
		for i := range seasons {
			if err := checkOpenOrSealed(&before, b, &seasons[i], a.now()); err != nil {
				return err
			}
		}
		return nil
	}
}

func sameWindow(a, b leaderboard.Season) bool { return a.ID == b.ID && a.End.Equal(b.End) }

// checkWindowEnds refuses an earlier end of a window before which results may be stored already.
func checkWindowEnds(before, after *leaderboard.Board, now time.Time) error {
	earliest := now.Add(leaderboard.MaxAhead)
	for i, w := range after.Season.Windows {
		old, err := before.Season.ByID(w.ID)
		if err != nil || !w.End.Before(old.End) || !w.End.Before(earliest) {
			continue
		}
		return &leaderboard.FieldError{Field: fmt.Sprintf("season.windows[%d].end", i), Problem: fmt.Sprintf(
			"must be %s or later, as window %q may have results until then; to end it at once, call POST /v1/boards/%s/seasons/%s:end",
			earliest.UTC().Format(time.RFC3339), w.ID, after.ID, w.ID)}
	}
	return nil
}

func checkOpenOrSealed(before, after *leaderboard.Board, r *leaderboard.SeasonRecord, now time.Time) error {
	season, err := after.Season.ByID(r.Season)
	if err != nil {
		return nil //nolint:nilerr // Amend returns an error if the change removes a season
	}
	closed := after.Closed(season, now)
	switch {
	case !r.SealedAt.IsZero() && !closed:
		return &leaderboard.FieldError{Field: "season", Problem: fmt.Sprintf(
			"must not reopen the sealed season %q, which would accept results until %s", r.Season, after.ClosesAt(season).UTC().Format(time.RFC3339))}
	case r.SealedAt.IsZero() && closed && !before.Closed(season, now):
		return &leaderboard.FieldError{Field: "season.grace", Problem: fmt.Sprintf(
			"%v would close season %q, which has results and accepts more until %s; choose a grace that ends later, or wait until then",
			after.Season.Grace, r.Season, before.ClosesAt(season).UTC().Format(time.RFC3339))}
	}
	return nil
}

// CheckAmendment returns the board before and after AmendBoard, and changes nothing. Errors: those
// of AmendBoard.
func (a *Admin) CheckAmendment(ctx context.Context, id leaderboard.BoardID, change func(*leaderboard.Board) error) (before, after leaderboard.Board, err error) {
	_, before, after, err = a.checkAmendment(ctx, id, change)
	return before, after, err
}

func (a *Admin) checkAmendment(ctx context.Context, id leaderboard.BoardID, change func(*leaderboard.Board) error) (seasons []leaderboard.SeasonRecord, before, after leaderboard.Board, err error) {
	if seasons, err = a.store.Seasons(ctx, id); err != nil {
		return nil, before, after, err
	}
	if before, err = a.store.Board(ctx, id); err != nil {
		return nil, before, after, err
	}
	after, err = before.Revise(a.checkedChange(seasons, change))
	return seasons, before, after, err
}

// CheckDeletion returns the board that DeleteBoard would delete, and changes nothing. Errors: those
// of DeleteBoard.
func (a *Admin) CheckDeletion(ctx context.Context, id leaderboard.BoardID) (leaderboard.Board, error) {
	b, err := a.store.Board(ctx, id)
	if err == nil {
		err = a.checkUnlinked(ctx, &b)
	}
	return b, err
}

// DeleteBoard deletes a board and all its data. Results received before the call are never
// applied to a later board with the same id. Errors: [leaderboard.ErrBoardNotFound]; a
// [leaderboard.FieldError] if other boards are linked to the board.
func (a *Admin) DeleteBoard(ctx context.Context, id leaderboard.BoardID) error {
	b, err := a.CheckDeletion(ctx, id)
	if err != nil && !errors.Is(err, leaderboard.ErrBoardNotFound) {
		return err
	}
	seasons, err := a.store.Seasons(ctx, id)
	if err != nil && !errors.Is(err, leaderboard.ErrBoardNotFound) {
		return err
	}
	// Drop the ranks before the board: if Drop fails, the caller can repeat DeleteBoard. Drop
	// them again at the end, because a reader may have reloaded a season.
	drop := func() error {
		for _, r := range seasons {
			if err := a.index.Drop(ctx, r.SeasonKey); err != nil {
				return err
			}
		}
		return nil
	}
	if err := drop(); err != nil {
		return err
	}
	defer a.forgetBoard(id)
	if err := a.store.DeleteBoard(ctx, id, leaderboard.Truncate(a.now())); err != nil {
		return err
	}
	for _, r := range seasons {
		a.forgetSeason(r.SeasonKey)
		a.hub.notify(r.SeasonKey)
	}
	return errors.Join(drop(), a.unlink(ctx, &b))
}

// Export calls send for each result that stands in the selected seasons, including
// retractions. Unless includeEnded is true, Export omits results after the early end of a
// season: a board without this end would count these results. Export stops at the first error of
// send.
func (a *Admin) Export(ctx context.Context, sel Selection, includeEnded bool, send func(leaderboard.MatchResult) error) error {
	return sel.eachSeason(ctx, a.store, func(b *leaderboard.Board, key leaderboard.SeasonKey) error {
		for user, err := range a.store.Users(ctx, key) {
			if err != nil {
				return err
			}
			for r, err := range a.store.Results(ctx, key, user) {
				if err != nil {
					return err
				}
				if !includeEnded && b.EndedEarly(&r) {
					continue
				}
				if err := send(r); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// FinalLine is a line of the final standings of a ladder.
type FinalLine struct {
	leaderboard.Ladder
	Line
	Ranks leaderboard.Ranks
}

// ExportStandings calls send for the final standings of the selected seasons that are sealed: of each season,
// first the overall ladder, then each division. If a season is amended meanwhile, the lines may be of both
// versions.
func (a *Admin) ExportStandings(ctx context.Context, sel Selection, send func(*FinalLine) error) error {
	return sel.eachSeason(ctx, a.store, func(b *leaderboard.Board, key leaderboard.SeasonKey) error {
		divisions := map[leaderboard.Division]struct{}{}
		for e, err := range a.store.Scan(ctx, key, leaderboard.Part{}) {
			if err != nil {
				return err
			}
			for _, d := range e.Divisions {
				divisions[d] = struct{}{}
			}
		}
		byName := slices.SortedFunc(maps.Keys(divisions), func(x, y leaderboard.Division) int { return cmp.Compare(x.String(), y.String()) })
		for _, d := range append([]leaderboard.Division{{}}, byName...) {
			err := a.exportLadder(ctx, b, leaderboard.Ladder{SeasonKey: key, Division: d}, send)
			if errors.Is(err, leaderboard.ErrNotSealed) {
				return nil
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *Admin) exportLadder(ctx context.Context, b *leaderboard.Board, l leaderboard.Ladder, send func(*FinalLine) error) error {
	v := view{board: b, scoredAt: scoreTime(b, l.Season, a.now())}
	return eachFinalStanding(ctx, a.store, l, func(st *leaderboard.Standing) error {
		return send(&FinalLine{Ladder: l, Line: v.line(st), Ranks: st.Ranks})
	})
}

// ExportEnds calls send for the early end of a season, or of each season if season is empty.
func (a *Admin) ExportEnds(ctx context.Context, id leaderboard.BoardID, season leaderboard.SeasonID, send func(leaderboard.EarlyEnd) error) error {
	b, err := a.store.Board(ctx, id)
	if err != nil {
		return err
	}
	for _, e := range b.Season.Ends {
		if season != "" && e.ID != season {
			continue
		}
		if err := send(e); err != nil {
			return err
		}
	}
	return nil
}
