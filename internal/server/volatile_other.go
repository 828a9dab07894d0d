//go:build !linux

package server

import "log/slog"

// warnVolatile knows the file systems of Linux only.
func warnVolatile(*slog.Logger, string) {}
