package cluster

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// For Pdeathsig, see starter in server.go. Setpgid keeps a terminal's Ctrl-C from the child.
func sysProcAttr() (*syscall.SysProcAttr, error) {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}, nil
}

// waitStopped waits until every thread of pid has stopped, or pid has ended.
func waitStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case err == nil, errors.Is(err, unix.ECHILD):
			return nil
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("waitid %d: %w", pid, err)
		}
	}
}
