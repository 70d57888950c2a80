package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard/api"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// mapping says which columns of an input make a result. Without flags they are
// those that leaderboard export writes, which are the fields of the API's Result.
type mapping struct {
	User, Score, Match, Revision, AchievedAt string // columns
	ScoreFormat, TimeFormat, TimeZone        string
	MatchPrefix                              string
	Attributes, TieBreakers, Metadata        map[string]string // names to columns
	Constants                                []string          // field=value
	Filters                                  []string          // column=value or column!=value

	addsUp     bool
	unit       unit
	ties       []string // the board's
	location   *time.Location
	constants  map[string]string
	conditions []condition
	columns    map[string]bool // those that must be there
	needMatch  bool            // there is nothing to make match ids of
}

type condition struct {
	column, value string
	not           bool
}

func (m *mapping) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.User, "user", "user_id", "`column` of the user id")
	f.StringVar(&m.Score, "score", "", "`column` of the score or points (default score, or points on boards that add up)")
	f.StringVar(&m.ScoreFormat, "score-format", "integer", "`format`: integer, as the API takes it, or decimal, in the board's unit, 12.34 or h:mm:ss")
	f.StringVar(&m.Match, "match", "match_id", "`column` of the match id; without such a column the id is made of the file's content and the line")
	f.StringVar(&m.MatchPrefix, "match-prefix", "", "make match ids of this `text` and the line, in place of the file's content")
	f.StringVar(&m.Revision, "revision", "revision", "`column` of the revision")
	f.StringVar(&m.AchievedAt, "achieved-at", "achieved_at", "`column` of the time of the event; without it the server's time counts")
	f.StringVar(&m.TimeFormat, "time-format", "rfc3339", "`format`: rfc3339 (also a bare day), unix, unix_ms, or a layout as 2006-01-02 15:04:05")
	f.StringVar(&m.TimeZone, "time-zone", "UTC", "IANA time `zone` of times that name none")
	f.StringToStringVar(&m.Attributes, "attribute", nil, "`name=column` of an attribute, which places the user in divisions")
	f.StringToStringVar(&m.TieBreakers, "tie-breaker", nil, "`name=column` of a tie-breaker of the board")
	f.StringToStringVar(&m.Metadata, "metadata", nil, "`name=column` of what to keep with the result")
	f.StringArrayVar(&m.Constants, "const", nil, "`field=value` for every row: revision=1, achieved_at=…, attributes.gender=F, tie_breakers.wins=1, metadata.source=…")
	f.StringArrayVar(&m.Filters, "filter", nil, "take rows with `column=value` or column!=value only; of several, all must hold")
}

// bind checks m against a board and the header of an input, if it has one.
func (m *mapping) bind(cmd *cobra.Command, b *pb.Board, header []string) error {
	m.addsUp = b.GetPolicy() == pb.Board_SUM || b.GetPolicy() == pb.Board_DECAY
	switch m.ScoreFormat {
	case "integer":
	case "decimal":
		m.unit = unitOf(b)
	default:
		return usagef("--score-format %q is none of integer, decimal", m.ScoreFormat)
	}
	for _, tb := range b.GetTieBreakers() {
		m.ties = append(m.ties, tb.GetName())
	}
	for name := range m.TieBreakers {
		if !slices.Contains(m.ties, name) {
			return usagef("--tie-breaker %s: the board has the tie-breakers %v", name, m.ties)
		}
	}
	var err error
	if m.location, err = time.LoadLocation(m.TimeZone); err != nil {
		return usagef("--time-zone: %w", err)
	}
	if m.Score == "" {
		if m.Score = "score"; m.addsUp {
			m.Score = "points"
		}
	}
	if err := m.bindConstants(); err != nil {
		return err
	}
	for _, f := range m.Filters {
		column, value, ok := strings.Cut(f, "=")
		c := condition{column: strings.TrimSuffix(column, "!"), value: value, not: strings.HasSuffix(column, "!")}
		if !ok || c.column == "" {
			return usagef("--filter %q is not of the form column=value or column!=value", f)
		}
		m.conditions = append(m.conditions, c)
	}
	return m.bindHeader(cmd, header)
}

