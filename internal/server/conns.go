package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// Bounds that have no flag.
const (
	// maxGuests is how many connections are taken beyond --max-conns, for one answer
	// each: 503 for readings, and what was asked for to all others. So a client
	// learns that there are too many, and health checks are answered.
	maxGuests = 64

	// maxAdminConns bounds the admin listener. Each of its profiles takes memory. Beyond
	// it, maxAdminGuests get one answer each, so that health checks are answered.
	maxAdminConns  = 64
	maxAdminGuests = 16

	// maxHandshakes bounds the TLS handshakes under way at one time, which take no places
	// from connections.
	maxHandshakes = 256

	// maxHeaderBytes bounds the header of a request.
	maxHeaderBytes = 16 << 10
)

func (s *server) httpServer(h http.Handler) *http.Server {
	c := s.opt
	return &http.Server{
		Handler:           endLast(h),
		ReadHeaderTimeout: min(c.ReadTimeout, 10*time.Second),
		ReadTimeout:       c.ReadTimeout,
		WriteTimeout:      2 * c.ReadTimeout, // from the end of the header; commits are waited for within it
		IdleTimeout:       c.IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          s.log.httpErrors(),
		ConnContext:       listen.Mark,

		DisableGeneralOptionsHandler: true, // endLast is to see every request

		// WriteTimeout ends a stream; the connection of a client that takes nothing more
		// would stay.
		HTTP2: &http.HTTP2Config{WriteByteTimeout: 2 * c.ReadTimeout},
	}
}

// endLast closes connections that must not take another request, after the answer.
//
// It needs to see every request, those for "OPTIONS *" too, which net/http would answer
// by itself.
func endLast(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if listen.Last(r) {
			w.Header().Set("Connection", "close")
		}
		if r.Method == http.MethodOptions && r.RequestURI == "*" {
			w.Header().Set("Content-Length", "0")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// listenPublic opens the public listener. Where there is a fast lane, connections begin
// there, and public serves those that leave it. With TLS there is none.
//
// posts counts the requests of the fast lane, as it does those of public.
func (s *server) listenPublic(posts *metrics.Route) error {
	l, err := s.life.listen(publicSocket, s.opt.Addr)
	if err != nil {
		return err
	}
	conns := &share.Conns{Max: s.opt.MaxConns, MaxGuests: maxGuests, Holders: &s.holders}
	idle := new(listen.Idle)
	conns.OnGuest = func() { idle.Evict(conns) }
	s.public.ConnState = idle.ConnState
	if s.access.tls != nil {
		s.access.protect(s.public)
		l = listen.TLS(l, conns, listen.Handshakes{
			Config: s.public.TLSConfig, Slots: maxHandshakes, Timeout: s.opt.HandshakeTimeout, Holders: &s.holders,
			Failed: func(c net.Conn, err error) {
				s.access.handshakeFailed(c, err)
				s.public.ErrorLog.Printf("http: TLS handshake error from %s: %v", c.RemoteAddr(), err)
			},
		})
		s.publicAddr = s.serve(s.public, l, publicSocket)
		return nil
	}
	if s.opt.FastLane == "on" {
		var usualHost func([]byte) bool
		if own := s.opt.ownHosts(); own != nil {
			usualHost = own.usual
		}
		s.lane, err = s.core.FastLane(l, ingest.FastLaneConfig{
			Host:          usualHost,
			Loops:         s.opt.Loops,
			Conns:         conns,
			HeaderTimeout: s.public.ReadHeaderTimeout,
			ReadTimeout:   s.public.ReadTimeout,
			WriteTimeout:  s.public.WriteTimeout,
			IdleTimeout:   s.public.IdleTimeout,
			Observe: func(status int, message []byte, took time.Duration) {
				posts.Observe(status, took)
				s.log.access.fastLane(status, message, took)
			},
		})
		switch {
		case err == nil:
			l = s.lane
		case !errors.Is(err, ingest.ErrNoFastLane):
			return errors.Join(fmt.Errorf("start fast lane: %w", err), l.Close())
		}
	}
	if s.lane == nil {
		l = listen.Bound(l, conns)
	}
	s.publicAddr = s.serve(s.public, listen.Watch(l), publicSocket)
	return nil
}

func (s *server) listenAdmin() error {
	l, err := s.life.listen(adminSocket, s.opt.AdminAddr)
	if err != nil {
		return err
	}
	conns := &share.Conns{
		Max: maxAdminConns, MaxGuests: maxAdminGuests,
		Holders: &share.Holders{Exempt: s.holders.Exempt}, // not what an address has of the public listener
	}
	idle := new(listen.Idle)
	conns.OnGuest = func() { idle.Evict(conns) }
	s.admin.ConnState = idle.ConnState
	s.serve(s.admin, listen.Bound(l, conns), adminSocket)
	return nil
}

// serve serves a listener in the background.
func (s *server) serve(h *http.Server, l net.Listener, name string) net.Addr {
	go func() {
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.ended <- fmt.Errorf("%s listener: %w", name, err)
		}
	}()
	s.listening = append(s.listening, listening{l.Addr(), name})
	return l.Addr()
}
