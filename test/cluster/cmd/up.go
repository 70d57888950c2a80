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

// state is what up leaves for down and for another up. Up holds the file's lock
// for as long as its servers run, so that a file without it is of a dead one.
type state struct {
	PID int      `json:"pid"`
	Env []string `json:"env"` // NAME=value; empty while the servers start
}

// openState opens the state file and reports whether an up holds its lock.
func openState(path string) (f *os.File, held bool, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, false, err
	}
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, false, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return nil, false, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, err != nil, nil
}

func readState(f *os.File) (s state, err error) {
	if err := json.NewDecoder(f).Decode(&s); err != nil {
		return s, fmt.Errorf("state in %s: %w", f.Name(), err)
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

// up holds servers up until ctx ends. If another up does already, it prints
// that one's variables.
func up(ctx context.Context, s servers, stdout, stderr io.Writer) error {
	f, held, err := openState(s.state)
	if err != nil {
		return err
	}
	defer f.Close()
	if held {
		return printRunning(f, stdout, stderr)
	}
	if err := writeState(f, state{PID: os.Getpid()}); err != nil {
		return err
	}
	defer f.Truncate(0)
	env, stop, err := s.start(ctx, stderr)
	if err != nil {
		return err
	}
	if err := writeState(f, state{PID: os.Getpid(), Env: env}); err != nil {
		return errors.Join(err, stop())
	}
	printEnv(stdout, env)
	if pipe, ok := stdout.(*os.File); ok && os.Getenv(envDetached) != "" {
		pipe.Close() // Tells upDetached that all is ready.
	}
	fmt.Fprintln(stderr, "cluster: up until Ctrl-C or `cluster down`")
	<-ctx.Done()
	return stop()
}

func printRunning(f *os.File, stdout, stderr io.Writer) error {
	s, err := readState(f)
	if err != nil {
		return err
	}
	if len(s.Env) == 0 {
		return fmt.Errorf("process %d is starting the servers; try again in a while", s.PID)
	}
	fmt.Fprintf(stderr, "cluster: process %d holds these up already\n", s.PID)
	printEnv(stdout, s.Env)
	return nil
}

// envDetached tells the child of upDetached that its standard output is read
// until it is closed.
const envDetached = "LEADERBOARD_CLUSTER_DETACHED"

// upDetached runs up as a process of its own and returns when that is ready.
func upDetached(ctx context.Context, s servers, args []string, stdout, stderr io.Writer) error {
	f, held, err := openState(s.state)
	if err != nil {
		return err
	}
	defer f.Close()
	if held {
		return printRunning(f, stdout, stderr)
	}
	f.Close() // The child takes the lock.

	logPath := s.state + ".log"
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	defer log.Close()
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
	fmt.Fprintf(stderr, "cluster: starting in the background (about half a minute); log in %s\n", logPath)
	if err := cmd.Start(); err != nil {
		return err
	}
	giveUp := context.AfterFunc(ctx, func() { cmd.Process.Signal(syscall.SIGTERM) })
	defer giveUp()
	exports, err := io.ReadAll(pipe)
	if err != nil {
		return err
	}
	if len(exports) == 0 {
		err := cmd.Wait()
		said, _ := os.ReadFile(logPath)
		return fmt.Errorf("the background process ended before its servers were ready: %w\n%s", err, strings.TrimSpace(string(said)))
	}
	_, err = stdout.Write(exports)
	return errors.Join(err, cmd.Process.Release())
}

// down ends the up of a state file and returns when it is gone.
func down(ctx context.Context, path string, stderr io.Writer) error {
	f, held, err := openState(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if !held {
		fmt.Fprintln(stderr, "cluster: nothing is up")
		return nil
	}
	s, err := readState(f)
	if err != nil {
		return err
	}
	// The lock is held, so its holder lives and the id is still its own.
	if err := syscall.Kill(s.PID, syscall.SIGTERM); err != nil {
		return fmt.Errorf("end process %d: %w", s.PID, err)
	}
	gone := make(chan error, 1)
	go func() { gone <- syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }()
	select {
	case err := <-gone:
		if err == nil {
			fmt.Fprintln(stderr, "cluster: down")
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("process %d has not ended yet: %w", s.PID, context.Cause(ctx))
	}
}
