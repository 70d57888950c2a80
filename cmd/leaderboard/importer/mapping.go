package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/records"
)

// mapping maps columns to the fields of a result. By default, a column has the name of its field in
// the API. The exported fields are part of importer.identity.
type mapping struct {
	User, Score, Match, Revision, AchievedAt string
	Status                                   string // column; empty if results on the board have no status
	RevisionFrom                             string // column of the time of the last change
	ScoreFormat, TimeFormat, TimeZone        string
	MatchPrefix                              string
	Attributes, TieBreakers, Metadata        map[string]string // columns by name
	Constants                                []string          // field=value
	Filters                                  []string          // column=value or column!=value
	Trim, DecimalComma                       bool
	System                                   string // whose export the input is, or ""

	takesReset  bool     // whether results on the board may set the score
	usesPoints  bool     // whether results on the board have points, not a score
	unit        cli.Unit // of the scores in the input
	boardUnit   cli.Unit
	tieBreakers []string // names, in the board's order
	location    *time.Location
	constants   map[string]string // by field
	conditions  []condition
	needMatch   bool // the input must have match ids, because the import cannot generate them
}

type condition struct {
	column, value string
	negated       bool
}

func (m *mapping) addFlags(f *pflag.FlagSet) {
	m.addReadFlags(f)
	f.StringVar(&m.Match, "match", "match_id", "`column` of the match id; if the column is absent, ids are generated from the file's content and the line")
	f.StringVar(&m.MatchPrefix, "match-prefix", "", "generate match ids from this `text` and the line, instead of from the file's content")
	f.StringVar(&m.Revision, "revision", "revision", "`column` of the revision")
	f.StringVar(&m.RevisionFrom, "revision-from", "", "`column` of the time of the last change, which becomes the revision in Unix milliseconds: a row that changed later replaces the earlier one; an empty cell is revision 0")
	f.StringVar(&m.AchievedAt, "achieved-at", "achieved_at", "`column` of the time of the event; if the column is absent, the server uses the time of receipt")
	f.StringVar(&m.Status, "status", "", "`column` of the status, with words such as DNF, retired, DQ or cut (default status on boards with statuses); on these boards, such a word may also stand in the column of the score")
	f.StringVar(&m.TimeFormat, "time-format", "rfc3339", "`format` of times: rfc3339 (or a date without a time), unix, unix_ms, or a Go layout such as 2006-01-02 15:04:05")
	f.StringVar(&m.TimeZone, "time-zone", "UTC", "IANA time `zone` of times without a zone")
	f.StringToStringVar(&m.Attributes, "attribute", nil, "`name=column` of an attribute; the user's latest attribute places the user, with all results, in a division")
	f.StringToStringVar(&m.Metadata, "metadata", nil, "`name=column` of metadata to store with the result")
	f.StringArrayVar(&m.Constants, "const", nil, "`field=value` for every row: revision=1, achieved_at=…, attributes.gender=F, tie_breakers.wins=1, metadata.source=…")
}

// addReadFlags adds the flags for users and their scores.
func (m *mapping) addReadFlags(f *pflag.FlagSet) {
	f.StringVar(&m.System, "system", "", "the `system` whose export the file is: nakama (the table leaderboard_record as CSV), playfab or podium (JSON, as their APIs answer)")
	cli.Enum(f, "system", systemNames...)
	f.StringVar(&m.User, "user", "user_id", "`column` of the user id")
	f.StringVar(&m.Score, "score", "", "`column` of the score or points (default score on best, latest and first boards, points on others)")
	f.StringVar(&m.ScoreFormat, "score-format", "integer", "`format` of scores: integer, as in the API; decimal, in the board's unit: 12.34 or h:mm:ss; or seconds, on boards of ms: 62.500")
	f.BoolVar(&m.DecimalComma, "decimal-comma", false, "scores have a decimal comma, such as 12,34")
	f.BoolVar(&m.Trim, "trim", true, "remove spaces, tabs and no-break spaces around values (default true for CSV, except for files of \"leaderboard export results\")")
	f.StringToStringVar(&m.TieBreakers, "tie-breaker", nil, "`name=column` of a tie-breaker of the board")
	f.StringArrayVar(&m.Filters, "filter", nil, "read only rows with `column=value` or column!=value; if repeated, all filters must match")
}

