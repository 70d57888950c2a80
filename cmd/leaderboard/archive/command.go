package archive

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/importer"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

// The environment variables of the settings archive.to and archive.password, which the commands read too.
const (
	toEnv       = config.EnvPrefix + "ARCHIVE_TO"
	PasswordEnv = config.EnvPrefix + "ARCHIVE_PASSWORD"
)

const targetHelp = `The archive is a PostgreSQL database (postgres://USER@HOST/DATABASE, in the schema leaderboard) or
a folder of Parquet files (parquet:DIR). Put the password of a database into
$` + PasswordEnv + `, because other users of this machine can see arguments. The libpq
parameters of the URL, such as sslmode=verify-full, and ~/.pgpass work as in psql.`

// open opens an archive. Errors never contain the password. The caller must close it.
func open(ctx context.Context, to, password string, write bool) (target, error) {
	if dir, ok := strings.CutPrefix(to, config.ParquetPrefix); ok {
		t, err := openParquet(ctx, dir, write)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	t, err := openPostgres(ctx, to, password, write)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Run archives the seasons of a service. to is a URL or parquet:DIR, as [config.CheckArchive] accepts it. password is used if the
// URL has none. Errors: [ErrBusy].
func Run(ctx context.Context, s Source, to, password string, o Options) (report Report, err error) {
	t, err := open(ctx, to, password, true)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	return run(ctx, &s, t, o)
}

// Command returns the command archive.
func Command(app *cli.App) *cobra.Command {
	var to string
	o := Options{Now: time.Now}
	cmd := &cobra.Command{
		Use: "archive --to (postgres://… | parquet:DIR)", Short: "Archive sealed seasons in PostgreSQL or in Parquet files", Args: cli.Exactly(),
		Long: `Copy the results, the final standings and the profiles of the sealed seasons into an archive,
where they stay when the server deletes the seasons. With the setting archive.to, the server does
so by itself after each seal.

The command copies a season again if it has changed since, also if only metadata of a result
changed. It first removes users whom the server has erased. It can be interrupted and repeated:
each season is archived as a whole, or not at all.

` + targetHelp,
		Example: `  leaderboard archive --to postgres://archive@db.example.com/history?sslmode=verify-full
  leaderboard archive --to parquet:/srv/archive --board arena
  leaderboard archive restore --from parquet:/srv/archive --server new-server:50051`,
	}
	f := cmd.Flags()
	f.StringVar(&to, "to", "", "`archive`: postgres://USER@HOST/DATABASE or parquet:DIR (default $"+toEnv+")")
	client.AddSelectionFlags(f, &o.Board, &o.Season)
	f.BoolVar(&o.Open, "open", false, "also archive the results of seasons that are not sealed yet; such a season has no standings")
	client.DataCommand(app, cmd, func(ctx context.Context, c *client.Client, _ []string) error {
		to := cmp.Or(to, app.Getenv(toEnv))
		if err := checkTarget("--to", to); err != nil {
			return err
		}
		if o.Season != "" && o.Board == "" {
			return cli.Usagef("--season requires --board")
		}
		progress := app.NewProgress("archiving")
		o.Progress = progress.Show
		start := time.Now()
		report, err := Run(ctx, Source{c.Scores, c.Admin}, to, app.Getenv(PasswordEnv), o)
		progress.End()
		if err != nil {
			if ctx.Err() != nil {
				err = context.Canceled
			} else if report.Archived == 0 {
				return err
			}
			return fmt.Errorf("stopped after %s: %s; run the same command again to continue", cli.Plural(report.Archived, "season", "seasons"), client.ErrorText(c.WrapError(err)))
		}
		return printReport(c, report, time.Since(start))
	})
	cmd.AddCommand(restoreCommand(app), exportCommand(app))
	return cmd
}

func printReport(c *client.Client, r Report, took time.Duration) error {
	if err := c.Output.PrintValue(r, func() {
		c.Printf("%s archived with %s and %s in %s; %d unchanged", cli.Plural(r.Archived, "season", "seasons"), cli.Plural(r.Results, "result", "results"),
			cli.Plural(r.Standings, "standing", "standings"), cli.ShortDuration(took), r.Unchanged)
		if r.Erased > 0 {
			c.Printf("; %s removed", cli.Plural(r.Erased, "erased user", "erased users"))
		}
		c.Println("")
	}); err != nil {
		return err
	}
	if r.Changing > 0 {
		return fmt.Errorf("%s changed while being read, and will be archived by the next run; run the command again when there are fewer corrections", cli.Plural(r.Changing, "season", "seasons"))
	}
	return nil
}

func checkTarget(flag, to string) error {
	if to == "" {
		return cli.Usagef("%s is missing; give postgres://USER@HOST/DATABASE or parquet:DIR", flag)
	}
	if err := config.CheckArchive(to); err != nil {
		return cli.Usagef("%s %w", flag, err)
	}
	return nil
}

// restoreGrace is the grace of boards while they are restored: for this long, a new board accepts results of the past.
const restoreGrace = 7 * 24 * time.Hour

func restoreCommand(app *cli.App) *cobra.Command {
	var from, board, rejects string
	cmd := &cobra.Command{
		Use: "restore --from (postgres://… | parquet:DIR)", Short: "Fill a server from an archive", Args: cli.Exactly(),
		Long: `Create the boards of an archive on a server, and import their results, profiles, void matches,
early ends and bans. The server seals the past seasons again, with equal standings. Restore
boards together with the boards that they are linked to, into a server without results.

The command can be interrupted and repeated: each result counts once.

` + targetHelp,
		Example: `  leaderboard archive restore --from postgres://archive@db.example.com/history
  leaderboard archive restore --from parquet:/srv/archive --board arena`,
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "`archive`: postgres://USER@HOST/DATABASE or parquet:DIR (default $"+toEnv+")")
	f.StringVarP(&board, "board", "b", "", "`board` (if omitted, all boards)")
	f.StringVar(&rejects, "rejects", "restore.rejected.csv", "`file` for rejected rows")
	client.DataCommand(app, cmd, func(ctx context.Context, c *client.Client, _ []string) error {
		from := cmp.Or(from, app.Getenv(toEnv))
		if err := checkTarget("--from", from); err != nil {
			return err
		}
		t, err := open(ctx, from, app.Getenv(PasswordEnv), false)
		if err != nil {
			return err
		}
		return errors.Join(restore(ctx, c, t, label(from), board, rejects), t.close())
	})
	timeout := f.Lookup("timeout") // a batch takes long
	timeout.DefValue = "1m"
	_ = timeout.Value.Set(timeout.DefValue) // cannot fail for a constant
	return cmd
}

// label names an archive in messages, without a password.
func label(archive string) string {
	if u, err := url.Parse(archive); err == nil {
		u.RawQuery = ""
		return u.Redacted()
	}
	return "the archive"
}

// readBoards returns one board of an archive, or all if only is empty.
func readBoards(ctx context.Context, t target, name, only string) ([]*pb.Board, error) {
	rows, err := t.boards(ctx)
	if err != nil {
		return nil, err
	}
	var boards []*pb.Board
	for _, r := range rows {
		if only != "" && r.Board != only {
			continue
		}
		b, err := r.board()
		if err != nil {
			return nil, err
		}
		boards = append(boards, b)
	}
	if len(boards) == 0 {
		return nil, fmt.Errorf("%s has no board %q", name, only)
	}
	return boards, nil
}

func restore(ctx context.Context, c *client.Client, t target, name, only, rejects string) error {
	boards, err := readBoards(ctx, t, name, only)
	if err != nil {
		return err
	}
	// The source of a linked board comes first.
	slices.SortStableFunc(boards, func(x, y *pb.Board) int {
		return cmp.Compare(len(x.GetSource().GetBoardId()), len(y.GetSource().GetBoardId()))
	})
	accepting, err := acceptHistory(ctx, c, boards)
	if err != nil {
		return err
	}
	if err := c.ApplyBoards(ctx, accepting); err != nil {
		return err
	}
	for i, b := range boards {
		if err := restoreBoard(ctx, c, t, b, i == 0, name, rejects); err != nil {
			return fmt.Errorf("board %s: %w", b.GetBoardId(), err)
		}
	}
	return c.ApplyBoards(ctx, boards)
}

// acceptHistory returns the boards with a grace that lasts as long as the restore.
func acceptHistory(ctx context.Context, c *client.Client, boards []*pb.Board) (list []*pb.Board, err error) {
	for _, b := range boards {
		res, err := c.Scores.GetBoard(ctx, &pb.GetBoardRequest{Board: b.GetBoardId()})
		if err != nil && status.Code(err) != codes.NotFound {
			return nil, err
		}
		grace := b.GetSeason().GetGrace().AsDuration()
		interrupted := res.GetBoard().GetSeason().GetGrace().AsDuration() == restoreGrace // an earlier restore
		if grace < restoreGrace && b.GetSeason() != nil && (err != nil || interrupted) {
			b = proto.CloneOf(b)
			b.Season.Grace = durationpb.New(restoreGrace)
		}
		list = append(list, b)
	}
	return list, nil
}

func restoreBoard(ctx context.Context, c *client.Client, t target, b *pb.Board, global bool, name, rejects string) error {
	in, out := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w := bufio.NewWriter(out)
		err := writeExport(ctx, w, t, b, global)
		if err == nil {
			err = w.Flush()
		}
		_ = out.CloseWithError(err) // always nil
	}()
	err := importer.Export(ctx, c, b.GetBoardId(), in, name, rejects)
	_ = in.Close() // ends the writer after an error
	<-done
	return err
}

func writeExport(ctx context.Context, w io.Writer, t target, b *pb.Board, global bool) error {
	for res, err := range t.read(ctx, b, global) {
		if err != nil {
			return err
		}
		line, err := client.ExportLine(res, b.GetSource().GetBoardId())
		if err == nil {
			_, err = w.Write(append(line, '\n'))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func exportCommand(app *cli.App) *cobra.Command {
	var from, board string
	cmd := &cobra.Command{
		Use: "export --from (postgres://… | parquet:DIR) --board BOARD", Short: "Print what an archive has of a board, as NDJSON", Args: cli.Exactly(),
		Long: `Print the results, profiles, void matches, early ends and bans of a board in an archive, in the
form of "leaderboard export results". The command needs no server.

` + targetHelp,
		Example: `  leaderboard archive export --from parquet:/srv/archive --board arena > arena.ndjson`,
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "`archive`: postgres://USER@HOST/DATABASE or parquet:DIR (default $"+toEnv+")")
	f.StringVarP(&board, "board", "b", "", "`board` (required)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		from, ctx := cmp.Or(from, app.Getenv(toEnv)), cmd.Context()
		if board == "" {
			return cli.Usagef("--board is missing; give the id of a board")
		}
		if err := checkTarget("--from", from); err != nil {
			return err
		}
		t, err := open(ctx, from, app.Getenv(PasswordEnv), false)
		if err != nil {
			return err
		}
		return errors.Join(export(ctx, app.Stdout, t, label(from), board), t.close())
	}
	return cmd
}

func export(ctx context.Context, w io.Writer, t target, name, board string) error {
	boards, err := readBoards(ctx, t, name, board)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	if err := writeExport(ctx, out, t, boards[0], true); err != nil {
		return err
	}
	return out.Flush()
}
