package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/open-leaderboard/leaderboard/api/auth"
	"github.com/open-leaderboard/leaderboard/internal/secret"
)

var update = flag.Bool("update", false, "write the server's answers to docs/api.md")

const docsFile = "../../docs/api.md"

// TestDocs runs the curl commands of docs/api.md in order. The last command of a block must return
// the answer below the block, where … means any text. With -update, the test writes the answers.
func TestDocs(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	var clock atomic.Pointer[time.Time]
	clock.Store(&now)
	h := newHarness(t, Options{
		Insecure: true, Now: func() time.Time { return *clock.Load() }, Backup: func(context.Context, string) error { return nil },
		DeadLetters: newDeadLetterBox(),
	})
	for _, text := range h.keys {
		if err := h.store.DeleteAPIKey(t.Context(), auth.KeyFrom(secret.Text(text), "", nil, now).ID); err != nil {
			t.Fatal(err)
		}
	}
	doc, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```sh\n(curl [^`]*?)\n```\n(?:\n```json\n(.*?)```\n)?")
	described := map[string]bool{}
	var recorded []docsExample
	updated := example.ReplaceAllFunc(doc, func(block []byte) []byte {
		m := example.FindSubmatch(block)
		commands := strings.Split(string(m[1]), "\n")
		for i, command := range commands {
			last, want := i == len(commands)-1, ""
			if last {
				want = string(m[2])
			}
			if strings.Contains(command, "checksum=true") { // only sealed seasons have checksums
				h.sealClosed(t, &clock)
			}
			e, answer := h.curl(t, command)
			h.addRoutes(t, e.Method, e.Path, described)
			if strings.HasPrefix(e.Path, "/v1/") { // openapi.json describes REST only
				recorded = append(recorded, e)
			}
			got, status := pretty(answer), e.Status
			switch {
			case want == "" && status < http.StatusBadRequest, want != "" && agrees(want, got):
			case *update && last:
				return []byte("```sh\n" + string(m[1]) + "\n```\n\n```json\n" + vary(got) + "```\n")
			default:
				t.Errorf("answer to %s\n(-document +answer):\n%s", command, cmp.Diff(want, got))
			}
		}
		return block
	})
	if len(recorded) < 20 {
		t.Errorf("found %d examples in %s, want at least 20", len(recorded), docsFile)
	}
	checkExamples(t, recorded)
	for key := range h.routes(t) {
		if !described[key] && !strings.Contains(key, "/boards/{board=*}/scores") { // the examples use the shorter route without /boards/{board}
			t.Errorf("the route %s has no example in %s", key, docsFile)
		}
	}
	if *update {
		if err := os.WriteFile(docsFile, updated, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A docsExample is a request of docs/api.md, with the answer.
type docsExample struct {
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Body   json.RawMessage `json:"body,omitempty"`
	Status int             `json:"status"`
	Answer json.RawMessage `json:"answer,omitempty"` // absent for streams and long answers
}

// checkExamples compares the examples with api/examples.json, from which openapi.json is generated.
// With -update, it writes the file.
func checkExamples(t *testing.T, examples []docsExample) {
	t.Helper()
	text, err := json.MarshalIndent(examples, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for pattern, fixed := range map[string]string{
		`"[A-Z2-7]{26}"`:             `"AAAAAAAAAAAAAAAAAAAAAAAAAA"`, // a generated match id
		`"lbk_[\w-]{43}"`:            `"lbk_` + strings.Repeat("A", 43) + `"`,
		`"key_id": "[0-9a-f]{16}"`:   `"key_id": "0123456789abcdef"`,
		`"request_id": "[^"]+"`:      `"request_id": "AAAAAAAAAAAAAAAA"`,
		`"id": "[0-9a-f]{16,}[^"]*"`: `"id": "00000000000000000000000000000000"`,
		`(:00)\.\d{6}Z"`:             `${1}Z"`, // the order of arrival
	} {
		text = regexp.MustCompile(pattern).ReplaceAll(text, []byte(fixed))
	}
	text = append(text, '\n')
	const file = "../examples.json"
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if diff := cmp.Diff(string(want), string(text)); err != nil || diff != "" {
		t.Errorf("%s differs from the examples of %s, %v (-file +docs):\n%s\nIf the change is intended, run the test with -update, and then make generate.", file, docsFile, err, diff)
	}
}

