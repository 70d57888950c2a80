package faults

import (
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// clockVariable is the environment variable with the path of a file that has a number of seconds, in
// eight bytes. The program that shiftedProgram builds adds these seconds to its clock.
const clockVariable = "LEADERBOARD_TEST_CLOCK"

// shiftedClock replaces the first lines of [time.Now]. The file is mapped into memory, so a change
// of the file changes the clock at once. Monotonic times do not change, as after a step of a real
// clock.
const shiftedClock = `
var clockShift = func() *int64 {
	path, ok := syscall.Getenv("` + clockVariable + `")
	if !ok {
		return new(int64)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		panic(err)
	}
	shift, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*int64)(unsafe.Pointer(&shift[0]))
}()

func Now() Time {
	sec, nsec, mono := runtimeNow()
	sec += atomic.LoadInt64(clockShift)
`

func shiftedProgram(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	must(t, err)
	m := mutant{name: "a shifted clock", file: filepath.Join(strings.TrimSpace(string(root)), "src/time/time.go"), edits: []edit{
		{"\nfunc Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", shiftedClock},
		{"\nimport (\n", "\nimport (\n\t\"sync/atomic\"\n\t\"syscall\"\n"},
		{"\t_ \"unsafe\" ", "\t\"unsafe\" "},
	}}
	program := filepath.Join(t.TempDir(), "leaderboard")
	cmd := exec.Command("go", "build", "-overlay", m.overlay(t), "-o", program, "github.com/open-leaderboard/leaderboard/cmd/leaderboard")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

type clock string

func newClock(t *testing.T, shift time.Duration) clock {
	t.Helper()
	c := clock(filepath.Join(t.TempDir(), "shift"))
	c.step(t, shift)
	return c
}

func (c clock) step(t *testing.T, shift time.Duration) {
	t.Helper()
	f, err := os.OpenFile(string(c), os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(int64(shift/time.Second))))
	must(t, err)
	must(t, f.Close())
}

// Under load, the clocks of the service's processes step by up to two hours, forward and backward.
// No call fails, and all answers are right.
func TestClocksApart(t *testing.T) {
	needs.Slow(t, "clocks")
	d := deployment.New(t, deployment.Options{})
	s := &service{Deployment: d, seed: seed.New(t)}
	d.Program = shiftedProgram(t)
	serve := func(c clock, flags ...string) *deployment.Node {
		t.Setenv(clockVariable, string(c)) // a running node keeps its environment
		return d.Serve(t, flags...)
	}
	const h = time.Hour
	clocks := []clock{newClock(t, h), newClock(t, -h), newClock(t, h), newClock(t, 0)}
	s.apis = []*deployment.Node{serve(clocks[0], "--roles=api"), serve(clocks[1], "--roles=api")}
	s.static = serve(clocks[2], "--roles=consumer", "--kafka-instance-id=static")
	s.dynamic = serve(clocks[3], "--roles=consumer")
	for i, node := range s.apis {
		checkClock(t, node, []time.Duration{h, -h}[i])
	}
	ledger := s.ledger(t, "clocks")
	load := s.load(t, ledger)
	histories := recordHistories(t, s.seed, s.apis[0], s.apis[0].Client, s.apis[1].Client)
	for _, shifts := range [][]time.Duration{{0, -h, 0, h}, {-h, 0, -h, 0}, {h, -h, 0, -h}} {
		load.waitForMore(t, 150)
		for i, c := range clocks {
			c.step(t, shifts[i])
		}
		for i, node := range s.apis {
			checkClock(t, node, shifts[i])
		}
	}
	load.waitForMore(t, 150)
	load.stop()
	if f := load.figures(); f.errors > 0 {
		t.Errorf("%d calls failed, want 0", f.errors)
	}
	histories.check(t)
	check(t, ledger, s.apis...)
}

func checkClock(t *testing.T, n *deployment.Node, want time.Duration) {
	t.Helper()
	board := n.Board(t, "clock", object{"policy": "BEST", "order": "HIGHER_FIRST", "season": object{"schedule": "NONE"}})
	var answer struct {
		CreatedAt time.Time `json:"created_at"`
	}
	deployment.Eventually(t, func(ctx context.Context) error {
		_, err := n.Call(ctx, "GET", "/v1/boards/"+board, nil, &answer)
		return err
	})
	if got := time.Until(answer.CreatedAt).Round(time.Minute); got != want {
		t.Errorf("the clock of %s is ahead by %v, want %v", n.Addr, got, want)
	}
}

// Under load, the clocks of Cassandra, Kafka and Redis step three times, forward and backward.
func TestClocksOfServersApart(t *testing.T) {
	needs.Slow(t, "clocks")
	clocks := shiftServers(t)
	cassandra := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: cluster.OneDC(3), Logf: t.Logf})
	kafka := cluster.Private(t, cluster.StartKafka, cluster.KafkaConfig{Brokers: 3, Logf: t.Logf})
	cache := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	t.Setenv("LD_PRELOAD", "") // the processes of the service use the real clock
	s := newService(t, deployment.Options{
		Cassandra: cassandra.Addrs(), CassandraReplicas: 3, Kafka: kafka.Addrs(), KafkaReplicas: 3, Redis: cache.Addrs(),
	})
	ledger := s.ledger(t, "clocks")
	load := s.load(t, ledger)
	histories := recordHistories(t, s.seed, s.apis[0], s.apis[0].Client, s.apis[1].Client)
	const h = time.Hour
	for i, shifts := range [][3]time.Duration{{h, -h, 0}, {-h, 0, h}, {0, h, -h}} {
		load.waitForMore(t, 150)
		step := func(server *cluster.Server, shift time.Duration) {
			path := filepath.Join(clocks, strconv.Itoa(server.PID()))
			if _, err := os.Stat(path); err != nil {
				t.Fatalf("%s does not use the test's clock: %v", server.Name, err)
			}
			clock(path).step(t, shift)
		}
		for j, shift := range shifts {
			step(cassandra.Servers[j], shift)
			step(kafka.Servers[j], shift)
		}
		step(cache.Servers[0], shifts[0])
		if i == 0 { // Cassandra's now() never goes back, and the later times are behind this one
			checkCassandraClock(t, cassandra.Servers[0], shifts[0])
		}
		checkRedisClock(t, cache.Servers[0], shifts[0])
	}
	load.waitForMore(t, 150)
	load.stop()
	f := load.figures()
	t.Logf("%v", f)
	if f.percent() > 1 {
		t.Errorf("%v: want at most 1 %% errors", f)
	}
	histories.check(t)
	check(t, ledger, s.apis...)
}

