package client

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

type exportOptions struct {
	query
	output, format string
	defuse         bool
}

func exportCommand(app *cli.App) *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use: "export (entries | results)", Short: "Export the entries or the results of a board", Args: cli.Exactly("entries or results"), ValidArgs: []string{"entries", "results"},
		Long: `Export to CSV or NDJSON, compressed with gzip if the name of the file ends in .gz.

"export entries" writes the entries in the order of their ranks. "export results" writes
the current revision of every match result, and every retraction. As NDJSON, it also
writes the profiles of the users, the void matches, the early ends of seasons, and the
bans that concern the board.
"leaderboard import" can fill a new board from the results: the two boards are then
equal. Export linked boards too, for their bans and early ends. An import skips their
results, because they come from the source. After the export, the command notes the
checksum of each exported season that is sealed.

A spreadsheet runs a field that begins with = + - or @ as a formula, and players can
choose such ids. For a CSV file that a spreadsheet will open, add --defuse-formulas: the
command then puts an apostrophe before such fields, except numbers. Do not import this
file.`,
		Example: `  leaderboard export entries --board marathon --division gender:F -o women.csv
  leaderboard export results --board arena -o arena.ndjson.gz
  leaderboard export results --board arena | leaderboard import - --board arena --server other:50051`,
	}
	o.addFlags(cmd)
	cmd.Flags().StringVarP(&o.output, "output", "o", "-", "`file` to write; - is standard output")
	cmd.Flags().StringVar(&o.format, "format", "", "`format`: csv or ndjson (default: csv if the file's name ends in .csv or .csv.gz, otherwise ndjson)")
	cmd.Flags().BoolVar(&o.defuse, "defuse-formulas", false, "in CSV: put an apostrophe before fields that a spreadsheet would run as a formula")
	cli.Enum(cmd.Flags(), "format", "csv", "ndjson")
	return Command(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		if slices.Contains(cli.Formats, o.output) {
			return cli.Usagef("-o names the file of an export; for the format %s, use --format, csv or ndjson", o.output)
		}
		if o.format == "" {
			if o.format = "ndjson"; strings.HasSuffix(strings.TrimSuffix(strings.ToLower(o.output), ".gz"), ".csv") {
				o.format = "csv"
			}
		}
		if o.format != "csv" && o.format != "ndjson" {
			return cli.Usagef("--format %q is not one of csv, ndjson", o.format)
		}
		if o.defuse && o.format != "csv" {
			return cli.Usagef("--defuse-formulas is for CSV only; add --format csv")
		}
		switch args[0] {
		case "entries":
			return c.export(ctx, o, c.exportEntries)
		case "results":
			if o.division != "" || o.method != "" {
				return cli.Usagef("export results has no --division and no --method; use export entries")
			}
			return c.export(ctx, o, c.exportResults)
		}
		return cli.Usagef("%q is neither entries nor results", args[0])
	})
}

type exportTable interface {
	// For CSV, row calls fields; for JSON, it calls object.
	row(fields func() []string, object func() ([]byte, error)) error
	flush() error
}

type csvTable struct {
	*csv.Writer
	defuseFormulas bool
	terminal       bool // whether to escape control characters
}

func (t csvTable) row(fields func() []string, _ func() ([]byte, error)) error {
	row := fields()
	for i, field := range row {
		if t.defuseFormulas {
			field = cli.Defuse(field)
		}
		if t.terminal {
			field = cli.Escape(field)
		}
		row[i] = field
	}
	return t.Write(row)
}
func (t csvTable) flush() error { t.Flush(); return t.Error() }

type jsonTable struct{ *bufio.Writer }

func (t jsonTable) row(_ func() []string, object func() ([]byte, error)) error {
	b, err := object()
	if err == nil {
		_, err = t.Write(append(cli.EscapeJSON(b), '\n'))
	}
	return err
}
func (t jsonTable) flush() error { return t.Flush() }

func (c *Client) export(ctx context.Context, o exportOptions, write func(context.Context, exportOptions, *pb.Board, exportTable) (rows int64, seasons []string, err error)) error {
	res, err := c.Scores.GetBoard(ctx, &pb.GetBoardRequest{Board: BoardName(o.board)})
	if err != nil {
		return err
	}
	out, finish, err := c.create(o.output)
	if err != nil {
		return err
	}
	var t exportTable = jsonTable{bufio.NewWriter(out)}
	if o.format == "csv" {
		t = csvTable{Writer: csv.NewWriter(out), defuseFormulas: o.defuse, terminal: o.output == "-" && cli.IsTerminal(c.Stdout)}
	}
	start := time.Now()
	n, seasons, err := write(ctx, o, res.GetBoard(), t)
	if err == nil {
		err = t.flush()
	}
	if err = finish(err); err != nil {
		return err
	}
	c.Notef("exported %s in %s\n", cli.Plural(n, "row", "rows"), cli.ShortDuration(time.Since(start)))
	if err := c.noteChecksums(ctx, o.board, seasons); err != nil {
		c.Notef("no checksums of sealed seasons: %s\n", ErrorText(c.WrapError(err)))
	}
	return nil
}

