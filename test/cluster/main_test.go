package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

// envOrphans makes the test binary start servers, print their process ids and wait until it is
// killed.
const envOrphans = "CLUSTER_TEST_ORPHANS"

func TestMain(m *testing.M) {
	if os.Getenv(envOrphans) != "" {
		if err := leaveOrphans(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {}
	}
	os.Exit(Main(m))
}

func leaveOrphans() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cassandra, err := StartCassandra(ctx, CassandraConfig{})
	if err != nil {
		return err
	}
	kafka, err := StartKafka(ctx, KafkaConfig{})
	if err != nil {
		return err
	}
	redis, err := StartRedisCluster(ctx, RedisConfig{})
	if err != nil {
		return err
	}
	var pids []string
	for _, c := range []*Cluster{cassandra, kafka, redis} {
		for _, s := range c.Servers {
			pids = append(pids, strconv.Itoa(s.PID()))
		}
	}
	fmt.Println(strings.Join(pids, " "))
	return nil
}

func TestServersEndWithAKilledTestProcess(t *testing.T) {
	needs.Slow(t, "clusters")
	needs.Servers(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), envOrphans+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the child printed no process ids: %v, %v", err, cmd.Wait())
	}
	var pids []int
	for _, field := range strings.Fields(line) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		if !alive(pid) {
			t.Errorf("server process %d ended before its parent", pid)
		}
		pids = append(pids, pid)
	}
	if len(pids) != 1+1+6 { // Cassandra, Kafka and Redis Cluster
		t.Fatalf("process ids %v, want 8", pids)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the child exited with status 0, want SIGKILL to end it")
	}
	waitGone(t, pids)
}

// A process that ended but was not reaped (a zombie) is not alive.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	state := stat[strings.LastIndexByte(string(stat), ')')+2]
	return state != 'Z' && state != 'X'
}

func waitGone(t *testing.T, pids []int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := poll(ctx, func(context.Context) error {
		for _, pid := range pids {
			if alive(pid) {
				return fmt.Errorf("process %d still runs", pid)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func pidsOf(t *testing.T, c *Cluster) []int {
	t.Helper()
	var pids []int
	for _, s := range c.Servers {
		if s.PID() == 0 || !alive(s.PID()) {
			t.Errorf("%s: process %d does not run", s.Name, s.PID())
		}
		pids = append(pids, s.PID())
	}
	return pids
}

// shell returns a cluster that is not started. Its one server runs script and is ready at once.
func shell(t *testing.T, script string) *Cluster {
	t.Helper()
	c, err := newCluster("shell", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := c.add("shell-1")
	if err != nil {
		t.Fatal(err)
	}
	s.Addr = c.ports.addr("127.0.0.1", 0)
	s.listens = []string{s.Addr}
	s.command = func([]*Server) (*exec.Cmd, error) { return exec.Command("/bin/sh", "-c", script), nil }
	c.checkReady = func(context.Context, []*Server) error { return nil }
	return c
}

// The next test needs a goroutine on a thread that can end. The main thread never ends, so init
// reserves it for the main goroutine.
func init() { runtime.LockOSThread() }

func TestServerOutlivesTheThreadThatStartedIt(t *testing.T) {
	c := shell(t, "exec sleep 1000")
	ended := make(chan int)
	go func() {
		runtime.LockOSThread() // The goroutine never unlocks the thread, so both end together.
		tid := syscall.Gettid()
		if err := c.Start(t.Context()); err != nil {
			t.Error(err)
		}
		ended <- tid
	}()
	tid := <-ended
	err := poll(t.Context(), func(context.Context) error {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); err == nil {
			return fmt.Errorf("thread %d still exists", tid)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if pid := c.Servers[0].PID(); pid == 0 || !alive(pid) {
		t.Errorf("server process %d ended with the thread that called Start", pid)
	}
}

func TestStartFailsAtOnceIfAServerExits(t *testing.T) {
	c := shell(t, "echo no space left; exit 3")
	c.checkReady = func(context.Context, []*Server) error { return errors.New("not yet") }
	err := c.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("Start = %v, want an error with the server's log and exit status 3", err)
	}
	if pid := c.Servers[0].PID(); pid != 0 {
		t.Errorf("PID after the exit = %d, want 0", pid)
	}
}

func TestStartEndsWhenItsContextIsDone(t *testing.T) {
	c := shell(t, "echo still starting; exec sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	c.checkReady = func(context.Context, []*Server) error { cancel(); return errors.New("no quorum") }
	err := c.Start(ctx)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "no quorum") {
		t.Errorf("Start = %v, want context.Canceled and the last error of checkReady", err)
	}
}

func TestStopKillsAServerThatIgnoresSIGTERM(t *testing.T) {
	c := shell(t, `trap "" TERM; echo trapped; exec sleep 1000`)
	s := c.Servers[0]
	c.checkReady = func(context.Context, []*Server) error {
		if log := s.logTail(); log != "trapped\n" {
			return fmt.Errorf("log is %q, want \"trapped\"", log)
		}
		return nil
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := s.PID()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop = %v, want context.DeadlineExceeded", err)
	}
	if alive(pid) {
		t.Error("the server still runs after Stop")
	}
	if err := s.Stop(t.Context()); err == nil {
		t.Error("Stop of a server that is not running = nil, want an error")
	}
}

func TestPauseSuspendsAndResumeContinues(t *testing.T) {
	c := shell(t, "exec sleep 1000")
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := c.Servers[0]
	state := func() string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(b))[2]
	}
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if got := state(); got != "T" {
		t.Errorf("state of a paused server = %s, want T (stopped)", got)
	}
	if live := c.liveServers(); len(live) != 0 {
		t.Errorf("live servers while paused = %v, want none", addrs(live))
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	err := poll(t.Context(), func(context.Context) error {
		if got := state(); got == "T" {
			return errors.New("server is still suspended")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("Stop of a paused server = %v, want nil", err)
	}
}

func TestStartWaitsUntilItsPortsAreFree(t *testing.T) {
	c := shell(t, "exec sleep 1000")
	s := c.Servers[0]
	l := listen(t, s.Addr)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := c.Start(ctx); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Start with a taken port = %v, want EADDRINUSE", err)
	}
	l.Close()
	if err := c.Start(t.Context()); err != nil {
		t.Errorf("Start with a free port = %v, want nil", err)
	}
}
