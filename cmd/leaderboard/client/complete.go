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
	// completionEntries is the number of top entries from which completion takes users and divisions.
	completionEntries = 1000
)

// valueKind is the name of a flag annotation. The annotation states what the flag's values are:
// boards, seasons and others.
const valueKind = "values"

const (
	boardValues    = "board"
	seasonValues   = "season"
	divisionValues = "division"
	methodValues   = "method"
	orderValues    = "order"
	contextValues  = "context"
	userValues     = "user"
	bannedValues   = "banned"
	matchValues    = "match"
	keyValues      = "key"
)

func annotate(f *pflag.FlagSet, flag, kind string) {
	_ = f.SetAnnotation(flag, valueKind, []string{kind}) // fails only for an unknown flag
}

func addCompletion(app *cli.App, cmd *cobra.Command, o *Connection) {
	completion := func(kind string) cobra.CompletionFunc {
		return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return completeFrom(app, cmd, *o, kind, args, prefix), cobra.ShellCompDirectiveNoFileComp
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if kind := f.Annotations[valueKind]; len(kind) == 1 {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, completion(kind[0]))
		}
	})
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	if cmd.ValidArgsFunction != nil || len(cmd.ValidArgs) > 0 || strings.Contains(arguments, "FILE") {
		return
	}
	names := strings.Fields(arguments)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		kind := ""
		switch n := len(args); {
		case n < len(names):
			kind = argumentValues[strings.Trim(names[n], "[].")]
		case len(names) > 0 && strings.HasSuffix(names[len(names)-1], "..."):
			kind = argumentValues[strings.TrimRight(names[len(names)-1], ".")]
		}
		if kind == userValues && cmd.Name() == "unban" {
			kind = bannedValues
		}
		return completeFrom(app, cmd, *o, kind, args, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// argumentValues are the kinds of values of arguments.
var argumentValues = map[string]string{"BOARD": boardValues, "USER": userValues, "MATCH": matchValues, "SEASON": seasonValues, "ID": keyValues}

// completeFrom returns the values of a kind that begin with prefix. args are the arguments before it.
func completeFrom(app *cli.App, cmd *cobra.Command, o Connection, kind string, args []string, prefix string) []cobra.Completion {
	switch kind {
	case "":
		return nil
	case methodValues:
		return []cobra.Completion{"competition\t1-2-2-4", "dense\t1-2-2-3", "ordinal\t1-2-3-4"}
	case orderValues:
		return []cobra.Completion{"best", "worst"}
	case contextValues:
		completions, _ := completeContexts(app)(cmd, nil, prefix)
		return completions
	}
	o.Timeout = min(o.Timeout, completionTimeout)
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	c, closeConn, err := Dial(ctx, app, o)
	if err != nil {
		return nil
	}
	defer closeConn()
	flagValue := func(name string) string {
		if f := cmd.Flags().Lookup(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
	return filterCompletions(c.values(ctx, kind, BoardName(flagValue("board")), flagValue("season"), args, prefix), prefix)
}

// values returns no values if the server does not answer.
func (c *Client) values(ctx context.Context, kind, board, season string, args []string, prefix string) (values []cobra.Completion) {
	add := func(value, description string) {
		values = append(values, cobra.CompletionWithDesc(value, description))
	}
	switch kind {
	case boardValues:
		res, _ := c.Scores.ListBoards(ctx, &pb.ListBoardsRequest{})
		for _, b := range res.GetBoards() {
			add(b.GetBoardId(), b.GetTitle())
		}
	case seasonValues:
		res, _ := c.Scores.ListSeasons(ctx, &pb.ListSeasonsRequest{Board: board, Limit: proto.Int32(1000)})
		for _, s := range res.GetData().GetSeasons() {
			add(s.GetId(), s.GetStatus())
		}
		add("latest", "the newest season with entries")
	case divisionValues:
		for _, e := range c.topEntries(ctx, board, season) {
			values = append(values, e.GetDivisions()...)
		}
		slices.Sort(values)
		values = slices.Compact(values)
	case userValues:
		for _, e := range c.topEntries(ctx, board, season) {
			if !slices.Contains(args, e.GetUserId()) {
				add(e.GetUserId(), "rank "+formatRank(e.Rank))
			}
		}
	case bannedValues:
		res, _ := c.Admin.ListBans(ctx, &pb.ListBansRequest{Limit: proto.Int32(1000)})
		for _, b := range res.GetBans() {
			add(b.GetUserId(), b.GetReason())
		}
	case matchValues:
		values = c.matches(ctx, board, season, args, prefix)
	case keyValues:
		res, _ := c.Admin.ListKeys(ctx, &pb.ListKeysRequest{})
		for _, k := range res.GetKeys() {
			add(k.GetKeyId(), k.GetName())
		}
	}
	return values
}

// matches returns the matches of the user in args or, without arguments, of the board.
func (c *Client) matches(ctx context.Context, board, season string, args []string, prefix string) (values []cobra.Completion) {
	if len(args) == 0 {
		res, _ := c.Scores.ListMatches(ctx, &pb.ListMatchesRequest{Board: board, Season: season, Prefix: prefix, Limit: proto.Int32(1000)})
		for _, m := range res.GetMatches() {
			values = append(values, cobra.CompletionWithDesc(m.GetMatchId(), matchState(m)))
		}
		return values
	}
	res, _ := c.Scores.ListUserResults(ctx, &pb.ListUserResultsRequest{Board: board, Season: season, UserId: args[0], Limit: proto.Int32(1000)})
	for _, r := range res.GetResults() {
		values = append(values, cobra.CompletionWithDesc(r.GetMatchId(), r.GetSeason()+", "+strings.ToLower(r.GetStatus().String())))
	}
	return values
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

func (c *Client) topEntries(ctx context.Context, board, season string) []*pb.Entry {
	res, _ := c.Scores.ListScores(ctx, &pb.ListScoresRequest{Board: board, Season: season, Limit: proto.Int32(completionEntries), IncludeMetadata: true})
	return res.GetData().GetLeaderboard()
}
