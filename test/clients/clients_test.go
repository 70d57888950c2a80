package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/program"
)

var _ = needs.PackageWithoutRace("the tests check child processes")

// key is the admin key of the servers of these tests.
const key = "admin-key-of-the-test"

// folder is removed after the tests.
var folder string

func TestMain(m *testing.M) {
	os.Exit(func() (code int) {
		var err error
		if folder, err = os.MkdirTemp("", "leaderboard-clients-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(folder)
		return m.Run()
	}())
}

var buildProgram = sync.OnceValues(func() (string, error) {
	return program.Path(context.Background(), "../..", folder)
})

func serve(t *testing.T) string {
	t.Helper()
	path, err := buildProgram()
	if err != nil {
		t.Fatal(err)
	}
	return program.Serve(t, path, key)
}

// A check is one call of a client, with what the server and the client must do. $BOARD stands for a new board.
type check struct {
	Name    string
	Board   map[string]any   // settings of the board; nil stands for a board of the policy SUM
	Setup   []map[string]any // results on the board
	Profile map[string]any   // of the user ann
	Op      string
	Args    json.RawMessage
	Many    int // results in args: of ann-0, ann-1 and so on
	Key     *string
	Tokens  []string
	Faults  []fault
	// What is wanted: parts of the value or of the error, the paths and the authorization of the requests,
	// the least wait before each retry in milliseconds, and the numbers of results in the requests.
	Value      any
	Error      any
	Requests   *int // -1 for any number
	Paths      []string
	Keys       []string
	Waits      []int
	Parts      []int
	SameBodies bool
	Body       any // of the first request
}

type answers struct {
	Value, Error any
	Waits        []int
}

// A client is a program that makes the calls that it reads.
type client struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T, dir, name string, args ...string) *client {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr, cmd.Env = dir, os.Stderr, append(os.Environ(), "LEADERBOARD_CLIENT_DRIVER=1", "PYTHONPATH=src")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	return &client{in, bufio.NewReader(out)}
}

func (c *client) call(t *testing.T, request any) (a answers) {
	t.Helper()
	data, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.in.Write(append(data, '\n')); err != nil {
		t.Fatal(err)
	}
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("the client has ended: %v", err)
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&a); err != nil {
		t.Fatalf("%v in %.1000s", err, line)
	}
	return a
}

// suite makes all calls of the suite with a client.
// The runtime of a client may repeat a request itself if the connection breaks before the answer. With
// repeats, the suite omits the checks that count requests after a lost answer.
func suite(t *testing.T, c *client, repeats bool) {
	data, err := os.ReadFile("testdata/suite.json")
	if err != nil {
		t.Fatal(err)
	}
	var checks []json.RawMessage
	if err := json.Unmarshal(data, &checks); err != nil {
		t.Fatal(err)
	}
	server := serve(t)
	p := newProxy(t, server)
	for i, raw := range checks {
		board := fmt.Sprintf("board-%d", i)
		var ch check
		d := json.NewDecoder(bytes.NewReader(bytes.ReplaceAll(raw, []byte("$BOARD"), []byte(board))))
		d.UseNumber()
		d.DisallowUnknownFields()
		if err := d.Decode(&ch); err != nil {
			t.Fatalf("%v in %s", err, raw)
		}
		if repeats && len(ch.Faults) > 0 && ch.Faults[0].Lose && ch.Faults[0].Times <= 1 {
			continue
		}
		t.Run(ch.Name, func(t *testing.T) { ch.run(t, c, p, server, board) })
	}
}

func (ch *check) run(t *testing.T, c *client, p *proxy, server, board string) {
	if ch.Board == nil {
		ch.Board = map[string]any{"policy": "SUM", "floor": 0}
	}
	ch.Board["board_id"] = board
	post(t, "POST", server+"/v1/boards", ch.Board)
	for _, r := range ch.Setup {
		post(t, "POST", server+"/v1/boards/"+board+"/scores", r)
	}
	if ch.Profile != nil {
		post(t, "PUT", server+"/v1/users/ann/profile", ch.Profile)
	}
	p.expect(ch.Faults)
	request := map[string]any{"op": ch.Op, "url": p.URL, "key": key, "args": ch.arguments(board)}
	if ch.Key != nil {
		request["key"] = *ch.Key
	}
	if ch.Tokens != nil {
		request["tokens"] = ch.Tokens
	}
	got := c.call(t, request)
	if err := match(ch.Value, got.Value); err != nil {
		t.Errorf("value: %v\ngot %.2000s", err, marshal(got))
	}
	if err := match(ch.Error, got.Error); err != nil || (ch.Error == nil) != (got.Error == nil) {
		t.Errorf("error: %v\ngot %.2000s", err, marshal(got))
	}
	ch.compareRequests(t, p.seen(), got.Waits)
}

