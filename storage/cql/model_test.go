package cql

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// A model simulates Cassandra for the statements of this package, with three replicas:
//   - Of two writes of a cell, a replica keeps the one with the greater timestamp. At equal
//     timestamps, it keeps the deletion. Of two values, it keeps the greater one.
//   - A write reaches two random replicas before it returns, and the third one later.
//   - A read merges two random replicas. If the statement names partitions, the read also repairs
//     the rows and static cells in both replicas.
type model struct {
	mu       sync.Mutex
	rng      *rand.Rand // if nil, the model uses one replica only
	replicas [3]replica
	pending  []func()         // the writes that have not reached their third replica
	keys     map[string][]any // partition keys by their keyText
	lastSwap int64            // the timestamp of the last lightweight transaction
	now      func() time.Time // expires rows of tables with a TTL; if nil, no row expires
}

type replica map[string]map[string]*partition // by table, by partition key

type partition struct {
	deleted int64
	static  *modelRow
	rows    map[string]*modelRow // by clustering key
}

type modelRow struct {
	key     []any // clustering columns
	live    int64 // timestamp of the INSERT, or 0
	deleted int64
	cells   map[string]modelCell // by column; cells of collections by column and element
	expires time.Time            // zero means never
}

type modelCell struct {
	timestamp int64
	value     any // nil if the cell is deleted
}

func newModel(rng *rand.Rand) *model {
	m := &model{rng: rng, keys: map[string][]any{}}
	for i := range m.replicas {
		m.replicas[i] = replica{}
	}
	return m
}

var (
	partitionColumns = map[string][]string{
		"boards": {"realm"}, "seasons": {"board"}, "user_seasons": {"user_hash"},
		"match_results": {"board", "season", "incarnation", "user_id"},
		"user_entries":  {"board", "season", "incarnation", "division", "bucket"},
		"leaderboard":   {"board", "season", "incarnation", "division", "bucket"},
		"rows":          {"list"}, "transient_rows": {"list"}, "registers": {"list"},
		"refusals": {"user_hash"},
	}
	clusteringColumns = map[string][]string{
		"boards": {"board"}, "seasons": {"season"}, "user_seasons": {"board", "season", "incarnation"},
		"match_results": {"match_id", "kind", "item"}, "user_entries": {"user_id"}, "leaderboard": {"standing", "user_id"},
		"registers": {"key"}, "refusals": {"board", "board_made", "match_id", "season", "item"},
		"rows": {"key"}, "transient_rows": {"key"},
	}
	staticColumns = map[string][]string{
		"match_results": {"account", "owners", "divisions", "summaries"},
	}
	defaultTTL        = map[string]time.Duration{"refusals": leaderboard.RefusalTime}
	collectionColumns = []string{"owners", "summaries", "divisions"}
)

type parsedStatement struct {
	verb, table string
	columns     []string // selected, inserted or set
	values      []string // inserted or set: ? or a literal; ?=? sets an element of a map, + adds elements to a set
	where       [][2]string
	after       bool // the rows must come after a given row
	distinct    bool
	descending  bool
	limit       string
	timestamp   string
	ttl         bool        // timestamp is a time to live in seconds
	condition   [][2]string // column and value; for IF EXISTS and IF NOT EXISTS, the column is "exists"
}

var (
	selectForm = regexp.MustCompile(`^SELECT (?:DISTINCT )?(.+) FROM (\w+)(?: WHERE (.+?))?( ORDER BY \w+ DESC)?(?: LIMIT (\?|\d+))?$`)
	insertForm = regexp.MustCompile(`^INSERT INTO (\w+) \((.+?)\) VALUES \((.+?)\)(?: IF (NOT EXISTS))?(?: USING (?:TIMESTAMP|TTL) (\?|\d+))?$`)
	updateForm = regexp.MustCompile(`^UPDATE (\w+)(?: USING (?:TIMESTAMP|TTL) (\?|\d+))? SET (.+?) WHERE (.+?)(?: IF (.+))?$`)
	afterForm  = regexp.MustCompile(` AND \(\w+, \w+\) > \(\?, \?\)$`)
	deleteForm = regexp.MustCompile(`^DELETE FROM (\w+)(?: USING TIMESTAMP (\?|\d+))? WHERE (.+?)(?: IF (.+))?$`)
)

