package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// state is the content of the state file. The process that runs the servers holds the lock of the
// file.
type state struct {
	PID int      `json:"pid"`
	Env []string `json:"env"` // NAME=value; empty while the servers start
}

// openState opens the state file and tries to lock it. lockedByOther is true if another process runs
// the servers.
func openState(path string) (f *os.File, lockedByOther bool, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, false, err
	}
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, false, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
		release(f)
		return nil, false, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, err != nil, nil
}

// release closes f, which releases the lock if this process holds it.
func release(f *os.File) { _ = f.Close() }

func readState(f *os.File) (s state, err error) {
	if err := json.NewDecoder(f).Decode(&s); err != nil {
		return s, fmt.Errorf("read state in %s: %w", f.Name(), err)
	}
	return s, nil
}

func writeState(f *os.File, s state) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	return err
}

func printEnv(w io.Writer, env []string) {
	for _, v := range env {
		fmt.Fprintln(w, "export", v)
	}
}

// up runs servers until ctx is done. If another process already runs them, up only prints their
// variables.
func up(ctx context.Context, s servers, stdout, stderr io.Writer) error {
	f, lockedByOther, err := openState(s.state)
	if err != nil {
		return err
	}
	defer release(f)
	if lockedByOther {
		return printRunning(f, stdout, stderr)
	}
	if err := writeState(f, state{PID: os.Getpid()}); err != nil {
		return err
	}
	defer func() { _ = f.Truncate(0) }() // Nothing reads an unlocked state file.
	env, stop, err := s.start(ctx, stderr)
	if err != nil {
		return err
	}
	if err := writeState(f, state{PID: os.Getpid(), Env: env}); err != nil {
		return errors.Join(err, stop())
	}
	printEnv(stdout, env)
	if pipe, ok := stdout.(*os.File); ok && os.Getenv(envDetached) != "" {
		_ = pipe.Close() // All servers are ready. upDetached reads until the pipe is closed.
	}
	fmt.Fprintln(stderr, "cluster: servers run until Ctrl-C or `cluster down`")
	<-ctx.Done()
	return stop()
}

func printRunning(f *os.File, stdout, stderr io.Writer) error {
	s, err := readState(f)
	if err != nil {
		return err
	}
	if len(s.Env) == 0 {
		return fmt.Errorf("process %d is still starting the servers; try again in half a minute", s.PID)
	}
	fmt.Fprintf(stderr, "cluster: process %d already runs these servers\n", s.PID)
	printEnv(stdout, s.Env)
	return nil
}

// envDetached is set in the child of upDetached. The child must close its standard output once its
// servers are ready.
const envDetached = "LEADERBOARD_CLUSTER_DETACHED"

func upDetached(ctx context.Context, s servers, args []string, stdout, stderr io.Writer) error {
	f, lockedByOther, err := openState(s.state)
	if err != nil {
		return err
	}
	if lockedByOther {
		defer release(f)
		return printRunning(f, stdout, stderr)
	}
	release(f) // The child takes the lock.

	logPath := s.state + ".log"
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // The child keeps its own descriptor.
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, append(append([]string{"up"}, args...), "-d=false")...)
	cmd.Env = append(os.Environ(), envDetached+"=1")
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "cluster: starting servers in the background, which takes about half a minute; log in %s\n", logPath)
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	exports, err := io.ReadAll(pipe)
	if err != nil {
		return err
	}
	if len(exports) == 0 {
		err := cmd.Wait()
		output, _ := os.ReadFile(logPath)
		return fmt.Errorf("the background process exited before its servers were ready: %w; its log:\n%s", err, strings.TrimSpace(string(output)))
	}
	_, err = stdout.Write(exports)
	return errors.Join(err, cmd.Process.Release())
}

func down(ctx context.Context, path string, stderr io.Writer) error {
	f, lockedByOther, err := openState(path)
	if err != nil {
		return err
	}
	defer release(f)
	if !lockedByOther {
		fmt.Fprintln(stderr, "cluster: no servers are running")
		return nil
	}
	s, err := readState(f)
	if err != nil {
		return err
	}
	// The process that holds the lock still runs, so the process id still belongs to it.
	if err := syscall.Kill(s.PID, syscall.SIGTERM); err != nil {
		return fmt.Errorf("end process %d: %w", s.PID, err)
	}
	gone := make(chan error, 1)
	go func() { gone <- syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }()
	select {
	case err := <-gone:
		if err == nil {
			fmt.Fprintln(stderr, "cluster: servers stopped")
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("process %d has not stopped its servers yet; run `cluster down` again: %w", s.PID, context.Cause(ctx))
	}
}
