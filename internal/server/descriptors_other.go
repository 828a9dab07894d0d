//go:build !unix

package server

import "math"

// filesLimit reports no limit on this platform.
func filesLimit() uint64 { return math.MaxUint64 }
