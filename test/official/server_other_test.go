//go:build !linux

package official

import "os/exec"

// startWithParent starts a command. Here it may outlive this process if that is
// killed.
func startWithParent(cmd *exec.Cmd) error { return cmd.Start() }