func (h *harness) sealClosed(t *testing.T, clock *atomic.Pointer[time.Time]) {
	t.Helper()
	later := clock.Load().Add(2 * time.Minute)
	clock.Store(&later)
	if err := h.service.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (h *harness) addRoutes(t *testing.T, method, path string, routes map[string]bool) {
	t.Helper()
	for key := range h.routes(t) {
		verb, pattern, _ := strings.Cut(key, " ")
		if _, ok := match(pattern, strings.SplitN(path, "?", 2)[0]); ok && verb == method {
			routes[key] = true
		}
	}
}

func (h *harness) routes(t *testing.T) map[string]*route {
	gw, err := newGateway(t.Context(), newInProcessConn(&sync.WaitGroup{}, nil, nil), h.Server)
	if err != nil {
		t.Fatal(err)
	}
	return gw.routes
}

// curl sends the request of a curl command. It returns the body, or the first event of a stream.
func (h *harness) curl(t *testing.T, command string) (e docsExample, answer string) {
	t.Helper()
	args := words(command)
	var url, data string
	header := http.Header{}
	e.Method = http.MethodGet
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case "-X":
			i++
			e.Method = args[i]
		case "-d":
			i++
			data = args[i]
			if e.Method == http.MethodGet {
				e.Method = "POST"
			}
		case "-H":
			i++
			name, value, _ := strings.Cut(args[i], ": ")
			header.Set(name, value)
		case "-s", "-N":
		default:
			url = args[i]
		}
	}
	var ok bool
	if e.Path, ok = strings.CutPrefix(url, "localhost:8080"); !ok {
		t.Fatalf("%s: cannot use the argument %q, want a URL at localhost:8080", command, url)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, e.Method, h.http.URL+e.Path, strings.NewReader(data))
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	req.Header = header
	res, err := h.http.Client().Do(req)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	defer res.Body.Close()
	e.Body, e.Status = json.RawMessage(data), res.StatusCode
	if res.Header.Get("Content-Type") != eventStream {
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		if res.Header.Get("Content-Type") == "application/json" && len(body) < 4000 {
			e.Answer = body
		}
		return e, string(body)
	}
	var event strings.Builder
	for r := bufio.NewReader(res.Body); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		if line == "\n" {
			return e, event.String()
		}
		event.WriteString(line)
	}
}

func words(s string) []string {
	var args []string
	for _, m := range regexp.MustCompile(`'([^']*)'|"([^"]*)"|(\S+)`).FindAllStringSubmatch(s, -1) {
		args = append(args, m[1]+m[2]+m[3])
	}
	return args
}

func pretty(answer string) string {
	var out bytes.Buffer
	for line := range strings.Lines(answer) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) > 120 && json.Valid([]byte(line)) {
			_ = json.Indent(&out, []byte(line), "", "  ")
		} else {
			out.WriteString(line)
		}
		out.WriteByte('\n')
	}
	short := regexp.MustCompile(`\{[^{}\[\]]*\}|\[[^{}\[\]]*\]`) // the innermost lists and objects
	return short.ReplaceAllStringFunc(out.String(), func(s string) string {
		line := oneLine(s)
		if len(line) > 150 {
			return s
		}
		return line
	})
}

// agrees reports whether text matches pattern, where … means any text. It ignores differences in
// white space.
func agrees(pattern, text string) bool {
	parts := strings.Split(oneLine(pattern), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*?") + "$").MatchString(oneLine(text))
}

func oneLine(text string) string {
	return strings.NewReplacer("{ ", "{", " }", "}", "[ ", "[", " ]", "]").Replace(strings.Join(strings.Fields(text), " "))
}

// vary writes … in place of the parts of an answer that differ in each run.
func vary(answer string) string {
	for pattern, text := range map[string]string{
		`"[A-Z2-7]{26}"`:            `"…"`, // a generated match id
		`"lbk_[\w-]{43}"`:           `"lbk_…"`,
		`"key_id": ?"[0-9a-f]{16}"`: `"key_id": "…"`,
	} {
		answer = regexp.MustCompile(pattern).ReplaceAllString(answer, text)
	}
	return answer
}
