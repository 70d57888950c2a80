package main

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

// football is what the demo plays: see demo/README.md.
//
//go:embed demo/football_1990_2019.csv.gz
var football []byte

const (
	demoYearly  = "football-yearly"
	demoMonthly = "football-monthly"
	demoWins    = "football-wins"

	demoTick  = 100 * time.Millisecond // between batches
	demoBatch = 500                    // matches at a time without a pace
	demoFrame = 200 * time.Millisecond // least time between two pictures
	// demoGrace keeps the seasons of a board made today open for years: their
	// results are old, but are still to come.
	demoGrace = 10 * 365 * 24 * time.Hour
)

func demoCommand(w *world) *cobra.Command {
	c := config.Default()
	c.Data = ""
	var speed float64
	cmd := &cobra.Command{
		Use: "demo", Short: "Serve, and play thirty years of real football into moving boards", Args: exactly(),
		Long: `Start a server on this machine, without keys, and play real results of men's
international football, 1990 to 2019, into its boards:

  default            points of all matches played so far, as if they were played now
  football-yearly    3 points a win, 1 a draw; a season a year; then goal difference, goals
  football-monthly   the same, a season a month
  football-wins      1 a win, a season a year

The boards are kept for as long as the demo runs, or in --data for good.`,
		Example: `  leaderboard demo
  leaderboard demo --speed 400
  leaderboard demo --data ./demo-data --http 127.0.0.1:9000`,
	}
	f := cmd.Flags()
	f.Float64Var(&speed, "speed", 40, "matches a second; 0 is as fast as it goes")
	f.StringVar(&c.Data, "data", "", "`folder` to keep the boards in (default a temporary one, removed at the end)")
	f.StringVar(&c.HTTP, "http", c.HTTP, "`host:port` of the page and REST; if that is in use, another port")
	f.StringVar(&c.GRPC, "grpc", c.GRPC, "`host:port` of gRPC; if that is in use, another port")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if speed < 0 || math.IsNaN(speed) || speed > 1e6 {
			return usagef("--speed %v is not 0 to 1000000 matches a second", speed)
		}
		c.HTTP, c.GRPC = freeAddress(f.Changed("http"), c.HTTP), freeAddress(f.Changed("grpc"), c.GRPC)
		matches, err := readMatches(football)
		if err != nil {
			return err
		}
		return w.demo(cmd.Context(), &c, matches, speed)
	}
	return cmd
}

// freeAddress returns the address, or if it is in use and was not asked for, one
// with any free port.
func freeAddress(asked bool, address string) string {
	l, err := net.Listen("tcp", address)
	if err == nil {
		l.Close()
		return address
	}
	if host, _, splitErr := net.SplitHostPort(address); !asked && splitErr == nil {
		return net.JoinHostPort(host, "0")
	}
	return address
}

