package profile

import "strings"

// gateways are the functions by which system calls go, whatever their number. The
// first frame outside of them has the call's name.
var gateways = []rule{
	{Kernel, []string{"internal/runtime/syscall/..."}, []string{"Syscall6"}},
	{Kernel, []string{"syscall"}, []string{"Syscall", "RawSyscall", "rawSyscall", "AllThreadsSyscall"}},
	{Kernel, []string{"golang.org/x/sys/unix"}, []string{"Syscall", "RawSyscall", "SyscallNoError", "RawSyscallNoError"}},
}

// callPackages are those whose functions have the names of system calls.
var callPackages = []rule{{Kernel, []string{"internal/runtime/syscall/...", "syscall", "golang.org/x/sys/unix", laneSockets}, nil}}

// runtimeCalls are system calls that the runtime makes in assembly, without a
// gateway (runtime/sys_linux_amd64.s).
var runtimeCalls = map[string]bool{
	"futex": true, "usleep": true, "osyield": true, "madvise": true, "sysMmap": true, "sysMunmap": true, "mincore": true,
	"write1": true, "read": true, "open": true, "closefd": true, "pipe2": true, "tgkill": true, "raise": true,
	"clone": true, "rtsigprocmask": true, "sigaltstack": true, "timer_settime": true, "timer_create": true,
	"setitimer": true, "sched_getaffinity": true, "exit": true, "exitThread": true,
}

// callNames are the names of calls whose wrappers are not called like them, but
// for capitals and digits at the end as syscall.write and runtime.write1 are.
var callNames = map[string]string{
	"sysmmap": "mmap", "sysmunmap": "munmap", "closefd": "close", "epollwait": "epoll_wait", "epollctl": "epoll_ctl",
}

// syscallOf returns the name of the system call that a stack of the part Kernel
// is in, such as "write", or "other" where the frames do not show it.
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
