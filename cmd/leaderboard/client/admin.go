package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

// BoardName returns id, or the default board's id if id is empty.
func BoardName(id string) string {
	if id == "" {
		return string(leaderboard.DefaultBoard)
	}
	return id
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func eraseCommand(app *cli.App) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "erase USER", Short: "Delete all data of a user", Args: cli.Exactly("USER"),
		Long: `Delete all data of a user on every board, for ever. Backups, logs, and messages in Kafka
keep what they have; docs/security.md lists what an erasure does not reach.`,
		Example: "  leaderboard erase mallory",
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		if err := app.Confirm(yes, fmt.Sprintf("Permanently delete all data of user %s, on every board?", args[0]), args[0]); err != nil {
			return err
		}
		res, err := c.Scores.EraseUser(ctx, &pb.EraseUserRequest{UserId: args[0]})
		if err != nil {
			return err
		}
		return c.print(res, func() { c.Printf("%s is erased\n", res.GetUserId()) })
	})
}

func keyCommand(app *cli.App) *cobra.Command {
	return cli.Parent("key", "Create, list and revoke API keys", `  leaderboard key create --name arena-eu --scope submit
  leaderboard key list`,
		keyCreateCommand(app), keyListCommand(app), keyRevokeCommand(app))
}

func keyCreateCommand(app *cli.App) *cobra.Command {
	var name string
	var scopes, boards, prefixes []string
	var expires time.Duration
	cmd := &cobra.Command{
		Use: "create", Short: "Create an API key, and print it once", Args: cli.Exactly(),
		Long: `Create an API key and print it. The server stores only a hash of the key, so it
cannot show the key again. A key with the scope read can read ranks. A key with the scope
submit can also submit results, and a key with the scope admin can do everything. With
--board or --board-prefix, the key is valid for these boards only.`,
		Example: `  leaderboard key create --name arena-eu --scope submit --board arena --board-prefix eu-
  leaderboard key create --name website --scope read --expires-in 8760h`,
	}
	cmd.Flags().StringVar(&name, "name", "", "`name` of the holder, for operators (required)")
	cmd.Flags().StringSliceVar(&scopes, "scope", nil, "`scope` of the key: read, submit or admin (required)")
	cli.Enum(cmd.Flags(), "scope", "read", "submit", "admin")
	cmd.Flags().StringArrayVar(&boards, "board", nil, "`board` that the key is for; repeat the flag for more boards (if omitted, all boards)")
	annotate(cmd.Flags(), "board", boardValues)
	cmd.Flags().StringArrayVar(&prefixes, "board-prefix", nil, "the key is for boards whose ids begin with this `text`; repeat the flag for more")
	cmd.Flags().DurationVar(&expires, "expires-in", 0, "how long the key is valid (if omitted, forever)")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, _ []string) error {
		switch {
		case name == "":
			return cli.Usagef("--name is missing; give the name of the key's holder")
		case len(scopes) == 0:
			return cli.Usagef("--scope is missing; choose read, submit or admin")
		case expires < 0:
			return cli.Usagef("--expires-in %v is in the past", expires)
		}
		req := &pb.CreateKeyRequest{Name: name, Scopes: scopes, Boards: boards, BoardPrefixes: prefixes}
		if expires > 0 {
			req.ExpiresAt = timestamppb.New(time.Now().Add(expires))
		}
		res, err := c.Admin.CreateKey(ctx, req)
		if err != nil {
			return err
		}
		return c.print(res, func() {
			k := res.GetKey()
			c.Println(res.GetSecret())
			c.Notef("created key %s for %s, scope %s, %s; save it now, because it is not shown again\n", k.GetKeyId(), k.GetName(), strings.Join(k.GetScopes(), ", "), keyBoards(k))
			if k.GetInsecure() {
				c.Notef("this server requires no keys; servers that require keys refuse the new key\n")
			}
		})
	})
}

func keyBoards(k *pb.Key) string {
	if len(k.GetBoards()) == 0 && len(k.GetBoardPrefixes()) == 0 {
		return "all boards"
	}
	names := slices.Clone(k.GetBoards())
	for _, prefix := range k.GetBoardPrefixes() {
		names = append(names, prefix+"…")
	}
	return strings.Join(names, ", ")
}

