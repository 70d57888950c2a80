package client

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

// maxBatchBytes is the maximum size of a file of results, as in the API.
const maxBatchBytes = 16 << 20

func submitBatchCommand(app *cli.App) *cobra.Command {
	var req pb.BatchSubmitResultsRequest
	cmd := &cobra.Command{
		Use: "submit-batch FILE", Short: "Submit results of several boards in one call", Args: cli.Exactly("FILE"),
		Long: `Submit up to 5,000 results in one call. FILE has one result per line, as the API's JSON
with the board in board_id; - is standard input. If a result is not accepted, the other
results are not affected. The exit code is 0 if every result counts as given. For larger
files, use "leaderboard import".`,
		Example: `  leaderboard submit-batch gifts.ndjson
  echo '{"board_id":"streamers","user_id":"ada","match_id":"gift-7","points":5}' | leaderboard submit-batch -`,
	}
	cmd.Flags().BoolVar(&req.NoWait, "no-wait", false, "return when the results are stored durably, without waiting until they are applied")
	addBatchLinkedFlag(cmd.Flags(), &req.IncludeLinked)
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		data, err := readAll(app, args[0], maxBatchBytes)
		if err != nil {
			return err
		}
		if req.Results, err = decodeLines[pb.Result](data); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		res, err := c.Scores.BatchSubmitResults(ctx, &req)
		if err != nil {
			return err
		}
		return c.printOutcomes(res, res.GetOutcomes())
	})
}

// CountsAsGiven reports whether a result counts with the content of the request, or will count
// once it is applied.
func CountsAsGiven(status pb.Outcome_Status, stands bool) bool {
	switch status {
	case pb.Outcome_APPLIED, pb.Outcome_DUPLICATE, pb.Outcome_ACCEPTED:
		return true
	case pb.Outcome_CONFLICT:
		return stands
	}
	return false
}

// printOutcomes prints the outcomes of a batch. It returns an error if a result does not count as
// given.
func (c *Client) printOutcomes(res proto.Message, outcomes []*pb.Outcome) error {
	notAccepted := slices.DeleteFunc(slices.Clone(outcomes), func(o *pb.Outcome) bool { return CountsAsGiven(o.GetStatus(), o.GetStands()) })
	if err := c.print(res, func() { writeOutcomes(c, outcomes, notAccepted) }); err != nil || len(notAccepted) == 0 {
		return err
	}
	return fmt.Errorf("%d of %d results were not accepted as given", len(notAccepted), len(outcomes))
}

func decodeLines[T any, M interface {
	*T
	proto.Message
}](data []byte) ([]M, error) {
	var messages []M
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		m := M(new(T))
		if err := restjson.Decode(line, m); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		messages = append(messages, m)
	}
	return messages, nil
}

func writeOutcomes(c *Client, outcomes, notAccepted []*pb.Outcome) {
	if len(notAccepted) > 0 {
		t := cli.NewTable(cli.Row{"board", "user", "match", "status", "problem"})
		for _, o := range notAccepted {
			t.AppendRow(cli.Row{o.GetBoardId(), o.GetUserId(), o.GetMatchId(), strings.ToLower(o.GetStatus().String()), cmp.Or(o.GetDetail(), supersededText(o.GetStatus()))})
		}
		cli.WriteTable(c.Stdout, t)
	}
	counts := map[string]int{}
	for _, o := range outcomes {
		status := strings.ToLower(o.GetStatus().String())
		if o.GetStatus() == pb.Outcome_CONFLICT && o.GetStands() {
			status = "replaced a different result"
		}
		counts[status]++
	}
	var texts []string
	for _, status := range sortedKeys(counts) {
		texts = append(texts, fmt.Sprintf("%d %s", counts[status], status))
	}
	c.Println(cmp.Or(strings.Join(texts, ", "), "no results"))
}

func supersededText(status pb.Outcome_Status) string {
	if status != pb.Outcome_SUPERSEDED {
		return ""
	}
	return "a higher revision is stored, and counts"
}
