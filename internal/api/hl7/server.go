package hl7

import (
	"cmp"
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/rejections"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// ServerOptions configure a [Server]. Fields without a default are required.
type ServerOptions struct {
	Messages   Options // its functions are those of the server
	Core       *ingest.Core
	Gate       *gate.Gate // the zero Gate lets every client send
	Problems   *problem.Set
	Rejections *rejections.List
	Conns      *share.Conns
	Idle       *listen.Idle // gets the idle connections; nil means that none is evicted
	Holders    *share.Holders
	TLS        bool // the listener is one of listen.TLS

	MaxMessageBytes int           // default ingest.DefaultMaxBatchBytes, at least 4 KiB
	IdleTimeout     time.Duration // between two messages; default 20 min
	ReadTimeout     time.Duration // for a message; default 60 s
	WriteTimeout    time.Duration // for a client to read an acknowledgement; default 60 s

	// OnUnknown, if not nil, is called once for each sender of a message that is ignored as a whole. sender is a
	// gateway, or the kind of the sender's address.
	OnUnknown func(sender string)

	Now func() time.Time // default time.Now
}

// A Server serves the connections of a listener with MLLP. Call [ingest.Core.Drain] and then Shutdown before the Core
// is closed.
type Server struct {
	opt      ServerOptions
	listener net.Listener
	counters counters
	conns    *listen.Group
	hold     ingest.Hold
}

// Serve serves the connections of l, which it takes ownership of. The caller must call Shutdown.
func Serve(l net.Listener, opt ServerOptions) *Server {
	opt.MaxMessageBytes = max(cmp.Or(opt.MaxMessageBytes, ingest.DefaultMaxBatchBytes), minMessage)
	opt.IdleTimeout = cmp.Or(opt.IdleTimeout, 20*time.Minute)
	opt.ReadTimeout = cmp.Or(opt.ReadTimeout, 60*time.Second)
	opt.WriteTimeout = cmp.Or(opt.WriteTimeout, 60*time.Second)
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Idle == nil {
		opt.Idle = new(listen.Idle)
	}
	if !opt.TLS {
		l = listen.Bound(l, opt.Conns)
	}
	s := &Server{opt: opt, listener: l, conns: listen.NewGroup()}
	s.counters.acknowledged = map[string]*atomic.Uint64{accepted: {}, failed: {}, rejected: {}}
	s.counters.unknown = map[string]uint64{others: 0}
	s.hold = ingest.Hold{Core: opt.Core, Until: s.conns.Draining, Held: &s.counters.held}
	s.conns.Serve(func() (net.Conn, func(), error) {
		c, err := l.Accept()
		return c, func() { s.serve(c) }, err
	})
	return s
}

// Shutdown stops accepting, and ends each connection once the message that has begun is answered. If ctx ends first,
// it closes the rest and returns an error that wraps ctx's.
func (s *Server) Shutdown(ctx context.Context) error { return s.conns.Shutdown(ctx, s.listener) }

// Addr returns the address of the listener.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }
