package drills

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// statementVariable is the address of a Cassandra node. A process of this test that has it is cqlsh.
const statementVariable = "LEADERBOARD_DRILL_CASSANDRA"

func TestMain(m *testing.M) {
	if node := os.Getenv(statementVariable); node != "" {
		if err := execute(node, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "cqlsh:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(deployment.Main(m))
}

// execute is cqlsh -e STATEMENT.
func execute(node string, args []string) error {
	if len(args) != 2 || args[0] != "-e" {
		return fmt.Errorf("want -e STATEMENT, got %q", args)
	}
	session, err := gocql.NewCluster(node).CreateSession()
	if err != nil {
		return err
	}
	defer session.Close()
	return session.Query(args[1]).Consistency(gocql.All).Exec()
}

// drill runs the blocks of a section in their order, in one folder.
type drill struct {
	t      *testing.T
	dir    string
	blocks []string
	// env has the variables of the next block.
	env map[string]string
}

func newDrill(t *testing.T, page, section string, blocks int) *drill {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, text2, ok := strings.Cut(string(text), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", page, section)
	}
	text2, _, _ = strings.Cut(text2, "\n## ")
	d := &drill{t: t, dir: t.TempDir(), env: map[string]string{}}
	for _, block := range strings.Split(text2, "\n```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "\n```")
		d.blocks = append(d.blocks, block)
	}
	if len(d.blocks) != blocks {
		t.Fatalf("the section %q has %d blocks of commands, want %d: adapt the test", section, len(d.blocks), blocks)
	}
	if err := os.Mkdir(filepath.Join(d.dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.program("leaderboard", deployment.Program(t))
	t.Cleanup(func() {
		if len(d.blocks) > 0 && !t.Failed() {
			t.Errorf("the test did not run %q", d.blocks)
		}
	})
	return d
}

// program makes a command that the blocks can call.
func (d *drill) program(name string, command ...string) {
	d.t.Helper()
	for i, c := range command {
		command[i] = "'" + strings.ReplaceAll(c, "'", `'\''`) + "'"
	}
	script := "#!/bin/sh\nexec " + strings.Join(command, " ") + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(d.dir, "bin", name), []byte(script), 0o700); err != nil { //nolint:gosec // a program
		d.t.Fatal(err)
	}
}

// node makes nodetool and cqlsh for a Cassandra node.
func (d *drill) node(s *cluster.Server) {
	d.t.Helper()
	cmd, err := cluster.NodetoolCommand(d.t.Context(), s)
	if err != nil {
		d.t.Fatal(err)
	}
	d.program("nodetool", append([]string{cmd.Path}, cmd.Args[1:]...)...)
	d.program("cqlsh", "env", statementVariable+"="+s.Addr, os.Args[0])
}

// at lets the client commands of the next blocks call a server.
func (d *drill) at(n *deployment.Node) {
	d.env["LEADERBOARD_SERVER"], d.env["LEADERBOARD_KEY"] = n.GRPC, n.Key
}

// next runs the next block, and returns its output.
func (d *drill) next() string {
	d.t.Helper()
	block := d.blocks[0]
	d.blocks = d.blocks[1:]
	return d.again(block)
}

// again runs a block.
func (d *drill) again(block string) string {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), "bash", "-euo", "pipefail", "-c", block)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(d.dir, "bin")+":"+os.Getenv("PATH"))
	for name, value := range d.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("%v:\n%s\n%s", err, block, out)
	}
	d.t.Logf("%s\n%s", block, out)
	return string(out)
}

func (d *drill) file(name string) string {
	d.t.Helper()
	text, err := os.ReadFile(filepath.Join(d.dir, name))
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// status returns the status of a read with a key or token.
func status(ctx context.Context, n *deployment.Node, key string) (int, error) {
	c := deployment.Client{URL: n.URL, Key: key}
	return c.Call(ctx, http.MethodGet, "/v1/boards/default/scores", nil, nil)
}

func checkKey(t *testing.T, n *deployment.Node, what, key string, want int) {
	t.Helper()
	if got, err := status(t.Context(), n, key); err != nil || got != want {
		t.Errorf("a read with %s: status %d, error %v; want %d", what, got, err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func contains(t *testing.T, out string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}

// submit submits results of users on a board, and waits until all have ranks.
func submit(t *testing.T, n *deployment.Node, board string, match string, users int) {
	t.Helper()
	for i := range users {
		body := map[string]any{"user_id": fmt.Sprintf("user-%03d", i), "match_id": match, "score": i + 1}
		deployment.Eventually(t, func(ctx context.Context) error {
			got, err := n.Call(ctx, http.MethodPost, "/v1/boards/"+board+"/scores", body, nil)
			if err == nil && got/100 != 2 {
				err = fmt.Errorf("submit: status %d", got)
			}
			return err
		})
	}
	waitForUsers(t, n, board, users)
}

// waitForUsers waits until a board has exactly the given number of users, the best being the last.
func waitForUsers(t *testing.T, n *deployment.Node, board string, users int) {
	t.Helper()
	deployment.Eventually(t, func(ctx context.Context) error {
		var answer struct {
			Data struct {
				Total       *int
				Degraded    bool
				Leaderboard []struct {
					UserID string `json:"user_id"`
					Rank   int
				}
			}
		}
		got, err := n.Call(ctx, http.MethodGet, "/v1/boards/"+board+"/scores?limit=1", nil, &answer)
		if err != nil {
			return err
		}
		d := answer.Data
		if got != http.StatusOK || d.Degraded || d.Total == nil || *d.Total != users || len(d.Leaderboard) != 1 || d.Leaderboard[0].UserID != fmt.Sprintf("user-%03d", users-1) || d.Leaderboard[0].Rank != 1 {
			return fmt.Errorf("board %s: status %d, answer %+v; want %d users", board, got, d, users)
		}
		return nil
	})
}

var errNotYet = errors.New("not yet")
