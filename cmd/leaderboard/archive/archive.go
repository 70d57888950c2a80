// Package archive copies the results, final standings and profiles of seasons into a database or into files, where
// they stay when the service deletes them, and restores them into a server.
package archive

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// Errors of opening an archive.
var (
	// ErrBusy means that another process writes the archive.
	ErrBusy = errors.New("another process writes this archive now; try again when it has finished")
	// ErrNone means that the database or the folder has no archive.
	ErrNone = errors.New("there is no archive")
)

// format identifies the layout of tables and files.
const format = 1

// target is an archive. Each call is atomic: after an interruption, the archive has all or nothing of it.
type target interface {
	// seasons returns the archived seasons. After an erasure that concerns a season, its mark is empty.
	seasons(ctx context.Context) ([]seasonRow, error)
	// putBoards adds or replaces boards.
	putBoards(ctx context.Context, rows []boardRow) error
	// putBans replaces all bans.
	putBans(ctx context.Context, rows []banRow) error
	// putSeason replaces a season by the rows that fill writes.
	putSeason(ctx context.Context, key leaderboard.SeasonKey, fill func(writer) (seasonRow, error)) error
	// erasures returns all known erasures.
	erasures(ctx context.Context) ([]erasureRow, error)
	// erase removes users, and adds the erasures to the known ones. It returns the number of removed users.
	erase(ctx context.Context, rows []erasureRow) (int64, error)

	boards(ctx context.Context) ([]boardRow, error)
	// read yields what "leaderboard export results" would of a board: results, profiles, void matches, early ends
	// and bans. global tells whether bans on every board are among them.
	read(ctx context.Context, b *pb.Board, global bool) iter.Seq2[*pb.ExportResultsResponse, error]
	close() error
}

// writer writes the rows of one season. The results of a user follow each other.
type writer interface {
	results([]resultRow) error
	profiles([]userRow) error
	voids([]voidRow) error
	standings([]standingRow) error
}

// Options select what is archived.
type Options struct {
	Board, Season string // only these, unless empty
	Open          bool   // also seasons that are not sealed
	Now           func() time.Time
	Progress      func(board, season string, rows int64) // may be nil
}

// Report is what a run has done.
type Report struct {
	Archived  int64 `json:"archived"`  // seasons
	Unchanged int64 `json:"unchanged"` // seasons that the archive had already
	Results   int64 `json:"results"`   // in the archived seasons
	Standings int64 `json:"standings"` // in the archived seasons, without divisions
	Erased    int64 `json:"erased"`    // users that were removed, because the service has erased them
	Changing  int64 `json:"changing"`  // seasons that changed during each of several tries
}

// errChanging means that a season changed while it was read.
var errChanging = errors.New("the season changed while it was read")

// tries is how often a run reads a season that changes meanwhile.
const tries = 3

// erasureOverlap is how long before the last known erasure a run looks for others: a process that dies during an
// erasure completes it later, and another region's record may arrive late.
const erasureOverlap = 7 * 24 * time.Hour

// run makes the archive equal to the service in each season that the service has. It first removes erased users, so that
// what it reads afterwards is later than the erasure.
func run(ctx context.Context, s *Source, t target, o Options) (report Report, err error) {
	if report.Erased, err = followErasures(ctx, s, t); err != nil {
		return report, err
	}
	boards, err := s.boards(ctx, o.Board)
	if err != nil {
		return report, err
	}
	var rows []boardRow
	for _, b := range boards {
		r, err := newBoardRow(b)
		if err != nil {
			return report, err
		}
		rows = append(rows, r)
	}
	if err := t.putBoards(ctx, rows); err != nil {
		return report, err
	}
	seasons, err := t.seasons(ctx)
	if err != nil {
		return report, err
	}
	marks := map[leaderboard.SeasonKey]string{}
	for _, r := range seasons {
		marks[leaderboard.SeasonKey{Board: leaderboard.BoardID(r.Board), Season: leaderboard.SeasonID(r.Season)}] = r.Mark
	}
	for _, b := range boards {
		if err := archiveBoard(ctx, s, t, o, b, marks, &report); err != nil {
			return report, err
		}
	}
	bans, err := s.bans(ctx)
	if err != nil {
		return report, err
	}
	return report, t.putBans(ctx, bans)
}

