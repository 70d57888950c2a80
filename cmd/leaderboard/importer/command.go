// Package importer imports match results from files and from sorted sets in Redis into a server, and
// compares boards with them. An import can be interrupted and repeated: each result counts once.
package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/records"
)

type options struct {
	mapping
	board, format, delimiter string
	rejects, state           string
	batch, inFlight          int
	dryRun, yes              bool
	file                     string        // - is stdin
	from                     string        // URL of a sorted set, instead of a file
	stream                   io.ReadCloser // an export, instead of a file; name is in file
}

const help = `Import match results from a CSV file with a header, or from newline-delimited JSON
(NDJSON). The file may be compressed with gzip; - is standard input. Without flags, the
command reads the columns that "leaderboard export results" writes.

An import can be interrupted and repeated safely, because each result counts once. If a
row has no match id, the command generates one from the file's content and the row's
line. If the file has changed since the last import, these ids are new; the command
therefore asks for confirmation on boards that add points up. With --match-prefix, the
ids depend on the line alone.

If a row differs from a stored result with the same match id and revision, the server
compares the contents to decide which one counts. To let corrected rows count, give them
a higher revision, with --const revision=1 or --revision-from updated_at. The exit code
is 0 if every row counts as given.

A state file beside the input records the progress: after an interruption, run the
same command again to continue. The command writes rejected rows to a file, with their
lines and the reasons.

The command sends several batches of results concurrently. The results of one user
arrive in the order of the file. With --in-flight 1, all results arrive in this order.
Use this flag if rows have no time: the time of arrival then decides which user reached
a score first.

With --from, the command reads a sorted set from a Redis server, and changes nothing there.
The key is the path of the URL: redis://HOST:PORT/KEY, with ?db=N for another database than
0, and rediss:// for TLS. The password can be in the URL, or in $` + RedisPasswordEnv + `.
Each member becomes a user with one result, whose score is the score of the member. The
result's match id is redis:KEY, and its time and its revision are the time of the import.
If you import the same key again, these results are replaced, so that nothing counts twice.

With --system, the file is the export of another system. docs/migrating.md shows how to get
these exports, and how to move to this service while the other system still runs.`

// Command returns the command import.
func Command(app *cli.App) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "import (FILE | --from redis://HOST/KEY)", Short: "Import results from a file, or from a sorted set in Redis",
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("from") {
				return cli.Exactly()(cmd, args)
			}
			return cli.Exactly("FILE")(cmd, args)
		},
		Long: help,
		Example: `  leaderboard import results.csv --board arena
  leaderboard import boston.csv.gz --board marathon --score finish_s --filter category=run --attribute gender=gender
  leaderboard import races.ndjson --board cup --match race.id --achieved-at date --time-format 02.01.2006
  zcat events.gz | leaderboard import - --board arena --match event_id --format ndjson
  leaderboard import --from redis://127.0.0.1:6379/arena --board arena
  leaderboard import record.csv --system nakama --filter leaderboard_id=weekly --board weekly`,
	}
	client.AddBoardFlag(cmd, &o.board)
	f := cmd.Flags()
	o.addFlags(f)
	f.StringVar(&o.from, "from", "", "`URL` of a sorted set to read, instead of a file: redis://[USER[:PASSWORD]@]HOST[:PORT]/KEY[?db=N], or rediss:// for TLS")
	o.addFormatFlags(f, &o.format, &o.delimiter)
	f.IntVar(&o.batch, "batch", maxBatch, "maximum number of `results` in one call, 1 to 5000")
	f.IntVar(&o.inFlight, "in-flight", 4, "number of concurrent `calls`, 1 to 64")
	f.StringVar(&o.rejects, "rejects", "", "`file` for rejected rows (default FILE.rejected.csv)")
	f.StringVar(&o.state, "state", "", "`file` that records the progress (default FILE.import-state.json)")
	f.BoolVar(&o.dryRun, "dry-run", false, "read and check the rows, but send none")
	f.BoolVar(&o.yes, "yes", false, "do not ask before rows without match ids are added to a sum or decay board")
	client.DataCommand(app, cmd, func(ctx context.Context, c *client.Client, args []string) error {
		if len(args) > 0 {
			o.file = args[0]
		}
		return run(ctx, c, o, f)
	})
	timeout := f.Lookup("timeout") // a batch takes long
	timeout.DefValue = "1m"
	_ = timeout.Value.Set(timeout.DefValue) // cannot fail for a constant
	return cmd
}