// pairs splits conditions into columns and values. An operator other than = follows the
// column, after a space.
func pairs(text string) (out [][2]string) {
	for _, term := range strings.Split(text, " AND ") {
		column, value, _ := strings.Cut(term, " ")
		op, value, _ := strings.Cut(value, " ")
		if op == "IN" || op == ">=" || op == ">" || op == "<" || op == "<=" {
			column += " " + op
		}
		out = append(out, [2]string{column, value})
	}
	return out
}

// Call parse instead, which caches the result.
func parseStatement(stmt string) *parsedStatement {
	p := &parsedStatement{verb: stmt[:strings.Index(stmt, " ")], ttl: strings.Contains(stmt, " USING TTL ")}
	switch p.verb {
	case "SELECT":
		f := selectForm.FindStringSubmatch(stmt)
		p.table, p.columns, p.limit = f[2], strings.Split(f[1], ", "), f[5]
		p.descending = f[4] != ""
		p.distinct = strings.HasPrefix(stmt, "SELECT DISTINCT ")
		where := f[3]
		if loc := afterForm.FindStringIndex(where); loc != nil {
			where, p.after = where[:loc[0]], true
		}
		p.where = pairs(where)
	case "INSERT":
		f := insertForm.FindStringSubmatch(stmt)
		p.table, p.columns, p.values, p.timestamp = f[1], strings.Split(f[2], ", "), strings.Split(f[3], ", "), f[5]
		if f[4] != "" {
			p.condition = [][2]string{{"exists", "false"}}
		}
	case "UPDATE":
		f := updateForm.FindStringSubmatch(stmt)
		p.table, p.timestamp, p.where = f[1], f[2], pairs(f[4])
		for _, set := range strings.Split(f[3], ", ") {
			column, value, _ := strings.Cut(set, " = ")
			p.columns = append(p.columns, strings.TrimSuffix(column, "[?]"))
			switch {
			case strings.HasSuffix(column, "[?]"):
				value = "?=?"
			case strings.Contains(value, " + "):
				value = "+"
			}
			p.values = append(p.values, value)
		}
		if f[5] != "" {
			p.condition = pairs(f[5])
		}
	case "DELETE":
		f := deleteForm.FindStringSubmatch(stmt)
		p.table, p.timestamp, p.where = f[1], f[2], pairs(f[3])
		switch {
		case f[4] == "EXISTS":
			p.condition = [][2]string{{"exists", "true"}}
		case f[4] != "":
			p.condition = pairs(f[4])
		}
	}
	return p
}

type arguments struct{ rest []any }

func (a *arguments) take(text string) any {
	switch {
	case text == "?" || text == "(?,":
		v := a.rest[0]
		a.rest = a.rest[1:]
		return v
	case text == "''":
		return ""
	case text == "0x":
		return []byte{}
	case text == "null":
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic("model: literal " + text)
	}
	return n
}

// compareValues orders values as Cassandra does.
func compareValues(x, y any) int {
	bytesOf := func(v any) []byte {
		switch v := v.(type) {
		case string:
			return []byte(v)
		case []byte:
			return v
		}
		rv := reflect.ValueOf(v)
		return binary.BigEndian.AppendUint64(nil, uint64(rv.Int())^1<<63)
	}
	return bytes.Compare(bytesOf(x), bytesOf(y))
}

func compareKeys(x, y []any) int { return slices.CompareFunc(x, y, compareValues) }

// keyText returns different texts for different keys.
func keyText(values ...any) string {
	var b []byte
	for _, v := range values {
		switch v := v.(type) {
		case string:
			b = strconv.AppendQuote(b, v)
		case []byte:
			b = strconv.AppendQuote(b, string(v))
		default:
			b = strconv.AppendInt(b, reflect.ValueOf(v).Int(), 10)
		}
		b = append(b, ';')
	}
	return string(b)
}

func (c modelCell) beats(o modelCell) bool {
	if c.timestamp != o.timestamp {
		return c.timestamp > o.timestamp
	}
	if c.value == nil || o.value == nil {
		return c.value == nil
	}
	return compareValues(c.value, o.value) > 0
}

