//go:build !unix

package server

import "math"

// filesLimit knows no limit of open files.
func filesLimit() uint64 { return math.MaxUint64 }