func (o *options) check() error {
	switch {
	case o.batch < 1 || o.batch > maxBatch:
		return cli.Usagef("--batch %d is not between 1 and %d", o.batch, maxBatch)
	case o.inFlight < 1 || o.inFlight > 64:
		return cli.Usagef("--in-flight %d is not between 1 and 64", o.inFlight)
	case o.from != "" && (o.state != "" || o.format != "" || o.delimiter != ""):
		return cli.Usagef("--state, --format and --delimiter are for files, so they cannot be combined with --from")
	case o.file == "-" && o.state != "":
		return cli.Usagef("--state requires a file, because an import of standard input cannot be continued")
	case o.from == "" && o.file == "":
		return cli.Usagef("--from is empty; give the URL of a sorted set")
	case o.from != "" && !isRedisURL(o.from):
		return cli.Usagef("--from does not begin with redis:// or rediss://; give a file without --from")
	}
	if err := checkFormat(o.format, o.delimiter); err != nil {
		return err
	}
	return checkSystem(o.System, o.from, o.format, o.delimiter)
}

func checkFormat(format, delimiter string) error {
	switch {
	case format != "" && format != "csv" && format != "ndjson":
		return cli.Usagef("--format %q is not one of csv, ndjson", format)
	case len(delimiter) > 1 && delimiter != `\t`, delimiter == `"`, delimiter == "\n", delimiter == "\r":
		return cli.Usagef(`--delimiter %q is not a single character, or is a quote or a line end; \t is a tab`, delimiter)
	}
	return nil
}

func recordOptions(s system, file, format, delimiter string) records.Options {
	r := records.Options{Name: file, Format: cmp.Or(s.format, format), Arrays: s.arrays}
	switch {
	case delimiter == `\t`:
		r.Delimiter = '\t'
	case delimiter != "":
		r.Delimiter = delimiter[0]
	}
	return r
}

func run(ctx context.Context, c *client.Client, o options, flags *pflag.FlagSet) error {
	if err := o.check(); err != nil {
		return err
	}
	start := time.Now()
	im, err := newImporter(ctx, c, o, flags)
	if err != nil {
		return err
	}
	defer im.input.Close()
	err = im.run(ctx)
	_ = im.bar.Finish()
	err = errors.Join(err, im.rejects.close())
	if err != nil {
		return im.stopError(ctx, err)
	}
	im.removeState()
	return im.report(time.Since(start))
}

// Export imports an export of a board, as "leaderboard export results" writes it. name names it in messages, and rejects is
// the file for rejected rows. An interrupted import can be repeated from the beginning.
func Export(ctx context.Context, c *client.Client, board string, export io.ReadCloser, name, rejects string) error {
	o := options{board: board, batch: maxBatch, inFlight: 4, stream: export, file: name, rejects: rejects}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addFlags(flags) // sets the defaults
	return run(ctx, c, o, flags)
}

func (im *importer) stopError(ctx context.Context, err error) error {
	if im.declined {
		return err
	}
	rows := cli.Plural(im.counts.Rows, "row", "rows")
	var broken *records.BrokenError
	var point *pointError
	if errors.As(err, &broken) || errors.As(err, &point) {
		return fmt.Errorf("stopped after %s: %w", rows, err)
	}
	if ctx.Err() != nil {
		err = context.Canceled
	}
	advice := "run the same command again to continue"
	if im.from != "" {
		advice = "run the same command again: it reads the whole set, and each user's result counts once"
	}
	if im.stream != nil {
		advice = "run the same command again; each result counts once"
	}
	if im.file == "-" {
		advice = "run the import again with the whole input; results that were already sent count once"
	}
	return fmt.Errorf("stopped after %s: %s; %s", rows, client.ErrorText(im.WrapError(err)), advice)
}

func (im *importer) report(took time.Duration) error {
	c := im.counts
	if err := im.Output.PrintValue(c, func() { im.writeCounts(took) }); err != nil {
		return err
	}
	if n := c.Rejected + c.Conflict + c.Superseded; n > 0 {
		return fmt.Errorf("%s not applied as given; %s lists them with the reasons", cli.Plural(n, "row was", "rows were"), im.rejects.path)
	}
	return nil
}

func (im *importer) writeCounts(took time.Duration) {
	c := im.counts
	if im.dryRun {
		im.Printf("%s read: %d would be sent, %d filtered out, %d rejected; nothing was sent\n",
			cli.Plural(c.Rows, "row", "rows"), c.Rows-c.Filtered-c.Linked-c.Rejected, c.Filtered+c.Linked, c.Rejected)
	} else {
		im.Printf("%s in %s (%.0f per second): %d applied, %d duplicates", cli.Plural(c.Rows, "row", "rows"),
			cli.ShortDuration(took), float64(c.Rows-im.resumedRows)/max(took.Seconds(), 1e-3), c.Applied, c.Duplicate)
		for _, count := range []struct {
			n     int64
			label string
		}{{c.Replaced, "replaced a different result"}, {c.Superseded, "superseded"}, {c.Accepted, "accepted"}, {c.Filtered, "filtered out"}, {c.Linked, "skipped because they come from the source board " + im.source}, {c.Conflict, "in conflict"}, {c.Rejected, "rejected"}} {
			if count.n > 0 {
				im.Printf(", %d %s", count.n, count.label)
			}
		}
		im.Println("")
	}
	if c.Trimmed > 0 {
		im.Printf("spaces around %s were removed\n", cli.Plural(c.Trimmed, "value", "values"))
	}
}
