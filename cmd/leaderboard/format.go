package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard/api"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

type jsonMessage = proto.Message

// encodeJSON returns m as REST would show it.
func encodeJSON(m jsonMessage) ([]byte, error) { return api.AppendJSON(nil, m) }

// unit says how scores of a board are shown.
type unit struct {
	name     string
	decimals int
}

func unitOf(b *pb.Board) unit { return unit{b.GetUnit(), int(b.GetDecimals())} }

// clock says whether scores are times, shown as h:mm:ss, and with how many
// decimals of a second.
func (u unit) clock() (places int, ok bool) {
	if u.name == "ms" {
		return u.decimals + 3, true
	}
	return u.decimals, u.name == "s"
}

// header is the title of a column of scores.
func (u unit) header() string {
	if _, ok := u.clock(); ok {
		return "time"
	}
	if u.name == "" {
		return "score"
	}
	return u.name
}

// format returns a score with the board's decimals: 1234 with 2 is 12.34. Times
// of a minute or more are clock times: 7717 s is 2:08:37, 83456 ms is 1:23.456.
func (u unit) format(score int64) string {
	sign, magnitude := "", uint64(score)
	if score < 0 {
		sign, magnitude = "-", -magnitude
	}
	places, clock := u.clock()
	digits := strconv.FormatUint(magnitude, 10)
	fraction := ""
	if places > 0 {
		if missing := places + 1 - len(digits); missing > 0 {
			digits = strings.Repeat("0", missing) + digits
		}
		cut := len(digits) - places
		digits, fraction = digits[:cut], "."+digits[cut:]
	}
	if seconds, err := strconv.ParseInt(digits, 10, 64); err == nil && clock && seconds >= 60 {
		digits = fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
		if seconds >= 3600 {
			digits = fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
		}
	}
	return sign + digits + fraction
}

// withUnit is format for a sentence.
func (u unit) withUnit(score int64) string {
	switch s := u.format(score); {
	case u.name == "", strings.Contains(s, ":"):
		return s
	case u.name == "ms":
		return s + " s"
	default:
		return s + " " + u.name
	}
}

// parse reads a number in the unit, with its decimals at most, or a clock time
// as format writes it. It says what is wrong with other texts.
func (u unit) parse(s string) (int64, error) {
	places := u.decimals
	digits, fraction, _ := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	if strings.Contains(digits, ":") {
		seconds, err := clockSeconds(digits)
		if err != nil {
			return 0, err
		}
		digits = strconv.FormatInt(seconds, 10)
		places, _ = u.clock()
	}
	fraction = strings.TrimRight(fraction, "0")
	if !isDigits(digits) || fraction != "" && !isDigits(fraction) || strings.HasSuffix(s, ".") {
		return 0, fmt.Errorf("%.40q is not a number", s)
	}
	if len(fraction) > places {
		if places == 0 {
			return 0, fmt.Errorf("%.40q is not a whole number", s)
		}
		return 0, fmt.Errorf("%.40q has more than %d decimals", s, places)
	}
	number := digits + fraction + strings.Repeat("0", places-len(fraction))
	if strings.HasPrefix(s, "-") {
		number = "-" + number
	}
	score, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.40q is too large", s)
	}
	return score, nil
}

// clockSeconds reads h:mm:ss or m:ss.
func clockSeconds(s string) (int64, error) {
	parts := strings.Split(s, ":")
	var seconds int64
	for i, part := range parts {
		n, err := strconv.ParseInt(part, 10, 50) // so that as many hours are no overflow
		if err != nil || !isDigits(part) || len(parts) > 3 || i > 0 && (len(part) != 2 || n > 59) {
			return 0, fmt.Errorf("%.40q is not a time as h:mm:ss or m:ss", s)
		}
		seconds = seconds*60 + n
	}
	return seconds, nil
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// when shows an instant, in UTC like the seasons.
func when(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format("2006-01-02 15:04:05")
}

// newTable begins a table in the one style of all commands: a header, no lines.
// The named columns are aligned to the right, as numbers are.
func newTable(header table.Row, right ...string) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.Style{
		Name:   "plain",
		Box:    table.BoxStyle{PaddingRight: "  ", MiddleVertical: ""},
		Format: table.FormatOptions{Header: text.FormatUpper},
		Title:  table.TitleOptionsDefault,
	})
	t.SuppressTrailingSpaces()
	t.AppendHeader(header)
	configs := make([]table.ColumnConfig, len(right))
	for i, name := range right {
		configs[i] = table.ColumnConfig{Name: name, Align: text.AlignRight, AlignHeader: text.AlignRight}
	}
	t.SetColumnConfigs(configs)
	return t
}

func writeTable(w io.Writer, t table.Writer) { fmt.Fprintln(w, t.Render()) }

// ladder is how a list of entries is shown.
type ladder struct {
	unit        unit
	tieBreakers []string
	before      map[string]int64 // if not nil, ranks to show the moves from
}

// table returns the entries as a table.
func (l ladder) table(entries []*pb.Entry) table.Writer {
	header := table.Row{"", "rank", "user", l.unit.header()}
	for _, name := range l.tieBreakers {
		header = append(header, name)
	}
	t := newTable(append(header, "achieved (UTC)"), append([]string{"rank", l.unit.header()}, l.tieBreakers...)...)
	for _, e := range entries {
		row := table.Row{l.mark(e), rankText(e.Rank), e.GetUserId(), l.unit.format(e.GetScore())}
		for i := range l.tieBreakers {
			if i < len(e.GetTieBreakers()) {
				row = append(row, e.GetTieBreakers()[i])
			} else {
				row = append(row, 0)
			}
		}
		t.AppendRow(append(row, when(e.GetAchievedAt())))
	}
	return t
}

// mark shows the user asked for, or how an entry moved.
func (l ladder) mark(e *pb.Entry) string {
	if e.GetIsCurrentUser() {
		return "▶"
	}
	if l.before == nil || e.Rank == nil {
		return ""
	}
	before, ok := l.before[e.GetUserId()]
	switch {
	case !ok:
		return "★"
	case before > e.GetRank():
		return fmt.Sprintf("▲%d", before-e.GetRank())
	case before < e.GetRank():
		return fmt.Sprintf("▼%d", e.GetRank()-before)
	}
	return ""
}

func rankText(rank *int64) string {
	if rank == nil {
		return "-" // not known now; never 0
	}
	return strconv.FormatInt(*rank, 10)
}

// about is the line under a list: what it is a list of, and how fresh.
func about(d *pb.Leaderboard) string {
	parts := []string{"board " + d.GetBoard(), "season " + d.GetSeason()}
	if d.GetDivision() != "" {
		parts = append(parts, d.GetDivision())
	}
	if d.Total != nil {
		parts = append(parts, plural(d.GetTotal(), "entry", "entries"))
	}
	parts = append(parts, d.GetMethod()+" ranks")
	if d.GetAsOf() != nil {
		parts = append(parts, "as of "+when(d.GetAsOf()))
	}
	if d.GetSealed() {
		parts = append(parts, "final")
	}
	if d.GetDegraded() {
		parts = append(parts, "ranks unavailable now")
	}
	return strings.Join(parts, " · ")
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// shortTime is for progress: 1h2m3s, never with fractions of seconds above one.
func shortTime(d time.Duration) string {
	if d >= time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
