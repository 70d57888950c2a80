package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// boardName names the default board where a request needs a name.
func boardName(board string) string {
	if board == "" {
		return string(leaderboard.DefaultBoard)
	}
	return board
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func banCommand(w *world) *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use: "ban USER", Short: "Hide a user from every board", Args: exactly("USER"),
		Long:    "Hide a user from every board. Results are kept and still taken, and come back with unban.",
		Example: `  leaderboard ban mallory --reason "speed hack, ticket 4711"`,
	}
	cmd.Flags().StringVar(&why, "reason", "", "why, for operators")
	return w.clientCommand(cmd, func(ctx context.Context, c *client, args []string) error {
		res, err := c.scores.BanUser(ctx, &pb.BanUserRequest{UserId: args[0], Reason: why})
		if err != nil {
			return err
		}
		return c.print(res, func() { fmt.Fprintf(c.stdout, "%s is banned\n", res.GetUserId()) })
	})
}

func unbanCommand(w *world) *cobra.Command {
	return w.clientCommand(&cobra.Command{
		Use: "unban USER", Short: "Lift a ban", Args: exactly("USER"),
		Example: "  leaderboard unban mallory",
	}, func(ctx context.Context, c *client, args []string) error {
		res, err := c.scores.UnbanUser(ctx, &pb.UnbanUserRequest{UserId: args[0]})
		if err != nil {
			return err
		}
		return c.print(res, func() { fmt.Fprintf(c.stdout, "%s is not banned\n", res.GetUserId()) })
	})
}

func eraseCommand(w *world) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "erase USER", Short: "Delete everything known of a user", Args: exactly("USER"),
		Example: "  leaderboard erase mallory",
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return w.clientCommand(cmd, func(ctx context.Context, c *client, args []string) error {
		if err := w.confirm(yes, fmt.Sprintf("Delete everything known of %s on every board, for good?", args[0]), args[0]); err != nil {
			return err
		}
		res, err := c.scores.EraseUser(ctx, &pb.EraseUserRequest{UserId: args[0]})
		if err != nil {
			return err
		}
		return c.print(res, func() { fmt.Fprintf(c.stdout, "%s is erased\n", res.GetUserId()) })
	})
}

func seasonCommand(w *world) *cobra.Command {
	return parent("season", "List seasons", "  leaderboard season list --board cup", seasonListCommand(w))
}

func seasonListCommand(w *world) *cobra.Command {
	var board string
	cmd := &cobra.Command{
		Use: "list", Short: "List the seasons of a board, the newest first", Args: exactly(),
		Example: "  leaderboard season list --board cup",
	}
	addBoardFlag(cmd, &board)
	return w.clientCommand(cmd, func(ctx context.Context, c *client, _ []string) error {
		res, err := c.scores.ListSeasons(ctx, &pb.ListSeasonsRequest{Board: boardName(board)})
		if err != nil {
			return err
		}
		return c.print(res, func() {
			t := newTable(table.Row{"season", "start (UTC)", "end (UTC)", "status", "entries", "sealed (UTC)", "amended"}, "entries", "amended")
			for _, s := range res.GetData().GetSeasons() {
				status := s.GetStatus()
				if s.GetId() == res.GetData().GetCurrent() {
					status += ", current"
				}
				entries := "-"
				if s.Entrants != nil {
					entries = fmt.Sprint(s.GetEntrants())
				}
				t.AppendRow(table.Row{s.GetId(), when(s.GetStart()), when(s.GetEnd()), status, entries, when(s.GetSealedAt()), len(s.GetAmendments())})
			}
			writeTable(c.stdout, t)
		})
	})
}

func keyCommand(w *world) *cobra.Command {
	return parent("key", "Make, list and revoke API keys", `  leaderboard key create --name arena-eu --scope submit
  leaderboard key list`,
		keyCreateCommand(w), keyListCommand(w), keyRevokeCommand(w))
}

