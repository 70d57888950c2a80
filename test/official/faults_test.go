package official

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

type fault struct {
	name    string
	results func(results []any)        // changes the results of a batch
	answer  func(data map[string]any)  // changes the answer to a list
	entry   func(entry map[string]any) // changes the last entry of a list
}

func object(v any) map[string]any { return v.(map[string]any) }

func add(object map[string]any, name string, n int64) {
	value, err := object[name].(json.Number).Int64()
	if err != nil {
		panic(err)
	}
	object[name] = json.Number(strconv.FormatInt(value+n, 10))
}

var faults = []fault{
	{name: "a result is lost", results: func(r []any) { r[100] = r[99] }},
	{name: "a result has too many points", results: func(r []any) { add(object(r[len(r)-1]), "points", 5) }},
	{name: "a result has a wrong time", results: func(r []any) { object(r[250])["achieved_at"] = "1899-03-01T00:00:00Z" }},
	{name: "a result has a wrong user", results: func(r []any) { object(r[200])["user_id"] = object(r[198])["user_id"] }},
	{name: "a score is off by one", entry: func(e map[string]any) { add(e, "score", 1) }},
	{name: "a rank is off by one", entry: func(e map[string]any) { add(e, "rank", 1) }},
	{name: "a rank is a string", entry: func(e map[string]any) { e["rank"] = e["rank"].(json.Number).String() }},
	{name: "a rank is missing", entry: func(e map[string]any) { delete(e, "rank") }},
	{name: "a time is wrong", entry: func(e map[string]any) { e["achieved_at"] = "1899-03-01T00:00:00Z" }},
	{name: "the total is off by one", answer: func(d map[string]any) { add(d, "total", 1) }},
	{name: "the count is off by one", answer: func(d map[string]any) { add(d, "count", 1) }},
	{name: "the season is wrong", answer: func(d map[string]any) { d["season"] = "1872" }},
	{name: "the method is wrong", answer: func(d map[string]any) { d["method"] = "dense" }},
	{name: "the answer is degraded", answer: func(d map[string]any) { d["degraded"] = true }},
	{name: "an entry is missing", answer: func(d map[string]any) {
		d["leaderboard"] = d["leaderboard"].([]any)[1:]
		add(d, "count", -1)
		add(d, "total", -1)
	}},
	{name: "two entries are swapped", answer: func(d map[string]any) {
		l := d["leaderboard"].([]any)
		l[0], l[1] = l[1], l[0]
	}},
}

// A proxy plants a fault between the check and the service. The check must fail with each fault,
// and pass without one.
func TestChecksFindPlantedFaults(t *testing.T) {
	const check = "^TestDecay$/^1900-01-01$" // a small check with every step of the larger checks
	target, err := url.Parse(server(t))
	if err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, f fault) (string, error) {
		proxy := httptest.NewServer(f.proxy(target))
		defer proxy.Close()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", check, "-test.v")
		cmd.Env = append(os.Environ(), serverVariable+"="+proxy.URL)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(t, fault{}); err != nil || !strings.Contains(out, "--- PASS: TestDecay/1900-01-01") {
		t.Fatalf("without a fault, the check failed or did not run, want a pass: %v\n%s", err, out)
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			out, err := run(t, f)
			if err == nil || !strings.Contains(out, "--- FAIL: TestDecay/1900-01-01") {
				t.Errorf("the check passed or did not run, want a failure: %v\n%s", err, out)
			}
		})
	}
}

func (f fault) proxy(target *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if f.results == nil || !strings.HasSuffix(r.In.URL.Path, "/scores:batch") {
				return
			}
			r.Out.Body, r.Out.ContentLength = rewrite(r.In.Body, func(body map[string]any) { f.results(body["results"].([]any)) })
		},
		ModifyResponse: func(resp *http.Response) error {
			if !strings.HasSuffix(resp.Request.URL.Path, "/scores") || f.results != nil {
				return nil
			}
			resp.Body, resp.ContentLength = rewrite(resp.Body, func(body map[string]any) {
				data := object(body["data"])
				if f.answer != nil {
					f.answer(data)
				}
				if entries := data["leaderboard"].([]any); f.entry != nil {
					f.entry(object(entries[len(entries)-1]))
				}
			})
			resp.Header.Del("Content-Length")
			return nil
		},
	}
}

func rewrite(body io.ReadCloser, change func(map[string]any)) (io.ReadCloser, int64) {
	defer body.Close()
	d := json.NewDecoder(body)
	d.UseNumber()
	var all map[string]any
	if err := d.Decode(&all); err != nil {
		panic(err)
	}
	change(all)
	out, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return io.NopCloser(bytes.NewReader(out)), int64(len(out))
}
