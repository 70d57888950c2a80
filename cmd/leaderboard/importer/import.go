package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/internal/records"
)

const (
	maxBatch      = 5000    // number of results that a server accepts in one call
	maxBatchBytes = 4 << 20 // less than the server's limit of a request
	// If the first maxRejected rows are all rejected, the import stops, because the mapping is
	// probably wrong.
	maxRejected = 1000
)

type counts struct {
	Rows       int64 `json:"rows"`
	Filtered   int64 `json:"filtered"`
	Applied    int64 `json:"applied"`
	Replaced   int64 `json:"replaced"` // different results with the same revision that these rows replaced
	Duplicate  int64 `json:"duplicate"`
	Superseded int64 `json:"superseded"`
	Accepted   int64 `json:"accepted"`
	Conflict   int64 `json:"conflict"`
	Rejected   int64 `json:"rejected"`
	Trimmed    int64 `json:"trimmed"` // values without the spaces around them
	Linked     int64 `json:"linked"`  // skipped results that come from the source of a linked board
}

type importer struct {
	*client.Client
	options
	input       io.Closer
	records     records.Reader
	bar         *progressbar.ProgressBar
	matchPrefix string
	source      string // source of a linked board, or ""
	counts      counts
	rejects     *rejectFile
	identity    string // identifies the import in the state file
	skipTo      int64  // offset up to which an interrupted import has sent all records, or 0
	resumedRows int64  // rows that the interrupted import has read
	asked       bool   // whether confirmGenerated has asked
	declined    bool   // whether the user has not agreed
}

// newImporter reads the board, opens the input, and checks the mapping. The caller must close the
// input.
func newImporter(ctx context.Context, c *client.Client, o options, flags *pflag.FlagSet) (im *importer, err error) {
	res, err := c.Scores.GetBoard(ctx, &pb.GetBoardRequest{Board: client.BoardName(o.board)})
	if err != nil {
		return nil, err
	}
	im = &importer{Client: c, options: o, source: res.GetBoard().GetSource().GetBoardId()}
	open := im.open
	switch {
	case im.stream != nil:
		open = im.openStream
	case im.from != "":
		open = im.openRedis
	}
	if err := open(ctx, res.GetBoard()); err != nil {
		return nil, err
	}
	im.needMatch = im.matchPrefix == ""
	if err := im.bind(flags, res.GetBoard(), im.records.Header()); err != nil {
		im.input.Close()
		return nil, err
	}
	return im, nil
}

// openRecords returns the records of an input. Results without a time of their own have the time snapshot.
func openRecords(input io.Reader, snapshot time.Time, system, file, format, delimiter string) (records.Reader, error) {
	s, err := systemOf(system, snapshot)
	if err != nil {
		return nil, err
	}
	r, err := records.Open(input, recordOptions(s, file, format, delimiter))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s.read(r)
}

