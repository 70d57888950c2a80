package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

type exportOptions struct {
	query
	output, format string
}

func exportCommand(w *world) *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use: "export (entries | results)", Short: "Export standings, or the results they are made of", Args: exactly("entries or results"),
		Long: `Export to CSV or NDJSON, gzipped if the file's name ends in .gz.

entries writes the standings in order, with ranks. results writes every match
result that stands and every retraction; leaderboard import reads that back, and
the board it fills equals this one.`,
		Example: `  leaderboard export entries --board marathon --division gender:F -o women.csv
  leaderboard export results --board arena -o arena.ndjson.gz
  leaderboard export results --board arena | leaderboard import - --board arena --server other:50051`,
	}
	o.addFlags(cmd)
	cmd.Flags().StringVarP(&o.output, "output", "o", "-", "`file` to write, - for standard output")
	cmd.Flags().StringVar(&o.format, "format", "", "`format`: csv or ndjson; told from the file's name if absent, else ndjson")
	return w.connected(cmd, func(ctx context.Context, c *client, args []string) error {
		if o.format == "" {
			if o.format = "ndjson"; strings.HasSuffix(strings.TrimSuffix(o.output, ".gz"), ".csv") {
				o.format = "csv"
			}
		}
		if o.format != "csv" && o.format != "ndjson" {
			return usagef("--format %q is none of csv, ndjson", o.format)
		}
		switch args[0] {
		case "entries":
			return c.export(ctx, o, c.exportEntries)
		case "results":
			if o.division != "" || o.method != "" {
				return usagef("results have no --division and no --method; export entries has")
			}
			return c.export(ctx, o, c.exportResults)
		}
		return usagef("%q is neither entries nor results", args[0])
	})
}

// table writes the rows of an export.
type exportTable interface {
	// row takes a row as CSV fields and as a JSON object.
	row(fields func() []string, object func() ([]byte, error)) error
	flush() error
}

type csvTable struct{ *csv.Writer }

func (t csvTable) row(fields func() []string, _ func() ([]byte, error)) error {
	return t.Write(fields())
}
func (t csvTable) flush() error { t.Flush(); return t.Error() }

type jsonTable struct{ *bufio.Writer }

func (t jsonTable) row(_ func() []string, object func() ([]byte, error)) error {
	b, err := object()
	if err == nil {
		_, err = t.Write(append(b, '\n'))
	}
	return err
}
func (t jsonTable) flush() error { return t.Flush() }

// export opens the output and lets write fill it. A file appears under its name
// only when it is complete.
func (c *client) export(ctx context.Context, o exportOptions, write func(context.Context, exportOptions, *pb.Board, exportTable) (int64, error)) error {
	got, err := c.scores.GetBoard(ctx, &pb.GetBoardRequest{Board: boardName(o.board)})
	if err != nil {
		return err
	}
	out, finish, err := c.create(o.output)
	if err != nil {
		return err
	}
	var t exportTable = jsonTable{bufio.NewWriter(out)}
	if o.format == "csv" {
		t = csvTable{csv.NewWriter(out)}
	}
	begun := time.Now()
	n, err := write(ctx, o, got.GetBoard(), t)
	if err == nil {
		err = t.flush()
	}
	if err = finish(err); err != nil {
		return err
	}
	fmt.Fprintf(c.stderr, "%s exported in %s\n", plural(n, "row", "rows"), shortTime(time.Since(begun)))
	return nil
}

// create opens a file to be written under another name until finish is called
// without an error.
func (w *world) create(path string) (out io.Writer, finish func(error) error, err error) {
	if path == "-" {
		return w.stdout, func(err error) error { return err }, nil
	}
	part := path + ".part"
	file, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
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
			return os.Rename(part, path)
		}
		return errors.Join(err, os.Remove(part))
	}, nil
}

