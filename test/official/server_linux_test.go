package official

import (
	"os/exec"
	"runtime"
	"syscall"
)

// The kernel kills the command when this process ends, but also when the starting thread ends. So
// that thread is kept.
func startWithParent(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- cmd.Start()
		select {}
	}()
	return <-started
}
