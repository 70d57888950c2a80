package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// described is openapi.json with schemas that allow no undocumented field in an answer.
type described struct {
	paths    map[string]any
	document map[string]any
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // by JSON pointer
}

var description = sync.OnceValue(func() *described {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(api.OpenAPI))
	if err != nil {
		panic(err)
	}
	d := &described{document: document.(map[string]any), compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}}
	d.paths = d.document["paths"].(map[string]any)
	for name, schema := range get(d.document, "components", "schemas").(map[string]any) {
		properties, _ := get(schema, "properties").(map[string]any)
		if properties != nil {
			schema.(map[string]any)["additionalProperties"] = false
		}
		if name == "Outcome" || name == "Result" { // as details of errors
			properties["@type"] = map[string]any{"type": "string"}
		}
	}
	acceptNumbersInStrings(d.document)
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource("openapi.json", document); err != nil {
		panic(err)
	}
	return d
})

// acceptNumbersInStrings changes the schemas of requests, where a string may have an integer.
func acceptNumbersInStrings(document map[string]any) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			switch kind := v["type"].(type) {
			case string:
				if kind == "integer" {
					v["type"] = []any{"integer", "string"}
				}
			case []any:
				if slices.Contains(kind, any("integer")) {
					v["type"] = append(kind, "string")
				}
			}
			for _, child := range v {
				walk(child)
			}
		case []any:
			for _, child := range v {
				walk(child)
			}
		}
	}
	for name, schema := range get(document, "components", "schemas").(map[string]any) {
		if strings.HasSuffix(name, "Input") || strings.HasSuffix(name, "Request") || strings.HasSuffix(name, "Change") {
			walk(schema)
		}
	}
}

// operation returns the description of a request's route, and its JSON pointer.
func (d *described) operation(method, escapedPath string) (operation any, pointer string) {
	verb := strings.ToLower(method)
	best := ""
	for path, verbs := range d.paths {
		if _, ok := match(strings.ReplaceAll(path, "}", "=*}"), escapedPath); ok && get(verbs, verb) != nil && (best == "" || strings.Count(path, ":") > strings.Count(best, ":")) {
			best = path
		}
	}
	if best == "" {
		return nil, ""
	}
	escaped := strings.ReplaceAll(strings.ReplaceAll(best, "~", "~0"), "/", "~1")
	return get(d.paths, best, verb), "/paths/" + escaped + "/" + verb
}