func (m *mapping) addFormatFlags(f *pflag.FlagSet, format, delimiter *string) {
	f.StringVar(format, "format", "", "`format`: csv or ndjson (default: from the file's name or content)")
	cli.Enum(f, "format", "csv", "ndjson")
	f.StringVar(delimiter, "delimiter", "", "`character` between CSV columns (default: a comma, or a tab for .tsv)")
}

// bind completes m with the rules of a board. It returns an error for an unknown column or
// tie-breaker. The header is nil for JSON.
func (m *mapping) bind(flags *pflag.FlagSet, b *pb.Board, header []string) error {
	m.usesPoints, m.takesReset = client.TakesPoints(b), b.GetPolicy() == pb.Board_SUM
	if m.Status == "" && len(b.GetStatuses()) > 0 {
		m.Status = "status"
	}
	m.boardUnit = client.UnitOf(b)
	switch m.ScoreFormat {
	case "integer":
	case "decimal":
		m.unit = m.boardUnit
	case "seconds":
		if m.boardUnit.Name != "ms" {
			return cli.Usagef("--score-format seconds is for boards whose unit is ms, not %q", m.boardUnit.Name)
		}
		m.unit = cli.Unit{Name: "s", Decimals: m.boardUnit.Decimals + 3}
	default:
		return cli.Usagef("--score-format %q is not one of integer, decimal, seconds", m.ScoreFormat)
	}
	if !flags.Changed("trim") {
		m.Trim = header != nil && !slices.Equal(header, client.ExportHeader(b))
	}
	for _, tb := range b.GetTieBreakers() {
		m.tieBreakers = append(m.tieBreakers, tb.GetName())
	}
	for name := range m.TieBreakers {
		if !slices.Contains(m.tieBreakers, name) {
			return cli.Usagef("--tie-breaker %s: the board has no such tie-breaker, only [%s]", name, strings.Join(m.tieBreakers, ", "))
		}
	}
	var err error
	if m.location, err = time.LoadLocation(m.TimeZone); err != nil {
		return cli.Usagef("--time-zone: %w", err)
	}
	if m.Score == "" {
		if m.Score = "score"; m.usesPoints {
			m.Score = "points"
		}
	}
	if err := m.bindConstants(); err != nil {
		return err
	}
	for _, f := range m.Filters {
		column, value, ok := strings.Cut(f, "=")
		c := condition{column: strings.TrimSuffix(column, "!"), value: value, negated: strings.HasSuffix(column, "!")}
		if !ok || c.column == "" {
			return cli.Usagef("--filter %q is not of the form column=value or column!=value", f)
		}
		m.conditions = append(m.conditions, c)
	}
	return m.bindHeader(flags, header)
}

func (m *mapping) bindConstants() error {
	m.constants = map[string]string{}
	for _, text := range m.Constants {
		field, value, ok := strings.Cut(text, "=")
		group, name, _ := strings.Cut(field, ".")
		isField := name == "" && slices.Contains([]string{"user_id", "score", "points", "match_id", "revision", "achieved_at"}, field) ||
			name != "" && (group == "attributes" || group == "metadata" || group == "tie_breakers" && slices.Contains(m.tieBreakers, name))
		if !ok || !isField {
			return cli.Usagef("--const %q does not set a field of a result; the fields are revision, achieved_at, attributes.NAME, tie_breakers.NAME, metadata.NAME, user_id, score, points and match_id", text)
		}
		if field == "points" || field == "score" {
			field = "score"
		}
		m.constants[field] = value
	}
	if _, constant := m.constants["revision"]; m.RevisionFrom != "" && constant {
		return cli.Usagef("--revision-from and --const revision cannot be combined; both set the revision")
	}
	return nil
}