func (r *modelRow) set(column string, c modelCell) {
	if r.cells == nil {
		r.cells = map[string]modelCell{}
	}
	if stored, ok := r.cells[column]; !ok || c.beats(stored) {
		r.cells[column] = c
	}
}

func (r *modelRow) merge(o *modelRow) {
	r.key = o.key
	r.live, r.deleted = max(r.live, o.live), max(r.deleted, o.deleted)
	if o.expires.After(r.expires) {
		r.expires = o.expires
	}
	for column, c := range o.cells {
		r.set(column, c)
	}
}

func (p *partition) merge(o *partition) {
	p.deleted = max(p.deleted, o.deleted)
	p.static.merge(o.static)
	for key, r := range o.rows {
		p.row(key).merge(r)
	}
}

func (p *partition) row(key string) *modelRow {
	if p.rows[key] == nil {
		p.rows[key] = &modelRow{}
	}
	return p.rows[key]
}

func newPartition() *partition { return &partition{static: &modelRow{}, rows: map[string]*modelRow{}} }

func (r replica) partition(table, key string) *partition {
	if r[table] == nil {
		r[table] = map[string]*partition{}
	}
	if r[table][key] == nil {
		r[table][key] = newPartition()
	}
	return r[table][key]
}

// visible returns the cells that no deletion covers, and reports whether the row exists.
func (r *modelRow) visible(deleted int64) (map[string]any, bool) {
	deleted = max(deleted, r.deleted)
	out := map[string]any{}
	for column, c := range r.cells {
		if c.value != nil && c.timestamp > deleted {
			out[column] = c
		}
	}
	return out, len(out) > 0 || r.live > deleted
}

// changeOf returns the partition that a statement writes, and a function that applies the statement
// to one replica.
func (m *model) changeOf(q op, defaultTimestamp int64) (table, key string, f func(*partition)) {
	p := parse(q.stmt)
	args := arguments{q.args}
	timestamp, ttl := defaultTimestamp, defaultTTL[p.table]
	takeUsing := func() {
		n := reflect.ValueOf(args.take(p.timestamp)).Int()
		if p.ttl {
			ttl = time.Duration(n) * time.Second
		} else {
			timestamp = n
		}
	}
	if p.timestamp != "" && p.verb != "INSERT" {
		takeUsing()
	}
	values := map[string]any{}
	elements := map[string]modelCell{} // of collections
	for i, column := range p.columns {
		switch v := p.values[i]; v {
		case "?=?":
			element := args.take("?")
			elements[column+"\x00"+element.(string)] = modelCell{value: args.take("?")}
		case "+":
			rv := reflect.ValueOf(args.take("?"))
			for i := range rv.Len() {
				elements[column+"\x00"+fmt.Sprint(rv.Index(i).Interface())] = modelCell{value: inSet}
			}
		default:
			values[column] = args.take(v)
		}
	}
	if p.timestamp != "" && p.verb == "INSERT" {
		takeUsing()
	}
	set := slices.Clone(p.columns)
	for _, w := range p.where {
		values[w[0]] = args.take(w[1])
	}
	var pk, ck []any
	for _, c := range partitionColumns[p.table] {
		pk = append(pk, values[c])
	}
	wholePartition := false
	for _, c := range clusteringColumns[p.table] {
		v, ok := values[c]
		if !ok {
			wholePartition = true
			continue
		}
		ck = append(ck, v)
	}
	isKey := func(c string) bool {
		return slices.Contains(partitionColumns[p.table], c) || slices.Contains(clusteringColumns[p.table], c)
	}
	key = keyText(pk...)
	m.keys[key] = pk
	return p.table, key, func(part *partition) {
		if p.verb == "DELETE" {
			if wholePartition {
				part.deleted = max(part.deleted, timestamp)
			} else {
				r := part.row(keyText(ck...))
				r.key, r.deleted = ck, max(r.deleted, timestamp)
			}
			return
		}
		target := part.static
		if !wholePartition {
			target = part.row(keyText(ck...))
			target.key = ck
			if p.verb == "INSERT" {
				target.live = max(target.live, timestamp)
			}
			if ttl > 0 && m.now != nil {
				target.expires = m.now().Add(ttl)
			}
		}
		for _, c := range set {
			if v, ok := values[c]; ok && !isKey(c) {
				target.set(c, modelCell{timestamp, v})
			}
		}
		for element, c := range elements {
			target.set(element, modelCell{timestamp, c.value})
		}
	}
}