func (ch *check) arguments(board string) map[string]any {
	args := map[string]any{"board": board}
	if ch.Args != nil {
		for name, value := range decode(ch.Args).(map[string]any) {
			args[name] = value
		}
	}
	if ch.Many == 0 {
		return args
	}
	var results []any
	for i := range ch.Many {
		results = append(results, map[string]any{"user_id": fmt.Sprintf("ann-%d", i), "points": 1})
	}
	args["results"] = results
	return args
}

func (ch *check) compareRequests(t *testing.T, requests []record, waits []int) {
	want := max(len(ch.Paths), len(ch.Keys), len(ch.Parts), len(ch.Waits)+1)
	if ch.Requests != nil {
		want = *ch.Requests
	}
	if len(requests) != want && want >= 0 {
		t.Fatalf("the client made %d requests %.500q, want %d", len(requests), requests, want)
	}
	for i, r := range requests {
		if i < len(ch.Paths) && r.Method+" "+r.Path != ch.Paths[i] {
			t.Errorf("request %d is %s %s, want %s", i, r.Method, r.Path, ch.Paths[i])
		}
		if i < len(ch.Keys) && r.Authorization != ch.Keys[i] {
			t.Errorf("request %d has the authorization %q, want %q", i, r.Authorization, ch.Keys[i])
		}
		if ch.SameBodies && !bytes.Equal(r.Body, requests[0].Body) {
			t.Errorf("request %d has the body %.500s, want %.500s", i, r.Body, requests[0].Body)
		}
		var batch struct{ Results []any }
		if _ = json.Unmarshal(r.Body, &batch); i < len(ch.Parts) && len(batch.Results) != ch.Parts[i] {
			t.Errorf("request %d has %d results, want %d", i, len(batch.Results), ch.Parts[i])
		}
	}
	if ch.Body != nil {
		if err := match(ch.Body, decode(requests[0].Body)); err != nil {
			t.Errorf("the body of the first request: %v\n%.2000s", err, requests[0].Body)
		}
	}
	if ch.Waits != nil && len(waits) != len(ch.Waits) {
		t.Fatalf("the client waited %v ms, want at least %v", waits, ch.Waits)
	}
	for i, least := range ch.Waits {
		// The random part grows to 5 seconds.
		if waits[i] < least || waits[i] > least+5000 {
			t.Errorf("wait %d: %d ms, want %d and at most 5,000 more", i, waits[i], least)
		}
	}
}

func decode(data []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	_ = d.Decode(&v)
	return v
}

func marshal(v any) []byte {
	data, _ := json.Marshal(v)
	return data
}

// match reports a part of want that got lacks. Texts in want that begin and end with an asterisk need only be
// contained, and "?" stands for any value.
func match(want, got any) error {
	switch w := want.(type) {
	case nil:
		return nil
	case map[string]any:
		g, ok := got.(map[string]any)
		for name, value := range w {
			if _, has := g[name]; !ok || !has {
				return fmt.Errorf("no field %s, want %s", name, marshal(value))
			}
			if err := match(value, g[name]); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Errorf("%.300s, want a list of %d", marshal(got), len(w))
		}
		for i := range w {
			if err := match(w[i], g[i]); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		}
		return nil
	case string:
		if text, ok := got.(string); w == "?" && got != nil || ok && len(w) > 1 && w[0] == '*' && strings.Contains(text, strings.Trim(w, "*")) {
			return nil
		}
	}
	if !bytes.Equal(marshal(want), marshal(got)) {
		return fmt.Errorf("%.300s, want %s", marshal(got), marshal(want))
	}
	return nil
}

func post(t *testing.T, method, url string, body any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(marshal(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if answer, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d %s %v", method, url, res.StatusCode, answer, err)
	}
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestGo(t *testing.T) {
	path := filepath.Join(folder, "client.test")
	run(t, "../../client", "go", "test", "-c", "-vet=off", "-o", path, ".")
	suite(t, start(t, ".", path), false)
}

// example returns the program in a README, for a server.
func example(t *testing.T, readme, language, url string) string {
	t.Helper()
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	_, program, found := strings.Cut(string(text), "\n```"+language+"\n")
	program, _, _ = strings.Cut(program, "\n```\n")
	if !found || !strings.Contains(program, "http://127.0.0.1:8080") {
		t.Fatalf("%s has no program in %s", readme, language)
	}
	return strings.NewReplacer("http://127.0.0.1:8080", url, "KEY", key).Replace(program)
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const exampleOutput = "APPLIED 30\n1 ann 30\n1 users\n"

func TestGoExample(t *testing.T) {
	folder, err := filepath.Abs("../../client")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "main.go", example(t, "../../client/README.md", "go", serve(t)))
	write(t, dir, "go.mod", "module example\n\ngo 1.25.0\n\nrequire github.com/open-leaderboard/leaderboard/client v0.0.0\n\nreplace github.com/open-leaderboard/leaderboard/client => "+folder+"\n")
	if out := run(t, dir, "go", "run", "."); out != exampleOutput {
		t.Errorf("the example printed %q, want %q", out, exampleOutput)
	}
}
