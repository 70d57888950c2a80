//go:build !linux

package cluster

import (
	"errors"
	"fmt"
	"syscall"
)

func sysProcAttr() (*syscall.SysProcAttr, error) {
	return nil, fmt.Errorf("cluster: starting servers needs Linux; run the tests with docker-compose.tests.yml, or name running servers in %s and similar variables: %w",
		EnvCassandra, errors.ErrUnsupported)
}

func waitStopped(int) error { return errors.ErrUnsupported }
