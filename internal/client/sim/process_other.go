//go:build !unix

package sim

import (
	"net"
	"time"
)

// processTime returns 0: the CPU time of the process is unknown on this platform.
func processTime() time.Duration { return 0 }

// fitFiles returns nil: this platform has no limit on open files.
func fitFiles(int) error { return nil }

// closedByPeer returns false: this platform cannot check without reading.
func closedByPeer(net.Conn) bool { return false }