func (m *mapping) bindHeader(flags *pflag.FlagSet, header []string) error {
	if m.RevisionFrom != "" && flags.Changed("revision") {
		return cli.Usagef("--revision-from and --revision cannot be combined; both set the revision")
	}
	required := map[string]bool{}
	for flag, column := range map[string]string{"user": m.User, "score": m.Score, "match": m.Match, "revision": m.Revision, "achieved-at": m.AchievedAt} {
		if flags.Changed(flag) || flag == "user" && m.constants["user_id"] == "" || flag == "score" && m.constants["score"] == "" {
			required[column] = true
		}
	}
	if m.needMatch && m.constants["match_id"] == "" {
		required[m.Match] = true
		if header != nil && !slices.Contains(header, m.Match) {
			return cli.Usagef("standard input has no column %q; name a column with --match, or generate ids from --match-prefix and the line", m.Match)
		}
	}
	if m.RevisionFrom != "" {
		required[m.RevisionFrom] = true
	}
	if flags.Changed("status") {
		required[m.Status] = true
	}
	for _, columns := range []map[string]string{m.Attributes, m.TieBreakers, m.Metadata} {
		for _, column := range columns {
			required[column] = true
		}
	}
	for _, c := range m.conditions {
		required[c.column] = true
	}
	if header == nil {
		return nil
	}
	for _, column := range slices.Sorted(maps.Keys(required)) {
		switch n := count(header, column); {
		case n == 0:
			return cli.Usagef("the input has no column %q; its columns are %s; map columns with flags such as --user and --score%s", column, strings.Join(header, ", "), delimiterHint(header))
		case n > 1:
			return cli.Usagef("the input has %d columns named %q; rename all but one", n, column)
		}
	}
	return nil
}

// delimiterHint returns advice if the only column of a header seems to be several.
func delimiterHint(header []string) string {
	if len(header) == 1 {
		for _, d := range []string{";", "\t", "|"} {
			if strings.Contains(header[0], d) {
				return fmt.Sprintf("; if the columns are separated by %q, use --delimiter %[1]q", d)
			}
		}
	}
	return ""
}

func count(names []string, name string) int {
	n := 0
	for _, e := range names {
		if e == name {
			n++
		}
	}
	return n
}

// trimmed returns r.Column without the spaces around values, if m.Trim is set.
func (m *mapping) trimmed(r records.Record) func(name string) (records.Value, bool) {
	if !m.Trim {
		return r.Column
	}
	return func(name string) (records.Value, bool) {
		v, ok := r.Column(name)
		if text := strings.TrimFunc(v.Text, isSpace); ok && text != v.Text {
			v.Text = text
			return v, text != ""
		}
		return v, ok
	}
}

func isSpace(r rune) bool { return unicode.Is(unicode.Zs, r) || r == '\t' }

func (m *mapping) matches(r records.Record) bool {
	for _, c := range m.conditions {
		cell, _ := m.trimmed(r)(c.column)
		if (cell.Text == c.value) == c.negated {
			return false
		}
	}
	return true
}

// item is one record as a submit, a retraction, a ban, a void match, an early end or a profile.
type item struct {
	line    int64
	raw     string
	trimmed int64 // number of values without the spaces around them
	// generated means that the match id was made from the line.
	generated bool

	result  *pb.Result
	retract bool
	season  string // season of a retraction; if empty, the server finds it
	ban     *pb.Ban
	void    *pb.ExportResultsResponse_Void
	end     *pb.ExportResultsResponse_End
	profile *pb.Profile
}

func endItem(r records.Record) (it item, ok bool, err error) {
	text, ok := r.Column("end")
	if !ok || !text.Composite {
		return item{}, false, nil
	}
	end := &pb.ExportResultsResponse_End{}
	if err := protojson.Unmarshal([]byte(text.Text), end); err != nil {
		return item{}, true, fmt.Errorf("end: %w", err)
	}
	return item{line: r.Line, raw: string(r.Raw), result: &pb.Result{}, end: end}, true, nil
}

func voidItem(r records.Record) (it item, ok bool, err error) {
	text, ok := r.Column("void")
	if !ok || !text.Composite {
		return item{}, false, nil
	}
	void := &pb.ExportResultsResponse_Void{}
	if err := protojson.Unmarshal([]byte(text.Text), void); err != nil {
		return item{}, true, fmt.Errorf("void: %w", err)
	}
	return item{line: r.Line, raw: string(r.Raw), result: &pb.Result{MatchId: void.GetMatchId()}, void: void}, true, nil
}