// check returns an error if the schema at a JSON pointer does not allow data.
func (d *described) check(pointer string, data []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err
	}
	d.mu.Lock()
	schema := d.schemas[pointer]
	if schema == nil {
		if schema, err = d.compiler.Compile("openapi.json#" + (&url.URL{Path: pointer}).EscapedPath()); err == nil {
			d.schemas[pointer] = schema
		}
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// checkDescribed fails the test if openapi.json does not describe the answer to a request, or does not
// allow a request that the server accepted.
func (h *harness) checkDescribed(req *http.Request, a answer) {
	h.t.Helper()
	d := description()
	operation, pointer := d.operation(req.Method, req.URL.EscapedPath())
	reason := a.reason()
	if operation == nil || a.status == http.StatusMethodNotAllowed || reason == "NO_SUCH_ROUTE" || reason == "CANCELED" {
		return
	}
	fail := func(what string, err any) {
		h.t.Errorf("openapi.json does not describe %s of %s %s: %v\n%d %.1500s", what, req.Method, req.URL, err, a.status, a.raw)
	}
	status := strconv.Itoa(a.status)
	response := get(operation, "responses", status)
	if response == nil {
		fail("the status", a.status)
		return
	}
	responsePointer := pointer + "/responses/" + status
	if shared, ok := get(response, "$ref").(string); ok {
		responsePointer = strings.TrimPrefix(shared, "#")
		response = get(d.document, "components", "responses", shared[strings.LastIndexByte(shared, '/')+1:])
	}
	if text, _ := get(response, "description").(string); reason != "" && !strings.Contains(text, "`"+reason+"`") {
		fail("the reason", reason)
	}
	content, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	if get(response, "content", content) == nil {
		fail("the content type", content)
		return
	}
	if content == "application/json" {
		if err := d.check(responsePointer+"/content/application~1json/schema", []byte(a.raw)); err != nil {
			fail("the answer", err)
		}
	}
	if content == ndjson {
		for line := range strings.Lines(a.raw) {
			if err := d.check(responsePointer+"/content/application~1x-ndjson/x-line", []byte(line)); err != nil && !strings.HasPrefix(line, `{"error"`) {
				fail("a line", err)
			}
		}
	}
	if a.status >= 300 || strings.Contains(a.raw, `"REJECTED"`) || req.GetBody == nil || get(operation, "requestBody") == nil {
		return
	}
	body, err := req.GetBody()
	if err != nil {
		h.t.Fatal(err)
	}
	data, err := io.ReadAll(body)
	if strings.HasPrefix(req.URL.Path, "/v1/scores") { // the description has no board on the paths of the default board
		data = regexp.MustCompile(`"board": ?"[^"]*",`).ReplaceAll(data, nil)
	}
	if err == nil && len(bytes.TrimSpace(data)) > 0 {
		if err := d.check(pointer+"/requestBody/content/application~1json/schema", data); err != nil {
			fail("the accepted body", fmt.Sprintf("%v\n%.500s", err, data))
		}
	}
}

// A limitTest tries one limit of a field.
type limitTest struct {
	h      *harness
	t      *testing.T
	method string
	path   string
	body   string   // "" for a field of the query
	field  []string // the path to the field; "0" is the first element of a list
	tried  int
}

// send sends the request with a value of the field, and reports whether the server refused the field.
// A nil value removes the field.
func (l *limitTest) send(value any) (refused bool, a answer) {
	l.t.Helper()
	l.tried++
	path, body := l.path, any(nil)
	name := l.field[len(l.field)-1]
	if l.body == "" {
		path += "?" + name + "=" + url.QueryEscape(fmt.Sprint(value))
	} else {
		var document map[string]any
		if err := json.Unmarshal([]byte(l.body), &document); err != nil {
			l.t.Fatal(err)
		}
		set(document, l.field, value)
		body = document
	}
	a = l.h.do("admin", l.method, path, body)
	if name == "0" {
		name = l.field[len(l.field)-2]
	}
	refused = slices.ContainsFunc(a.violations(), func(field string) bool { return strings.Contains(field, name) })
	for _, o := range asList(a.body["outcomes"]) { // of a batch
		refused = refused || get(o, "reason") == "INVALID" && strings.HasPrefix(fmt.Sprint(get(o, "detail")), name+":")
	}
	return refused, a
}

func asList(v any) []any { l, _ := v.([]any); return l }

func set(v any, path []string, value any) {
	for _, step := range path[:len(path)-1] {
		if list, ok := v.([]any); ok {
			v = list[0]
			continue
		}
		m := v.(map[string]any)
		if m[step] == nil {
			m[step] = map[string]any{}
		}
		v = m[step]
	}
	last := path[len(path)-1]
	switch m := v.(type) {
	case []any:
		m[0] = value
	case map[string]any:
		if m[last] = value; value == nil {
			delete(m, last)
		}
	}
}

// TestLimitsAreTheServers tries each limit of openapi.json: the server accepts the bound, and refuses the
// next value. It also sends each required field not at all, and each value of each enum.
func TestLimitsAreTheServers(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"x","matches":true}`)
	now := time.Now().UTC().Format(time.RFC3339)
	h.must("admin", "POST", "/v1/scores", `{"user_id":"u","match_id":"m","points":1,"achieved_at":"`+now+`"}`)
	h.must("admin", "POST", "/v1/boards/x/scores", `{"user_id":"u","match_id":"m","score":1}`)
	// These requests are valid, and do not change what the others need.
	bodies := map[string]string{
		"BatchSubmitScores":   `{"results":[{"user_id":"v","points":1,"achieved_at":"` + now + `"}]}`,
		"BatchSubmitResults":  `{"results":[{"user_id":"v","points":1,"board_id":"default","achieved_at":"` + now + `"}]}`,
		"SubmitScore":         `{"user_id":"v","points":1,"achieved_at":"` + now + `"}`,
		"BatchRetractResults": `{"results":[{"user_id":"u","match_id":"m"}],"dry_run":true}`,
		"RetractResult":       `{"dry_run":true}`,
		"CorrectResult":       `{"points":2,"dry_run":true}`,
		"EndSeason":           `{"reason":"test","dry_run":true}`,
	}
	tried := 0
	for _, method := range slices.Sorted(maps.Keys(calls)) {
		call := calls[method]
		call[2] = cmp.Or(bodies[method], call[2])
		path, _, _ := strings.Cut(call[1], "?")
		operation, _ := description().operation(call[0], path)
		for _, p := range asList(get(operation, "parameters")) {
			if get(p, "in") != "query" || method == "WatchScores" {
				continue
			}
			l := &limitTest{h: h, t: t, method: call[0], path: path, field: []string{get(p, "name").(string)}}
			if operation.(map[string]any)["requestBody"] == nil {
				l.tryField(get(p, "schema"))
			}
			tried += l.tried
		}
		if schema := get(operation, "requestBody", "content", "application/json", "schema"); schema != nil {
			tried += tryObject(h, t, call, resolve(schema), nil, 0)
		}
	}
	if tried < 200 {
		t.Errorf("the test sent %d requests, want at least 200: openapi.json has fewer limits", tried)
	}
}

func resolve(schema any) any {
	if name, ok := get(schema, "$ref").(string); ok {
		return get(description().document, "components", "schemas", name[strings.LastIndexByte(name, '/')+1:])
	}
	if one := get(schema, "anyOf", 0); one != nil {
		return resolve(one)
	}
	return schema
}

func tryObject(h *harness, t *testing.T, call [3]string, schema any, prefix []string, depth int) (tried int) {
	properties, _ := get(schema, "properties").(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		field := append(slices.Clone(prefix), name)
		l := &limitTest{h: h, t: t, method: call[0], path: call[1], body: call[2], field: field}
		switch { // fields of some boards only
		case name == "score":
			l.path = strings.NewReplacer("/v1/scores", "/v1/boards/x/scores", "/default/", "/x/").Replace(l.path)
			l.body = regexp.MustCompile(`"points":\d`).ReplaceAllString(strings.ReplaceAll(l.body, `"default"`, `"x"`), `"score":1`)
		case name == "floor" && call[0] == "POST":
			l.body = `{"board_id":"floor","policy":"SUM"}`
		case name == "week_start":
			l.body = `{"board_id":"weekly","season":{"schedule":"WEEKLY"}}`
		case name == "day_start":
			l.body = `{"board_id":"daily","season":{"schedule":"DAILY"}}`
		case name == "year_start":
			l.body = `{"board_id":"yearly","season":{"schedule":"YEARLY"}}`
		case name == "k" && call[0] == "POST":
			l.body = `{"board_id":"k","policy":"BEST_K"}`
		case name == "drop_worst" && call[0] == "POST":
			l.body = `{"board_id":"series","policy":"BEST_K"}`
		case name == "days" && call[0] == "POST":
			l.body = `{"board_id":"rolling","season":{"schedule":"ROLLING"},"retention":"2592000s","source":{"board_id":"x"}}`
		}
		value := resolve(properties[name])
		if slices.Contains(asList(get(schema, "required")), any(name)) {
			if refused, a := l.send(nil); !refused {
				t.Errorf("%s %s without %v, which is required: %d %s, want 400 naming the field", call[0], call[1], field, a.status, a.raw)
			}
		}
		if !slices.Contains([]string{"floor", "days", "k", "drop_worst", "min_results", "day_start", "week_start", "year_start"}, name) || call[0] == "POST" {
			l.tryField(value)
		}
		tried += l.tried
		if depth > 3 {
			continue
		}
		if items := get(value, "items"); items != nil && present(call[2], field) {
			tried += tryObject(h, t, call, resolve(items), append(field, "0"), depth+1)
		}
		if get(value, "properties") != nil && name != "source" {
			tried += tryObject(h, t, call, value, field, depth+1)
		}
	}
	return tried
}

// present reports whether the body has a list with elements at a path.
func present(body string, path []string) bool {
	var v any
	_ = json.Unmarshal([]byte(body), &v)
	for _, step := range path {
		if list, ok := v.([]any); ok {
			v = list[0]
			continue
		}
		v = get(v, step)
	}
	return len(asList(v)) > 0
}

func (l *limitTest) tryField(schema any) {
	l.t.Helper()
	number := func(key string) (float64, bool) {
		n, ok := get(schema, key).(json.Number)
		f, _ := n.Float64()
		return f, ok
	}
	text := func(n float64) string { return strings.Repeat("a", int(n)) }
	try := func(what string, value any, want bool) {
		l.t.Helper()
		refused, a := l.send(value)
		if want && a.status == http.StatusNotFound { // nothing can have such an id
			return
		}
		if refused != want {
			l.t.Errorf("%s %s with %v %s: %d %.300s, want the field refused: %v", l.method, l.path, l.field, what, a.status, a.raw, want)
		}
	}
	isText := func() bool {
		kind := get(schema, "type")
		return kind == "string" || slices.Contains(asList(kind), any("string")) && !slices.Contains(asList(kind), any("integer"))
	}
	if least, ok := number("minimum"); ok {
		try("at its minimum", int64(least), false)
		try("below its minimum", int64(least)-1, true)
	}
	if greatest, ok := number("maximum"); ok {
		try("at its maximum", int64(greatest), false)
		try("above its maximum", int64(greatest)+1, true)
	}
	if greatest, ok := number("maxLength"); ok && isText() && l.field[len(l.field)-1] != "season" { // an unknown season is refused anyway
		try("at its longest", text(greatest), false)
		try("above its longest", text(greatest+1), true)
	}
	if get(schema, "pattern") != nil {
		try("against its pattern", "!", true)
	}
	for _, v := range asList(get(schema, "enum")) {
		if v != nil && !slices.Contains([]string{"policy", "schedule", "status"}, l.field[len(l.field)-1]) {
			try("from its enum", v, false)
		}
	}
	if get(schema, "enum") != nil {
		try("outside its enum", "nonsense", true)
	}
}

// TestReasonsAreTheServers compares the enum of reasons with the code: each reason occurs in it, and the
// domain's reasons of rejections are among them.
func TestReasonsAreTheServers(t *testing.T) {
	var source strings.Builder
	for _, file := range []string{"admin", "answer", "bans", "corrections", "errors", "http", "message", "receive", "request", "streams", "submit", "watch"} {
		source.WriteString(string(mustRead(t, file+".go")))
	}
	rejections := map[leaderboard.Reason]bool{
		leaderboard.ReasonFloor: true, leaderboard.ReasonRange: true, leaderboard.ReasonClosed: true, leaderboard.ReasonEnded: true,
		leaderboard.ReasonErased: true, leaderboard.ReasonDeleted: true, leaderboard.ReasonInvalid: true, leaderboard.ReasonSeasons: true,
	}
	for _, m := range regexp.MustCompile(`Reason\w+ +Reason = "(\w+)"`).FindAllStringSubmatch(string(mustRead(t, "../../merge.go")), -1) {
		if !rejections[leaderboard.Reason(m[1])] {
			t.Errorf("the test does not know the rejection %s", m[1])
		}
	}
	for reason := range rejections {
		if pb.Error_Reason_value[string(reason)] == 0 {
			t.Errorf("Error.Reason lacks the rejection %s", reason)
		}
	}
	for name, number := range pb.Error_Reason_value {
		if number != 0 && !rejections[leaderboard.Reason(name)] && !strings.Contains(source.String(), "pb.Error_"+name) {
			t.Errorf("no code gives the reason %s", name)
		}
	}
	for _, row := range codeOf {
		if row.reason == 0 {
			t.Errorf("the error %v has no reason", row.err)
		}
	}
}

func TestParameterWithoutANameIsNamed(t *testing.T) {
	h := newHarness(t, Options{})
	if a := h.do("read", "GET", "/v1/scores?=1", nil); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{`""`}) {
		t.Errorf("a parameter without a name: %d %s, want 400 naming \"\"", a.status, a.raw)
	}
}

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
