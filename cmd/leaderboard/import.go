package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

const (
	maxBatch      = 5000    // results that a server takes in one call
	maxBatchBytes = 4 << 20 // of one call; a server takes several times as much
	retryFor      = 2 * time.Minute
	// hopeless is after how many rejected rows without one that was taken an
	// import stops: then the mapping is wrong, not the rows.
	hopeless = 1000
)

// importOptions are the flags of an import.
type importOptions struct {
	mapping
	board, format, delimiter string
	rejects, state           string
	batch, inFlight          int
	dryRun                   bool
	file                     string // - is stdin
}

func importCommand(w *world) *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Import results from CSV or NDJSON", Args: exactly("FILE"),
		Long: `Import match results from a CSV file with a header or from NDJSON, plain or
gzipped; - is standard input. Without flags the columns are those of the API's
Result, which leaderboard export writes.

An import may be repeated and interrupted at will. Each match counts once, a row
without a match id gets one made of the file's content and its line, and a state
file beside the input lets the same command go on where it was stopped. Rows that
are not taken are written to a file with their line and the reason.

Results are sent in batches, several at a time; those of one user stay in the
file's order. With --in-flight 1 all do, which matters if the server's clock is to
decide who reached a score first.`,
		Example: `  leaderboard import results.csv --board arena
  leaderboard import boston.csv.gz --board marathon --score finish_s --filter category=run --attribute gender=gender
  leaderboard import races.ndjson --board cup --match race.id --achieved-at date --time-format 02.01.2006
  zcat events.gz | leaderboard import - --board arena --match event_id --format ndjson`,
	}
	addBoardFlag(cmd, &o.board)
	o.mapping.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.format, "format", "", "`format`: csv or ndjson; told from the name or the content if absent")
	f.StringVar(&o.delimiter, "delimiter", "", "`character` between CSV columns (default a comma, a tab for .tsv)")
	f.IntVar(&o.batch, "batch", maxBatch, "most `results` in one call, 1 to 5000")
	f.IntVar(&o.inFlight, "in-flight", 4, "`calls` at a time, 1 to 64")
	f.StringVar(&o.rejects, "rejects", "", "`file` for rows that are not taken (default FILE.rejected.csv)")
	f.StringVar(&o.state, "state", "", "`file` that remembers how far the import is (default FILE.import-state.json)")
	f.BoolVar(&o.dryRun, "dry-run", false, "read and check the rows, and send none")
	asJSON := f.Bool("json", false, "print the summary as JSON, for scripts")
	run := w.connected(cmd, func(ctx context.Context, c *client, args []string) error {
		o.file, c.json = args[0], *asJSON
		return c.importFile(ctx, cmd, o)
	})
	setDefault(cmd, "timeout", "1m")
	return run
}

// setDefault gives a flag another default.
func setDefault(cmd *cobra.Command, flag, value string) {
	f := cmd.Flags().Lookup(flag)
	_ = f.Value.Set(value) // the values are constants of this program
	f.DefValue = value
}

func (o *importOptions) check() error {
	switch {
	case o.batch < 1 || o.batch > maxBatch:
		return usagef("--batch %d is not 1 to %d", o.batch, maxBatch)
	case o.inFlight < 1 || o.inFlight > 64:
		return usagef("--in-flight %d is not 1 to 64", o.inFlight)
	case o.file == "-" && o.state != "":
		return usagef("--state needs a file, standard input cannot be read again from its middle")
	case o.format != "" && o.format != "csv" && o.format != "ndjson":
		return usagef("--format %q is none of csv, ndjson", o.format)
	case len(o.delimiter) > 1 && o.delimiter != `\t`, o.delimiter == `"`, o.delimiter == "\n", o.delimiter == "\r":
		return usagef("--delimiter %q is not one character that can stand between columns", o.delimiter)
	}
	return nil
}

// reader opens the records of an input.
func (o *importOptions) reader(r io.Reader) (recordReader, error) {
	r, err := decompress(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.file, err)
	}
	name := strings.TrimSuffix(strings.ToLower(o.file), ".gz")
	format := o.format
	if format == "" {
		switch filepath.Ext(name) {
		case ".csv", ".tsv":
			format = "csv"
		case ".ndjson", ".jsonl", ".json":
			format = "ndjson"
		default:
			var first [512]byte
			n, err := io.ReadFull(r, first[:])
			if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
				return nil, fmt.Errorf("%s: %w", o.file, err)
			}
			r = io.MultiReader(bytes.NewReader(first[:n]), r)
			format = "csv"
			if bytes.HasPrefix(bytes.TrimSpace(bytes.TrimPrefix(first[:n], byteOrderMark)), []byte("{")) {
				format = "ndjson"
			}
		}
	}
	var records recordReader
	if format == "ndjson" {
		records, err = newJSONReader(r)
	} else {
		records, err = newCSVReader(r, o.comma(name))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.file, err)
	}
	return records, nil
}