// banItem reads a ban. A ban on the exported board becomes a ban on the given board.
func banItem(r records.Record, board string) (it item, ok bool, err error) {
	text, ok := r.Column("ban")
	if !ok || !text.Composite {
		return item{}, false, nil
	}
	ban := &pb.Ban{}
	if err := protojson.Unmarshal([]byte(text.Text), ban); err != nil {
		return item{}, true, fmt.Errorf("ban: %w", err)
	}
	if ban.GetBoard() != "" {
		ban.Board = board
	}
	return item{line: r.Line, raw: string(r.Raw), result: &pb.Result{UserId: ban.GetUserId()}, ban: ban}, true, nil
}

// item returns the submit or retraction of a record. It generates a missing match id from matchPrefix
// and the line number. The error joins the errors of all fields.
func (m *mapping) item(r records.Record, matchPrefix string) (item, error) {
	it := item{line: r.Line, raw: string(r.Raw), result: &pb.Result{}}
	if m.Trim {
		m.trim(&r, &it.trimmed)
	}
	var errs []error
	field := func(name, column string) string {
		text, err := m.scalar(r, name, column)
		if err != nil {
			errs = append(errs, err)
		}
		return text
	}
	integer := func(name, text string) int64 {
		if text == "" {
			return 0
		}
		n, err := cli.Unit{}.Parse(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		return n
	}
	if it.result.UserId = field("user_id", m.User); it.result.UserId == "" {
		errs = append(errs, fmt.Errorf("%s: is empty", m.User))
	}
	switch it.result.MatchId = field("match_id", m.Match); {
	case it.result.MatchId != "":
	case m.needMatch:
		errs = append(errs, fmt.Errorf("%s: is empty", m.Match))
	default:
		it.result.MatchId, it.generated = matchPrefix+":"+strconv.FormatInt(r.Line, 10), true
	}
	if m.RevisionFrom == "" {
		it.result.Revision = integer(m.Revision, field("revision", m.Revision))
	} else if text := field("", m.RevisionFrom); text != "" {
		var err error
		if it.result.Revision, err = m.revisionOf(text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.RevisionFrom, err))
		}
	}
	switch retracted := field("", "retracted"); retracted {
	case "", "false":
	case "true":
		it.retract = true
		it.season = field("", "season")
		return it, errors.Join(errs...)
	default:
		errs = append(errs, fmt.Errorf("retracted: %.40q is not true or false", retracted))
	}
	faults := []error{
		m.setStatus(it.result, field), m.setReset(it.result, field), m.setScore(it.result, field("score", m.Score)), m.setAchievedAt(it.result, field("achieved_at", m.AchievedAt)),
		m.setTieBreakers(r, it.result, field, integer), m.setAttributes(r, it.result, field), m.setMetadata(r, it.result, field),
	}
	return it, errors.Join(append(errs, faults...)...)
}

// revisionOf returns the revision of a result that last changed at the given time.
func (m *mapping) revisionOf(text string) (int64, error) {
	t, err := m.parseTime(text)
	if err != nil {
		return 0, err
	}
	if n := t.UnixMilli(); n >= 0 && n <= leaderboard.MaxRevision {
		return n, nil
	}
	return 0, fmt.Errorf("%.40q is not a time from 1970 to 2109, which a revision can have", text)
}

// trim makes r's columns trimmed, and counts the cells that this changes.
func (m *mapping) trim(r *records.Record, count *int64) {
	given, trimmed, changed := r.Column, m.trimmed(*r), map[string]bool{}
	r.Column = func(name string) (records.Value, bool) {
		v, ok := trimmed(name)
		if old, _ := given(name); old.Text != v.Text && !changed[name] {
			changed[name] = true
			*count++
		}
		return v, ok
	}
}

// finishes are the words for a status, in capital letters and digits.
var finishes = map[string]pb.Result_Finish{
	"": pb.Result_RANKED, "RANKED": pb.Result_RANKED, "OK": pb.Result_RANKED, "FINISHED": pb.Result_RANKED, "CLASSIFIED": pb.Result_RANKED,
	"DNF": pb.Result_DNF, "DIDNOTFINISH": pb.Result_DNF, "RET": pb.Result_DNF, "RETIRED": pb.Result_DNF, "ABANDONED": pb.Result_DNF,
	"DNS": pb.Result_DNS, "DIDNOTSTART": pb.Result_DNS,
	"DSQ": pb.Result_DSQ, "DQ": pb.Result_DSQ, "DISQUALIFIED": pb.Result_DSQ,
	"CUT": pb.Result_CUT, "MC": pb.Result_CUT, "MISSEDCUT": pb.Result_CUT,
	"HC": pb.Result_HORS_CONCOURS, "HORSCONCOURS": pb.Result_HORS_CONCOURS,
}