func (m *mapping) bindConstants() error {
	m.constants = map[string]string{}
	for _, text := range m.Constants {
		field, value, ok := strings.Cut(text, "=")
		group, name, _ := strings.Cut(field, ".")
		known := name == "" && slices.Contains([]string{"user_id", "score", "points", "match_id", "revision", "achieved_at"}, field) ||
			name != "" && (group == "attributes" || group == "metadata" || group == "tie_breakers" && slices.Contains(m.ties, name))
		if !ok || !known {
			return usagef("--const %q does not set a field of a result; the fields are revision, achieved_at, attributes.NAME, tie_breakers.NAME, metadata.NAME, user_id, score, points and match_id", text)
		}
		if field == "points" || field == "score" {
			field = "score"
		}
		m.constants[field] = value
	}
	return nil
}

// bindHeader sees to it that every column that a flag names, and those that a
// result cannot do without, are there.
func (m *mapping) bindHeader(cmd *cobra.Command, header []string) error {
	m.columns = map[string]bool{}
	for flag, column := range map[string]string{"user": m.User, "score": m.Score, "match": m.Match, "revision": m.Revision, "achieved-at": m.AchievedAt} {
		if cmd.Flags().Changed(flag) || flag == "user" && m.constants["user_id"] == "" || flag == "score" && m.constants["score"] == "" {
			m.columns[column] = true
		}
	}
	if m.needMatch && m.constants["match_id"] == "" {
		m.columns[m.Match] = true
		if header != nil && !slices.Contains(header, m.Match) {
			return usagef("standard input has no column %q; name one with --match, or give --match-prefix, which makes ids of it and the line", m.Match)
		}
	}
	for _, columns := range []map[string]string{m.Attributes, m.TieBreakers, m.Metadata} {
		for _, column := range columns {
			m.columns[column] = true
		}
	}
	for _, c := range m.conditions {
		m.columns[c.column] = true
	}
	if header == nil {
		return nil
	}
	for _, column := range slices.Sorted(maps.Keys(m.columns)) {
		switch n := count(header, column); {
		case n == 0:
			return usagef("the input has no column %q but %s; name columns with --user, --score and so on", column, strings.Join(header, ", "))
		case n > 1:
			return usagef("the input has %d columns %q; give them different names", n, column)
		}
	}
	return nil
}

func count(list []string, s string) int {
	n := 0
	for _, e := range list {
		if e == s {
			n++
		}
	}
	return n
}

// takes says whether a record passes the filters.
func (m *mapping) takes(r record) bool {
	for _, c := range m.conditions {
		have, _ := r.columns(c.column)
		if (have.text == c.value) == c.not {
			return false
		}
	}
	return true
}

// item is what becomes of a record: a submit or a retraction.
type item struct {
	line    int64
	raw     string
	result  *pb.Result
	retract bool
	season  string // of a retraction
}

// item makes what r says. matchPrefix goes before the line in the id of a
// match that has none.
func (m *mapping) item(r record, matchPrefix string) (item, error) {
	it := item{line: r.line, raw: string(r.raw), result: &pb.Result{}}
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
		n, err := unit{}.parse(text)
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
		it.result.MatchId = matchPrefix + ":" + strconv.FormatInt(r.line, 10)
	}
	it.result.Revision = integer(m.Revision, field("revision", m.Revision))
	switch retracted := field("", "retracted"); retracted {
	case "", "false":
	case "true":
		it.retract = true
		it.season = field("", "season")
		return it, errors.Join(errs...)
	default:
		errs = append(errs, fmt.Errorf("retracted: %.40q is not true or false", retracted))
	}
	if text := field("score", m.Score); text == "" {
		errs = append(errs, fmt.Errorf("%s: is empty", m.Score))
	} else if score, err := m.unit.parse(text); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", m.Score, err))
	} else if m.addsUp {
		it.result.Points = &score
	} else {
		it.result.Score = &score
	}
	if text := field("achieved_at", m.AchievedAt); text != "" {
		t, err := m.time(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.AchievedAt, err))
		}
		it.result.AchievedAt = timestamppb.New(t)
		if err == nil && it.result.AchievedAt.CheckValid() != nil {
			errs = append(errs, fmt.Errorf("%s: %.40q is outside the years 1 to 9999", m.AchievedAt, text))
		}
	}
	errs = append(errs, m.tieBreakers(r, it.result, field, integer), m.attributes(r, it.result, field), m.metadata(r, it.result, field))
	return it, errors.Join(errs...)
}