func keyListCommand(app *cli.App) *cobra.Command {
	return DataCommand(app, &cobra.Command{
		Use: "list", Short: "List API keys, without their secrets", Args: cli.Exactly(),
		Example: "  leaderboard key list",
	}, func(ctx context.Context, c *Client, _ []string) error {
		res, err := c.Admin.ListKeys(ctx, &pb.ListKeysRequest{})
		if err != nil {
			return err
		}
		return c.print(res, func() {
			t := cli.NewTable(cli.Row{"id", "name", "scopes", "boards", "created (UTC)", "expires (UTC)", "last used (UTC)"})
			for _, k := range res.GetKeys() {
				expires := "never"
				if k.GetExpiresAt() != nil {
					expires = formatTime(k.GetExpiresAt())
				}
				if k.GetInsecure() {
					expires = "refused, created by an insecure server"
				}
				used := "never"
				if k.GetLastUsedAt() != nil {
					used = formatTime(k.GetLastUsedAt())
				}
				t.AppendRow(cli.Row{k.GetKeyId(), k.GetName(), strings.Join(k.GetScopes(), ","), keyBoards(k), formatTime(k.GetCreatedAt()), expires, used})
			}
			cli.WriteTable(c.Stdout, t)
		})
	})
}

func keyRevokeCommand(app *cli.App) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "revoke ID", Short: "Revoke an API key", Args: cli.Exactly("ID"),
		Example: "  leaderboard key revoke 3f0c9a51d2e84b76",
	}
	cmd.Flags().BoolVar(&force, "force", false, "revoke even the last admin key; a server that starts without an admin key creates one")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		res, err := c.Admin.RevokeKey(ctx, &pb.RevokeKeyRequest{KeyId: args[0], Force: force})
		if err != nil {
			return err
		}
		return c.print(res, func() { c.Printf("key %s is revoked\n", args[0]) })
	})
}

func backupCommand(app *cli.App) *cobra.Command {
	return DataCommand(app, &cobra.Command{
		Use: "backup [NAME]", Short: "Back up the store of a running server", Args: cli.Between(0, "NAME"),
		Long: `Copy the embedded store to the folder in the server's setting "backup_dir". The copy is
consistent. With the setting "backup_every", the server makes backups on a schedule.
"leaderboard restore" restores a backup. The distributed engine cannot make backups:
take snapshots of Cassandra instead.`,
		Example: `  leaderboard backup
  leaderboard backup before-upgrade`,
	}, func(ctx context.Context, c *Client, args []string) error {
		req := &pb.BackupRequest{}
		if len(args) > 0 {
			req.Name = args[0]
		}
		res, err := c.Admin.Backup(ctx, req)
		if err != nil {
			return err
		}
		return c.print(res, func() { c.Printf("backup %s is complete\n", res.GetName()) })
	})
}

// ErrDifferences is the error of verify if differences remain.
var ErrDifferences = errors.New("verify found differences")

// damagedData is the kind of the differences that the server cannot repair.
const damagedData = "DATA_DAMAGED"

// differencesError returns the error for unrepaired differences of these kinds.
func differencesError(kinds map[string]bool, repair bool) error {
	const restore = "restore it from a backup, or upgrade the server if a newer version wrote it, then run `leaderboard verify --repair`"
	damaged := kinds[damagedData]
	switch {
	case damaged && (repair || len(kinds) == 1):
		return fmt.Errorf("%w that it cannot repair: the kind %s means that the server cannot read stored data; %s", ErrDifferences, damagedData, restore)
	case repair:
		return fmt.Errorf("%w that it did not repair; run leaderboard verify again", ErrDifferences)
	case damaged:
		return fmt.Errorf("%w; leaderboard verify --repair repairs them, except those of the kind %s", ErrDifferences, damagedData)
	}
	return fmt.Errorf("%w; leaderboard verify --repair repairs them", ErrDifferences)
}

