//go:build !linux

package official

import "os/exec"

// startWithParent starts a command. On this system the command outlives this process if
// this process is killed.
func startWithParent(cmd *exec.Cmd) error { return cmd.Start() }
