package clients

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A fault is what the proxy does with one request. The zero fault passes the request to the server.
type fault struct {
	Status  int
	Reason  string
	Headers map[string]string
	Body    string // of the answer; by default the server's error with the reason
	// Lose passes the request, and closes the connection without an answer. Break does so in mid-answer.
	Lose, Break bool
	// Events ends a stream after this number of events, with the text in Then.
	Events int
	Then   string
	Times  int // by default 1
}

type record struct {
	Method, Path, Authorization string
	Body                        []byte
}

// proxy answers as the faults demand, and records the requests.
type proxy struct {
	*httptest.Server
	target string

	mu       sync.Mutex
	faults   []fault
	requests []record
}

func newProxy(t *testing.T, target string) *proxy {
	p := &proxy{target: target}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *proxy) expect(faults []fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults, p.requests = nil, nil
	for _, f := range faults {
		for range max(f.Times, 1) {
			p.faults = append(p.faults, f)
		}
	}
}

func (p *proxy) seen() []record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

func (p *proxy) next(r *http.Request, body []byte) (f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, record{r.Method, r.URL.EscapedPath(), r.Header.Get("Authorization"), body})
	if len(p.faults) > 0 {
		f, p.faults = p.faults[0], p.faults[1:]
	}
	return f
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	f := p.next(r, body)
	if f.Status != 0 {
		answer(w, f)
		return
	}
	req, err := http.NewRequestWithContext(r.Context(), r.Method, p.target+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header = r.Header.Clone()
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer res.Body.Close()
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	switch {
	case f.Lose:
		panic(http.ErrAbortHandler)
	case f.Events > 0:
		stream(w, res.Body, f)
	case f.Break:
		half(w, res)
	default:
		w.WriteHeader(res.StatusCode)
		flush(w, res.Body)
	}
}

func answer(w http.ResponseWriter, f fault) {
	for name, value := range f.Headers {
		w.Header().Set(name, value)
	}
	if f.Body == "" {
		w.Header().Set("Content-Type", "application/json")
		f.Body = fmt.Sprintf(`{"code":14,"status":"UNAVAILABLE","message":"planned","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":%q,"domain":"leaderboard"}]}`, f.Reason)
	}
	w.WriteHeader(f.Status)
	_, _ = io.WriteString(w, f.Body)
}

// half writes half of an answer.
func half(w http.ResponseWriter, res *http.Response) {
	data, err := io.ReadAll(res.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	w.WriteHeader(res.StatusCode)
	flush(w, bytes.NewReader(data[:len(data)/2]))
	panic(http.ErrAbortHandler)
}

// stream writes some events, then a text.
func stream(w http.ResponseWriter, body io.Reader, f fault) {
	var text strings.Builder
	for buffer := make([]byte, 4096); strings.Count(text.String(), "\n\n") < f.Events; {
		n, err := body.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	events := strings.SplitAfter(text.String(), "\n\n")
	flush(w, strings.NewReader(strings.Join(events[:f.Events], "")+f.Then))
	if f.Then == "" {
		panic(http.ErrAbortHandler)
	}
}

func flush(w http.ResponseWriter, body io.Reader) {
	for buffer := make([]byte, 32<<10); ; {
		n, err := body.Read(buffer)
		_, _ = w.Write(buffer[:n])
		_ = http.NewResponseController(w).Flush()
		if err != nil {
			return
		}
	}
}
