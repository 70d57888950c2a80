//go:build !linux

package official

import "os/exec"

// On this system the command outlives this process if this process is killed.
func startWithParent(cmd *exec.Cmd) error { return cmd.Start() }
