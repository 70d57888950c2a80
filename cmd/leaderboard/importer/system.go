package importer

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/records"
)

// columnFunc returns a column of a result from the columns of an export.
type columnFunc func(column func(string) (records.Value, bool)) (records.Value, bool)

// system is another system's export: its format, and the columns of results in it.
type system struct {
	name    string
	format  string   // of [records.Options]
	arrays  []string // of JSON documents
	columns map[string]columnFunc
	// required are columns without which a CSV file is not such an export.
	required []string
}

var systemNames = []string{"nakama", "playfab", "podium"}

// systemOf returns the system with a name, and an empty system for "". Results without a time of
// their own have the time at.
func systemOf(name string, at time.Time) (system, error) {
	s := system{name: name}
	switch name {
	case "":
		return s, nil
	case "nakama":
		s.format = "csv"
		s.required = []string{"leaderboard_id", "owner_id", "score", "subscore", "update_time", "expiry_time"}
		s.columns = nakamaColumns
	case "playfab":
		s.format, s.arrays = "json", []string{"Rankings", "data.Rankings", "Leaderboard", "data.Leaderboard"}
		s.columns = snapshotColumns("playfab", at, playFabColumns)
	case "podium":
		s.format, s.arrays = "json", []string{"members"}
		s.columns = snapshotColumns("podium", at, map[string]columnFunc{"user_id": copyOf("publicID"), "score": copyOf("score"), "points": copyOf("score")})
	default:
		return s, cli.Usagef("--system %q is not one of nakama, playfab, podium", name)
	}
	return s, nil
}

func constant(text string) columnFunc {
	return func(func(string) (records.Value, bool)) (records.Value, bool) { return records.Value{Text: text}, true }
}

func copyOf(name string) columnFunc {
	return func(column func(string) (records.Value, bool)) (records.Value, bool) { return column(name) }
}

// snapshotColumns adds the match id, the time and the revision of results that are a user's whole score
// at one time. The result of a later snapshot replaces the result of an earlier one.
func snapshotColumns(match string, at time.Time, columns map[string]columnFunc) map[string]columnFunc {
	all := map[string]columnFunc{
		"match_id": constant(match), "revision": constant(strconv.FormatInt(at.UnixMilli(), 10)), "achieved_at": constant(at.UTC().Format(time.RFC3339Nano)),
	}
	maps.Copy(all, columns)
	if own, ok := columns["achieved_at"]; ok {
		taken := constant(at.UTC().Format(time.RFC3339Nano))
		all["achieved_at"] = func(column func(string) (records.Value, bool)) (records.Value, bool) {
			if v, ok := own(column); ok {
				return v, true
			}
			return taken(column)
		}
	}
	return all
}

// nakamaColumns are those of the table leaderboard_record. A user has a record for each leaderboard
// and each of its periods.
var nakamaColumns = map[string]columnFunc{
	"user_id": copyOf("owner_id"),
	"points":  copyOf("score"),
	"match_id": func(column func(string) (records.Value, bool)) (records.Value, bool) {
		board, _ := column("leaderboard_id")
		expiry, _ := column("expiry_time")
		return records.Value{Text: board.Text + "@" + expiry.Text}, true
	},
	"achieved_at": func(column func(string) (records.Value, bool)) (records.Value, bool) {
		return timeColumn(column, time.RFC3339Nano)
	},
	"revision": func(column func(string) (records.Value, bool)) (records.Value, bool) {
		return timeColumn(column, "")
	},
	"tie_breakers": func(column func(string) (records.Value, bool)) (records.Value, bool) {
		v, ok := column("subscore")
		if !ok || v.Text == "0" {
			return records.Value{}, false // a board may have no tie-breaker
		}
		return records.Value{Text: "[" + v.Text + "]", Composite: true}, true
	},
}

// timeColumn returns the time of a record's last change, in Unix milliseconds if layout is empty. A
// text that is not a time is returned as it is, so that the mapping rejects it.
func timeColumn(column func(string) (records.Value, bool), layout string) (records.Value, bool) {
	v, ok := column("update_time")
	if !ok {
		return v, ok
	}
	if t, err := postgresTime(v.Text); err == nil {
		if v.Text = t.Format(layout); layout == "" {
			v.Text = strconv.FormatInt(t.UnixMilli(), 10)
		}
	}
	return v, true
}

