//go:build !linux

package server

import "log/slog"

// warnVolatile recognises file systems on Linux only.
func warnVolatile(*slog.Logger, string) {}