func (c *client) exportEntries(ctx context.Context, o exportOptions, b *pb.Board, t exportTable) (int64, error) {
	limit := int32(1000)
	req := &pb.ListScoresRequest{Board: o.board, Season: o.season, Division: o.division, Method: o.method, Limit: &limit, IncludeMetadata: true}
	p := c.newProgress("exporting")
	defer p.end()
	header := []string{"rank", "user_id", "score"}
	for _, tb := range b.GetTieBreakers() {
		header = append(header, "tie_breakers."+tb.GetName())
	}
	header = append(header, "achieved_at", "match_id", "divisions")
	if _, ok := t.(csvTable); ok {
		if err := t.row(func() []string { return header }, nil); err != nil {
			return 0, err
		}
	}
	n := int64(0)
	for {
		res, err := c.scores.ListScores(ctx, req)
		if err != nil {
			return n, err
		}
		d := res.GetData()
		if d.GetDegraded() {
			return n, errors.New("ranks are unavailable now; try again when the server's index is filled")
		}
		for _, e := range d.GetLeaderboard() {
			if err := t.row(func() []string { return entryFields(e, len(b.GetTieBreakers())) }, func() ([]byte, error) { return encodeJSON(e) }); err != nil {
				return n, err
			}
			n++
		}
		p.show(&pb.Progress{Board: d.GetBoard(), Season: d.GetSeason(), Done: n})
		if req.PageToken = d.GetNextPageToken(); req.PageToken == "" {
			return n, nil
		}
		req.Season = d.GetSeason() // all of one season, whatever the clock says
	}
}

func entryFields(e *pb.Entry, ties int) []string {
	fields := []string{strconv.FormatInt(e.GetRank(), 10), e.GetUserId(), strconv.FormatInt(e.GetScore(), 10)}
	for i := range ties {
		v := int64(0)
		if i < len(e.GetTieBreakers()) {
			v = e.GetTieBreakers()[i]
		}
		fields = append(fields, strconv.FormatInt(v, 10))
	}
	return append(fields, instant(e.GetAchievedAt()), e.GetMatchId(), jsonText(e.GetDivisions()))
}

func instant(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format(time.RFC3339Nano)
}

// jsonText is a list or map in a CSV field, empty if v is.
func jsonText[V []string | []int64 | map[string]string](v V) string {
	if len(v) == 0 {
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "" // such values always have a form
	}
	return string(b)
}

var resultHeader = []string{"user_id", "match_id", "score", "tie_breakers", "revision", "achieved_at", "attributes", "metadata", "season", "retracted"}

func (c *client) exportResults(ctx context.Context, o exportOptions, b *pb.Board, t exportTable) (int64, error) {
	stream, err := c.admin.ExportResults(ctx, &pb.ExportResultsRequest{Board: boardName(o.board), Season: o.season})
	if err != nil {
		return 0, err
	}
	p := c.newProgress("exporting")
	defer p.end()
	if _, ok := t.(csvTable); ok {
		header := append([]string{}, resultHeader...)
		if b.GetPolicy() == pb.Board_SUM || b.GetPolicy() == pb.Board_DECAY {
			header[2] = "points"
		}
		if err := t.row(func() []string { return header }, nil); err != nil {
			return 0, err
		}
	}
	for n := int64(0); ; n++ {
		res, err := stream.Recv()
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if err := t.row(func() []string { return resultFields(res) }, func() ([]byte, error) { return resultObject(res) }); err != nil {
			return n, err
		}
		if n%1000 == 0 {
			p.show(&pb.Progress{Board: boardName(o.board), Season: res.GetSeason(), Done: n})
		}
	}
}

func resultFields(res *pb.ExportResultsResponse) []string {
	r := res.GetResult()
	score, metadata, achieved := "", "", instant(r.GetAchievedAt())
	for _, v := range []*int64{r.Score, r.Points} {
		if v != nil && !res.GetRetracted() {
			score = strconv.FormatInt(*v, 10)
		}
	}
	if r.GetMetadata() != nil {
		if b, err := encodeJSON(r.GetMetadata()); err == nil {
			metadata = string(b)
		}
	}
	return []string{
		r.GetUserId(), r.GetMatchId(), score, jsonText(r.GetTieBreakers()), strconv.FormatInt(r.GetRevision(), 10),
		achieved, jsonText(r.GetAttributes()), metadata, res.GetSeason(), strconv.FormatBool(res.GetRetracted()),
	}
}

// resultObject is the API's Result with the season, and whether it is retracted.
func resultObject(res *pb.ExportResultsResponse) ([]byte, error) {
	b, err := encodeJSON(res.GetResult())
	if err != nil {
		return nil, err
	}
	season, err := json.Marshal(res.GetSeason())
	if err != nil {
		return nil, err
	}
	b = append(append(b[:len(b)-1], `,"season":`...), season...)
	if res.GetRetracted() {
		b = append(b, `,"retracted":true`...)
	}
	return append(b, '}'), nil
}
