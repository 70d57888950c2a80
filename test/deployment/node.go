package deployment

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/cluster"
)

// Node is a process of the program. The methods of [cluster.Server] kill, pause, resume, stop,
// start and restart it. Start returns once the process is ready.
type Node struct {
	*cluster.Server
	*Client        // calls /readyz; also the REST API, if the process has the role api
	GRPC    string // host:port
	// Program is the path of the program, and Flags are the flags of "leaderboard serve". A change
	// applies to the next start.
	Program string
	Flags   []string
	run     func(t testing.TB, args ...string) *exec.Cmd
}

// Client calls the REST API.
type Client struct {
	URL string // without a slash at the end
	Key string // the API key
}

// Serve starts a process of the deployment and returns once /readyz reports that it is ready. The
// flags of "leaderboard serve" override the deployment's settings. When t ends, the process is
// killed.
func (d *Deployment) Serve(t testing.TB, flags ...string) *Node {
	t.Helper()
	n := &Node{Client: &Client{Key: d.Key}, Program: d.Program, Flags: flags, run: d.Command}
	n.Server = cluster.Program(t, cluster.ProgramConfig{
		Name: "leaderboard", Ports: 2,
		Command: func(_ string, addrs []string) *exec.Cmd {
			n.URL, n.GRPC = "http://"+addrs[0], addrs[1]
			args := []string{"serve", "--config", d.Config, "--http", addrs[0], "--grpc", addrs[1]}
			return exec.Command(n.Program, append(args, n.Flags...)...)
		},
		Ready: func(ctx context.Context, _ []string) error { return n.Ready(ctx) },
	})
	return n
}

// Embedded starts a process with the embedded engine on the folder data. It needs no servers. The
// rules of [Deployment.Serve] apply. The admin key is the node's Key, also after a change. With the flag
// --tls-cert=FILE, [http.DefaultClient] must trust the certificate.
func Embedded(t testing.TB, data string, flags ...string) *Node {
	t.Helper()
	n := &Node{Client: &Client{Key: adminKey}, Program: Program(t), Flags: flags}
	n.run = func(t testing.TB, args ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), n.Program, args...)
	}
	n.Server = cluster.Program(t, cluster.ProgramConfig{
		Name: "leaderboard", Ports: 2,
		Command: func(_ string, addrs []string) *exec.Cmd {
			n.URL, n.GRPC = "http://"+addrs[0], addrs[1]
			if slices.ContainsFunc(n.Flags, func(f string) bool { return strings.HasPrefix(f, "--tls-cert=") }) {
				n.URL = "https://" + addrs[0]
			}
			cmd := exec.Command(n.Program, append([]string{"serve", "--data", data, "--http", addrs[0], "--grpc", addrs[1]}, n.Flags...)...)
			cmd.Env = append(os.Environ(), "LEADERBOARD_ADMIN_KEY="+n.Key)
			return cmd
		},
		Ready: func(ctx context.Context, _ []string) error { return n.Ready(ctx) },
	})
	return n
}

// Command returns a client command that sends its requests to the node. It does not start the
// command.
func (n *Node) Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	cmd := n.run(t, args...)
	cmd.Env = append(os.Environ(), "LEADERBOARD_SERVER="+n.GRPC, "LEADERBOARD_KEY="+n.Key)
	return cmd
}

// Ready returns nil if /readyz answers 200 within five seconds.
func (c *Client) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return errors.Join(fmt.Errorf("GET /readyz: status %d: %s", resp.StatusCode, body), err)
	}
	return nil
}

// Board creates a board and returns its id, which is unique and begins with name. The settings are
// the body of POST /v1/boards without the id. The board remains when t ends.
func (c *Client) Board(t testing.TB, name string, settings map[string]any) string {
	t.Helper()
	settings = maps.Clone(settings)
	id := name + "-" + strings.ToLower(rand.Text()[:8])
	settings["board_id"] = id
	var answer json.RawMessage
	if status, err := c.Call(t.Context(), http.MethodPost, "/v1/boards", settings, &answer); err != nil || status/100 != 2 {
		t.Fatalf("create board %s: status %d, error %v, want a status of 200 to 299; answer: %s", id, status, err, answer)
	}
	return id
}

// Call sends a request with the key and returns the answer's status. It encodes body as JSON, and
// decodes the answer's JSON into answer. body and answer may be nil. Call returns an error if no
// answer arrives, or if it cannot decode the answer.
func (c *Client) Call(ctx context.Context, method, path string, body, answer any) (status int, err error) {
	var input io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		input = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, input)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	output, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if answer != nil {
		if err := json.Unmarshal(output, answer); err != nil {
			return resp.StatusCode, fmt.Errorf("%s %s: status %d: %w in %.300s", method, path, resp.StatusCode, err, output)
		}
	}
	return resp.StatusCode, nil
}

// Metric returns the value of a series, such as leaderboard_cassandra_nodes{state="up"}. If name has
// no labels, Metric returns the sum of the metric's series. A missing metric is 0.
func (n *Node) Metric(ctx context.Context, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	sum := 0.0
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		sample, value, _ := strings.Cut(lines.Text(), " ")
		if metric, _, _ := strings.Cut(sample, "{"); metric == name || sample == name {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			sum += v
		}
	}
	return sum, lines.Err()
}