// openFile opens a regular file. The caller must close it.
func openFile(path string) (*os.File, fs.FileInfo, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// openRedis opens a sorted set. An import of it has no state file, because a scan of a set that changes
// cannot be continued later: a second import replaces the results of the first one.
func (im *importer) openRedis(ctx context.Context, _ *pb.Board) error {
	set, err := openRedis(ctx, im.App, im.from)
	if err != nil {
		return err
	}
	im.file, im.matchPrefix = set.url, "redis"
	im.input, im.bar = set, im.NewBar("importing", set.size, false)
	im.rejects = &rejectFile{path: cmp.Or(im.options.rejects, "redis.rejected.csv"), warnf: im.Notef}
	im.records = set.newReader(ctx, time.Now(), im.bar)
	return nil
}

// openStream opens an export that another part of the program writes.
func (im *importer) openStream(context.Context, *pb.Board) (err error) {
	im.matchPrefix = "archive" // not used: an export has all match ids
	im.input, im.bar = im.stream, im.NewBar("restoring "+im.board, -1, true)
	im.rejects = &rejectFile{path: im.options.rejects, warnf: im.Notef}
	im.records, err = openRecords(io.TeeReader(im.stream, im.bar), time.Now(), "", im.file, "ndjson", "")
	return err
}

func (im *importer) open(ctx context.Context, b *pb.Board) (err error) {
	im.matchPrefix = im.MatchPrefix
	if im.file == "-" {
		im.input, im.bar = io.NopCloser(im.Stdin), im.NewBar("importing", -1, true)
		im.rejects = &rejectFile{path: cmp.Or(im.options.rejects, "stdin.rejected.csv"), warnf: im.Notef}
		im.records, err = openRecords(io.TeeReader(im.Stdin, im.bar), time.Now(), im.System, im.file, im.format, im.delimiter)
		return err
	}
	file, info, err := openFile(im.file)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	sum, err := im.contentSum(ctx, file, info.Size())
	if err != nil {
		return err
	}
	im.matchPrefix = cmp.Or(im.matchPrefix, sum[:16])
	im.state = cmp.Or(im.state, im.file+".import-state.json")
	if err := im.checkState(); err != nil {
		return err
	}
	resumed := im.resume(sum, b)
	im.rejects = &rejectFile{path: cmp.Or(im.options.rejects, im.file+".rejected.csv"), appendTo: resumed, warnf: im.Notef}
	im.input, im.bar = file, im.NewBar("importing", info.Size(), true)
	im.records, err = openRecords(io.TeeReader(file, im.bar), info.ModTime(), im.System, im.file, im.format, im.delimiter)
	return err
}

// chunk is a part of the input. Its lanes are sent concurrently. A user's items are in one lane, in
// order. ends has the early ends of seasons. They are sent last, because the server rejects a result
// whose time is after a known end.
type chunk struct {
	lanes    [][]item
	ends     []item
	sizes    []int // in bytes
	full     bool  // whether a lane has reached the size of a batch
	rejected []rejection
	// linked is the number of rows that come from the source of a linked board
	rows, filtered, linked, trimmed int64
	generated                       bool // whether a match id was made from the line

	endOffset int64
}

// run reads the next chunk while it sends the previous chunk.
func (im *importer) run(ctx context.Context) error {
	type step struct {
		chunk *chunk
		err   error
	}
	steps, done := make(chan step), make(chan struct{})
	defer close(done)
	// run does not wait for this goroutine, because a read of standard input may block forever.
	go func() {
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
		var s step
		select {
		case s = <-steps:
		case <-ctx.Done():
			return ctx.Err()
		}
		if s.chunk != nil {
			if err := im.confirmGenerated(s.chunk); err != nil {
				return err
			}
			if err := im.send(ctx, s.chunk); err != nil {
				return err
			}
			if err := im.saveState(s.chunk.endOffset); err != nil {
				return err
			}
		}
		if n := im.counts.Rejected; n >= maxRejected && n == im.counts.Rows-im.counts.Filtered-im.counts.Linked {
			return fmt.Errorf("all of the first %d rows were rejected, the last row because: %s; check the flags that name the columns", n, im.rejects.lastReason)
		}
		if errors.Is(s.err, io.EOF) {
			return nil
		}
		if s.err != nil {
			return s.err
		}
	}
}

// read returns the next chunk. It returns io.EOF together with the last chunk.
func (im *importer) read() (*chunk, error) {
	c := &chunk{lanes: make([][]item, im.inFlight), sizes: make([]int, im.inFlight)}
	var err error
	for !c.full && c.rows < int64(maxBatch*im.inFlight) {
		var r records.Record
		if r, err = im.records.Next(); err != nil {
			break
		}
		if im.records.Offset() <= im.skipTo {
			continue
		}
		c.rows++
		if err := im.add(c, r); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", im.file, r.Line, err)
		}
	}
	c.endOffset = im.records.Offset()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", im.file, err)
	}
	return c, err
}

