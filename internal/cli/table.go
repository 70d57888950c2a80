package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// NewTable returns an empty table, which escapes its cells. The columns named in rightAligned
// are aligned to the right.
func NewTable(header table.Row, rightAligned ...string) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.Style{
		Name:   "plain",
		Box:    table.BoxStyle{PaddingRight: "  ", MiddleVertical: ""},
		Format: table.FormatOptions{Header: text.FormatUpper},
		Title:  table.TitleOptionsDefault,
	})
	t.SuppressTrailingSpaces()
	t.AppendHeader(escapeRow(header))
	configs := make([]table.ColumnConfig, len(rightAligned))
	for i, name := range rightAligned {
		configs[i] = table.ColumnConfig{Name: Escape(name), Align: text.AlignRight, AlignHeader: text.AlignRight}
	}
	t.SetColumnConfigs(configs)
	return escapingTable{t}
}

// WriteTable writes t to w.
func WriteTable(w io.Writer, t table.Writer) { fmt.Fprintln(w, t.Render()) }

// Fold breaks a line at separators, so that no line is wider than columns. A wider part
// gets its own line.
func Fold(line, separator string, columns int) string {
	var folded strings.Builder
	width := 0
	for i, part := range strings.Split(line, separator) {
		switch {
		case i == 0:
		case width+text.StringWidth(separator+part) > columns:
			folded.WriteByte('\n')
			width = 0
		default:
			folded.WriteString(separator)
			width += text.StringWidth(separator)
		}
		folded.WriteString(part)
		width += text.StringWidth(part)
	}
	return folded.String()
}

// Plural returns n and its noun: "1 row", "2 rows".
func Plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// ShortDuration rounds d to seconds, or to milliseconds below one second.
func ShortDuration(d time.Duration) string {
	if d >= time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
