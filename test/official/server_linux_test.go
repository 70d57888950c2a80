package official

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startWithParent starts a command that the kernel ends when this process does,
// however that comes about. It counts the end of the starting thread, so that
// one is kept.
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
