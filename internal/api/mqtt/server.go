package mqtt

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/rejections"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

// Options configure a [Server]. Fields without a default are required.
type Options struct {
	Core       *ingest.Core
	Gate       *gate.Gate // the zero Gate lets every client publish
	Problems   *problem.Set
	Rejections *rejections.List
	Signs      *vitals.Signs
	Topic      Topic
	Mapped     []Mapped // further topics; the first that matches is used
	Conns      *share.Conns
	Idle       *listen.Idle // gets the idle connections that have a goroutine; nil means that none of them is evicted
	Holders    *share.Holders

	TLS      bool // the listener is one of listen.TLS
	FastLane bool // use event loops where there are any
	Loops    int  // event loops; default 1

	MaxPacketBytes int           // of a packet; default ingest.DefaultMaxBatchBytes
	StartTimeout   time.Duration // for the CONNECT packet; default 10 s
	ReadTimeout    time.Duration // for a packet; default 60 s
	WriteTimeout   time.Duration // for a client to read an answer; default 60 s

	Now func() time.Time // default time.Now
}

// A service is what the lanes of a Server share.
type service struct {
	opt      Options
	topics   []Mapped // the usual one first, whose input is nil
	counters counters
}

type counters struct {
	accepted, refused, held, slowed atomic.Uint64
	publications                    [3]atomic.Uint64 // by QoS
	endings                         [numEndings]atomic.Uint64
}

// A Server serves the connections of a listener. Call [ingest.Core.Drain] and then Shutdown before the Core is
// closed.
type Server struct {
	service
	origin net.Listener
	loops  loops         // nil means that every connection has a goroutine
	conns  *listen.Group // those that have a goroutine
	hold   ingest.Hold   // their publications
}

// loops are the event loops of a Server.
type loops interface {
	AcceptState() (net.Conn, any, error)
	Close() error
	Shutdown(context.Context) error
	Beat() bool
}

// Serve serves the connections of l, which it takes ownership of. The caller must call Shutdown. After an error l is
// unchanged.
func Serve(l net.Listener, opt Options) (*Server, error) {
	opt.Loops = max(opt.Loops, 1)
	opt.MaxPacketBytes = cmp.Or(opt.MaxPacketBytes, ingest.DefaultMaxBatchBytes)
	opt.StartTimeout = cmp.Or(opt.StartTimeout, 10*time.Second)
	opt.ReadTimeout = cmp.Or(opt.ReadTimeout, 60*time.Second)
	opt.WriteTimeout = cmp.Or(opt.WriteTimeout, 60*time.Second)
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Idle == nil {
		opt.Idle = new(listen.Idle)
	}
	s := &Server{service: service{opt: opt, topics: append([]Mapped{{Topic: opt.Topic}}, opt.Mapped...)}, origin: l, conns: listen.NewGroup()}
	s.hold = ingest.Hold{Core: opt.Core, Until: s.conns.Draining, Held: &s.counters.held}
	if opt.FastLane {
		var err error
		if s.loops, err = s.startLoops(l); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
	}
	if s.loops == nil && !opt.TLS {
		s.origin = listen.Bound(l, opt.Conns)
	}
	s.conns.Serve(s.accept)
	return s, nil
}

// accept returns a connection that the loops move, or any if there are none, and what serves it.
func (s *Server) accept() (c net.Conn, serve func(), err error) {
	st := &session{}
	if s.loops == nil {
		c, err = s.origin.Accept()
	} else {
		var state any
		if c, state, err = s.loops.AcceptState(); state != nil {
			st = state.(*session)
		}
	}
	return c, func() { s.serve(c, st) }, err
}

// Shutdown stops accepting, and ends each connection once what has begun is answered. If ctx ends first, it closes the
// rest and returns an error that wraps ctx's.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.loops == nil {
		return s.conns.Shutdown(ctx, s.origin)
	}
	s.conns.Drain()
	return errors.Join(s.loops.Shutdown(ctx), s.conns.Shutdown(ctx, s.loops))
}

// Beat reports whether the event loops are alive: see eventloop.Server.Beat.
func (s *Server) Beat() bool { return s.loops == nil || s.loops.Beat() }

// Addr returns the address of the listener.
func (s *Server) Addr() net.Addr { return s.origin.Addr() }
