package client

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

// UnitOf returns the unit of a board's scores.
func UnitOf(b *pb.Board) cli.Unit {
	return cli.Unit{Name: b.GetUnit(), Decimals: int(b.GetDecimals())}
}

func formatTime(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format("2006-01-02 15:04:05")
}

// EntryTable shows the entries of a board as a table.
type EntryTable struct {
	Unit        cli.Unit
	TieBreakers []string         // names, in the board's order
	Colors      bool             // whether to use colors: see [cli.App.Colors]
	drawn       map[string]int64 // ranks at the last Draw, by user; nil before the first Draw and after Reset
}

func (t *EntryTable) table(entries []*pb.Entry) *cli.Table {
	header := cli.Row{"", "rank", "user", t.Unit.Header()}
	exact := exactScores(entries)
	if exact != nil {
		header = append(header, "exact")
	}
	for _, name := range t.TieBreakers {
		header = append(header, name)
	}
	w := cli.NewTable(append(header, "achieved (UTC)"), append([]string{"rank", t.Unit.Header(), "exact"}, t.TieBreakers...)...)
	w.Bold = t.Colors
	for n, e := range entries {
		row := cli.Row{cli.Styled(t.paint(t.symbol(e))), formatPlace(e), e.GetUserId(), t.Unit.Format(e.GetScore())}
		if exact != nil {
			row = append(row, exact[n])
		}
		for i := range t.TieBreakers {
			if i < len(e.GetTieBreakers()) {
				row = append(row, e.GetTieBreakers()[i])
			} else {
				row = append(row, 0)
			}
		}
		w.AppendRow(append(row, formatTime(e.GetAchievedAt())))
	}
	return w
}

// formatPlace returns the rank of e, or the reason why e has none.
func formatPlace(e *pb.Entry) string {
	if e.Status != nil {
		return e.GetStatus().String()
	}
	return formatRank(e.Rank)
}

// exactScores returns the exact scores of entries on a DECAY or AVERAGE board, with as many digits as tell apart
// neighbors whose rounded scores are equal, although their ranks differ. Without such neighbors, it
// returns nil.
func exactScores(entries []*pb.Entry) []string {
	const digits = 2 // at least, after the decimal point
	shorten := func(text string, n int) string {
		mantissa, exponent, hasExponent := strings.Cut(text, "e")
		if hasExponent {
			exponent = "e" + exponent
		}
		return mantissa[:min(len(mantissa), n)] + exponent
	}
	n := 0
	for i := range entries[min(1, len(entries)):] {
		a, b := entries[i], entries[i+1]
		if a.GetScore() != b.GetScore() || a.GetRank() == b.GetRank() || a.GetScoreExact() == b.GetScoreExact() {
			continue
		}
		n = max(n, len(strconv.FormatInt(a.GetScore(), 10))+1+digits)
		for shorten(a.GetScoreExact(), n) == shorten(b.GetScoreExact(), n) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	exact := make([]string, len(entries))
	for i, e := range entries {
		exact[i] = shorten(e.GetScoreExact(), n)
	}
	return exact
}

func (t *EntryTable) paint(symbol string) string {
	const cyan, yellow, green, red = 36, 33, 32, 31
	for prefix, color := range map[string]int{"▶": cyan, "★": yellow, "▲": green, "▼": red} {
		if t.Colors && strings.HasPrefix(symbol, prefix) {
			return fmt.Sprintf("\x1b[%d;1m%s\x1b[0m", color, symbol)
		}
	}
	return symbol
}

// symbol returns ▶ for the requested user, ★ for a new entry since the last Draw, and ▲ or ▼ for a
// changed rank.
func (t *EntryTable) symbol(e *pb.Entry) string {
	if e.GetIsCurrentUser() {
		return "▶"
	}
	if t.drawn == nil || e.Rank == nil {
		return ""
	}
	rank, ok := t.drawn[e.GetUserId()]
	switch {
	case !ok:
		return "★"
	case rank > e.GetRank():
		return fmt.Sprintf("▲%d", rank-e.GetRank())
	case rank < e.GetRank():
		return fmt.Sprintf("▼%d", e.GetRank()-rank)
	}
	return ""
}

// Draw draws the entries of d, and the caption, if any. On a terminal, it omits entries that do not
// fit, and cuts or folds long lines, so that the next Draw can replace the whole output.
func (t *EntryTable) Draw(s *cli.Screen, d *pb.Leaderboard, caption string) {
	columns, rows := s.Size()
	entries, footer := d.GetLeaderboard(), describe(d)
	caption = cli.Escape(caption)
	if s.InPlace() {
		caption, footer = cli.Cut(caption, columns), cli.Fold(footer, separator, columns)
		if room := rows - 3 - strings.Count(footer+"\n", "\n"); len(entries) > room {
			entries = entries[:max(room, 1)]
		}
	}
	w := t.table(entries)
	shown := w.String()
	if s.InPlace() {
		shown = w.Cut(columns)
	}
	if caption != "" {
		caption += "\n"
	}
	s.Draw(caption + shown + footer + "\n")
	t.mark(d)
}

// mark makes the next table mark what has changed since d.
func (t *EntryTable) mark(d *pb.Leaderboard) {
	t.drawn = make(map[string]int64, len(d.GetLeaderboard()))
	for _, e := range d.GetLeaderboard() {
		t.drawn[e.GetUserId()] = e.GetRank()
	}
}

// Reset makes the next Draw mark no new entries and no changed ranks.
func (t *EntryTable) Reset() { t.drawn = nil }

func formatRank(rank *int64) string {
	if rank == nil {
		return "-"
	}
	return strconv.FormatInt(*rank, 10)
}

const separator = " · "

func describe(d *pb.Leaderboard) string {
	parts := []string{"board " + d.GetBoard(), "season " + d.GetSeason()}
	if d.GetDivision() != "" {
		parts = append(parts, d.GetDivision())
	}
	if d.Total != nil {
		parts = append(parts, cli.Plural(d.GetTotal(), "entry", "entries"))
	}
	parts = append(parts, d.GetMethod()+" ranks")
	if d.GetAsOf() != nil {
		parts = append(parts, "as of "+formatTime(d.GetAsOf()))
	}
	if d.GetSealed() {
		parts = append(parts, "final")
	}
	if d.GetFilling() {
		parts = append(parts, "older results may be missing")
	}
	if d.GetDegraded() {
		parts = append(parts, "ranks unavailable now")
	}
	return cli.Escape(strings.Join(parts, separator))
}
