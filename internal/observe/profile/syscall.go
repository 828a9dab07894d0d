package profile

import "strings"

// gateways are the functions through which system calls with any number go. The first
// frame outside of them has the name of the call.
var gateways = []rule{
	{Kernel, []string{"internal/runtime/syscall/..."}, []string{"Syscall6"}},
	{Kernel, []string{"syscall"}, []string{"Syscall", "RawSyscall", "rawSyscall", "AllThreadsSyscall"}},
	{Kernel, []string{"golang.org/x/sys/unix"}, []string{"Syscall", "RawSyscall", "SyscallNoError", "RawSyscallNoError"}},
}

// callPackages are the packages whose functions are named after system calls.
var callPackages = []rule{{Kernel, []string{"internal/runtime/syscall/...", "syscall", "golang.org/x/sys/unix", laneSockets}, nil}}

// runtimeCalls are the system calls that the runtime makes directly in assembly
// (runtime/sys_linux_amd64.s).
var runtimeCalls = map[string]bool{
	"futex": true, "usleep": true, "osyield": true, "madvise": true, "sysMmap": true, "sysMunmap": true, "mincore": true,
	"write1": true, "read": true, "open": true, "closefd": true, "pipe2": true, "tgkill": true, "raise": true,
	"clone": true, "rtsigprocmask": true, "sigaltstack": true, "timer_settime": true, "timer_create": true,
	"setitimer": true, "sched_getaffinity": true, "exit": true, "exitThread": true,
}

// callNames maps wrappers to calls whose names differ by more than capitals and
// trailing digits, as in runtime.write1.
var callNames = map[string]string{
	"sysmmap": "mmap", "sysmunmap": "munmap", "closefd": "close", "epollwait": "epoll_wait", "epollctl": "epoll_ctl",
}

// syscallOf returns the name of the system call of a stack in part Kernel, such as
// "write", or "other" if the frames do not show it.
func syscallOf(stack []frame) string {
	for _, f := range stack {
		if f.gateway {
			continue
		}
		if !f.kernel && match(callPackages, f.pkg, f.base) == "" {
			break
		}
		name := strings.TrimRight(strings.ToLower(f.base), "0123456789")
		if known, ok := callNames[name]; ok {
			return known
		}
		return name
	}
	return "other"
}