func parseFinish(text string) (pb.Result_Finish, bool) {
	f, ok := finishes[strings.ToUpper(strings.Map(func(r rune) rune {
		if strings.ContainsRune(" -_.", r) {
			return -1
		}
		return r
	}, text))]
	return f, ok
}

// setStatus reads the status from its column or, if the column of the score has a word, from there.
func (m *mapping) setStatus(result *pb.Result, field func(name, column string) string) error {
	if m.Status == "" {
		return nil
	}
	text := field("", m.Status)
	f, ok := parseFinish(text)
	if !ok {
		return fmt.Errorf("%s: %.40q is not a status; the statuses are RANKED, DNF, DNS, DSQ, CUT and HORS_CONCOURS", m.Status, text)
	}
	if f == pb.Result_RANKED {
		f, _ = parseFinish(field("score", m.Score))
	}
	if f > pb.Result_RANKED {
		result.Status = &f
	}
	return nil
}

func (m *mapping) setReset(result *pb.Result, field func(name, column string) string) error {
	if !m.takesReset {
		return nil
	}
	switch reset := field("", "reset"); reset {
	case "", "false":
	case "true":
		result.Reset_ = new(true)
	default:
		return fmt.Errorf("reset: %.40q is not true or false", reset)
	}
	return nil
}

func (m *mapping) setScore(result *pb.Result, text string) error {
	if f, ok := parseFinish(text); result.Status != nil && ok && f != pb.Result_RANKED || text == "" && result.Status != nil {
		return nil // no score
	}
	if text == "" {
		return fmt.Errorf("%s: is empty", m.Score)
	}
	given := text
	if m.DecimalComma {
		if strings.Contains(text, ".") {
			return fmt.Errorf("%s: %.40q has a point, but --decimal-comma is given; remove the points from the file", m.Score, text)
		}
		text = strings.ReplaceAll(text, ",", ".")
	}
	if err := m.checkPoint(text); err != nil {
		return err
	}
	score, err := m.unit.Parse(text)
	switch {
	case err != nil && m.DecimalComma:
		return fmt.Errorf("%s: %.40q: %w", m.Score, given, err)
	case err != nil && strings.Count(text, ",") == 1:
		return fmt.Errorf("%s: %w; if the comma is a decimal comma, use --decimal-comma", m.Score, err)
	case err != nil:
		return fmt.Errorf("%s: %w", m.Score, err)
	}
	if m.usesPoints {
		result.Points = &score
	} else {
		result.Score = &score
	}
	return nil
}

func (m *mapping) setAchievedAt(result *pb.Result, text string) error {
	if text == "" {
		return nil
	}
	t, err := m.parseTime(text)
	if err != nil {
		return fmt.Errorf("%s: %w", m.AchievedAt, err)
	}
	if result.AchievedAt = timestamppb.New(t); result.AchievedAt.CheckValid() != nil {
		return fmt.Errorf("%s: %.40q is outside the years 1 to 9999", m.AchievedAt, text)
	}
	return nil
}

// pointError is the error for a text such as 12.00 that can mean two scores: 12 or 1200 of the
// smallest unit. The import stops, because it may have misread earlier rows.
type pointError struct{ text, integer, decimal, format string }

func (e *pointError) Error() string {
	return fmt.Sprintf("does the score %.40q mean %s or %s? For the latter, use --score-format %s; for the former, remove the decimal point from the file",
		e.text, e.integer, e.decimal, e.format)
}

// checkPoint returns a [pointError] if the format is integer, but text has a decimal point and means
// a different score in the board's unit.
func (m *mapping) checkPoint(text string) error {
	score, err := m.unit.Parse(text)
	if err != nil || m.ScoreFormat != "integer" || !strings.Contains(text, ".") {
		return nil //nolint:nilerr // the caller reports the error
	}
	unit, format := m.boardUnit, "decimal"
	if unit.Name == "ms" {
		unit, format = cli.Unit{Name: "s", Decimals: unit.Decimals + 3}, "seconds"
	}
	scoreInUnit, err := unit.Parse(text)
	if err != nil || scoreInUnit == score {
		return nil //nolint:nilerr // the text has only one meaning
	}
	return &pointError{text, m.boardUnit.FormatWithUnit(score), m.boardUnit.FormatWithUnit(scoreInUnit), format}
}