func followErasures(ctx context.Context, s *Source, t target) (int64, error) {
	stored, err := t.erasures(ctx)
	if err != nil {
		return 0, err
	}
	known, last := map[string]bool{}, time.Time{}
	for _, r := range stored {
		known[r.Act] = true
		if r.ErasedAt.After(last) {
			last = *r.ErasedAt
		}
	}
	if !last.IsZero() {
		last = last.Add(-erasureOverlap)
	}
	all, err := s.erasures(ctx, last)
	if err != nil {
		return 0, err
	}
	var rows []erasureRow
	for _, r := range all {
		if !known[r.Act] {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return 0, nil
	}
	return t.erase(ctx, rows)
}

func archiveBoard(ctx context.Context, s *Source, t target, o Options, b *pb.Board, marks map[leaderboard.SeasonKey]string, report *Report) error {
	ids := []string{o.Season}
	if o.Season == "" {
		var err error
		if ids, err = s.seasons(ctx, b.GetBoardId(), o.Open); err != nil {
			return ifPresent(err)
		}
	}
	for _, id := range ids {
		key := leaderboard.SeasonKey{Board: leaderboard.BoardID(b.GetBoardId()), Season: leaderboard.SeasonID(id)}
		err := errChanging
		for try := 0; try < tries && errors.Is(err, errChanging); try++ {
			err = archiveSeason(ctx, s, t, o, b, key, marks[key], report)
		}
		if errors.Is(err, errChanging) {
			report.Changing++
			continue
		}
		if o.Season == "" {
			err = ifPresent(err)
		}
		if err != nil {
			return fmt.Errorf("season %s of board %s: %w", key.Season, key.Board, err)
		}
	}
	return nil
}

// ifPresent returns nil if the board or the season was deleted meanwhile.
func ifPresent(err error) error {
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// archiveSeason copies a season unless its mark is the given one. Errors: errChanging.
func archiveSeason(ctx context.Context, s *Source, t target, o Options, b *pb.Board, key leaderboard.SeasonKey, mark string, report *Report) error {
	id := string(key.Season)
	before, err := s.season(ctx, b.GetBoardId(), id, false)
	if err != nil {
		return err
	}
	sealed := before.GetStatus() == statusSealed
	switch {
	case !sealed && !o.Open:
		return fmt.Errorf("it is %s, not sealed; add --open to archive it nevertheless", before.GetStatus())
	case markOf(b, before) == mark:
		report.Unchanged++
		return nil
	}
	if sealed { // a long computation, and the second call, below, is short
		if before, err = s.season(ctx, b.GetBoardId(), id, true); err != nil {
			return err
		}
	}
	c := copier{board: b, progress: func(rows int64) {
		if o.Progress != nil {
			o.Progress(b.GetBoardId(), id, rows)
		}
	}}
	c.progress(0)
	err = t.putSeason(ctx, key, func(w writer) (seasonRow, error) {
		c.writer = w
		sum, err := c.copy(ctx, s, id)
		if err != nil {
			return seasonRow{}, err
		}
		row, err := newSeasonRow(b, before, o.Now())
		if err != nil {
			return seasonRow{}, err
		}
		row.Results, row.Entrants = c.results, c.entrants
		if !sealed {
			return row, nil // it may change at any time
		}
		row.Checksum = sum
		after, err := s.season(ctx, b.GetBoardId(), id, true)
		switch {
		case err != nil:
			return row, err
		case markOf(b, after) != row.Mark || after.GetChecksum() != sum:
			return row, errChanging
		}
		return row, nil
	})
	if err == nil {
		report.Archived++
		report.Results += c.results
		report.Standings += c.entrants
	}
	return err
}