// create creates a private file with a temporary name. finish renames the file to path, or removes
// the file after an error.
func (c *Client) create(path string) (out io.Writer, finish func(error) error, err error) {
	if path == "-" {
		return c.Stdout, func(err error) error { return err }, nil
	}
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink {
		return nil, nil, fmt.Errorf("%s is not a regular file; for standard output, use -o -", path)
	}
	tempPath := path + ".part"
	file, err := cli.CreatePrivate(tempPath)
	if err != nil {
		return nil, nil, err
	}
	out = file
	var zipped *gzip.Writer
	if strings.HasSuffix(path, ".gz") {
		zipped = gzip.NewWriter(file)
		out = zipped
	}
	return out, func(err error) error {
		if err == nil && zipped != nil {
			err = zipped.Close()
		}
		if err == nil {
			err = file.Sync()
		}
		if err = errors.Join(err, file.Close()); err == nil {
			return os.Rename(tempPath, path)
		}
		return errors.Join(err, os.Remove(tempPath))
	}, nil
}

func (c *Client) exportEntries(ctx context.Context, o exportOptions, b *pb.Board, t exportTable) (n int64, seasons []string, err error) {
	limit := int32(1000)
	req := &pb.ListScoresRequest{Board: o.board, Season: o.season, Division: o.division, Method: o.method, Limit: &limit, IncludeMetadata: true}
	p := c.NewProgress("exporting")
	defer p.End()
	header := []string{"rank", "user_id", "score"}
	for _, tb := range b.GetTieBreakers() {
		header = append(header, "tie_breakers."+tb.GetName())
	}
	header = append(header, "achieved_at", "match_id", "divisions")
	hasStatus := b.GetMinResults() > 0 || len(b.GetStatuses()) > 0
	if hasStatus {
		header = append(header, "status")
	}
	if _, ok := t.(csvTable); ok {
		if err := t.row(func() []string { return header }, nil); err != nil {
			return 0, nil, err
		}
	}
	for {
		res, err := c.Scores.ListScores(ctx, req)
		if err != nil {
			return n, nil, err
		}
		d := res.GetData()
		if d.GetDegraded() {
			return n, nil, errors.New("ranks are unavailable now; try again once the server has filled its index")
		}
		for _, e := range d.GetLeaderboard() {
			if err := t.row(func() []string { return entryFields(e, len(b.GetTieBreakers()), hasStatus) }, func() ([]byte, error) { return restjson.Append(nil, e) }); err != nil {
				return n, nil, err
			}
			n++
		}
		p.Show(d.GetBoard(), d.GetSeason(), n)
		if req.PageToken = d.GetNextPageToken(); req.PageToken == "" {
			if o.division != "" {
				return n, nil, nil // checksums are of the overall standings
			}
			return n, []string{d.GetSeason()}, nil
		}
		req.Season = d.GetSeason() // all pages are of the same season
	}
}

func entryFields(e *pb.Entry, ties int, status bool) []string {
	rank := ""
	if e.Rank != nil {
		rank = strconv.FormatInt(e.GetRank(), 10)
	}
	fields := []string{rank, e.GetUserId(), strconv.FormatInt(e.GetScore(), 10)}
	for i := range ties {
		v := int64(0)
		if i < len(e.GetTieBreakers()) {
			v = e.GetTieBreakers()[i]
		}
		fields = append(fields, strconv.FormatInt(v, 10))
	}
	fields = append(fields, formatInstant(e.GetAchievedAt()), e.GetMatchId(), jsonText(e.GetDivisions()))
	if status {
		fields = append(fields, max(e.GetStatus(), pb.Result_RANKED).String())
	}
	return fields
}

func formatInstant(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format(time.RFC3339Nano)
}