const inSet = "in the set"

var parsedStatements sync.Map // by text

func parse(stmt string) *parsedStatement {
	p, ok := parsedStatements.Load(stmt)
	if !ok {
		p, _ = parsedStatements.LoadOrStore(stmt, parseStatement(stmt))
	}
	return p.(*parsedStatement)
}

func (m *model) pickReplicas() (a, b, c int) {
	if m.rng == nil {
		return 0, 0, 0
	}
	p := m.rng.Perm(3)
	return p[0], p[1], p[2]
}

func (m *model) write(ctx context.Context, ops ...op) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return wrapError(ctx, "write", err)
	}
	m.apply(ops, 0)
	return nil
}

func (m *model) apply(ops []op, defaultTimestamp int64) {
	a, b, c := m.pickReplicas()
	var first string
	for _, o := range ops {
		table, key, f := m.changeOf(o, defaultTimestamp)
		if first == "" {
			first = key
		} else if key != first {
			panic("model: a batch of two partitions")
		}
		if m.rng == nil {
			f(m.replicas[0].partition(table, key))
			continue
		}
		f(m.replicas[a].partition(table, key))
		f(m.replicas[b].partition(table, key))
		m.pending = append(m.pending, func() { f(m.replicas[c].partition(table, key)) })
	}
	for len(m.pending) > 0 && m.rng.IntN(3) == 0 {
		i := m.rng.IntN(len(m.pending))
		m.pending[i]()
		m.pending = slices.Delete(m.pending, i, i+1)
	}
}

// readPartition merges a partition of two replicas. The function repair writes the given
// rows, the static cells and the partition's deletion to both replicas.
func (m *model) readPartition(table, key string) (both *partition, repair func(rows ...*modelRow)) {
	a, b, _ := m.pickReplicas()
	if a == b {
		return m.replicas[a].partition(table, key), func(...*modelRow) {}
	}
	both = newPartition()
	both.merge(m.replicas[a].partition(table, key))
	both.merge(m.replicas[b].partition(table, key))
	return both, func(rows ...*modelRow) {
		for _, i := range []int{a, b} {
			p := m.replicas[i].partition(table, key)
			p.deleted = max(p.deleted, both.deleted)
			p.static.merge(both.static)
			for _, r := range rows {
				p.row(keyText(r.key...)).merge(r)
			}
		}
	}
}

// tear writes to one random replica only, as if the writer and the coordinator died.
func (m *model) tear(ops []op) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, _, _ := m.pickReplicas()
	for _, o := range ops {
		table, key, f := m.changeOf(o, 0)
		f(m.replicas[a].partition(table, key))
	}
}

func (m *model) read(ctx context.Context, q op, dest []any, row func() bool) error {
	m.mu.Lock()
	rows, err := m.find(ctx, q)
	m.mu.Unlock()
	for _, values := range rows {
		if err := ctx.Err(); err != nil {
			return wrapError(ctx, "read", err)
		}
		for i, v := range values {
			assign(dest[i], v)
		}
		if !row() {
			break
		}
	}
	return err
}

func (m *model) find(ctx context.Context, q op) ([][]any, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrapError(ctx, "read", err)
	}
	p := parse(q.stmt)
	if p.distinct {
		return m.findPartitions(p, q.args), nil
	}
	args := arguments{q.args}
	values := map[string]any{}
	for _, w := range p.where {
		values[w[0]] = args.take(w[1])
	}
	var after []any
	if p.after {
		after = []any{args.take("?"), args.take("?")}
	}
	limit := int64(1 << 62)
	if p.limit != "" {
		limit = reflect.ValueOf(args.take(p.limit)).Int()
	}
	for _, c := range partitionColumns[p.table] {
		list, ok := values[c+" IN"]
		if !ok {
			continue
		}
		delete(values, c+" IN")
		var out [][]any
		for i := range reflect.ValueOf(list).Len() {
			inPartition := maps.Clone(values)
			inPartition[c] = reflect.ValueOf(list).Index(i).Interface()
			out = append(out, m.findIn(p, inPartition, after, limit)...)
		}
		return out, nil
	}
	return m.findIn(p, values, after, limit), nil
}

