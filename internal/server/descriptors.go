//go:build unix

package server

import (
	"math"

	"golang.org/x/sys/unix"
)

// filesLimit returns how many files this process may have open. Go's runtime has already
// raised the soft limit to the hard one.
func filesLimit() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxUint64 // not known
	}
	return uint64(limit.Cur)
}
