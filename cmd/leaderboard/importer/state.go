package importer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/records"
)

type state struct {
	Identity string `json:"identity"`
	Offset   int64  `json:"offset"` // in the decompressed input; the server has answered all records before it
	Counts   counts `json:"counts"`
}

func (im *importer) contentSum(ctx context.Context, file *os.File, size int64) (string, error) {
	bar := im.NewBar("reading", size, true)
	defer func() { _ = bar.Clear() }()
	content, err := records.Decompress(io.TeeReader(file, bar))
	if err != nil {
		return "", fmt.Errorf("%s: %w", im.file, err)
	}
	h := sha256.New()
	if _, err := io.Copy(h, &contextReader{ctx, content}); err != nil {
		if ctx.Err() == nil {
			err = &records.BrokenError{Err: err}
		}
		return "", fmt.Errorf("%s: %w", im.file, err)
	}
	_, err = file.Seek(0, io.SeekStart)
	return hex.EncodeToString(h.Sum(nil)), err
}

type contextReader struct {
	ctx context.Context
	io.Reader
}

// Read implements [io.Reader].
func (r *contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// checkState refuses a state file that is not private: a changed file can make the import skip rows.
func (im *importer) checkState() error {
	mode, open := cli.OpenToOthers(im.state)
	if !open || im.dryRun {
		return nil
	}
	return cli.Usagef("other users may read or change the state file %s (%s); make it private with chmod 600, or name another file with --state", im.state, mode)
}

// resume sets im.identity, a hash of all that determines this import. If the state file has this
// identity, resume continues that import and returns true. The hash includes the board's creation
// time, because a recreated board needs all rows.
func (im *importer) resume(sum string, b *pb.Board) bool {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode([]any{sum, im.mapping, im.format, im.delimiter, im.Server, b.GetBoardId(), b.GetCreatedAt().AsTime()})
	im.identity = hex.EncodeToString(h.Sum(nil))
	data, err := os.ReadFile(im.state)
	if err != nil || im.dryRun {
		return false
	}
	var s state
	if json.Unmarshal(data, &s) != nil || s.Identity != im.identity {
		im.Notef("%s belongs to another import; starting at the first row\n", im.state)
		return false
	}
	im.counts, im.skipTo, im.resumedRows = s.Counts, s.Offset, s.Counts.Rows
	im.Notef("continuing after %s\n", cli.Plural(s.Counts.Rows, "row", "rows"))
	return true
}

func (im *importer) saveState(offset int64) error {
	if im.state == "" || im.dryRun {
		return nil
	}
	data, err := json.Marshal(state{im.identity, offset, im.counts})
	if err != nil {
		return err
	}
	newPath := im.state + ".new"
	file, err := cli.CreatePrivate(newPath)
	if err == nil {
		_, err = file.Write(data)
		err = errors.Join(err, file.Close())
	}
	if err == nil {
		err = os.Rename(newPath, im.state)
	}
	if err != nil {
		return fmt.Errorf("cannot write the state file (%w); name another file with --state", err)
	}
	return nil
}

func (im *importer) removeState() {
	if im.state != "" && !im.dryRun {
		_ = os.Remove(im.state) // otherwise the next import of this input would skip every row
	}
}
