package browser_test

import (
	"os/exec"
	"syscall"
)

// endWithTest makes a command end with the test's process, also if that is killed. Scripts pass SIGTERM on.
func endWithTest(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
