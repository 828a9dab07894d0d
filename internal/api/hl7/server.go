package hl7

import (
	"cmp"
	"net"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/front"
)

// ServerOptions configure a [Server]. Fields without a default are required.
type ServerOptions struct {
	front.Options // MaxBytes is at least 4 KiB

	Messages    Options       // its functions are those of the server
	IdleTimeout time.Duration // between two messages; default 20 min

	// OnUnknown, if not nil, is called once for each sender of a message that is ignored as a whole. sender is a
	// gateway, or the kind of the sender's address.
	OnUnknown func(sender string)
}

// A Server serves the connections of a listener with MLLP.
type Server struct {
	*front.Server
	opt      ServerOptions
	counters counters
}

// Serve serves the connections of l, which it takes ownership of. The caller must call Shutdown.
func Serve(l net.Listener, opt ServerOptions) *Server {
	s := &Server{Server: front.New(&opt.Options)}
	opt.MaxBytes = max(opt.MaxBytes, minMessage)
	opt.IdleTimeout = cmp.Or(opt.IdleTimeout, 20*time.Minute)
	s.opt = opt
	s.counters.acknowledged = map[string]*atomic.Uint64{accepted: {}, failed: {}, rejected: {}}
	s.counters.unknown = map[string]uint64{others: 0}
	s.Server.Serve(l, nil, s.serve)
	return s
}
