//go:build !unix

package main

import "log/slog"

// fitConns knows no limit of open files.
func fitConns(*serveCommand, bool, *slog.Logger) (files uint64) { return 0 }