// add adds a record to the lane of its user, adds a rejection, or counts an excluded record. An
// error means that the import must stop.
func (im *importer) add(c *chunk, r records.Record) error {
	if r.Err != nil {
		c.rejected = append(c.rejected, rejection{r.Line, r.Err.Error(), string(r.Raw)})
		return nil //nolint:nilerr // the rejection has the error
	}
	if !im.matches(r) {
		c.filtered++
		return nil
	}
	if source, ok := r.Column("source"); ok && im.source != "" && source.Text == im.source {
		c.linked++
		return nil
	}
	it, found, err := banItem(r, client.BoardName(im.board))
	if !found {
		it, found, err = voidItem(r)
	}
	if !found {
		it, found, err = endItem(r)
	}
	if !found {
		it, found, err = profileItem(r)
	}
	if !found {
		it, err = im.item(r, im.matchPrefix)
	}
	var point *pointError
	if errors.As(err, &point) {
		return point
	}
	if err != nil {
		c.rejected = append(c.rejected, rejection{r.Line, strings.ReplaceAll(err.Error(), "\n", "; "), string(r.Raw)})
		return nil
	}
	if it.end != nil {
		c.ends = append(c.ends, it)
		return nil
	}
	c.trimmed += it.trimmed
	c.generated = c.generated || it.generated
	lane := laneOf(it.result.UserId, len(c.lanes))
	c.lanes[lane] = append(c.lanes[lane], it)
	c.sizes[lane] += len(r.Raw) + proto.Size(it.result)
	c.full = len(c.lanes[lane]) >= im.batch || c.sizes[lane] >= maxBatchBytes
	return nil
}

func laneOf(user string, lanes int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(user))
	return int(h.Sum32() % uint32(lanes))
}

func (im *importer) send(ctx context.Context, c *chunk) error {
	lanes := append(slices.Clone(c.lanes), c.ends)
	outcomes := make([][]*pb.Outcome, len(lanes))
	if !im.dryRun {
		g, groupCtx := errgroup.WithContext(ctx)
		for i, lane := range c.lanes {
			g.Go(func() (err error) {
				outcomes[i], err = im.sendLane(groupCtx, lane)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		var err error
		if outcomes[len(c.lanes)], err = im.sendLane(ctx, c.ends); err != nil {
			return err
		}
	}
	im.counts.Rows += c.rows
	im.counts.Filtered += c.filtered
	im.counts.Linked += c.linked
	im.counts.Trimmed += c.trimmed
	im.counts.Rejected += int64(len(c.rejected))
	for i, lane := range outcomes {
		for j, o := range lane {
			if r, ok := im.counts.add(o, lanes[i][j]); ok {
				c.rejected = append(c.rejected, r)
			}
		}
	}
	slices.SortFunc(c.rejected, func(x, y rejection) int { return cmp.Compare(x.line, y.line) })
	return im.rejects.write(c.rejected)
}

func forceAdvice(revision string) string {
	return fmt.Sprintf("; to let this row count, import it with --const revision=%s or a higher one, or with --revision-from and the column of the time of the last change", revision)
}

// confirmGenerated asks the user before the first result with a generated match id is sent to a
// board that adds points up.
func (im *importer) confirmGenerated(c *chunk) error {
	if !c.generated || im.asked || !im.usesPoints || im.MatchPrefix != "" || im.skipTo > 0 {
		return nil
	}
	im.asked = true
	_ = im.bar.Clear()
	im.Notef("The board adds points up, and the input has rows without match ids. Their ids follow from the content of the whole file: " +
		"if the file changes and is imported again, all of these rows count twice. To avoid this, name a column with --match, or use the same --match-prefix for each import.\n")
	if im.dryRun {
		return nil
	}
	err := im.Confirm(im.yes, "Import these rows?", "import")
	im.declined = err != nil
	return err
}

// add counts an outcome. If the row does not count as given, add returns a rejection and true.
func (t *counts) add(o *pb.Outcome, it item) (rejection, bool) {
	switch o.GetStatus() {
	case pb.Outcome_APPLIED:
		t.Applied++
	case pb.Outcome_DUPLICATE:
		t.Duplicate++
	case pb.Outcome_ACCEPTED:
		t.Accepted++
	case pb.Outcome_SUPERSEDED:
		t.Superseded++
		return rejection{it.line, "SUPERSEDED: a result with this match id and a higher revision is stored, and counts" + forceAdvice("N"), it.raw}, true
	case pb.Outcome_CONFLICT:
		if o.GetStands() {
			t.Replaced++
			break
		}
		t.Conflict++
		return rejection{it.line, "CONFLICT: " + o.GetDetail() + forceAdvice(strconv.FormatInt(it.result.GetRevision()+1, 10)), it.raw}, true
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
