//go:build !linux

package mqtt

import (
	"errors"
	"net"

	"github.com/pulsegate/pulsegate/internal/api/front"
)

// startLoops returns an error that wraps errors.ErrUnsupported.
func (*Server) startLoops(net.Listener) (front.Loops, error) { return nil, errors.ErrUnsupported }
