package ingest

import (
	"cmp"
	"crypto/tls"
	"net"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
)

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
// one that wraps errors.ErrUnsupported, l is unchanged and still belongs to the caller.
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
		Memory:       &c.memory,
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
