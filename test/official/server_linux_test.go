package official

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startWithParent starts a command that the kernel kills when this process ends. The kernel also
// kills it when the starting thread ends, so that thread is kept.
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