func verifyCommand(app *cli.App) *cobra.Command {
	var board, season string
	var repair bool
	cmd := &cobra.Command{
		Use: "verify", Short: "Compare results, entries and ranks, and report every difference", Args: cli.Exactly(),
		Long: `Recompute every entry from its results. Compare it with the stored entry and with the
ranks, and report every difference. The exit code is 3 if differences remain, and 1 if
the command failed.`,
		Example: `  leaderboard verify
  leaderboard verify --board cup --repair`,
	}
	AddSelectionFlags(cmd.Flags(), &board, &season)
	cmd.Flags().BoolVar(&repair, "repair", false, "repair the differences")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, _ []string) error {
		stream, err := c.Admin.Verify(ctx, &pb.VerifyRequest{Board: board, Season: season, Repair: repair})
		if err != nil {
			return err
		}
		p := app.NewProgress("verifying")
		defer p.End()
		var remaining int64
		kinds := map[string]bool{}
		for {
			res, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if res.GetProgress() != nil {
				showProgress(p, res.GetProgress())
			}
			if res.GetDifference() != nil || res.GetSummary() != nil {
				p.End()
				if err := c.print(res, func() { c.writeVerify(res) }); err != nil {
					return err
				}
			}
			if d := res.GetDifference(); d != nil && !d.GetRepaired() {
				kinds[d.GetKind()] = true
			}
			remaining += res.GetSummary().GetDifferences() - res.GetSummary().GetRepaired()
		}
		if remaining > 0 {
			return differencesError(kinds, repair)
		}
		return nil
	})
}

func (c *Client) writeVerify(res *pb.VerifyResponse) {
	if d := res.GetDifference(); d != nil {
		repaired := ""
		if d.GetRepaired() {
			repaired = " (repaired)"
		}
		place := d.GetBoard() + "/" + d.GetSeason()
		if d.GetDivision() != "" {
			place += "/" + d.GetDivision()
		}
		if d.GetUserId() != "" {
			place += " " + d.GetUserId()
		}
		c.Printf("%s %s: %s%s\n", d.GetKind(), place, d.GetDetail(), repaired)
		return
	}
	s := res.GetSummary()
	c.Printf("compared %s in %s with %s: %s, %d repaired\n", cli.Plural(s.GetUsers(), "entry", "entries"),
		cli.Plural(s.GetSeasons(), "season", "seasons"), cli.Plural(s.GetResults(), "result", "results"),
		cli.Plural(s.GetDifferences(), "difference", "differences"), s.GetRepaired())
}

// AddSelectionFlags adds flags for a board and a season. Without them, a command is for all boards and seasons.
func AddSelectionFlags(f *pflag.FlagSet, board, season *string) {
	f.StringVarP(board, "board", "b", "", "`board` (if omitted, all boards)")
	annotate(f, "board", boardValues)
	f.StringVarP(season, "season", "s", "", "`season` (if omitted, all seasons)")
	annotate(f, "season", seasonValues)
}

func rebuildCommand(app *cli.App) *cobra.Command {
	var board, season string
	cmd := &cobra.Command{
		Use: "rebuild", Short: "Recompute entries from results, and ranks from entries", Args: cli.Exactly(),
		Long:    "Recompute everything that is derived from the results. Reads and writes continue.",
		Example: "  leaderboard rebuild --board cup",
	}
	AddSelectionFlags(cmd.Flags(), &board, &season)
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, _ []string) error {
		stream, err := c.Admin.Rebuild(ctx, &pb.RebuildRequest{Board: board, Season: season})
		if err != nil {
			return err
		}
		p := app.NewProgress("rebuilding")
		defer p.End()
		for {
			res, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if res.GetProgress() != nil {
				showProgress(p, res.GetProgress())
			}
			if s := res.GetSummary(); s != nil {
				p.End()
				if err := c.print(res, func() {
					c.Printf("rebuilt %s\n", cli.Plural(s.GetUsers(), "entry", "entries"))
				}); err != nil {
					return err
				}
			}
		}
	})
}

func showProgress(p *cli.Progress, progress *pb.Progress) {
	p.Show(progress.GetBoard(), progress.GetSeason(), progress.GetDone())
}
