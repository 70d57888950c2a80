package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rivo/uniseg"
	"golang.org/x/term"
)

// Row is the cells of a row of a [Table].
type Row = []any

// Table is a table for people. It escapes its cells.
type Table struct {
	header []string
	right  []bool // columns that are aligned to the right
	rows   [][]string
	Bold   bool // whether the header is bold
}

// NewTable returns an empty table. The columns named in rightAligned are aligned to the right.
func NewTable(header Row, rightAligned ...string) *Table {
	t := &Table{}
	for _, title := range header {
		t.right = append(t.right, slices.Contains(rightAligned, fmt.Sprint(title)))
		t.header = append(t.header, strings.ToUpper(cellText(title)))
	}
	return t
}

// AppendRow adds a row, which must have as many cells as the header.
func (t *Table) AppendRow(row Row) {
	cells := make([]string, len(row))
	for i, cell := range row {
		cells[i] = cellText(cell)
	}
	t.rows = append(t.rows, cells)
}

func cellText(cell any) string { return fmt.Sprint(escapeValue(cell)) }

// WriteTable writes t to w. If w is a terminal, wide cells are wrapped so that the table fits.
func WriteTable(w io.Writer, t *Table) {
	columns := 0
	if file, ok := w.(*os.File); ok {
		columns, _, _ = term.GetSize(int(file.Fd()))
	}
	fmt.Fprint(w, t.render(columns, wrap))
}

// String returns t in its full width.
func (t *Table) String() string { return t.render(0, wrap) }

// Cut returns t with cells that are cut, so that each row is one line of at most columns.
func (t *Table) Cut(columns int) string {
	var text strings.Builder
	for line := range strings.Lines(t.render(columns, func(cell string, columns int) []string { return []string{Cut(cell, columns)} })) {
		text.WriteString(Cut(strings.TrimSuffix(line, "\n"), columns) + "\n")
	}
	return text.String()
}

const (
	gap = "  "
	// minColumns is the width to which a column may shrink.
	minColumns = 8
)

// render returns t. If t is wider than columns, and columns is not 0, it fits cells into narrower
// columns. Only columns that are aligned to the left shrink: a number stays whole.
func (t *Table) render(columns int, fit func(cell string, columns int) []string) string {
	widths := t.widths(columns)
	var text strings.Builder
	for n, row := range slices.Concat([][]string{t.header}, t.rows) {
		cells, lines := make([][]string, len(row)), 1
		for i, cell := range row {
			if cells[i] = []string{cell}; Width(cell) > widths[i] {
				cells[i] = fit(cell, widths[i])
			}
			lines = max(lines, len(cells[i]))
		}
		for line := range lines {
			var b strings.Builder
			for i := range cells {
				part := ""
				if line < len(cells[i]) {
					part = cells[i][line]
				}
				space := strings.Repeat(" ", max(widths[i]-Width(part), 0))
				if n == 0 && t.Bold && part != "" {
					part = "\x1b[1m" + part + "\x1b[0m"
				}
				if t.right[i] {
					b.WriteString(space + part + gap)
				} else {
					b.WriteString(part + space + gap)
				}
			}
			text.WriteString(strings.TrimRight(b.String(), " ") + "\n")
		}
	}
	return text.String()
}

func (t *Table) widths(columns int) []int {
	widths := make([]int, len(t.header))
	for _, row := range slices.Concat([][]string{t.header}, t.rows) {
		for i, cell := range row {
			widths[i] = max(widths[i], Width(cell))
		}
	}
	total := len(gap) * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; columns > 0 && total > columns; total-- {
		widest := -1
		for i, w := range widths {
			if !t.right[i] && w > minColumns && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

var colorCode = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Width returns the number of columns that a text takes on a terminal. Color codes take none.
func Width(text string) int { return uniseg.StringWidth(colorCode.ReplaceAllString(text, "")) }

// Cut returns text, cut to at most columns. An ellipsis marks a cut. Text with color codes must not
// be wider than columns.
func Cut(text string, columns int) string {
	if Width(text) <= columns {
		return text
	}
	head, _ := splitAt(text, columns-1)
	return head + "…"
}

// splitAt returns the longest beginning of text that takes at most columns, and the rest.
func splitAt(text string, columns int) (head, rest string) {
	end, state := 0, -1
	for rest = text; rest != ""; {
		var cluster string
		var width int
		cluster, rest, width, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if columns -= width; columns < 0 {
			break
		}
		end += len(cluster)
	}
	return text[:end], text[end:]
}

// wrap breaks a cell into lines of at most columns, at spaces or commas if there are any.
func wrap(cell string, columns int) []string {
	var lines []string
	for Width(cell) > columns {
		head, rest := splitAt(cell, columns)
		if head == "" {
			break // a single character is wider than columns
		}
		if i := strings.LastIndexAny(head, " ,"); i > 0 && !strings.HasPrefix(rest, " ") {
			head, rest = cell[:i+1], cell[i+1:]
		}
		lines = append(lines, strings.TrimRight(head, " "))
		cell = strings.TrimLeft(rest, " ")
	}
	return append(lines, cell)
}

// Fold breaks a line at separators, so that no line is wider than columns. A wider part
// gets its own line.
func Fold(line, separator string, columns int) string {
	var folded strings.Builder
	width := 0
	for i, part := range strings.Split(line, separator) {
		switch {
		case i == 0:
		case width+Width(separator+part) > columns:
			folded.WriteByte('\n')
			width = 0
		default:
			folded.WriteString(separator)
			width += Width(separator)
		}
		folded.WriteString(part)
		width += Width(part)
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