func keyCreateCommand(w *world) *cobra.Command {
	var name string
	var scopes []string
	var expires time.Duration
	cmd := &cobra.Command{
		Use: "create", Short: "Make an API key, and print it once", Args: exactly(),
		Long: `Make an API key. Only a hash of it is kept: what is printed cannot be had again.
The scope read reads ranks, submit submits results too, and admin does everything.`,
		Example: `  leaderboard key create --name arena-eu --scope submit
  leaderboard key create --name website --scope read --expires-in 8760h`,
	}
	cmd.Flags().StringVar(&name, "name", "", "who holds it, for people (required)")
	cmd.Flags().StringSliceVar(&scopes, "scope", nil, "read, submit or admin (required)")
	cmd.Flags().DurationVar(&expires, "expires-in", 0, "after how long it is void; never if absent")
	return w.clientCommand(cmd, func(ctx context.Context, c *client, _ []string) error {
		switch {
		case name == "":
			return usagef("--name is missing; say who holds the key")
		case len(scopes) == 0:
			return usagef("--scope is missing; it is read, submit or admin")
		case expires < 0:
			return usagef("--expires-in %v is in the past", expires)
		}
		req := &pb.CreateKeyRequest{Name: name, Scopes: scopes}
		if expires > 0 {
			req.ExpiresAt = timestamppb.New(time.Now().Add(expires))
		}
		res, err := c.admin.CreateKey(ctx, req)
		if err != nil {
			return err
		}
		return c.print(res, func() {
			fmt.Fprintln(c.stdout, res.GetSecret())
			fmt.Fprintf(c.stderr, "key %s for %s, scope %s: keep it, it is not shown again\n", res.GetKey().GetKeyId(), res.GetKey().GetName(), strings.Join(res.GetKey().GetScopes(), ", "))
		})
	})
}

func keyListCommand(w *world) *cobra.Command {
	return w.clientCommand(&cobra.Command{
		Use: "list", Short: "List API keys, without their secrets", Args: exactly(),
		Example: "  leaderboard key list",
	}, func(ctx context.Context, c *client, _ []string) error {
		res, err := c.admin.ListKeys(ctx, &pb.ListKeysRequest{})
		if err != nil {
			return err
		}
		return c.print(res, func() {
			t := newTable(table.Row{"id", "name", "scopes", "created (UTC)", "expires (UTC)"})
			for _, k := range res.GetKeys() {
				expires := "never"
				if k.GetExpiresAt() != nil {
					expires = when(k.GetExpiresAt())
				}
				t.AppendRow(table.Row{k.GetKeyId(), k.GetName(), strings.Join(k.GetScopes(), ","), when(k.GetCreatedAt()), expires})
			}
			writeTable(c.stdout, t)
		})
	})
}

func keyRevokeCommand(w *world) *cobra.Command {
	return w.clientCommand(&cobra.Command{
		Use: "revoke ID", Short: "Make an API key void", Args: exactly("ID"),
		Example: "  leaderboard key revoke 3f0c9a51d2e84b76",
	}, func(ctx context.Context, c *client, args []string) error {
		res, err := c.admin.RevokeKey(ctx, &pb.RevokeKeyRequest{KeyId: args[0]})
		if err != nil {
			return err
		}
		return c.print(res, func() { fmt.Fprintf(c.stdout, "key %s is revoked\n", args[0]) })
	})
}

func backupCommand(w *world) *cobra.Command {
	return w.clientCommand(&cobra.Command{
		Use: "backup [NAME]", Short: "Copy the store while the server goes on", Args: between(0, "NAME"),
		Long: `Make a consistent copy of the store in the server's backup folder (backup_dir).
To go back to it, stop the server and start it with --data on a copy of that folder.`,
		Example: `  leaderboard backup
  leaderboard backup before-upgrade`,
	}, func(ctx context.Context, c *client, args []string) error {
		req := &pb.BackupRequest{}
		if len(args) > 0 {
			req.Name = args[0]
		}
		res, err := c.admin.Backup(ctx, req)
		if err != nil {
			return err
		}
		return c.print(res, func() { fmt.Fprintf(c.stdout, "backup %s is complete\n", res.GetName()) })
	})
}

// errDifferences ends a verify that leaves differences behind.
var errDifferences = errors.New("differences were found; leaderboard verify --repair mends them")

