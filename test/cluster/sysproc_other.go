//go:build !linux

package cluster

import (
	"errors"
	"fmt"
	"syscall"
)

func sysProcAttr() (*syscall.SysProcAttr, error) {
	return nil, fmt.Errorf("starting servers needs Linux (parent-death signal, 127.0.0.2): use docker compose and set %s…: %w",
		EnvCassandra, errors.ErrUnsupported)
}

func waitStopped(int) error { return errors.ErrUnsupported }