func (m *mapping) scalar(r records.Record, name, column string) (string, error) {
	if value, ok := m.constants[name]; ok && name != "" {
		return value, nil
	}
	c, ok := r.Column(column)
	switch {
	case !ok:
		return "", nil
	case c.Composite:
		return "", fmt.Errorf("%s: is a JSON array or object, but must be a single value", column)
	case c.Err != nil:
		return "", fmt.Errorf("%s: %w", column, c.Err)
	}
	return c.Text, nil
}

func decodeColumn(r records.Record, column string, v any) error {
	c, ok := r.Column(column)
	if !ok {
		return nil
	}
	if err := json.Unmarshal([]byte(c.Text), v); err != nil {
		return fmt.Errorf("%s: is not valid JSON for this field: %.60s", column, c.Text)
	}
	return nil
}

// setTieBreakers reads the JSON array in the column tie_breakers. If a tie-breaker has
// its own column or a constant, that value replaces the element.
func (m *mapping) setTieBreakers(r records.Record, res *pb.Result, field func(name, column string) string, integer func(name, text string) int64) error {
	var array []json.Number
	err := decodeColumn(r, "tie_breakers", &array)
	values := make([]int64, max(len(m.tieBreakers), len(array)))
	length := len(array)
	for i, n := range array {
		values[i] = integer("tie_breakers", n.String())
	}
	for i, name := range m.tieBreakers {
		column := m.TieBreakers[name]
		if _, constant := m.constants["tie_breakers."+name]; column != "" || constant {
			values[i] = integer("tie_breakers."+name, field("tie_breakers."+name, column))
			length = max(length, i+1)
		}
	}
	res.TieBreakers = values[:length]
	return err
}

func (m *mapping) setAttributes(r records.Record, res *pb.Result, field func(name, column string) string) error {
	all := map[string]string{}
	err := decodeColumn(r, "attributes", &all)
	m.forEachNamed("attributes", m.Attributes, field, func(name, text string) { all[name] = text })
	if len(all) > 0 {
		res.Attributes = all
	}
	return err
}

func (m *mapping) setMetadata(r records.Record, res *pb.Result, field func(name, column string) string) error {
	s := &structpb.Struct{}
	if c, ok := r.Column("metadata"); ok {
		if err := restjson.Decode([]byte(c.Text), s); err != nil {
			return fmt.Errorf("metadata: is not a JSON object that can be stored: %.60s: %w", c.Text, err)
		}
	}
	if s.Fields == nil {
		s.Fields = map[string]*structpb.Value{}
	}
	m.forEachNamed("metadata", m.Metadata, field, func(name, text string) { s.Fields[name] = structpb.NewStringValue(text) })
	if len(s.Fields) > 0 {
		res.Metadata = s
	}
	return nil
}

func (m *mapping) forEachNamed(group string, columns map[string]string, field func(name, column string) string, set func(name, text string)) {
	for name, column := range columns {
		if text := field(group+"."+name, column); text != "" {
			set(name, text)
		}
	}
	for key, value := range m.constants {
		if name, ok := strings.CutPrefix(key, group+"."); ok && columns[name] == "" {
			set(name, value)
		}
	}
}

func (m *mapping) parseTime(text string) (time.Time, error) {
	switch m.TimeFormat {
	case "rfc3339":
		if t, err := time.ParseInLocation(time.DateOnly, text, m.location); err == nil {
			return t, nil
		}
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			err = fmt.Errorf("%.40q is not a time such as 2026-11-20T10:00:00Z; name another format with --time-format", text)
		}
		return t, err
	case "unix", "unix_ms":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return time.Time{}, fmt.Errorf("%.40q is not a number, which --time-format %s requires", text, m.TimeFormat)
		}
		if m.TimeFormat == "unix_ms" {
			return time.UnixMilli(n), nil
		}
		return time.Unix(n, 0), nil
	}
	t, err := time.ParseInLocation(m.TimeFormat, text, m.location)
	if err != nil {
		err = fmt.Errorf("%.40q is not a time in the format of --time-format %q", text, m.TimeFormat)
	}
	return t, err
}
