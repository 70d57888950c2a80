package client

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

const (
	// completionTimeout is short, because the user waits.
	completionTimeout = 2 * time.Second
	// completionEntries is the number of top entries from which completion takes divisions.
	completionEntries = 1000
)

// valueKind is the name of a flag annotation. The annotation states what the flag's values are:
// boards, seasons, divisions or methods.
const valueKind = "values"

const (
	boardValues    = "board"
	seasonValues   = "season"
	divisionValues = "division"
	methodValues   = "method"
)

func annotate(f *pflag.FlagSet, flag, kind string) {
	_ = f.SetAnnotation(flag, valueKind, []string{kind}) // fails only for an unknown flag
}

func addCompletion(app *cli.App, cmd *cobra.Command, o *Connection) {
	completion := func(kind string) cobra.CompletionFunc {
		return func(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return completeFrom(app, cmd, *o, kind, prefix), cobra.ShellCompDirectiveNoFileComp
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if kind := f.Annotations[valueKind]; len(kind) == 1 {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, completion(kind[0]))
		}
	})
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	switch {
	case cmd.ValidArgsFunction != nil, len(cmd.ValidArgs) > 0:
	case strings.Trim(arguments, "[]") == "BOARD":
		boards := completion(boardValues)
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return boards(cmd, args, prefix)
		}
	case !strings.Contains(arguments, "FILE"):
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
}

func completeFrom(app *cli.App, cmd *cobra.Command, o Connection, kind, prefix string) []cobra.Completion {
	if kind == methodValues {
		return []cobra.Completion{"competition\t1-2-2-4", "dense\t1-2-2-3", "ordinal\t1-2-3-4"}
	}
	o.Timeout = min(o.Timeout, completionTimeout)
	c, closeConn, err := Dial(app, o)
	if err != nil {
		return nil
	}
	defer closeConn()
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	flagValue := func(name string) string {
		if f := cmd.Flags().Lookup(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
	var values []cobra.Completion
	switch kind {
	case boardValues:
		res, _ := c.Scores.ListBoards(ctx, &pb.ListBoardsRequest{})
		for _, b := range res.GetBoards() {
			values = append(values, cobra.CompletionWithDesc(b.GetBoardId(), b.GetTitle()))
		}
	case seasonValues:
		res, _ := c.Scores.ListSeasons(ctx, &pb.ListSeasonsRequest{Board: BoardName(flagValue("board")), Limit: proto.Int32(1000)})
		for _, s := range res.GetData().GetSeasons() {
			values = append(values, cobra.CompletionWithDesc(s.GetId(), s.GetStatus()))
		}
		values = append(values, "latest\tthe newest season with entries")
	case divisionValues:
		values = c.divisions(ctx, flagValue("board"), flagValue("season"))
	}
	return filterCompletions(values, prefix)
}

// filterCompletions omits completions that a shell would interpret: bash inserts them without
// quotes, and runs a part of the line at the next completion. Descriptions are only shown.
func filterCompletions(values []cobra.Completion, prefix string) []cobra.Completion {
	var completions []cobra.Completion
	for _, v := range values {
		value, description, described := strings.Cut(v, "\t")
		if !strings.HasPrefix(value, prefix) || !literal(value) {
			continue
		}
		if described {
			value = cobra.CompletionWithDesc(value, cli.Escape(description))
		}
		completions = append(completions, value)
	}
	return completions
}

// literal reports whether bash, zsh, fish and PowerShell take a word as it is, without quotes.
// PowerShell also interprets typographic quotes and dashes, so of the punctuation, literal
// accepts only characters that no shell interprets. A word that starts with - would be a flag.
func literal(word string) bool {
	const punctuation, joiners = "-_./:+", "\u200c\u200d"
	for i, r := range word {
		switch {
		case unicode.In(r, unicode.L, unicode.M, unicode.N), strings.ContainsRune(joiners, r):
		case r > unicode.MaxASCII && unicode.Is(unicode.So, r): // emoji
		case i > 0 && strings.ContainsRune(punctuation, r):
		default:
			return false
		}
	}
	return word != ""
}

func (c *Client) divisions(ctx context.Context, board, season string) []cobra.Completion {
	limit := int32(completionEntries)
	res, _ := c.Scores.ListScores(ctx, &pb.ListScoresRequest{Board: board, Season: season, Limit: &limit, IncludeMetadata: true})
	var divisions []cobra.Completion
	for _, e := range res.GetData().GetLeaderboard() {
		divisions = append(divisions, e.GetDivisions()...)
	}
	slices.Sort(divisions)
	return slices.Compact(divisions)
}
