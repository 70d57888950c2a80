package official

import (
	"os/exec"
	"runtime"
	"syscall"
)

// The kernel kills the command when the thread that started the command ends. So startWithParent
// keeps this thread until the test process ends.
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
