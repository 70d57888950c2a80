package importer

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/open-leaderboard/leaderboard/internal/cli"
)

type rejection struct {
	line   int64
	reason string
	raw    string
}

// rejectFile writes rejections to a file. It creates the file at the first rejection. The rows
// may come from players, so a spreadsheet must not run them as formulas.
type rejectFile struct {
	path       string
	appendTo   bool
	warnf      func(format string, args ...any)
	file       *os.File
	csv        *csv.Writer
	lastReason string
}

func (f *rejectFile) write(rows []rejection) error {
	if len(rows) == 0 {
		return nil
	}
	if f.file == nil {
		open := cli.CreatePrivate
		if f.appendTo {
			open = cli.AppendPrivate
		}
		var err error
		if f.file, err = open(f.path); err != nil {
			return fmt.Errorf("cannot write the file of rejected rows (%w); name another file with --rejects", err)
		}
		if mode, open := cli.OpenToOthers(f.path); open {
			f.warnf("other users may read %s (%s), which contains rejected rows; make it private with chmod 600\n", f.path, mode)
		}
		f.csv = csv.NewWriter(f.file)
		if info, err := f.file.Stat(); err == nil && info.Size() == 0 {
			_ = f.csv.Write([]string{"line", "reason", "row"}) // f.csv.Error, below, reports a failure
		}
	}
	for _, r := range rows {
		_ = f.csv.Write([]string{strconv.FormatInt(r.line, 10), cli.Defuse(r.reason), cli.Defuse(strings.ToValidUTF8(r.raw, "\uFFFD"))})
		f.lastReason = r.reason
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
