package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The groups of commands in the help.
const (
	groupServer = "server"
	groupScores = "scores"
	groupBoards = "boards"
	groupAdmin  = "admin"
)

func newRoot(w *world) *cobra.Command {
	root := &cobra.Command{
		Use:   "leaderboard",
		Short: "Exact leaderboards: submit results, read ranks",
		Long: `leaderboard keeps match results for good and answers with exact ranks.

leaderboard demo shows one at work; leaderboard serve runs the server; the other
commands are clients of it.`,
		Example: `  leaderboard demo
  leaderboard serve
  leaderboard submit ada --points 3
  leaderboard top`,
		Args:              cobra.ArbitraryArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	root.SetIn(w.stdin)
	root.SetOut(w.stdout)
	root.SetErr(w.stderr)
	root.SetHelpCommandGroupID(groupServer)
	root.SetUsageFunc(w.usage)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see %s --help", err, cmd.CommandPath())
	})
	root.AddGroup(
		&cobra.Group{ID: groupServer, Title: "Server:"},
		&cobra.Group{ID: groupScores, Title: "Results and ranks:"},
		&cobra.Group{ID: groupBoards, Title: "Boards and seasons:"},
		&cobra.Group{ID: groupAdmin, Title: "Administration:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupServer, demoCommand(w), serveCommand(w), configCommand(w), healthCommand(w), versionCommand(w))
	add(groupScores, submitCommand(w), importCommand(w), exportCommand(w), topCommand(w), rankCommand(w), userCommand(w), watchCommand(w), resultCommand(w), retractCommand(w))
	add(groupBoards, boardCommand(w), seasonCommand(w))
	add(groupAdmin, banCommand(w), unbanCommand(w), eraseCommand(w), keyCommand(w), verifyCommand(w), rebuildCommand(w), backupCommand(w), schemaCommand(w), topicsCommand(w))
	return root
}

// usage writes how a command is called: what cobra writes, with flags that fit
// the terminal, those of the connection apart from the command's own.
func (w *world) usage(cmd *cobra.Command) error {
	out := cmd.OutOrStderr()
	fmt.Fprint(out, "Usage:\n")
	if cmd.Runnable() && cmd.HasParent() && !cmd.HasSubCommands() {
		fmt.Fprintf(out, "  %s\n", cmd.UseLine())
	}
	if cmd.HasSubCommands() {
		fmt.Fprintf(out, "  %s COMMAND [flags]\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(out, "\nExamples:\n%s\n", cmd.Example)
	}
	groups := cmd.Groups()
	if len(groups) == 0 && cmd.HasSubCommands() {
		groups = []*cobra.Group{{Title: "Commands:"}}
	}
	for _, g := range groups {
		fmt.Fprintf(out, "\n%s\n", g.Title)
		for _, c := range cmd.Commands() {
			if c.GroupID == g.ID && (c.IsAvailableCommand() || c.Name() == "help") {
				fmt.Fprintf(out, "  %-*s  %s\n", cmd.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	columns, _ := w.terminalSize()
	own, shared := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		f.DefValue = strings.TrimPrefix(f.DefValue, "[]") // nothing is no default
		if _, ok := f.Annotations[connectionFlag]; ok {
			shared.AddFlag(f)
		} else {
			own.AddFlag(f)
		}
	})
	fmt.Fprintf(out, "\nFlags:\n%s", own.FlagUsagesWrapped(min(columns, maxColumns)))
	if shared.HasFlags() {
		fmt.Fprintf(out, "\nConnection:\n%s", shared.FlagUsagesWrapped(min(columns, maxColumns)))
	}
	if cmd.HasSubCommands() {
		fmt.Fprintf(out, "\n%s COMMAND --help says more about a command.\n", cmd.CommandPath())
	}
	return nil
}

// maxColumns is as wide as text is easy to read.
const maxColumns = 120

func unknownCommand(cmd *cobra.Command, name string) error {
	did := ""
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		did = fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
	}
	return usagef("%s has no command %q%s; see %s --help", cmd.CommandPath(), name, did, cmd.CommandPath())
}

// parent is a command that only holds others.
func parent(use, short, example string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("%s needs a command: %s; see %s --help", cmd.CommandPath(), childNames(cmd), cmd.CommandPath())
			}
			return unknownCommand(cmd, args[0])
		},
	}
	cmd.AddCommand(children...)
	return cmd
}

func childNames(cmd *cobra.Command) string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.Name() != "help" {
			names = append(names, c.Name())
		}
	}
	return strings.Join(names, ", ")
}

// exactly takes as many arguments as there are names.
func exactly(names ...string) cobra.PositionalArgs { return between(len(names), names...) }

// between takes at least the first least of the named arguments.
func between(least int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef("%s is missing; see %s --help", names[len(args)], cmd.CommandPath())
		case len(args) > len(names):
			return usagef("%q is one argument too many; see %s --help", args[len(names)], cmd.CommandPath())
		}
		return nil
	}
}
