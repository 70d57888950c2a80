package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/producer"
)

func dlqCommand(app *cli.App) *cobra.Command {
	cmd := cli.Parent("dlq", "List, show and replay dead letters", `  leaderboard dlq list --config leaderboard.yaml --cause board
  leaderboard dlq show 3:17 --config leaderboard.yaml
  leaderboard dlq replay 3:17 --config leaderboard.yaml`,
		dlqListCommand(app), dlqShowCommand(app), dlqReplayCommand(app))
	cmd.Long = `Dead letters are messages in Kafka that a consumer could not apply. The command reads them
from the topic match-results.dlq, so it needs the settings of a distributed server. The
embedded engine has no dead letters: it answers each result at once, and a caller sees
why a result is refused.`
	return cmd
}

// kafkaSettings are the flags for a connection to Kafka, for help.
var kafkaSettings = []string{"config", "kafka-brokers", "kafka-username", "kafka-mechanism", "kafka-tls-", "kafka-topic-prefix"}

// deadLetterCures names what to do, by cause.
var deadLetterCures = map[string]string{
	"form":    "correct the producer, and let it send the result again; a replay would fail again",
	"invalid": "correct the producer, and let it send the result again with the same match id; if a rule of the board has changed since, replay",
	"board":   "create the board, then replay",
	"season":  "add the season to the board, or correct the time in the producer, then replay",
	"fetch":   "correct the game's store, canonical.url or canonical.secret, then replay: the result is fetched again",
	"damaged": "restore the data or upgrade the consumer, then replay",
}

// deadLetterCauses are the causes, as help lists them.
var deadLetterCauses = []string{"form", "invalid", "board", "season", "fetch", "damaged"}

type deadLetterFilter struct {
	consumer.DeadLetterQuery
	since string
}

func (q *deadLetterFilter) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	last := len(deadLetterCauses) - 1
	f.StringVar(&q.Cause, "cause", "", "only dead letters with this `cause`: "+strings.Join(deadLetterCauses[:last], ", ")+" or "+deadLetterCauses[last])
	cli.Enum(f, "cause", deadLetterCauses...)
	f.StringVar(&q.User, "user", "", "only dead letters of this `user`")
	f.StringVar(&q.since, "since", "", "only dead letters of this `time` or later, such as 2026-11-20, or of the last 24h")
}

func (q *deadLetterFilter) parse(now time.Time) error {
	if _, ok := deadLetterCures[q.Cause]; q.Cause != "" && !ok {
		return cli.Usagef("--cause %q is not one of %s", q.Cause, strings.Join(deadLetterCauses, ", "))
	}
	if q.since == "" {
		return nil
	}
	t, err := client.ParseTimeOrAge(q.since, now)
	if err != nil {
		return cli.Usagef("--since: %w", err)
	}
	q.Since = t
	return nil
}

func dlqListCommand(app *cli.App) *cobra.Command {
	var q deadLetterFilter
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, the newest first", Args: cli.Exactly(),
		Long: `List dead letters, the newest first, each with its cause. The command also has the other
flags of "leaderboard serve".`,
		Example: `  leaderboard dlq list --config leaderboard.yaml
  leaderboard dlq list --config leaderboard.yaml --since 24h --cause board -o json`,
	}
	addSettings(cmd, kafkaSettings...)
	q.addFlags(cmd)
	cmd.Flags().IntVarP(&q.Limit, "limit", "n", 100, "`number` of dead letters, 1 to 100000")
	return dlqDataCommand(app, cmd, func(ctx context.Context, c *config.Config, output *cli.Output, _ []string) error {
		if q.Limit < 1 || q.Limit > 100_000 {
			return cli.Usagef("--limit %d is not between 1 and 100000", q.Limit)
		}
		if err := q.parse(time.Now()); err != nil {
			return err
		}
		list, err := deadLettersOf(c).page(ctx, q.DeadLetterQuery)
		if err != nil {
			return err
		}
		return output.Print(func() (cli.Document, error) { return deadLetterDocument(list) }, func() {
			if len(list) == 0 {
				app.Println("no dead letters")
				return
			}
			t := cli.NewTable(cli.Row{"id", "time (UTC)", "cause", "user", "detail"})
			for _, d := range list {
				t.AppendRow(cli.Row{d.ID().String(), d.At.UTC().Format(time.DateTime), d.Cause, d.User, d.Detail})
			}
			cli.WriteTable(app.Stdout, t)
		})
	})
}