func (m *model) findIn(p *parsedStatement, values map[string]any, after []any, limit int64) [][]any {
	var pk []any
	for _, c := range partitionColumns[p.table] {
		pk = append(pk, values[c])
		delete(values, c)
	}
	part, repair := m.readPartition(p.table, keyText(pk...))
	keys := map[string]any{}
	for c, v := range values {
		if name, _, _ := strings.Cut(c, " "); slices.Contains(clusteringColumns[p.table], name) {
			keys[c] = v
		}
	}
	type candidate struct {
		row   *modelRow
		cells map[string]any
	}
	var rows []candidate
	var deletedRows []*modelRow
	addCandidate := func(r *modelRow) {
		if r == nil || after != nil && compareKeys(r.key, after) <= 0 || !r.expires.IsZero() && !m.now().Before(r.expires) {
			return
		}
		if !matches(p.table, r, nil, keys) {
			return
		}
		if cells, ok := r.visible(part.deleted); ok && matches(p.table, r, cells, values) {
			rows = append(rows, candidate{r, cells})
		} else {
			deletedRows = append(deletedRows, r)
		}
	}
	if key, ok := keyIn(p.table, values); ok {
		addCandidate(part.rows[key])
	} else {
		for _, r := range part.rows {
			addCandidate(r)
		}
		slices.SortFunc(rows, func(x, y candidate) int { return compareKeys(x.row.key, y.row.key) })
		if p.descending {
			slices.Reverse(rows)
		}
	}
	rows = rows[:min(int64(len(rows)), limit)]
	repair(deletedRows...)
	for _, r := range rows {
		repair(r.row)
	}
	static, hasStatic := part.static.visible(part.deleted)
	var out [][]any
	addLine := func(r *modelRow, cells map[string]any) {
		var line []any
		for _, c := range p.columns {
			if i := slices.Index(partitionColumns[p.table], c); i >= 0 {
				line = append(line, pk[i])
			} else {
				line = append(line, column(p.table, c, r, cells, static))
			}
		}
		out = append(out, line)
	}
	for _, r := range rows {
		addLine(r.row, r.cells)
	}
	if len(rows) == 0 && hasStatic && len(values) == 0 {
		addLine(nil, nil)
	}
	return out
}

