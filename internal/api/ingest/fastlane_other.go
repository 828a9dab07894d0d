//go:build !linux

package ingest

import (
	"context"
	"errors"
	"net"
)

// A FastLane is not supported on this platform. The full lane serves everything.
type FastLane struct{ net.Listener }

// FastLane returns an error that wraps errors.ErrUnsupported, and leaves l as it is.
func (c *Core) FastLane(net.Listener, FastLaneConfig) (*FastLane, error) {
	return nil, errors.ErrUnsupported
}

// Beat returns true.
func (*FastLane) Beat() bool { return true }

// Shutdown does nothing.
func (*FastLane) Shutdown(context.Context) error { return nil }

// Stats returns zero.
func (*FastLane) Stats() (s struct {
	Accepted, Moved, Expired uint64
	Open                     int64
}) {
	return s
}
