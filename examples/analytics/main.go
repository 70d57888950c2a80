// Command analytics appends every update of a leaderboard to a CSV file.
package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/consumer"
)

var columns = []string{
	"applied_at", "board_id", "season", "user_id", "match_id", "revision", "status", "reason",
	"old_score", "new_score", "old_rank_band", "new_rank_band", "personal_best",
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "analytics:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("analytics", flag.ContinueOnError)
	brokers := flags.String("brokers", "localhost:9092", "addresses of Kafka brokers, separated by commas")
	prefix := flags.String("prefix", "", "the service's setting kafka.topic_prefix")
	group := flags.String("group", "leaderboard-analytics", "consumer group")
	name := flags.String("file", "updates.csv", "CSV file to append to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	file, err := openFile(*name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return consumer.Subscribe(ctx, consumer.Subscription{
		Brokers: strings.Split(*brokers, ","), Topics: consumer.Topics{Prefix: *prefix}, Group: *group,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}, file.write)
}

// A csvFile appends updates to a file. write returns after the file has the whole line, because the update is
// then not delivered again.
type csvFile struct {
	*os.File
	mu  sync.Mutex
	csv *csv.Writer
}

// openFile writes the header if the file is new.
func openFile(name string) (*csvFile, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	file := &csvFile{File: f, csv: csv.NewWriter(f)}
	info, err := f.Stat()
	if err == nil && info.Size() == 0 {
		err = file.writeLine(columns)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return file, nil
}

func (f *csvFile) writeLine(line []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.csv.Write(line); err != nil {
		return err
	}
	f.csv.Flush()
	return f.csv.Error()
}

func (f *csvFile) write(_ context.Context, u *pb.LeaderboardUpdate) error {
	best := ""
	if u.PersonalBest != nil {
		best = strconv.FormatBool(u.GetPersonalBest())
	}
	return f.writeLine([]string{
		u.GetAppliedAt().AsTime().Format(time.RFC3339Nano), u.GetBoardId(), u.GetSeason(), u.GetUserId(), u.GetMatchId(),
		strconv.FormatInt(u.GetRevision(), 10), u.GetStatus().String(), u.GetReason(),
		number(u.OldScore), number(u.NewScore), number(u.OldRankBand), number(u.NewRankBand), best,
	})
}

// number returns "" for an absent number.
func number(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}
