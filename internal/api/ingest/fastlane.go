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

// ErrNoFastLane means that the fast lane is not supported on this platform, or for this
// kind of listener. The full lane serves everything.
var ErrNoFastLane = eventloop.ErrUnsupported

// A FastLaneConfig sets the bounds of a [FastLane]. Zero fields take the default.
type FastLaneConfig struct {
	Loops int // event loops; default 1

	// Conns bounds the connections open at one time, in both lanes. Guests get one answer each:
	// readings are rejected, other requests go to the full lane. Their net.Conn has a method
	// Guest that returns true. Default: 65,536 connections, and no guests.
	Conns *share.Conns

	// Host, if not nil, reports whether the lane handles requests with this Host field; others go to
	// the full lane, which may reject them. It must not retain the field, and is called for each request.
	Host func(field []byte) bool

	HeaderTimeout time.Duration // for the header of a request; default 10 s
	ReadTimeout   time.Duration // for a whole request; default 60 s
	WriteTimeout  time.Duration // for a client to read an answer; default 60 s
	IdleTimeout   time.Duration // between two requests; default 120 s

	// Observe, if not nil, is called for every request that the lane answers, with the
	// status, the answer as it is sent, the time from the arrival of the request's last byte to
	// its answer, and the TLS version, or 0. The message is valid during the call, and
	// empty if the client has disconnected. Observe is called by several goroutines and must
	// not block.
	Observe func(status int, message []byte, d time.Duration, tlsVersion uint16)

	// TLS means that the listener is one of listen.TLS. Connections that negotiated another
	// protocol than HTTP/1.1 go to the full lane immediately.
	TLS bool
}

// A FastLane is the front of a [Core] for the usual request, which package fastparse
// recognises. Every connection begins in it. After any other request, a connection moves
// to the full lane and stays there: Accept returns it, with the bytes that were already
// read, to an http.Server with [Core.Handler]. So a FastLane is a
// net.Listener; Close, which that http.Server calls when it stops, ends only Accept.
//
// Call [Core.Drain], then Shutdown, at the same time as the Shutdown of the http.Server;
// see [eventloop.Server.Shutdown].
//
// # Promise
//
// A client cannot distinguish the lanes, except by the order of header fields: answers,
// limits and counters are the Core's. The same tests run on both. Answers are sent in the
// order of the requests, also on a connection that changes lanes.
//
// In steady state a request does not allocate.
type FastLane struct{ *eventloop.Server }

// FastLane returns a lane that accepts the connections of l, and takes ownership of l.
// The caller must call Shutdown before it closes the Core. After an error, such as
// ErrNoFastLane, l is unchanged and still belongs to the caller.
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

// speaksHTTP1 reports whether a client uses HTTP/1.1, which is the default without ALPN.
func speaksHTTP1(cs tls.ConnectionState) bool {
	return cs.NegotiatedProtocol == "" || cs.NegotiatedProtocol == "http/1.1"
}

// bodyMemory counts the memory of connections against the bound on all bodies.
type bodyMemory struct{ core *Core }

func (m bodyMemory) Reserve(h *share.Holder, n int) bool { return m.core.reserve(h, n) }
func (m bodyMemory) Release(h *share.Holder, n int)      { m.core.free(h, n) }

// http1 returns the fields of a response that are not part of its answer.
func http1(date []byte, closes bool) reply.HTTP1 {
	m := reply.HTTP1{Date: date}
	if closes {
		m.Connection = "close"
	}
	return m
}
