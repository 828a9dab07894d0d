//go:build !unix

package sim

import "time"

// processTime returns 0: the CPU time of the process is not known here.
func processTime() time.Duration { return 0 }
