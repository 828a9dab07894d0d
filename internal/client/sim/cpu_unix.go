//go:build unix

package sim

import (
	"time"

	"golang.org/x/sys/unix"
)

// processTime returns the CPU time that this process has used, user and system.
func processTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
