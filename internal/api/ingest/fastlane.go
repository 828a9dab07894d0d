package ingest

import (
	"cmp"
	"crypto/tls"
	"net"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/reply"
)

// ErrNoFastLane means that there is no fast lane on this system, or for this kind
// of listener. The full lane serves everything.
var ErrNoFastLane = eventloop.ErrUnsupported

// A FastLaneConfig sets the bounds of a [FastLane]. Zero fields take the default.
type FastLaneConfig struct {
	Loops    int // event loops; default 1
	MaxConns int // connections open at one time, in both lanes; default 65,536

	// MaxGuests is the number of connections beyond MaxConns that get one answer
	// each: readings are refused, anything else goes to the full lane. Their net.Conn
	// has a method Guest that returns true. Default 0.
	MaxGuests int

	// Conns bounds the connections in place of MaxConns and MaxGuests, and divides them
	// by address. Nil: they are not divided.
	Conns *share.Conns

	// Host reports whether requests with this Host field are for the lane; others go to
	// the full lane, which may refuse them. It must not retain the field, nor allocate.
	// Nil: all are.
	Host func(field []byte) bool

	HeaderTimeout time.Duration // for the header of a request; default 10 s
	ReadTimeout   time.Duration // for a whole request; default 60 s
	WriteTimeout  time.Duration // for a client to take an answer; default 60 s
	IdleTimeout   time.Duration // between two requests; default 120 s

	// Observe is told of every request that the lane answers: its status, the
	// answer as it is sent, the time from the arrival of its last byte to its
	// answer, and the version of TLS, or 0. The message is valid during the call, and
	// empty when the client has gone. Observe is called by several goroutines and must
	// not block. Nil: nobody is told.
	Observe func(status int, message []byte, d time.Duration, tlsVersion uint16)

	// TLS says that the listener is one of listen.TLS. Connections that have not chosen
	// HTTP/1.1 go to the full lane at once.
	TLS bool
}

// A FastLane is the front of a [Core] for the usual request: the one that package
// fastparse recognises. Every connection begins in it. One that brings anything else
// goes to the full lane for good, with what was read of it: it is then returned
// by Accept, for an http.Server with [Core.Handler] behind it. So a FastLane is a
// net.Listener; Close, which that http.Server calls when it stops, ends Accept alone.
//
// Shutdown ends the lane, as [eventloop.Server.Shutdown] says, at the same time as the
// http.Server is shut down. The answers say what the Core decides: call [Core.Drain]
// before.
//
// # Promise
//
// A client cannot tell the lanes apart: answers, limits and counters are the
// Core's, and differ in nothing but the order of header fields. The same tests
// run over both. Answers leave in the order of the requests, also on a
// connection that changes lanes.
//
// In steady state a request allocates nothing.
type FastLane struct{ *eventloop.Server }

// FastLane returns a lane that takes the connections of l, which are its own from
// now on. The caller must call Shutdown before it closes the Core. After an error,
// of which ErrNoFastLane is the usual one, l is as it was.
func (c *Core) FastLane(l net.Listener, cfg FastLaneConfig) (*FastLane, error) {
	cfg.HeaderTimeout = cmp.Or(cfg.HeaderTimeout, 10*time.Second)
	cfg.ReadTimeout = cmp.Or(cfg.ReadTimeout, 60*time.Second)
	var takes func(tls.ConnectionState) bool
	if cfg.TLS {
		takes = speaksHTTP1
	}
	server, err := eventloop.Serve(l, eventloop.Config{
		TLS:          takes,
		Handler:      func(loop *eventloop.Loop) eventloop.Handler { return newLane(c, loop, &cfg) },
		Memory:       bodyMemory{c},
		MaxMessage:   fastparse.MaxBytes,
		Loops:        cfg.Loops,
		MaxConns:     cfg.MaxConns,
		MaxGuests:    cfg.MaxGuests,
		Conns:        cfg.Conns,
		StartTimeout: cfg.HeaderTimeout,
		IdleTimeout:  cfg.IdleTimeout,
		WriteTimeout: cfg.WriteTimeout,
	})
	if err != nil {
		return nil, err
	}
	return &FastLane{server}, nil
}

// speaksHTTP1 reports whether a client speaks HTTP/1.1. One that has chosen nothing does.
func speaksHTTP1(cs tls.ConnectionState) bool {
	return cs.NegotiatedProtocol == "" || cs.NegotiatedProtocol == "http/1.1"
}

// bodyMemory lets what connections hold count against the bound on all bodies.
type bodyMemory struct{ core *Core }

func (m bodyMemory) Reserve(h *share.Holder, n int) bool { return m.core.reserve(h, n) }
func (m bodyMemory) Release(h *share.Holder, n int)      { m.core.free(h, n) }

// http1 returns what belongs to one response and not to its answer.
func http1(date []byte, closes bool) reply.HTTP1 {
	m := reply.HTTP1{Date: date}
	if closes {
		m.Connection = "close"
	}
	return m
}
