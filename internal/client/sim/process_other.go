//go:build !unix

package sim

import (
	"net"
	"time"
)

// processTime returns 0: the CPU time of the process is not known here.
func processTime() time.Duration { return 0 }

// fitFiles returns nil: there is no limit of open files here.
func fitFiles(int) error { return nil }

// closedByPeer returns false: there is no way to look without reading.
func closedByPeer(net.Conn) bool { return false }
