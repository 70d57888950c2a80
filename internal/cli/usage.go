package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// UsageError is a mistake in the command line or in the configuration.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a [UsageError] with the text of [fmt.Errorf].
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

const connectionFlag = "connection"

// MarkConnection marks the flags of f. The help lists marked flags last, under Connection.
func MarkConnection(f *pflag.FlagSet) {
	f.VisitAll(func(fl *pflag.Flag) { _ = f.SetAnnotation(fl.Name, connectionFlag, nil) })
}

// SetUp makes a root command use the app's streams and this package's help. For a wrong
// flag or an unknown command, the command returns a [UsageError].
func (a *App) SetUp(root *cobra.Command) {
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetUsageFunc(a.usage)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usagef("%w%s; see %s --help", err, nearestFlag(cmd, err), cmd.CommandPath())
	})
	root.Args = cobra.ArbitraryArgs
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
}

const maxColumns = 120

func (a *App) usage(cmd *cobra.Command) error {
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
	columns, _ := a.terminalSize()
	own, connection := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Value.Type(), "stringTo") {
			f.DefValue = strings.TrimPrefix(f.DefValue, "[]") // pflag would show an empty map as a default
		}
		if _, ok := f.Annotations[connectionFlag]; ok {
			connection.AddFlag(f)
		} else {
			own.AddFlag(f)
		}
	})
	fmt.Fprintf(out, "\nFlags:\n%s", own.FlagUsagesWrapped(min(columns, maxColumns)))
	if connection.HasFlags() {
		fmt.Fprintf(out, "\nConnection:\n%s", connection.FlagUsagesWrapped(min(columns, maxColumns)))
	}
	if cmd.HasSubCommands() {
		fmt.Fprintf(out, "\nRun %s COMMAND --help for the help of a command.\n", cmd.CommandPath())
	}
	return nil
}

func unknownCommand(cmd *cobra.Command, name string) error {
	suggestion := ""
	cmd.SuggestionsMinimumDistance = 2
	if names := cmd.SuggestionsFor(name); len(names) > 0 {
		suggestion = fmt.Sprintf("; did you mean %s?", strings.Join(names, " or "))
	}
	return Usagef("%s has no command %q%s; see %s --help", cmd.CommandPath(), name, suggestion, cmd.CommandPath())
}

func nearestFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	// Cobra suggests names of commands only, so make a command for each flag.
	flags := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	names := flags.SuggestionsFor(unknown.GetSpecifiedName())
	if len(names) == 0 {
		return ""
	}
	return "; did you mean --" + strings.Join(names, " or --") + "?"
}

// Parent returns a command that only groups its child commands.
func Parent(use, short, example string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return Usagef("%s needs a command: %s; see %s --help", cmd.CommandPath(), childNames(cmd), cmd.CommandPath())
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

// Exactly requires one argument for each of names.
func Exactly(names ...string) cobra.PositionalArgs { return Between(len(names), names...) }

// Between accepts at most one argument for each of names, and requires the first n arguments. No
// argument may be empty.
func Between(n int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < n:
			return Usagef("%s is missing; see %s --help", names[len(args)], cmd.CommandPath())
		case len(args) > len(names):
			return Usagef("unexpected argument %q; see %s --help", args[len(names)], cmd.CommandPath())
		}
		if i := slices.Index(args, ""); i >= 0 {
			return Usagef("%s is empty; see %s --help", names[i], cmd.CommandPath())
		}
		return nil
	}
}

const enumFlag = "enum"

// Enum states the values of a flag, for completion.
func Enum(f *pflag.FlagSet, flag string, values ...string) {
	_ = f.SetAnnotation(flag, enumFlag, values) // fails only for an unknown flag
}

// CompleteEnums registers the completion of each flag of [Enum], in cmd and its children. A flag that
// takes several values completes the last of them.
func CompleteEnums(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(fl *pflag.Flag) {
		values, ok := fl.Annotations[enumFlag]
		if !ok {
			return
		}
		_ = cmd.RegisterFlagCompletionFunc(fl.Name, func(_ *cobra.Command, _ []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
			first, last := "", text
			if i := strings.LastIndexByte(text, ','); i >= 0 && strings.Contains(fl.Value.Type(), "Slice") {
				first, last = text[:i+1], text[i+1:]
			}
			var matching []cobra.Completion
			for _, v := range values {
				if strings.HasPrefix(v, last) {
					matching = append(matching, first+v)
				}
			}
			return matching, cobra.ShellCompDirectiveNoFileComp
		})
	})
	for _, child := range cmd.Commands() {
		CompleteEnums(child)
	}
}