// demo serves, and plays matches at so many a second, until ctx is done.
func (w *world) demo(ctx context.Context, c *config.Config, matches []match, speed float64) (err error) {
	c.Insecure, c.Log.Level = true, "warn"
	if c.Data == "" {
		if c.Data, err = os.MkdirTemp("", "leaderboard-demo-"); err != nil {
			return err
		}
		defer os.RemoveAll(c.Data)
	}
	if err := c.Validate(); err != nil {
		return &usageError{err}
	}
	log := slog.New(slog.NewTextHandler(w.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	n, err := w.open(ctx, c, log)
	if err != nil {
		return err
	}
	d := &demo{world: w, speed: speed, matches: matches, url: n.url(), screen: screen{world: w}}
	client, closeConn, err := w.dial(connection{server: reachable(n.grpc.Addr().String()), timeout: time.Minute})
	if err != nil {
		return errors.Join(err, n.close())
	}
	defer closeConn()
	d.client = client

	ctx, cancel := context.WithCancelCause(ctx)
	played := make(chan struct{})
	go func() {
		defer close(played)
		err := d.play(ctx)
		if err == nil {
			<-ctx.Done()
		}
		cancel(err)
	}()
	err = n.serve(ctx, nil, func() {})
	cancel(err)
	<-played
	if err == nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		err = context.Cause(ctx)
	}
	return errors.Join(err, n.close())
}

// match is one game of the demo.
type match struct {
	id, home, away, tournament string
	date                       time.Time
	homeGoals, awayGoals       int64
}

func readMatches(zipped []byte) ([]match, error) {
	plain, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	rows, err := csv.NewReader(plain).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	matches := make([]match, 0, len(rows))
	for _, r := range rows[1:] {
		date, err1 := time.Parse(time.DateOnly, r[1])
		home, err2 := strconv.ParseInt(r[4], 10, 64)
		away, err3 := strconv.ParseInt(r[5], 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("demo: match %s: %w", r[0], err)
		}
		matches = append(matches, match{r[0], r[2], r[3], r[6], date, home, away})
	}
	return matches, nil
}

func (m *match) String() string {
	return fmt.Sprintf("%s %d-%d %s", m.home, m.homeGoals, m.awayGoals, m.away)
}

// demo plays matches into a server.
type demo struct {
	*world
	client  *client
	speed   float64
	matches []match
	url     string

	screen  screen
	drawnAt time.Time
	before  map[string]int64 // ranks on the picture, of the season
	season  string
}

func (d *demo) play(ctx context.Context) error {
	if err := d.createBoards(ctx); err != nil {
		return err
	}
	d.welcome()
	ticker := time.NewTicker(demoTick)
	defer ticker.Stop()
	due := 0.0
	for at := 0; at < len(d.matches); {
		n := demoBatch
		if d.speed > 0 {
			due += d.speed * demoTick.Seconds()
			n = int(due)
		}
		n = min(n, len(d.matches)-at, demoBatch)
		due = math.Max(0, due-float64(n))
		fresh, err := d.submit(ctx, d.matches[at:at+n])
		if err != nil {
			return err
		}
		at += n
		if err := d.draw(ctx, at); err != nil {
			return err
		}
		if d.speed > 0 && (fresh || n == 0) { // what was played before passes at once
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	fmt.Fprintf(d.stdout, "\nAll %d matches are played. The boards stay until you press Ctrl-C.\n", len(d.matches))
	return nil
}

func (d *demo) createBoards(ctx context.Context) error {
	grace := durationpb.New(demoGrace)
	goals := []*pb.Board_TieBreaker{{Name: "goal_difference", Order: pb.Board_HIGHER_FIRST}, {Name: "goals", Order: pb.Board_HIGHER_FIRST}}
	years := &pb.Board_Schedule{Schedule: pb.Board_Schedule_EXPLICIT, Grace: grace}
	for y := d.matches[0].date.Year(); y <= d.matches[len(d.matches)-1].date.Year(); y++ {
		years.Windows = append(years.Windows, &pb.Board_Schedule_Window{
			Id:    strconv.Itoa(y),
			Start: timestamppb.New(time.Date(y, time.January, 1, 0, 0, 0, 0, time.UTC)),
			End:   timestamppb.New(time.Date(y+1, time.January, 1, 0, 0, 0, 0, time.UTC)),
		})
	}
	for _, b := range []*pb.Board{
		{BoardId: demoYearly, Title: "International football, by year", Policy: pb.Board_SUM, Unit: "points", TieBreakers: goals, Season: years},
		{
			BoardId: demoMonthly, Title: "International football, by month", Policy: pb.Board_SUM, Unit: "points", TieBreakers: goals,
			Season: &pb.Board_Schedule{Schedule: pb.Board_Schedule_MONTHLY, Grace: grace},
		},
		{BoardId: demoWins, Title: "International football, wins by year", Policy: pb.Board_SUM, Unit: "wins", Season: years},
	} {
		if _, err := d.client.scores.CreateBoard(ctx, &pb.CreateBoardRequest{Board: b}); err != nil {
			return &callError{err, d.client.server}
		}
	}
	return nil
}

// submit sends the results of matches to every board, and says whether any was new.
func (d *demo) submit(ctx context.Context, matches []match) (fresh bool, err error) {
	if len(matches) == 0 {
		return false, nil
	}
	batches := map[string][]*pb.Result{}
	for i := range matches {
		m := &matches[i]
		d.add(batches, m, m.home, m.homeGoals, m.awayGoals)
		d.add(batches, m, m.away, m.awayGoals, m.homeGoals)
	}
	for _, board := range sortedKeys(batches) {
		res, err := d.client.scores.BatchSubmitScores(ctx, &pb.BatchSubmitScoresRequest{Board: board, Results: batches[board]})
		if err != nil {
			return false, &callError{err, d.client.server}
		}
		for _, o := range res.GetOutcomes() {
			switch o.GetStatus() {
			case pb.Outcome_APPLIED:
				fresh = true
			case pb.Outcome_DUPLICATE:
			default:
				return false, fmt.Errorf("demo: match %s of %s on %s is %s %s; start with an empty --data", o.GetMatchId(), o.GetUserId(), board, o.GetStatus(), o.GetDetail())
			}
		}
	}
	return fresh, nil
}

// add adds what a match means for one team.
func (d *demo) add(batches map[string][]*pb.Result, m *match, team string, scored, conceded int64) {
	var points, wins int64
	switch {
	case scored > conceded:
		points, wins = 3, 1
	case scored == conceded:
		points = 1
	}
	result := func(points int64, at *timestamppb.Timestamp, ties ...int64) *pb.Result {
		return &pb.Result{UserId: team, MatchId: m.id, Points: &points, TieBreakers: ties, AchievedAt: at}
	}
	// Matches of a day follow one another in the order of the file.
	number, _ := strconv.ParseInt(m.id, 10, 64)
	at := timestamppb.New(m.date.Add(12*time.Hour + time.Duration(number)*time.Microsecond))
	yearly := result(points, at, scored-conceded, scored)
	yearly.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{
		"match": structpb.NewStringValue(m.String()), "tournament": structpb.NewStringValue(m.tournament),
	}}
	for board, r := range map[string]*pb.Result{
		demoYearly:                       yearly,
		demoMonthly:                      result(points, at, scored-conceded, scored),
		demoWins:                         result(wins, at),
		string(leaderboard.DefaultBoard): result(points, nil),
	} {
		batches[board] = append(batches[board], r)
	}
}

func (d *demo) welcome() {
	fmt.Fprintf(d.stdout, `
  Real football, %d matches of %d to %d, is being played. Look at it:

  web page   %s/                  points so far, as if all were played now
             %s/#board=%s
  REST       curl %s/v1/scores
             curl '%s/v1/boards/%s/scores?season=%d&limit=3'
  terminal   leaderboard watch --server %s
             leaderboard top --server %s --board %s --season %s

  Ctrl-C ends it.

`, len(d.matches), d.matches[0].date.Year(), d.matches[len(d.matches)-1].date.Year(),
		d.url, d.url, demoYearly, d.url, d.url, demoYearly, d.matches[0].date.Year(),
		d.client.server, d.client.server, demoMonthly, d.matches[0].date.Format("200601"))
}

// draw shows the year's board after so many matches, not too often. A year that
// is over leaves one line.
func (d *demo) draw(ctx context.Context, played int) error {
	last := &d.matches[max(played, 1)-1]
	season := strconv.Itoa(last.date.Year())
	if d.season == "" {
		d.season = strconv.Itoa(d.matches[0].date.Year())
	}
	over := d.season != season || played == len(d.matches)
	if !over && (!d.screen.inPlace() || time.Since(d.drawnAt) < demoFrame) {
		d.season = season
		return nil
	}
	if over {
		if err := d.closeYears(ctx, season, played == len(d.matches)); err != nil {
			return err
		}
	}
	if d.season = season; d.screen.inPlace() {
		board, err := d.top(ctx, season, 10)
		if err != nil {
			return err
		}
		l := ladder{unit: unit{name: "points"}, tieBreakers: []string{"goal difference", "goals"}, before: d.before}
		caption := func() string {
			return fmt.Sprintf("%s  %s (%s)  %d of %d matches", last.date.Format(time.DateOnly), last, last.tournament, played, len(d.matches))
		}
		d.screen.draw(l.frame(board, &d.screen, caption))
		d.before, d.drawnAt = ranksOf(board), time.Now()
	}
	return nil
}

// closeYears leaves a line for each year from the one shown to before until, or
// to until itself if that is over too.
func (d *demo) closeYears(ctx context.Context, until string, overToo bool) error {
	first, _ := strconv.Atoi(d.season)
	end, _ := strconv.Atoi(until)
	if overToo {
		end++
	}
	for y := first; y < end; y++ {
		board, err := d.top(ctx, strconv.Itoa(y), 5)
		if err != nil {
			return err
		}
		var teams []string
		for _, e := range board.GetLeaderboard() {
			teams = append(teams, fmt.Sprintf("%d. %s %d", e.GetRank(), e.GetUserId(), e.GetScore()))
		}
		d.screen.clear()
		fmt.Fprintf(d.stdout, "%d  %s\n", y, strings.Join(teams, "  "))
		d.before = nil
	}
	return nil
}

func (d *demo) top(ctx context.Context, season string, n int32) (*pb.Leaderboard, error) {
	res, err := d.client.scores.ListScores(ctx, &pb.ListScoresRequest{Board: demoYearly, Season: season, Limit: &n})
	if err != nil {
		return nil, &callError{err, d.client.server}
	}
	return res.GetData(), nil
}
