// Package demo submits real results of international football to a server, and draws a
// board while it changes.
package demo

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

// football is a CSV file of matches; README.md describes it.
//
//go:embed football_1990_2019.csv.gz
var football []byte

// The boards of the demo, besides the default board. The others are linked to sourceBoard.
const (
	sourceBoard  = "football"
	yearlyBoard  = "football-yearly"
	monthlyBoard = "football-monthly"
	winsBoard    = "football-wins"
)

const (
	tick     = 100 * time.Millisecond // the time between two batches
	maxBatch = 500                    // the maximum number of matches in a batch
	minFrame = 200 * time.Millisecond // the minimum time between two draws
	columns  = 80                     // the maximum width of the lines that the demo prints
	// grace is the grace period of the seasons. For a season that ended before its board
	// was created, it begins when the board is created. So the old seasons accept results.
	grace = 10 * 365 * 24 * time.Hour
)

// Match is one match of two teams.
type Match struct {
	ID, Home, Away, Tournament string
	Date                       time.Time
	HomeGoals, AwayGoals       int64
}

// Matches returns all matches, in order of date.
func Matches() ([]Match, error) {
	plain, err := gzip.NewReader(bytes.NewReader(football))
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	rows, err := csv.NewReader(plain).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	matches := make([]Match, 0, len(rows))
	for _, r := range rows[1:] {
		date, err1 := time.Parse(time.DateOnly, r[1])
		home, err2 := strconv.ParseInt(r[4], 10, 64)
		away, err3 := strconv.ParseInt(r[5], 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("demo: match %s: %w", r[0], err)
		}
		matches = append(matches, Match{r[0], r[2], r[3], r[6], date, home, away})
	}
	return matches, nil
}

// String returns the teams and the goals.
func (m *Match) String() string {
	return fmt.Sprintf("%s %d-%d %s", m.Home, m.HomeGoals, m.AwayGoals, m.Away)
}

// player submits the results of matches to a server.
type player struct {
	*client.Client
	matches []Match
	speed   float64 // matches per second; 0 is unlimited
	url     string

	screen  *cli.Screen
	table   *client.EntryTable
	drawnAt time.Time
	season  string // the year whose board was drawn last
}

// Play creates the boards and submits the results of matches. speed is in matches per
// second; 0 is unlimited. Meanwhile, Play draws the board of the current match's year.
// url is the URL at which the server answers HTTP.
func Play(ctx context.Context, c *client.Client, url string, matches []Match, speed float64) error {
	d := &player{
		Client: c, matches: matches, speed: speed, url: url, screen: c.NewScreen(),
		table: &client.EntryTable{Colors: c.Colors(), Unit: cli.Unit{Name: "points"}, TieBreakers: []string{"goal difference", "goals"}},
	}
	return d.play(ctx)
}

func (d *player) play(ctx context.Context) error {
	if err := d.createBoards(ctx); err != nil {
		return err
	}
	d.welcome()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	due := 0.0
	for at := 0; at < len(d.matches); {
		n := maxBatch
		if d.speed > 0 {
			due += d.speed * tick.Seconds()
			n = int(due)
		}
		n = min(n, len(d.matches)-at, maxBatch)
		due = math.Max(0, due-float64(n))
		fresh, err := d.submit(ctx, d.matches[at:at+n])
		if err != nil {
			return err
		}
		at += n
		if err := d.draw(ctx, at); err != nil {
			return err
		}
		if d.speed > 0 && (fresh || n == 0) { // do not wait after matches that an earlier demo has submitted
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	d.Printf("\nAll %d matches are played. The server runs until you press Ctrl-C.\n", len(d.matches))
	return nil
}

func (d *player) createBoards(ctx context.Context) error {
	open := durationpb.New(grace)
	goals := []*pb.Board_TieBreaker{{Name: "goal_difference", Order: pb.Board_HIGHER_FIRST}, {Name: "goals", Order: pb.Board_HIGHER_FIRST}}
	years := &pb.Board_Schedule{Schedule: pb.Board_Schedule_EXPLICIT, Grace: open} // YEARLY would have this year too, which is empty
	for y := d.matches[0].Date.Year(); y <= d.matches[len(d.matches)-1].Date.Year(); y++ {
		years.Windows = append(years.Windows, &pb.Board_Schedule_Window{
			Id:    strconv.Itoa(y),
			Start: timestamppb.New(time.Date(y, time.January, 1, 0, 0, 0, 0, time.UTC)),
			End:   timestamppb.New(time.Date(y+1, time.January, 1, 0, 0, 0, 0, time.UTC)),
		})
	}
	all := &pb.Board_Source{BoardId: sourceBoard}
	for _, b := range []*pb.Board{
		{
			BoardId: sourceBoard, Title: "International football", Policy: pb.Board_SUM, Unit: "points", TieBreakers: goals,
			Attributes: []string{"result"},
		},
		{BoardId: yearlyBoard, Title: "International football, by year", Policy: pb.Board_SUM, TieBreakers: goals, Season: years, Source: all},
		{
			BoardId: monthlyBoard, Title: "International football, by month", Policy: pb.Board_SUM, TieBreakers: goals, Source: all,
			Season: &pb.Board_Schedule{Schedule: pb.Board_Schedule_MONTHLY, Grace: open},
		},
		{
			BoardId: winsBoard, Title: "International football, points of wins by year", Policy: pb.Board_SUM, Season: years,
			Source: &pb.Board_Source{BoardId: sourceBoard, Match: map[string]string{"result": "win"}},
		},
	} {
		if _, err := d.Scores.CreateBoard(ctx, &pb.CreateBoardRequest{Board: b}); err != nil {
			return d.WrapError(err)
		}
	}
	return nil
}

// submit submits the results of matches to sourceBoard and the default board. It reports whether at least one
// of the results was new to the server.
func (d *player) submit(ctx context.Context, matches []Match) (fresh bool, err error) {
	if len(matches) == 0 {
		return false, nil
	}
	batches := map[string][]*pb.Result{}
	for i := range matches {
		m := &matches[i]
		d.add(batches, m, m.Home, m.HomeGoals, m.AwayGoals)
		d.add(batches, m, m.Away, m.AwayGoals, m.HomeGoals)
	}
	for _, board := range slices.Sorted(maps.Keys(batches)) {
		res, err := d.Scores.BatchSubmitScores(ctx, &pb.BatchSubmitScoresRequest{Board: board, Results: batches[board]})
		if err != nil {
			return false, d.WrapError(err)
		}
		for _, o := range res.GetOutcomes() {
			switch o.GetStatus() {
			case pb.Outcome_APPLIED:
				fresh = true
			case pb.Outcome_DUPLICATE:
			default:
				return false, fmt.Errorf("demo: the server answers %[4]s %[5]s to match %[1]s of %[2]s on board %[3]s; start with an empty --data", o.GetMatchId(), o.GetUserId(), board, o.GetStatus(), o.GetDetail())
			}
		}
	}
	return fresh, nil
}

// add adds the results of one team of a match to the batches.
func (d *player) add(batches map[string][]*pb.Result, m *Match, team string, scored, conceded int64) {
	points, outcome := int64(0), "loss"
	switch {
	case scored > conceded:
		points, outcome = 3, "win"
	case scored == conceded:
		points, outcome = 1, "draw"
	}
	// Different microseconds keep the matches of a day in the order of the file.
	number, _ := strconv.ParseInt(m.ID, 10, 64)
	for board, r := range map[string]*pb.Result{
		sourceBoard: {
			TieBreakers: []int64{scored - conceded, scored},
			AchievedAt:  timestamppb.New(m.Date.Add(12*time.Hour + time.Duration(number)*time.Microsecond)),
			Attributes:  map[string]string{"result": outcome},
			Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
				"match": structpb.NewStringValue(m.String()), "tournament": structpb.NewStringValue(m.Tournament),
			}},
		},
		string(leaderboard.DefaultBoard): {},
	} {
		r.UserId, r.MatchId, r.Points = team, m.ID, &points
		batches[board] = append(batches[board], r)
	}
}