// After shiftServers, the servers that t starts use testdata/clock.c. A server's process id is the
// name of its clock's file in the folder.
func shiftServers(t *testing.T) (folder string) {
	t.Helper()
	library := filepath.Join(t.TempDir(), "clock.so")
	out, err := exec.Command("cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, "testdata/clock.c").CombinedOutput()
	if err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	folder = t.TempDir()
	t.Setenv("LEADERBOARD_TEST_CLOCKS", folder)
	t.Setenv("LD_PRELOAD", library)
	return folder
}

func checkCassandraClock(t *testing.T, node *cluster.Server, want time.Duration) {
	t.Helper()
	cfg := gocql.NewCluster(node.Addr)
	cfg.HostFilter = gocql.WhiteListHostFilter(cfg.Hosts...)
	session, err := cfg.CreateSession()
	must(t, err)
	defer session.Close()
	var now time.Time
	must(t, session.Query("SELECT toTimestamp(now()) FROM system.local").Scan(&now))
	if got := time.Until(now).Round(time.Minute); got != want {
		t.Errorf("the clock of %s is ahead by %v, want %v", node.Name, got, want)
	}
}

func checkRedisClock(t *testing.T, server *cluster.Server, want time.Duration) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer func() { _ = client.Close() }()
	now, err := client.Time(t.Context()).Result()
	must(t, err)
	if got := time.Until(now).Round(time.Minute); got != want {
		t.Errorf("the clock of %s is ahead by %v, want %v", server.Name, got, want)
	}
}