func jsonText[V []string | []int64 | map[string]string](v V) string {
	if len(v) == 0 {
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}

var resultHeader = []string{"user_id", "match_id", "score", "tie_breakers", "revision", "achieved_at", "attributes", "metadata", "season", "retracted"}

// ExportHeader returns the columns of "leaderboard export results" as CSV.
func ExportHeader(b *pb.Board) []string {
	header := slices.Clone(resultHeader)
	if TakesPoints(b) {
		header[2] = "points"
	}
	if b.GetPolicy() == pb.Board_SUM {
		header = append(header, "reset")
	}
	if len(b.GetStatuses()) > 0 {
		header = append(header, "status")
	}
	return header
}

// TakesPoints reports whether results on the board have points, not a score.
func TakesPoints(b *pb.Board) bool {
	return (&leaderboard.Board{Policy: leaderboard.Policy(b.GetPolicy() - pb.Board_BEST)}).AddsUp()
}

func (c *Client) exportResults(ctx context.Context, o exportOptions, b *pb.Board, t exportTable) (n int64, seasons []string, err error) {
	stream, err := c.Admin.ExportResults(ctx, &pb.ExportResultsRequest{Board: BoardName(o.board), Season: o.season, IncludeBans: o.format == "ndjson", IncludeProfiles: o.format == "ndjson", IncludeVoids: true, IncludeEnds: true})
	if err != nil {
		return 0, nil, err
	}
	p := c.NewProgress("exporting")
	defer p.End()
	_, isCSV := t.(csvTable)
	var voids, ends int64
	if isCSV {
		if err := t.row(func() []string { return ExportHeader(b) }, nil); err != nil {
			return 0, nil, err
		}
	}
	for ; ; n++ {
		res, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if isCSV && voids+ends > 0 {
				c.Notef("this file lacks %s and %s, which CSV cannot contain. After an import, the results that they exclude would count; to keep these results excluded, export NDJSON\n",
					cli.Plural(voids, "void match", "void matches"), cli.Plural(ends, "early end of a season", "early ends of seasons"))
			}
			return n, seasons, nil
		}
		if err != nil {
			return n, nil, err
		}
		if isCSV && (res.GetVoid() != nil || res.GetEnd() != nil) {
			if n--; res.GetVoid() != nil {
				voids++
			} else {
				ends++
			}
			continue
		}
		if err := t.row(func() []string { return resultFields(res, b) }, func() ([]byte, error) { return ExportLine(res, b.GetSource().GetBoardId()) }); err != nil {
			return n, nil, err
		}
		if id := res.GetSeason(); id != "" && !slices.Contains(seasons, id) {
			seasons = append(seasons, id)
		}
		if n%1000 == 0 {
			p.Show(BoardName(o.board), res.GetSeason(), n)
		}
	}
}

func resultFields(res *pb.ExportResultsResponse, b *pb.Board) []string {
	r := res.GetResult()
	score, metadata, achieved := "", "", formatInstant(r.GetAchievedAt())
	for _, v := range []*int64{r.Score, r.Points} {
		if v != nil && !res.GetRetracted() {
			score = strconv.FormatInt(*v, 10)
		}
	}
	if r.GetMetadata() != nil {
		if b, err := restjson.Append(nil, r.GetMetadata()); err == nil {
			metadata = string(b)
		}
	}
	fields := []string{
		r.GetUserId(), r.GetMatchId(), score, jsonText(r.GetTieBreakers()), strconv.FormatInt(r.GetRevision(), 10),
		achieved, jsonText(r.GetAttributes()), metadata, res.GetSeason(), strconv.FormatBool(res.GetRetracted()),
	}
	if b.GetPolicy() == pb.Board_SUM {
		fields = append(fields, strconv.FormatBool(r.GetReset_()))
	}
	if len(b.GetStatuses()) > 0 {
		fields = append(fields, max(r.GetStatus(), pb.Result_RANKED).String())
	}
	return fields
}

// ExportLine returns a line of "leaderboard export results" as NDJSON, without the line end. source is the source of a
// linked board, or empty.
func ExportLine(res *pb.ExportResultsResponse, source string) ([]byte, error) {
	switch {
	case res.GetBan() != nil:
		return wrapMessage("ban", res.GetBan())
	case res.GetVoid() != nil:
		return wrapMessage("void", res.GetVoid())
	case res.GetEnd() != nil:
		return wrapMessage("end", res.GetEnd())
	case res.GetProfile() != nil:
		return wrapMessage("profile", res.GetProfile())
	}
	b, err := restjson.Append(nil, res.GetResult())
	if err != nil {
		return nil, err
	}
	season, err := json.Marshal(res.GetSeason())
	if err != nil {
		return nil, err
	}
	b = append(append(b[:len(b)-1], `,"season":`...), season...)
	if source != "" {
		id, err := json.Marshal(source)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"source":`...), id...)
	}
	if res.GetRetracted() {
		b = append(b, `,"retracted":true`...)
	}
	return append(b, '}'), nil
}

func wrapMessage(name string, m proto.Message) ([]byte, error) {
	b, err := restjson.Append([]byte(`{"`+name+`":`), m)
	return append(b, '}'), err
}