// postgresTime reads a timestamptz as PostgreSQL and CockroachDB write it in CSV.
func postgresTime(text string) (t time.Time, err error) {
	for _, layout := range []string{"2006-01-02 15:04:05Z07", "2006-01-02 15:04:05Z07:00", time.RFC3339} {
		if t, err = time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return t, err
}

// playFabColumns are those of the answers of GetLeaderboard, in both versions of PlayFab's leaderboards.
var playFabColumns = map[string]columnFunc{
	"user_id": func(column func(string) (records.Value, bool)) (records.Value, bool) {
		if v, ok := column("Entity.Id"); ok {
			return v, true
		}
		return column("PlayFabId")
	},
	"score":        playFabScore,
	"points":       playFabScore,
	"achieved_at":  copyOf("LastUpdated"),
	"tie_breakers": playFabTies,
	"rank": func(column func(string) (records.Value, bool)) (records.Value, bool) {
		v, ok := column("Rank")
		if ok {
			return v, true
		}
		v, ok = column("Position") // from 0
		if n, err := strconv.ParseInt(v.Text, 10, 53); ok && err == nil {
			v.Text = strconv.FormatInt(n+1, 10)
		}
		return v, ok
	},
}

func playFabScore(column func(string) (records.Value, bool)) (records.Value, bool) {
	list, ok := column("Scores")
	if !ok {
		return column("StatValue")
	}
	var scores []string
	if json.Unmarshal([]byte(list.Text), &scores) != nil || len(scores) == 0 {
		return list, true // an array, which the mapping rejects
	}
	return records.Value{Text: scores[0]}, true
}

func playFabTies(column func(string) (records.Value, bool)) (records.Value, bool) {
	var scores []string
	list, _ := column("Scores")
	if json.Unmarshal([]byte(list.Text), &scores) != nil || len(scores) < 2 {
		return records.Value{}, false
	}
	ties := make([]json.Number, len(scores)-1)
	for i, text := range scores[1:] {
		ties[i] = json.Number(text)
	}
	text, err := json.Marshal(ties)
	if err != nil {
		return list, true // not numbers, which the mapping rejects
	}
	return records.Value{Text: string(text), Composite: true}, true
}

// systemReader gives the records of an export the columns of results.
type systemReader struct {
	records.Reader
	system
}

// read returns a reader of s's records in r.
func (s system) read(r records.Reader) (records.Reader, error) {
	if s.name == "" {
		return r, nil
	}
	for _, column := range s.required {
		if header := r.Header(); header != nil && count(header, column) != 1 {
			return nil, cli.Usagef("the input has %d columns named %q, but an export of %s has one; its columns are %v", count(header, column), column, s.name, header)
		}
	}
	return systemReader{r, s}, nil
}

// Next implements [records.Reader].
func (s systemReader) Next() (records.Record, error) {
	r, err := s.Reader.Next()
	if own := r.Column; own != nil {
		r.Column = func(name string) (records.Value, bool) {
			if f, ok := s.columns[name]; ok {
				return f(own)
			}
			return own(name)
		}
	}
	return r, err
}

// Header implements [records.Reader].
func (s systemReader) Header() []string {
	header := slices.Clone(s.Reader.Header())
	if header == nil {
		return nil
	}
	for name := range s.columns {
		if !slices.Contains(header, name) {
			header = append(header, name)
		}
	}
	return header
}

// checkSystem returns an error if flags contradict the format of an export. from is a Redis URL or "".
func checkSystem(system, from, format, delimiter string) error {
	switch {
	case system == "":
		return nil
	case from != "":
		return cli.Usagef("--system names the format of a file, so it cannot be combined with a Redis URL")
	case format != "" || delimiter != "":
		return cli.Usagef("--system determines the format, so it cannot be combined with --format and --delimiter; to name the columns yourself, omit --system")
	}
	_, err := systemOf(system, time.Time{})
	return err
}