func verifyCommand(w *world) *cobra.Command {
	var board, season string
	var repair bool
	cmd := &cobra.Command{
		Use: "verify", Short: "Compare results, entries and ranks, and report every difference", Args: exactly(),
		Long: `Recount every entry from its results, compare entries and ranks with it, and
report every difference. Exits with 3 if there are differences that remain, with 1
if the comparison could not be made.`,
		Example: `  leaderboard verify
  leaderboard verify --board cup --repair`,
	}
	cmd.Flags().StringVarP(&board, "board", "b", "", "`board`, all if absent")
	addAllSeasonsFlag(cmd, &season)
	cmd.Flags().BoolVar(&repair, "repair", false, "mend what is found")
	return w.clientCommand(cmd, func(ctx context.Context, c *client, _ []string) error {
		stream, err := c.admin.Verify(ctx, &pb.VerifyRequest{Board: board, Season: season, Repair: repair})
		if err != nil {
			return err
		}
		p := w.newProgress("verifying")
		defer p.end()
		var left int64
		for {
			res, err := stream.Recv()
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			if res.GetProgress() != nil {
				p.show(res.GetProgress())
			}
			if res.GetDifference() != nil || res.GetSummary() != nil {
				p.end()
				if err := c.print(res, func() { writeVerify(c.stdout, res) }); err != nil {
					return err
				}
			}
			left += res.GetSummary().GetDifferences() - res.GetSummary().GetRepaired()
		}
		if left > 0 {
			return errDifferences
		}
		return nil
	})
}

func writeVerify(w io.Writer, res *pb.VerifyResponse) {
	if d := res.GetDifference(); d != nil {
		mended := ""
		if d.GetRepaired() {
			mended = " (mended)"
		}
		where := d.GetBoard() + "/" + d.GetSeason()
		if d.GetDivision() != "" {
			where += "/" + d.GetDivision()
		}
		fmt.Fprintf(w, "%s %s %s: %s%s\n", d.GetKind(), where, d.GetUserId(), d.GetDetail(), mended)
		return
	}
	s := res.GetSummary()
	fmt.Fprintf(w, "%s in %s compared from %s: %s, %d mended\n", plural(s.GetUsers(), "entry", "entries"),
		plural(s.GetSeasons(), "season", "seasons"), plural(s.GetResults(), "result", "results"),
		plural(s.GetDifferences(), "difference", "differences"), s.GetRepaired())
}

func addAllSeasonsFlag(cmd *cobra.Command, season *string) {
	cmd.Flags().StringVarP(season, "season", "s", "", "`season`, all if absent")
}

func rebuildCommand(w *world) *cobra.Command {
	var board, season string
	cmd := &cobra.Command{
		Use: "rebuild", Short: "Remake entries from results, and ranks from entries", Args: exactly(),
		Long:    "Remake everything derived from the results. Reads and writes go on meanwhile.",
		Example: "  leaderboard rebuild --board cup",
	}
	cmd.Flags().StringVarP(&board, "board", "b", "", "`board`, all if absent")
	addAllSeasonsFlag(cmd, &season)
	return w.clientCommand(cmd, func(ctx context.Context, c *client, _ []string) error {
		stream, err := c.admin.Rebuild(ctx, &pb.RebuildRequest{Board: board, Season: season})
		if err != nil {
			return err
		}
		p := w.newProgress("rebuilding")
		defer p.end()
		for {
			res, err := stream.Recv()
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			if res.GetProgress() != nil {
				p.show(res.GetProgress())
			}
			if s := res.GetSummary(); s != nil {
				p.end()
				if err := c.print(res, func() {
					fmt.Fprintf(c.stdout, "%s remade\n", plural(s.GetUsers(), "entry", "entries"))
				}); err != nil {
					return err
				}
			}
		}
	})
}

// progress is a bar on a terminal, and nothing elsewhere.
type progress struct {
	what string
	bar  *progressbar.ProgressBar // nil while nothing is shown
	on   string                   // what the bar is of
	w    *world
}

func (w *world) newProgress(what string) *progress { return &progress{what: what, w: w} }

func (p *progress) show(at *pb.Progress) {
	if !isTerminal(p.w.stderr) {
		return
	}
	on := strings.TrimSpace(p.what + " " + at.GetBoard() + " " + at.GetSeason())
	if p.bar == nil || p.on != on {
		p.end()
		p.bar, p.on = p.w.newBar(on, -1, false), on
	}
	_ = p.bar.Set64(at.GetDone())
}

// end takes the bar away.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
		p.bar = nil
	}
}

// newBar begins a progress bar on stderr; a total of -1 is unknown.
func (w *world) newBar(what string, total int64, bytes bool) *progressbar.ProgressBar {
	out := io.Writer(io.Discard)
	if isTerminal(w.stderr) {
		out = w.stderr
	}
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(what), progressbar.OptionShowCount(),
		progressbar.OptionShowBytes(bytes), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetPredictTime(total > 0), progressbar.OptionFullWidth(), progressbar.OptionSpinnerType(14),
		progressbar.OptionClearOnFinish())
}
