//go:build !linux

package official

import "os/exec"

// If the test process is killed, the command continues to run.
func startWithParent(cmd *exec.Cmd) error { return cmd.Start() }
