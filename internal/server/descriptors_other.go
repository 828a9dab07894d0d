//go:build !unix

package server

import "log/slog"

// fitConns knows no limit of open files.
func fitConns(*Options, bool, *slog.Logger) (files uint64) { return 0 }