func dlqShowCommand(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a dead letter, its message and what to do", Args: cli.Exactly("ID"),
		Long: `Show a dead letter, its message and what to do. ID is its partition and offset, as
"leaderboard dlq list" prints them. The command also has the other flags of "leaderboard
serve".`,
		Example: "  leaderboard dlq show 3:17 --config leaderboard.yaml",
	}
	addSettings(cmd, kafkaSettings...)
	return dlqDataCommand(app, cmd, func(ctx context.Context, c *config.Config, output *cli.Output, args []string) error {
		list, err := findDeadLetters(ctx, c, args)
		if err != nil {
			return err
		}
		d := deadLetterMessage(list[0], true)
		return output.Print(func() (cli.Document, error) {
			text, err := restjson.Append(nil, d)
			return cli.Document{JSON: text, Columns: deadLetterColumns}, err
		}, func() { writeDeadLetter(app, d) })
	})
}

func writeDeadLetter(app *cli.App, d *pb.DeadLetter) {
	message := d.GetMessageBytes()
	if m := d.GetMessage(); m != nil {
		text, _ := restjson.Append(nil, m) // every message has a JSON form
		message = string(text)
	}
	t := cli.NewTable(cli.Row{"field", "value"})
	for _, line := range [][2]string{
		{"id", d.GetDeadLetterId()}, {"time", textOfTime(d.GetAt())}, {"cause", d.GetCause()}, {"user", d.GetUserId()}, {"board", d.GetBoard()},
		{"match", d.GetMatchId()}, {"detail", d.GetDetail()}, {"what to do", d.GetCure()},
		{"origin", fmt.Sprintf("%s, partition %d, offset %d, %s", d.GetOriginTopic(), d.GetOriginPartition(), d.GetOriginOffset(), textOfTime(d.GetOriginAt()))},
		{"cut", strconv.FormatBool(d.GetCut())}, {"message", message},
	} {
		t.AppendRow(cli.Row{line[0], line[1]})
	}
	cli.WriteTable(app.Stdout, t)
}

func textOfTime(t *timestamppb.Timestamp) string { return t.AsTime().Format(time.RFC3339) }

func dlqReplayCommand(app *cli.App) *cobra.Command {
	var q deadLetterFilter
	var all, dryRun bool
	cmd := &cobra.Command{
		Use: "replay (ID... | --all)", Short: "Send the messages of dead letters to the consumers again",
		Long: `Write the messages of dead letters to the topic of results again. First remove their cause,
for example by creating a missing board. A replay is harmless if a result counts already.
The results keep their times. The dead letters stay in their topic until Kafka deletes
them, and a message that fails again becomes a new dead letter. The command also has the
other flags of "leaderboard serve".`,
		Example: `  leaderboard dlq replay 3:17 --config leaderboard.yaml
  leaderboard dlq replay --all --cause board --since 24h --config leaderboard.yaml --dry-run`,
	}
	addSettings(cmd, kafkaSettings...)
	q.addFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "replay all dead letters that --cause, --user and --since select")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing, and show what would be replayed")
	return dlqDataCommand(app, cmd, func(ctx context.Context, c *config.Config, output *cli.Output, args []string) error {
		if all == (len(args) > 0) {
			return cli.Usagef("give either the ids of dead letters, as `leaderboard dlq list` prints them, or --all")
		}
		if !all && (q.Cause != "" || q.User != "" || q.since != "") {
			return cli.Usagef("--cause, --user and --since select dead letters with --all only")
		}
		if err := q.parse(time.Now()); err != nil {
			return err
		}
		list, err := findDeadLetters(ctx, c, args)
		if all {
			q.Limit = maxReplays
			list, err = deadLettersOf(c).page(ctx, q.DeadLetterQuery)
		}
		if err != nil {
			return err
		}
		return replay(ctx, app, c, output, list, dryRun)
	})
}