func (o *importOptions) comma(name string) byte {
	switch {
	case o.delimiter == `\t`, o.delimiter == "" && strings.HasSuffix(name, ".tsv"):
		return '\t'
	case o.delimiter == "":
		return ','
	}
	return o.delimiter[0]
}

// tally counts what became of rows.
type tally struct {
	Rows       int64 `json:"rows"`
	Filtered   int64 `json:"filtered"`
	Applied    int64 `json:"applied"`
	Duplicate  int64 `json:"duplicate"`
	Superseded int64 `json:"superseded"`
	Accepted   int64 `json:"accepted"`
	Conflict   int64 `json:"conflict"`
	Rejected   int64 `json:"rejected"`
}

// importer is an import under way.
type importer struct {
	*client
	o        importOptions
	progress progressState
	records  recordReader
	prefix   string // of match ids made here
	counts   tally
	rejects  *rejectFile
	skipTo   int64 // what is before this offset was acknowledged
	before   int64 // rows of an interrupted import
	resumed  bool
}

// progressState is what the state file remembers.
type progressState struct {
	Identity string `json:"identity"` // of content, mapping, server and board
	Offset   int64  `json:"offset"`   // in the decompressed input, all before it is acknowledged
	Counts   tally  `json:"counts"`
}

func (c *client) importFile(ctx context.Context, cmd *cobra.Command, o importOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	got, err := c.scores.GetBoard(ctx, &pb.GetBoardRequest{Board: boardName(o.board)})
	if err != nil {
		return err
	}
	im := &importer{client: c, o: o}
	in, size, err := im.open(ctx, got.GetBoard())
	if err != nil {
		return err
	}
	defer in.Close()
	bar := c.newBar("importing", size, true)
	if im.records, err = im.o.reader(io.TeeReader(in, bar)); err != nil {
		return err
	}
	im.o.needMatch = im.prefix == ""
	if err := im.o.bind(cmd, got.GetBoard(), im.records.header()); err != nil {
		return err
	}
	begun := time.Now()
	err = im.run(ctx)
	_ = bar.Finish()
	err = errors.Join(err, im.rejects.close())
	if err != nil {
		return im.interrupted(ctx, err)
	}
	im.forget()
	return im.report(time.Since(begun))
}

// open opens the input and, if it is a file, finds out by its content whether
// an import of it was interrupted. size is -1 if it is not known.
func (im *importer) open(ctx context.Context, b *pb.Board) (in io.ReadCloser, size int64, err error) {
	if im.o.file == "-" {
		im.prefix = im.o.MatchPrefix
		if im.o.rejects == "" {
			im.o.rejects = "stdin.rejected.csv"
		}
		im.rejects = &rejectFile{path: im.o.rejects}
		return io.NopCloser(im.stdin), -1, nil
	}
	file, err := os.Open(im.o.file)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", im.o.file)
	}
	var sum string
	if err == nil {
		sum, err = im.contentSum(ctx, file, info.Size())
	}
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	if im.prefix = im.o.MatchPrefix; im.prefix == "" {
		im.prefix = sum[:16]
	}
	if im.o.rejects == "" {
		im.o.rejects = im.o.file + ".rejected.csv"
	}
	if im.o.state == "" {
		im.o.state = im.o.file + ".import-state.json"
	}
	im.recall(sum, b)
	im.rejects = &rejectFile{path: im.o.rejects, goOn: im.resumed}
	return file, info.Size(), nil
}

// contentSum returns the hash of what a file holds, decompressed.
func (im *importer) contentSum(ctx context.Context, file *os.File, size int64) (string, error) {
	bar := im.newBar("reading", size, true)
	defer bar.Clear()
	content, err := decompress(io.TeeReader(file, bar))
	if err != nil {
		return "", fmt.Errorf("%s: %w", im.o.file, err)
	}
	h := sha256.New()
	if _, err := io.Copy(h, &cancelReader{ctx, content}); err != nil {
		if ctx.Err() == nil {
			err = &brokenInput{err}
		}
		return "", fmt.Errorf("%s: %w", im.o.file, err)
	}
	_, err = file.Seek(0, io.SeekStart)
	return hex.EncodeToString(h.Sum(nil)), err
}

