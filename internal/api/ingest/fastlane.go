package ingest

import (
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

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
