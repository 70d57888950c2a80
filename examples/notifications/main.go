// Command notifications tells users of a leaderboard that they have reached a better range of ranks: the top 1,
// 3, 10, 100 and so on. It prints the notifications, or sends them to a webhook.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/consumer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "notifications:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("notifications", flag.ContinueOnError)
	brokers := flags.String("brokers", "localhost:9092", "addresses of Kafka brokers, separated by commas")
	prefix := flags.String("prefix", "", "the service's setting kafka.topic_prefix")
	group := flags.String("group", "leaderboard-notifications", "consumer group")
	webhook := flags.String("webhook", "", "URL that receives each notification as JSON by POST (if omitted, print them)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	send := func(_ context.Context, n *notification) error {
		_, err := fmt.Fprintln(out, n.Text)
		return err
	}
	if *webhook != "" {
		send = hook(*webhook).send
	}
	return consumer.Subscribe(ctx, consumer.Subscription{
		Brokers: strings.Split(*brokers, ","), Topics: consumer.Topics{Prefix: *prefix}, Group: *group,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}, func(ctx context.Context, u *pb.LeaderboardUpdate) error {
		if n := notificationOf(u); n != nil {
			return send(ctx, n)
		}
		return nil
	})
}

type notification struct {
	// ID is equal in repetitions of the notification, so that the receiver can ignore them.
	ID    string `json:"id"`
	User  string `json:"user_id"`
	Board string `json:"board_id"`
	Text  string `json:"text"`
}

// notificationOf returns nil if the update does not move the user into a better range of ranks.
func notificationOf(u *pb.LeaderboardUpdate) *notification {
	if u.NewRankBand == nil || u.GetHidden() || u.OldRankBand != nil && u.GetOldRankBand() <= u.GetNewRankBand() {
		return nil
	}
	place := fmt.Sprintf("is in the top %d of", u.GetNewRankBand())
	if u.GetNewRankBand() == 1 {
		place = "leads"
	}
	return &notification{
		ID:   fmt.Sprintf("%s/%s/%s/%s/%d/%d", u.GetBoardId(), u.GetSeason(), u.GetUserId(), u.GetMatchId(), u.GetRevision(), u.GetNewRankBand()),
		User: u.GetUserId(), Board: u.GetBoardId(),
		Text: fmt.Sprintf("%s %s %s in season %s with %d", u.GetUserId(), place, u.GetBoardId(), u.GetSeason(), u.GetNewScore()),
	}
}

// A hook is the URL of a webhook.
type hook string

var client = http.Client{Timeout: 10 * time.Second}

// If send returns an error, the update is delivered again later.
func (h hook) send(ctx context.Context, n *notification) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, string(h), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return fmt.Errorf("the webhook answered %s", res.Status)
	}
	return nil
}