// welcome prints how to see the boards: in the browser, over REST and in the terminal.
func (d *player) welcome() {
	d.Printf(`
  The demo plays %d real football matches of %d to %d. Watch them here.
  It submits each result to the board football. Boards by year, by month and of
  the wins are linked to this board, and count the result too.

  The web page: all points so far, as if all matches were played now, and the
  points of the newest year:
    %s/
    %s/#board=%s&season=latest

  REST:
    curl %s/v1/scores
    curl '%s/v1/boards/%s/scores?season=latest'

  The terminal:
    leaderboard watch --server %s
    leaderboard top --server %s -b %s -s latest

  Press Ctrl-C to stop.

`, len(d.matches), d.matches[0].Date.Year(), d.matches[len(d.matches)-1].Date.Year(),
		d.url, d.url, yearlyBoard, d.url, d.url, winsBoard, d.Server, d.Server, monthlyBoard)
}

// draw draws the board of the current year on a terminal, at most once per minFrame. When
// a year is over, draw also prints one line with its top teams. played is the number of
// matches that have been submitted.
func (d *player) draw(ctx context.Context, played int) error {
	last := &d.matches[max(played, 1)-1]
	season := strconv.Itoa(last.Date.Year())
	if d.season == "" {
		d.season = strconv.Itoa(d.matches[0].Date.Year())
	}
	over := d.season != season || played == len(d.matches)
	if !over && (!d.screen.InPlace() || time.Since(d.drawnAt) < minFrame) {
		d.season = season
		return nil
	}
	if over {
		if err := d.closeYears(ctx, season, played == len(d.matches)); err != nil {
			return err
		}
	}
	if d.season = season; d.screen.InPlace() {
		board, err := d.top(ctx, season, 10)
		if err != nil {
			return err
		}
		caption := fmt.Sprintf("%s  %s (%s)  %d of %d matches", last.Date.Format(time.DateOnly), last, last.Tournament, played, len(d.matches))
		d.table.Draw(d.screen, board, caption)
		d.drawnAt = time.Now()
	}
	return nil
}

// closeYears prints a line for each year from d.season to lastYear. It omits lastYear
// itself unless includeLast is true.
func (d *player) closeYears(ctx context.Context, lastYear string, includeLast bool) error {
	first, _ := strconv.Atoi(d.season)
	end, _ := strconv.Atoi(lastYear)
	if includeLast {
		end++
	}
	for y := first; y < end; y++ {
		board, err := d.top(ctx, strconv.Itoa(y), 5)
		if err != nil {
			return err
		}
		line := strconv.Itoa(y)
		for _, e := range board.GetLeaderboard() {
			team := fmt.Sprintf("  %d. %s %d", e.GetRank(), e.GetUserId(), e.GetScore())
			if utf8.RuneCountInString(line+team) > columns {
				break
			}
			line += team
		}
		d.screen.Clear()
		d.Println(line)
		d.table.Reset()
	}
	return nil
}

func (d *player) top(ctx context.Context, season string, n int32) (*pb.Leaderboard, error) {
	res, err := d.Scores.ListScores(ctx, &pb.ListScoresRequest{Board: yearlyBoard, Season: season, Limit: &n})
	if err != nil {
		return nil, d.WrapError(err)
	}
	return res.GetData(), nil
}