// scalar returns a field's constant, or the text of its column, "" for nothing.
func (m *mapping) scalar(r record, name, column string) (string, error) {
	if value, ok := m.constants[name]; ok && name != "" {
		return value, nil
	}
	c, ok := r.columns(column)
	switch {
	case !ok:
		return "", nil
	case c.composite:
		return "", fmt.Errorf("%s: is a list or object, where one value is expected", column)
	case c.err != nil:
		return "", fmt.Errorf("%s: %w", column, c.err)
	}
	return c.text, nil
}

// list reads the JSON that a column holds into v, if there is any.
func list(r record, column string, v any) error {
	c, ok := r.columns(column)
	if !ok {
		return nil
	}
	if err := json.Unmarshal([]byte(c.text), v); err != nil {
		return fmt.Errorf("%s: is not the JSON that it should be: %.60s", column, c.text)
	}
	return nil
}

func (m *mapping) tieBreakers(r record, res *pb.Result, field func(name, column string) string, integer func(name, text string) int64) error {
	var listed []json.Number
	err := list(r, "tie_breakers", &listed)
	values := make([]int64, max(len(m.ties), len(listed)))
	given := len(listed)
	for i, n := range listed {
		values[i] = integer("tie_breakers", n.String())
	}
	for i, name := range m.ties {
		column := m.TieBreakers[name]
		if _, constant := m.constants["tie_breakers."+name]; column != "" || constant {
			values[i] = integer("tie_breakers."+name, field("tie_breakers."+name, column))
			given = max(given, i+1)
		}
	}
	res.TieBreakers = values[:given]
	return err
}

func (m *mapping) attributes(r record, res *pb.Result, field func(name, column string) string) error {
	all := map[string]string{}
	err := list(r, "attributes", &all)
	m.named("attributes", m.Attributes, field, func(name, text string) { all[name] = text })
	if len(all) > 0 {
		res.Attributes = all
	}
	return err
}

func (m *mapping) metadata(r record, res *pb.Result, field func(name, column string) string) error {
	s := &structpb.Struct{}
	if c, ok := r.columns("metadata"); ok {
		if err := api.DecodeJSON([]byte(c.text), s); err != nil {
			return fmt.Errorf("metadata: is not a JSON object that can be kept: %.60s: %w", c.text, err)
		}
	}
	if s.Fields == nil {
		s.Fields = map[string]*structpb.Value{}
	}
	m.named("metadata", m.Metadata, field, func(name, text string) { s.Fields[name] = structpb.NewStringValue(text) })
	if len(s.Fields) > 0 {
		res.Metadata = s
	}
	return nil
}

// named calls set for each member of a group that a flag or constant gives.
func (m *mapping) named(group string, columns map[string]string, field func(name, column string) string, set func(name, text string)) {
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

// time reads a time in the format of the flags.
func (m *mapping) time(text string) (time.Time, error) {
	switch m.TimeFormat {
	case "rfc3339":
		if t, err := time.ParseInLocation(time.DateOnly, text, m.location); err == nil {
			return t, nil
		}
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			err = fmt.Errorf("%.40q is not a time as 2026-11-20T10:00:00Z; --time-format says otherwise", text)
		}
		return t, err
	case "unix", "unix_ms":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return time.Time{}, fmt.Errorf("%.40q is not a number as --time-format %s has it", text, m.TimeFormat)
		}
		if m.TimeFormat == "unix_ms" {
			return time.UnixMilli(n), nil
		}
		return time.Unix(n, 0), nil
	}
	t, err := time.ParseInLocation(m.TimeFormat, text, m.location)
	if err != nil {
		err = fmt.Errorf("%.40q is not a time as --time-format %q", text, m.TimeFormat)
	}
	return t, err
}
