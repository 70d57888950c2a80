package official

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startWithParent starts a command that the kernel kills when this process ends for any
// reason. The kernel also kills the command when the thread that started it ends.
// Therefore startWithParent keeps that thread until this process ends.
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