// maxReplays bounds the memory of a replay.
const maxReplays = 100_000

func replay(ctx context.Context, app *cli.App, c *config.Config, output *cli.Output, list []*consumer.DeadLetter, dryRun bool) error {
	type outcome struct {
		Replayed int      `json:"replayed"`
		Skipped  []string `json:"skipped"` // ids of messages that cannot be replayed
		DryRun   bool     `json:"dry_run"`
	}
	slices.Reverse(list) // the oldest first
	skipped, err := sendAgain(ctx, c, list, dryRun)
	if err != nil {
		return err
	}
	result := outcome{Replayed: len(list) - len(skipped), Skipped: []string{}, DryRun: dryRun}
	for _, d := range skipped {
		result.Skipped = append(result.Skipped, d.ID().String())
	}
	if err := output.PrintValue(result, func() {
		app.Printf("%s%s replayed, %d skipped\n", map[bool]string{true: "dry run, nothing was sent: "}[dryRun], cli.Plural(int64(result.Replayed), "message", "messages"), len(result.Skipped))
	}); err != nil {
		return err
	}
	if len(result.Skipped) > 0 {
		return fmt.Errorf("skipped %s: these messages cannot be decoded, or are cut, so a replay would fail again; correct their producer, and let it send the results again", strings.Join(result.Skipped, ", "))
	}
	return nil
}

func sendAgain(ctx context.Context, c *config.Config, list []*consumer.DeadLetter, dryRun bool) (skipped []*consumer.DeadLetter, err error) {
	if dryRun {
		return consumer.ReplayDeadLetters(ctx, nil, topicsOf(&c.Kafka), list)
	}
	connection, err := kafkaOptions(&c.Kafka)
	if err != nil {
		return nil, err
	}
	p, err := producer.New(c.Kafka.Brokers, connection.Config(clientID))
	if err != nil {
		return nil, err
	}
	defer func() { _ = p.Close() }()
	if skipped, err = consumer.ReplayDeadLetters(ctx, p, topicsOf(&c.Kafka), list); err != nil {
		err = fmt.Errorf("not all messages were sent; repeat the command, because a result counts once: %w", err)
	}
	return skipped, err
}

// dlqDataCommand completes cmd, a command of the distributed engine that prints data.
func dlqDataCommand(app *cli.App, cmd *cobra.Command, run func(context.Context, *config.Config, *cli.Output, []string) error) *cobra.Command {
	output := app.AddOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := output.Check(cmd); err != nil {
			return err
		}
		c, err := loadConfig(app, cmd)
		if err != nil {
			return err
		}
		if !c.Distributed() {
			return cli.Usagef("the settings name no Kafka, and the embedded engine has no dead letters: it answers each result at once; for a distributed server, add its settings, for example with --config")
		}
		return run(cmd.Context(), &c.Config, output, args)
	}
	return cmd
}

func deadLettersOf(c *config.Config) *deadLetters { return &deadLetters{kafka: &c.Kafka} }

// findDeadLetters returns the dead letters with these ids, in their order.
func findDeadLetters(ctx context.Context, c *config.Config, ids []string) ([]*consumer.DeadLetter, error) {
	parsed := make([]consumer.DeadLetterID, len(ids))
	for i, id := range ids {
		var err error
		if parsed[i], err = consumer.ParseDeadLetterID(id); err != nil {
			return nil, cli.Usagef("%q is not the id of a dead letter, such as 3:17; `leaderboard dlq list` prints the ids", id)
		}
	}
	list, err := deadLettersOf(c).find(ctx, parsed)
	if errors.Is(err, leaderboard.ErrDeadLetterNotFound) {
		err = fmt.Errorf("%w; Kafka may have deleted it: `leaderboard dlq list` prints those that exist", err)
	}
	return list, err
}
