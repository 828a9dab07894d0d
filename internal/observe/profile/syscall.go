package profile

import "strings"

// gateways are the functions by which system calls go, whatever their number. The
// first frame outside of them has the call's name.
var gateways = []rule{
	{Kernel, "internal/runtime/syscall/...", []string{"Syscall6"}},
	{Kernel, "syscall", []string{"Syscall", "RawSyscall", "rawSyscall", "AllThreadsSyscall"}},
	{Kernel, "golang.org/x/sys/unix", []string{"Syscall", "RawSyscall", "SyscallNoError", "RawSyscallNoError"}},
}

// runtimeCalls are system calls that the runtime makes in assembly, without a
// gateway (runtime/sys_linux_amd64.s).
var runtimeCalls = map[string]bool{
	"futex": true, "usleep": true, "osyield": true, "madvise": true, "sysMmap": true, "sysMunmap": true, "mincore": true,
	"write1": true, "read": true, "open": true, "closefd": true, "pipe2": true, "tgkill": true, "raise": true,
	"clone": true, "rtsigprocmask": true, "sigaltstack": true, "timer_settime": true, "timer_create": true,
	"setitimer": true, "sched_getaffinity": true, "exit": true, "exitThread": true,
}

// isKernelEntry reports whether a function enters the kernel, and whether it does
// so for calls of any name.
func isKernelEntry(pkg, base string) (kernel, gateway bool) {
	if match(gateways, pkg, base) == Kernel {
		return true, true
	}
	return pkg == "runtime" && runtimeCalls[base], false
}

// syscallOf returns the name of the system call that a stack of the part Kernel
// is in, such as "write", or "other" where the frames do not tell.
func syscallOf(stack []frame) string {
	for _, f := range stack {
		switch {
		case f.gateway:
			continue
		case f.pkg == "runtime" && f.kernel, f.pkg == "syscall", f.pkg == "golang.org/x/sys/unix",
			strings.HasPrefix(f.pkg, "internal/runtime/syscall"),
			f.pkg == modulePath+"/internal/wire/eventloop": // its recv and send
			return callName(f.base)
		}
		return "other"
	}
	return "other"
}

// callName turns the name of a wrapper into that of its call, as far as wrappers
// follow a pattern: syscall.write and unix.Fdatasync do, runtime.write1 nearly.
func callName(base string) string {
	name := strings.TrimRight(strings.ToLower(base), "0123456789")
	switch name {
	case "sysmmap":
		return "mmap"
	case "sysmunmap":
		return "munmap"
	case "closefd":
		return "close"
	case "epollwait":
		return "epoll_wait"
	case "epollctl":
		return "epoll_ctl"
	case "accept": // of accept4
		return "accept"
	}
	return name
}
