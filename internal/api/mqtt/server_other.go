//go:build !linux

package mqtt

import (
	"errors"
	"net"
)

// startLoops returns an error that wraps errors.ErrUnsupported.
func (*Server) startLoops(net.Listener) (loops, error) { return nil, errors.ErrUnsupported }
