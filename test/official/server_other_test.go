//go:build !linux

package official

import "os/exec"

// If this process is killed, the command continues to run.
func startWithParent(cmd *exec.Cmd) error { return cmd.Start() }
