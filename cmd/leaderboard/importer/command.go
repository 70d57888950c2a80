// Package importer imports match results from CSV and newline-delimited JSON into a server. An
// import can be interrupted and repeated: each result counts once.
package importer

import (
	"context"
	"errors"
	"fmt"
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
	file                     string // - is stdin
}

// Command returns the command import.
func Command(app *cli.App) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Import results from CSV or NDJSON", Args: cli.Exactly("FILE"),
		Long: `Import match results from a CSV file with a header, or from newline-delimited JSON
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
a score first.`,
		Example: `  leaderboard import results.csv --board arena
  leaderboard import boston.csv.gz --board marathon --score finish_s --filter category=run --attribute gender=gender
  leaderboard import races.ndjson --board cup --match race.id --achieved-at date --time-format 02.01.2006
  zcat events.gz | leaderboard import - --board arena --match event_id --format ndjson`,
	}
	client.AddBoardFlag(cmd, &o.board)
	f := cmd.Flags()
	o.addFlags(f)
	f.StringVar(&o.format, "format", "", "`format`: csv or ndjson (default: from the file's name or content)")
	cli.Enum(f, "format", "csv", "ndjson")
	f.StringVar(&o.delimiter, "delimiter", "", "`character` between CSV columns (default: a comma, or a tab for .tsv)")
	f.IntVar(&o.batch, "batch", maxBatch, "maximum number of `results` in one call, 1 to 5000")
	f.IntVar(&o.inFlight, "in-flight", 4, "number of concurrent `calls`, 1 to 64")
	f.StringVar(&o.rejects, "rejects", "", "`file` for rejected rows (default FILE.rejected.csv)")
	f.StringVar(&o.state, "state", "", "`file` that records the progress (default FILE.import-state.json)")
	f.BoolVar(&o.dryRun, "dry-run", false, "read and check the rows, but send none")
	f.BoolVar(&o.yes, "yes", false, "do not ask before rows without match ids are added to a sum or decay board")
	client.DataCommand(app, cmd, func(ctx context.Context, c *client.Client, args []string) error {
		o.file = args[0]
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
	case o.file == "-" && o.state != "":
		return cli.Usagef("--state requires a file, because an import of standard input cannot be continued")
	case o.format != "" && o.format != "csv" && o.format != "ndjson":
		return cli.Usagef("--format %q is not one of csv, ndjson", o.format)
	case len(o.delimiter) > 1 && o.delimiter != `\t`, o.delimiter == `"`, o.delimiter == "\n", o.delimiter == "\r":
		return cli.Usagef(`--delimiter %q is not a single character, or is a quote or a line end; \t is a tab`, o.delimiter)
	}
	return nil
}

func (o *options) recordOptions() records.Options {
	r := records.Options{Name: o.file, Format: o.format}
	switch {
	case o.delimiter == `\t`:
		r.Delimiter = '\t'
	case o.delimiter != "":
		r.Delimiter = o.delimiter[0]
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