// cancelReader is a reader that ends with ctx.
type cancelReader struct {
	ctx context.Context
	io.Reader
}

func (r *cancelReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// recall reads the state file. A state counts only if it is of this content,
// mapping, server and board; a board made anew is another.
func (im *importer) recall(sum string, b *pb.Board) {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode([]any{sum, im.o.mapping, im.o.format, im.o.delimiter, im.server, b.GetBoardId(), b.GetCreatedAt().AsTime()})
	identity := hex.EncodeToString(h.Sum(nil))
	im.progress.Identity = identity
	data, err := os.ReadFile(im.o.state)
	if err != nil || im.o.dryRun {
		return
	}
	var was progressState
	if json.Unmarshal(data, &was) != nil || was.Identity != identity {
		fmt.Fprintf(im.stderr, "%s is of another import; beginning at the first row\n", im.o.state)
		return
	}
	im.progress, im.counts, im.skipTo, im.before, im.resumed = was, was.Counts, was.Offset, was.Counts.Rows, true
	fmt.Fprintf(im.stderr, "going on after %s\n", plural(was.Counts.Rows, "row", "rows"))
}

// remember writes the state file, whole or not at all.
func (im *importer) remember(offset int64) error {
	if im.o.state == "" || im.o.dryRun {
		return nil
	}
	im.progress.Offset, im.progress.Counts = offset, im.counts
	data, err := json.Marshal(im.progress)
	if err != nil {
		return err
	}
	next := im.o.state + ".new"
	err = os.WriteFile(next, data, 0o600)
	if err == nil {
		err = os.Rename(next, im.o.state)
	}
	if err != nil {
		return fmt.Errorf("the state file cannot be written (%w); name another with --state", err)
	}
	return nil
}

// forget removes the state of an import that is complete.
func (im *importer) forget() {
	if im.o.state != "" && !im.o.dryRun {
		_ = os.Remove(im.o.state) // if it stays, the next import has nothing left to do
	}
}

// chunk is a part of the input: as much as fills the batches of one round. Rows
// of one user are in one lane, in their order, and rounds follow one another.
type chunk struct {
	lanes    [][]item
	sizes    []int
	full     bool
	rejected []rejection
	rows     int64
	filtered int64
	end      int64
}

// run sends the input chunk by chunk. While one is on its way the next is read.
func (im *importer) run(ctx context.Context) error {
	type step struct {
		chunk *chunk
		err   error
	}
	steps, done := make(chan step), make(chan struct{})
	defer close(done)
	go func() { // which nobody waits for: standard input may never say more
		for {
			c, err := im.read()
			select {
			case steps <- step{c, err}:
			case <-done:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		var next step
		select {
		case next = <-steps:
		case <-ctx.Done():
			return ctx.Err()
		}
		if next.chunk != nil {
			if err := im.send(ctx, next.chunk); err != nil {
				return err
			}
			if err := im.remember(next.chunk.end); err != nil {
				return err
			}
		}
		if n := im.counts.Rejected; n >= hopeless && n == im.counts.Rows-im.counts.Filtered {
			return fmt.Errorf("none of the first %d rows was taken, the last because: %s; check the flags that name the columns", n, im.rejects.last)
		}
		if next.err == io.EOF {
			return nil
		}
		if next.err != nil {
			return next.err
		}
	}
}

// read reads one chunk. It comes with io.EOF if it is the last.
func (im *importer) read() (*chunk, error) {
	c := &chunk{lanes: make([][]item, im.o.inFlight), sizes: make([]int, im.o.inFlight)}
	var err error
	for !c.full && c.rows < int64(maxBatch*im.o.inFlight) {
		var r record
		if r, err = im.records.next(); err != nil {
			break
		}
		if im.records.offset() <= im.skipTo {
			continue // acknowledged before
		}
		c.rows++
		im.add(c, r)
	}
	c.end = im.records.offset()
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %w", im.o.file, err)
	}
	return c, err
}

func (im *importer) add(c *chunk, r record) {
	if r.err != nil {
		c.rejected = append(c.rejected, rejection{r.line, r.err.Error(), string(r.raw)})
		return
	}
	if !im.o.takes(r) {
		c.filtered++
		return
	}
	it, err := im.o.item(r, im.prefix)
	if err != nil {
		c.rejected = append(c.rejected, rejection{r.line, strings.ReplaceAll(err.Error(), "\n", "; "), string(r.raw)})
		return
	}
	lane := laneOf(it.result.UserId, len(c.lanes))
	c.lanes[lane] = append(c.lanes[lane], it)
	c.sizes[lane] += len(r.raw) + proto.Size(it.result)
	c.full = len(c.lanes[lane]) >= im.o.batch || c.sizes[lane] >= maxBatchBytes
}

func laneOf(user string, lanes int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(user))
	return int(h.Sum32() % uint32(lanes))
}

// send sends the lanes of c at once, and counts what became of the rows.
func (im *importer) send(ctx context.Context, c *chunk) error {
	outcomes := make([][]*pb.Outcome, len(c.lanes))
	if !im.o.dryRun {
		g, ctx := errgroup.WithContext(ctx)
		for i, lane := range c.lanes {
			g.Go(func() (err error) {
				outcomes[i], err = im.sendLane(ctx, lane)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	im.counts.Rows += c.rows
	im.counts.Filtered += c.filtered
	im.counts.Rejected += int64(len(c.rejected))
	for i, lane := range outcomes {
		for j, o := range lane {
			if r, ok := im.counts.add(o, c.lanes[i][j]); ok {
				c.rejected = append(c.rejected, r)
			}
		}
	}
	slices.SortFunc(c.rejected, func(x, y rejection) int { return cmp.Compare(x.line, y.line) })
	return im.rejects.write(c.rejected)
}

const conflictReason = "CONFLICT: other content is known under this match and revision; which of the two counts, their content decides"

// add counts an outcome. One that its sender should know of becomes a rejection.
func (t *tally) add(o *pb.Outcome, it item) (rejection, bool) {
	switch o.GetStatus() {
	case pb.Outcome_APPLIED:
		t.Applied++
	case pb.Outcome_DUPLICATE:
		t.Duplicate++
	case pb.Outcome_SUPERSEDED:
		t.Superseded++
	case pb.Outcome_ACCEPTED:
		t.Accepted++
	case pb.Outcome_CONFLICT:
		t.Conflict++
		return rejection{it.line, conflictReason, it.raw}, true
	default:
		t.Rejected++
		reason := o.GetReason()
		if o.GetDetail() != "" {
			reason += ": " + o.GetDetail()
		}
		return rejection{it.line, reason, it.raw}, true
	}
	return rejection{}, false
}

// sendLane sends items in their order: runs of submits as one batch, and
// retractions one by one.
func (im *importer) sendLane(ctx context.Context, items []item) ([]*pb.Outcome, error) {
	outcomes := make([]*pb.Outcome, 0, len(items))
	for len(items) > 0 {
		n := 0
		for n < len(items) && !items[n].retract {
			n++
		}
		var got []*pb.Outcome
		var err error
		if n > 0 {
			got, err = im.submit(ctx, items[:n])
		} else {
			n = 1
			got, err = im.retract(ctx, items[0])
		}
		if err != nil {
			return nil, err
		}
		outcomes, items = append(outcomes, got...), items[n:]
	}
	return outcomes, nil
}

func (im *importer) submit(ctx context.Context, items []item) ([]*pb.Outcome, error) {
	results := make([]*pb.Result, len(items))
	waiting := make([]int, len(items))
	for i, it := range items {
		results[i], waiting[i] = it.result, i
	}
	outcomes := make([]*pb.Outcome, len(items))
	err := im.retry(ctx, func() error {
		batch := make([]*pb.Result, len(waiting))
		for i, at := range waiting {
			batch[i] = results[at]
		}
		res, err := im.scores.BatchSubmitScores(ctx, &pb.BatchSubmitScoresRequest{Board: im.o.board, Results: batch})
		if err != nil {
			return err
		}
		if len(res.GetOutcomes()) != len(batch) {
			return fmt.Errorf("the server answered %d outcomes for %d results", len(res.GetOutcomes()), len(batch))
		}
		var failed []int
		for i, o := range res.GetOutcomes() {
			outcomes[waiting[i]] = o
			if o.GetStatus() == pb.Outcome_FAILED {
				failed = append(failed, waiting[i])
			}
		}
		if waiting = failed; len(failed) > 0 {
			return status.Errorf(codes.Unavailable, "%d results could not be applied now: %s", len(failed), outcomes[failed[0]].GetDetail())
		}
		return nil
	})
	return outcomes, err
}

func (im *importer) retract(ctx context.Context, it item) ([]*pb.Outcome, error) {
	outcome := &pb.Outcome{}
	err := im.retry(ctx, func() error {
		res, err := im.scores.RetractResult(ctx, &pb.RetractResultRequest{
			Board: boardName(im.o.board), UserId: it.result.GetUserId(), MatchId: it.result.GetMatchId(), Season: it.season, Revision: &it.result.Revision,
		})
		switch status.Code(err) {
		case codes.OK:
			outcome.Status = res.GetStatus()
			return nil
		case codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound:
			outcome.Status, outcome.Reason, outcome.Detail = pb.Outcome_REJECTED, "INVALID", status.Convert(err).Message()
			return nil
		}
		return err
	})
	return []*pb.Outcome{outcome}, err
}

// retry calls f until it succeeds, fails for good, or has failed for retryFor.
// Nothing is counted twice: every item has a match id.
func (im *importer) retry(ctx context.Context, f func() error) error {
	pause := 100 * time.Millisecond
	deadline := time.Now().Add(retryFor)
	for {
		err := f()
		switch status.Code(err) {
		case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Aborted:
		default:
			return err
		}
		wait := max(retryDelay(status.Convert(err)), pause/2+rand.N(pause))
		if time.Now().Add(wait).After(deadline) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// interrupted says how to go on after an import ended early.
func (im *importer) interrupted(ctx context.Context, err error) error {
	if isBroken(err) {
		return fmt.Errorf("stopped after %s: %w", plural(im.counts.Rows, "row", "rows"), err)
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	} else if s, ok := status.FromError(err); ok && s.Code() != codes.OK {
		err = errors.New(explain(&callError{err, im.server}))
	}
	again := "run the same command again to go on"
	if im.o.file == "-" {
		again = "send the input again, what was taken counts once"
	}
	return fmt.Errorf("stopped after %s: %w; %s", plural(im.counts.Rows, "row", "rows"), err, again)
}

func (im *importer) report(took time.Duration) error {
	c := im.counts
	if im.json {
		if err := json.NewEncoder(im.stdout).Encode(c); err != nil {
			return err
		}
	} else if im.o.dryRun {
		fmt.Fprintf(im.stdout, "%s read: %d would be sent, %d filtered out, %d rejected; nothing was sent\n",
			plural(c.Rows, "row", "rows"), c.Rows-c.Filtered-c.Rejected, c.Filtered, c.Rejected)
	} else {
		fmt.Fprintf(im.stdout, "%s in %s (%.0f a second): %d applied, %d known already, %d superseded", plural(c.Rows, "row", "rows"),
			shortTime(took), float64(c.Rows-im.before)/max(took.Seconds(), 1e-3), c.Applied, c.Duplicate, c.Superseded)
		for _, more := range []struct {
			n    int64
			what string
		}{{c.Accepted, "accepted"}, {c.Filtered, "filtered out"}, {c.Conflict, "in conflict"}, {c.Rejected, "rejected"}} {
			if more.n > 0 {
				fmt.Fprintf(im.stdout, ", %d %s", more.n, more.what)
			}
		}
		fmt.Fprintln(im.stdout)
	}
	if n := c.Rejected + c.Conflict; n > 0 {
		return fmt.Errorf("%s not taken as they are; %s says which and why", plural(n, "row was", "rows were"), im.o.rejects)
	}
	return nil
}

// rejection is a row that was not taken.
type rejection struct {
	line   int64
	reason string
	raw    string
}

// rejectFile is the report of rejected rows, made when there is one.
type rejectFile struct {
	path string
	goOn bool // append to what is there
	file *os.File
	csv  *csv.Writer
	last string // reason
}

func (f *rejectFile) write(rows []rejection) error {
	if len(rows) == 0 {
		return nil
	}
	if f.file == nil {
		flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
		if f.goOn {
			flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND
		}
		var err error
		if f.file, err = os.OpenFile(f.path, flags, 0o600); err != nil {
			return fmt.Errorf("the report of rejected rows cannot be written (%w); name another file with --rejects", err)
		}
		f.csv = csv.NewWriter(f.file)
		if info, err := f.file.Stat(); err == nil && info.Size() == 0 {
			_ = f.csv.Write([]string{"line", "reason", "row"}) // an error stays until Flush
		}
	}
	for _, r := range rows {
		_ = f.csv.Write([]string{strconv.FormatInt(r.line, 10), r.reason, strings.ToValidUTF8(r.raw, "\uFFFD")})
		f.last = r.reason
	}
	f.csv.Flush()
	return f.csv.Error()
}

func (f *rejectFile) close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