// findPartitions reads the partitions after the token in args, if any. In the model, a token is the
// keyText.
func (m *model) findPartitions(p *parsedStatement, args []any) (out [][]any) {
	keys := map[string]bool{}
	for _, r := range m.replicas {
		for key := range r[p.table] {
			keys[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if len(args) > 0 && key <= keyText(args...) {
			continue
		}
		part, _ := m.readPartition(p.table, key)
		static, alive := part.static.visible(part.deleted)
		for _, r := range part.rows {
			_, ok := r.visible(part.deleted)
			alive = alive || ok
		}
		if !alive {
			continue
		}
		var line []any
		for _, c := range p.columns {
			if i := slices.Index(partitionColumns[p.table], c); i >= 0 {
				line = append(line, m.keys[key][i])
			} else {
				line = append(line, column(p.table, c, nil, nil, static))
			}
		}
		out = append(out, line)
	}
	return out
}

// keyIn returns the clustering key, or false if values lacks a column of it.
func keyIn(table string, values map[string]any) (string, bool) {
	var ck []any
	for _, c := range clusteringColumns[table] {
		v, ok := values[c]
		if !ok {
			return "", false
		}
		ck = append(ck, v)
	}
	return keyText(ck...), true
}

// matches reports whether a row satisfies want. For its keys, see pairs.
func matches(table string, r *modelRow, cells map[string]any, want map[string]any) bool {
	for c, v := range want {
		name, op, _ := strings.Cut(c, " ")
		got := column(table, name, r, cells, nil)
		switch {
		case op == "IN":
			list := reflect.ValueOf(v)
			found := false
			for i := range list.Len() {
				found = found || compareValues(list.Index(i).Interface(), got) == 0
			}
			if !found {
				return false
			}
		case op == ">=":
			if compareValues(got, v) < 0 {
				return false
			}
		case op == ">":
			if compareValues(got, v) <= 0 {
				return false
			}
		case op == "<":
			if compareValues(got, v) >= 0 {
				return false
			}
		case op == "<=":
			if compareValues(got, v) > 0 {
				return false
			}
		case got == nil || compareValues(got, v) != 0:
			return false
		}
	}
	return true
}

// For null, column returns nil, or an empty map if the column is a collection.
func column(table, name string, r *modelRow, cells, static map[string]any) any {
	if i := slices.Index(clusteringColumns[table], name); i >= 0 {
		if r == nil {
			return nil
		}
		return r.key[i]
	}
	if slices.Contains(staticColumns[table], name) {
		cells = static
	}
	if slices.Contains(collectionColumns, name) {
		set := map[string]any{}
		for c, cell := range cells {
			if column, element, ok := strings.Cut(c, "\x00"); ok && column == name {
				set[element] = cell.(modelCell).value
			}
		}
		return set
	}
	if inner, ok := strings.CutPrefix(name, "WRITETIME("); ok {
		if cell, ok := cells[strings.TrimSuffix(inner, ")")]; ok {
			return cell.(modelCell).timestamp
		}
		return nil
	}
	if cell, ok := cells[name]; ok {
		return cell.(modelCell).value
	}
	return nil
}

func assign(dest, v any) {
	d := reflect.ValueOf(dest).Elem()
	if set, ok := v.(map[string]any); ok {
		d.SetZero()
		switch d := dest.(type) {
		case *map[string][]byte:
			*d = map[string][]byte{}
			for k, v := range set {
				(*d)[k] = v.([]byte)
			}
		case *map[string]int64:
			*d = map[string]int64{}
			for k, v := range set {
				(*d)[k] = v.(int64)
			}
		case *[]string:
			*d = slices.Sorted(maps.Keys(set))
		case *[]int64:
			for k := range set {
				n, _ := strconv.ParseInt(k, 10, 64)
				*d = append(*d, n)
			}
		}
		return
	}
	if v == nil {
		d.SetZero()
		return
	}
	if d.Kind() == reflect.Pointer {
		p := reflect.New(d.Type().Elem())
		p.Elem().Set(reflect.ValueOf(v).Convert(d.Type().Elem()))
		d.Set(p)
		return
	}
	if b, ok := v.([]byte); ok {
		v = slices.Clone(b)
		if b != nil && len(b) == 0 {
			v = []byte{}
		}
	}
	d.Set(reflect.ValueOf(v).Convert(d.Type()))
}

// swap reads and writes all replicas, so it is linearizable.
func (m *model) swap(ctx context.Context, q op, _ map[string]any) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, wrapError(ctx, "swap", err)
	}
	m.lastSwap++
	p := parse(q.stmt)
	table, key, f := m.changeOf(q, m.lastSwap)
	probe := newPartition()
	f(probe)
	part := newPartition()
	for i := range m.replicas {
		part.merge(m.replicas[i].partition(table, key))
	}
	var ck string
	for k := range probe.rows {
		ck = k
	}
	var cells map[string]any
	exists := false
	if r := part.rows[ck]; r != nil && (r.expires.IsZero() || m.now().Before(r.expires)) {
		cells, exists = r.visible(part.deleted)
	}
	args := arguments{q.args[len(q.args)-conditionArgs(p):]}
	for _, c := range p.condition {
		if c[0] == "exists" {
			if exists != (c[1] == "true") {
				return false, nil
			}
			continue
		}
		want, got := args.take(c[1]), column(table, c[0], nil, cells, nil)
		if b, ok := want.([]byte); ok && b == nil {
			want = nil // the driver sends null
		}
		if (want == nil) != (got == nil) || want != nil && compareValues(want, got) != 0 {
			return false, nil
		}
	}
	for i := range m.replicas {
		f(m.replicas[i].partition(table, key))
	}
	return true, nil
}

func conditionArgs(p *parsedStatement) (n int) {
	for _, c := range p.condition {
		if c[1] == "?" {
			n++
		}
	}
	return n
}

func (m *model) close() {}
