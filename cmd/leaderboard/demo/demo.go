// Package demo submits real results of international football to a server, and draws a board
// while it submits.
package demo

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

// football is a CSV file of matches; README.md describes it.
//
//go:embed football_1990_2019.csv.gz
var football []byte

// The boards of the demo. The last three are linked to sourceBoard.
const (
	sourceBoard  = "football"
	yearlyBoard  = "football-yearly"
	monthlyBoard = "football-monthly"
	winsBoard    = "football-wins"
)

const (
	tick     = 100 * time.Millisecond // time between two batches
	maxBatch = 200                    // matches in a batch
	minFrame = 200 * time.Millisecond // minimum time between two draws
	columns  = 80                     // maximum width of lines
	// For seasons that ended before a board's creation, grace counts from the creation.
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

type replayer struct {
	*client.Client
	matches []Match
	speed   float64 // matches per second; 0 is unlimited
	url     string

	screen  *cli.Screen
	table   *client.EntryTable
	drawnAt time.Time
	season  string // year of the last match at the previous call of draw
}

// Play creates the boards, submits the results of matches, and draws the board of the last match's
// year. speed is in matches per second (0 is unlimited). url is the server's HTTP address.
func Play(ctx context.Context, c *client.Client, url string, matches []Match, speed float64) error {
	r := &replayer{
		Client: c, matches: matches, speed: speed, url: url, screen: c.NewScreen(),
		table: &client.EntryTable{Colors: c.Colors(), Unit: cli.Unit{Name: "points"}, TieBreakers: []string{"goal difference", "goals"}},
	}
	return r.play(ctx)
}

func (r *replayer) play(ctx context.Context) error {
	if err := r.createBoards(ctx); err != nil {
		return err
	}
	r.welcome()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	due := 0.0 // number of matches to submit; the next tick adds to the fraction
	for played := 0; played < len(r.matches); {
		n := maxBatch
		if r.speed > 0 {
			due += r.speed * tick.Seconds()
			n = int(due)
		}
		n = min(n, len(r.matches)-played, maxBatch)
		due = math.Max(0, due-float64(n))
		applied, err := r.submit(ctx, r.matches[played:played+n])
		if err != nil {
			return err
		}
		played += n
		if err := r.draw(ctx, played); err != nil {
			return err
		}
		if r.speed > 0 && (applied || n == 0) { // no pause if an earlier demo has submitted these matches
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	r.Printf("\nAll %d matches are played. The server runs until you press Ctrl-C.\n", len(r.matches))
	return nil
}

func (r *replayer) createBoards(ctx context.Context) error {
	longGrace := durationpb.New(grace)
	goals := []*pb.Board_TieBreaker{{Name: "goal_difference", Order: pb.Board_HIGHER_FIRST}, {Name: "goals", Order: pb.Board_HIGHER_FIRST}}
	years := &pb.Board_Schedule{Schedule: pb.Board_Schedule_EXPLICIT, Grace: longGrace} // a YEARLY schedule would also list the present year
	for y := r.matches[0].Date.Year(); y <= r.matches[len(r.matches)-1].Date.Year(); y++ {
		years.Windows = append(years.Windows, &pb.Board_Schedule_Window{
			Id:    strconv.Itoa(y),
			Start: timestamppb.New(time.Date(y, time.January, 1, 0, 0, 0, 0, time.UTC)),
			End:   timestamppb.New(time.Date(y+1, time.January, 1, 0, 0, 0, 0, time.UTC)),
		})
	}
	allResults := &pb.Board_Source{BoardId: sourceBoard}
	for _, b := range []*pb.Board{
		{
			BoardId: sourceBoard, Title: "International football", Policy: pb.Board_SUM, Unit: "points", TieBreakers: goals,
			Attributes: []string{"result"},
		},
		{BoardId: yearlyBoard, Title: "International football, by year", Policy: pb.Board_SUM, TieBreakers: goals, Season: years, Source: allResults},
		{
			BoardId: monthlyBoard, Title: "International football, by month", Policy: pb.Board_SUM, TieBreakers: goals, Source: allResults,
			Season: &pb.Board_Schedule{Schedule: pb.Board_Schedule_MONTHLY, Grace: longGrace},
		},
		{
			BoardId: winsBoard, Title: "International football, points of wins by year", Policy: pb.Board_SUM, Season: years,
			Source: &pb.Board_Source{BoardId: sourceBoard, Match: map[string]string{"result": "win"}},
		},
	} {
		if _, err := r.Scores.CreateBoard(ctx, &pb.CreateBoardRequest{Board: b}); err != nil {
			return r.WrapError(err)
		}
	}
	return nil
}

// submit reports whether a result was new.
func (r *replayer) submit(ctx context.Context, matches []Match) (applied bool, err error) {
	if len(matches) == 0 {
		return false, nil
	}
	results := make([]*pb.Result, 0, 2*len(matches))
	for i := range matches {
		m := &matches[i]
		results = append(results, m.result(m.Home, m.HomeGoals, m.AwayGoals), m.result(m.Away, m.AwayGoals, m.HomeGoals))
	}
	var res *pb.BatchSubmitScoresResponse
	if err := client.Retry(ctx, func() (err error) {
		res, err = r.Scores.BatchSubmitScores(ctx, &pb.BatchSubmitScoresRequest{Board: sourceBoard, Results: results})
		return err
	}); err != nil {
		return false, r.WrapError(err)
	}
	for _, o := range res.GetOutcomes() {
		switch o.GetStatus() {
		case pb.Outcome_APPLIED:
			applied = true
		case pb.Outcome_DUPLICATE:
		default:
			return false, fmt.Errorf("demo: the server answers %s %s to match %s of %s on board %s; start with an empty --data", o.GetStatus(), o.GetDetail(), o.GetMatchId(), o.GetUserId(), sourceBoard)
		}
	}
	return applied, nil
}

// result returns the result of a team that scored and conceded goals.
func (m *Match) result(team string, scored, conceded int64) *pb.Result {
	points, outcome := int64(0), "loss"
	switch {
	case scored > conceded:
		points, outcome = 3, "win"
	case scored == conceded:
		points, outcome = 1, "draw"
	}
	// Different microseconds keep the matches of a day in order.
	number, _ := strconv.ParseInt(m.ID, 10, 64)
	return &pb.Result{
		UserId: team, MatchId: m.ID, Points: &points,
		TieBreakers: []int64{scored - conceded, scored},
		AchievedAt:  timestamppb.New(m.Date.Add(12*time.Hour + time.Duration(number)*time.Microsecond)),
		Attributes:  map[string]string{"result": outcome},
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"match": structpb.NewStringValue(m.String()), "tournament": structpb.NewStringValue(m.Tournament),
		}},
	}
}

func (r *replayer) welcome() {
	r.Printf(`
  The demo plays %[7]d real football matches of %[8]d to %[9]d. Watch them here.
  It submits each result to the board football. Boards by year, by month and of
  the wins are linked to this board, and count the result too.

  The web page: all points so far; the points of the newest year; a big screen;
  and the ranking as a part of other sites:
    %[1]s/#board=%[2]s
    %[1]s/#board=%[3]s&season=latest
    %[1]s/embed?mode=kiosk&board=%[2]s
    %[1]s/gallery

  REST:
    curl %[1]s/v1/boards/%[2]s/scores
    curl '%[1]s/v1/boards/%[4]s/scores?season=latest'

  The terminal:
    leaderboard watch --server %[6]s -b %[2]s
    leaderboard top --server %[6]s -b %[5]s -s latest

  Press Ctrl-C to stop.

`,
		r.url, sourceBoard, yearlyBoard, winsBoard, monthlyBoard, r.Server,
		len(r.matches), r.matches[0].Date.Year(), r.matches[len(r.matches)-1].Date.Year())
}

// draw draws the board of the last match's year on a terminal, and prints the top teams of each year
// that is over. played is the number of submitted matches.
func (r *replayer) draw(ctx context.Context, played int) error {
	last := &r.matches[max(played, 1)-1]
	season := strconv.Itoa(last.Date.Year())
	if r.season == "" {
		r.season = strconv.Itoa(r.matches[0].Date.Year())
	}
	yearOver := r.season != season || played == len(r.matches)
	if !yearOver && (!r.screen.InPlace() || time.Since(r.drawnAt) < minFrame) {
		r.season = season
		return nil
	}
	if yearOver {
		if err := r.printYears(ctx, season, played == len(r.matches)); err != nil {
			return err
		}
	}
	if r.season = season; r.screen.InPlace() {
		board, err := r.top(ctx, season, 10)
		if err != nil {
			return err
		}
		caption := fmt.Sprintf("%s  %s (%s)  %d of %d matches", last.Date.Format(time.DateOnly), last, last.Tournament, played, len(r.matches))
		r.table.Draw(r.screen, board, caption)
		r.drawnAt = time.Now()
	}
	return nil
}

func (r *replayer) printYears(ctx context.Context, lastYear string, includeLast bool) error {
	first, _ := strconv.Atoi(r.season)
	end, _ := strconv.Atoi(lastYear)
	if includeLast {
		end++
	}
	for y := first; y < end; y++ {
		board, err := r.top(ctx, strconv.Itoa(y), 5)
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
		r.screen.Clear()
		r.Println(line)
		r.table.Reset()
	}
	return nil
}

func (r *replayer) top(ctx context.Context, season string, n int32) (*pb.Leaderboard, error) {
	res, err := r.Scores.ListScores(ctx, &pb.ListScoresRequest{Board: yearlyBoard, Season: season, Limit: &n})
	if err != nil {
		return nil, r.WrapError(err)
	}
	return res.GetData(), nil
}
