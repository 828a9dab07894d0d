package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/tlsfiles"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// Bounds that have no flag.
const (
	// maxGuests is the number of connections accepted in excess of --max-conns, for
	// one answer each: 503 for readings, and the usual answer for all other requests.
	// So clients learn of the overload, and health checks are answered.
	maxGuests = 64

	// maxAdminConns bounds the connections of the admin listener, because each profile
	// takes memory. maxAdminGuests more get one answer each, so that health checks are
	// answered.
	maxAdminConns  = 64
	maxAdminGuests = 16

	// maxHandshakes bounds the concurrent TLS handshakes. They do not count as
	// connections.
	maxHandshakes = 256

	// maxHeaderBytes bounds the header of a request.
	maxHeaderBytes = 16 << 10
)

func (s *server) httpServer(h http.Handler) *http.Server {
	c := s.opt
	return &http.Server{
		Handler:           closeAfterLast(h),
		ReadHeaderTimeout: min(c.ReadTimeout, 10*time.Second),
		ReadTimeout:       c.ReadTimeout,
		WriteTimeout:      2 * c.ReadTimeout, // from the end of the header; includes the wait for commits
		IdleTimeout:       c.IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          s.log.httpErrors(),
		ConnContext:       listen.Mark,

		DisableGeneralOptionsHandler: true, // closeAfterLast is to see every request

		// WriteTimeout ends an HTTP/2 stream, but the connection of a client that no
		// longer reads would stay open.
		HTTP2: &http.HTTP2Config{WriteByteTimeout: 2 * c.ReadTimeout},
	}
}

// closeAfterLast closes connections that must not serve another request, after the answer.
//
// It must see every request, including "OPTIONS *", which net/http would otherwise
// answer itself.
func closeAfterLast(next http.Handler) http.Handler {
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

// bind opens the listeners that were not inherited. It comes before the store is opened, so that
// a server whose address is taken creates no data directory. Clients wait in the backlog.
func (s *server) bind() error {
	if err := s.life.bind(publicSocket, s.opt.Addr); err != nil || s.opt.AdminAddr == "" {
		return err
	}
	return s.life.bind(adminSocket, s.opt.AdminAddr)
}

// listenPublic serves the public listener. With a fast lane, connections begin there, with
// TLS after their handshake, and public serves those that leave it.
//
// posts counts the requests of the fast lane as well as those of public.
func (s *server) listenPublic(posts *metrics.Route) error {
	l, conns := s.life.sockets[publicSocket], s.conns
	idle := new(listen.Idle)
	conns.OnGuest = func() { idle.Evict(conns) }
	s.public.ConnState = idle.ConnState
	if s.access.tls != nil {
		s.access.protect(s.public)
		l = listen.TLS(l, conns, listen.Handshakes{
			Config: s.public.TLSConfig, Slots: maxHandshakes, Timeout: s.opt.HandshakeTimeout, Holders: &s.holders, Requests: s.requests.Total,
			Done: func(cs tls.ConnectionState) {
				s.handshakes.Done(cs.Version, cs.DidResume)
				s.trim.handshake()
			},
			Failed: func(c net.Conn, err error) {
				s.handshakes.Failed(failureOf(err))
				if errors.Is(err, listen.ErrRefused) {
					return // not an error of the client
				}
				s.access.handshakeFailed(c, err)
			},
		})
	}
	if s.opt.FastLane == "on" {
		var usualHost func([]byte) bool
		if s.hosts != nil && !s.hosts.anyName {
			usualHost = s.hosts.usual
		}
		var err error
		s.lane, err = s.core.FastLane(l, ingest.FastLaneConfig{
			Host:          usualHost,
			TLS:           s.access.tls != nil,
			Loops:         s.opt.Loops,
			Conns:         conns,
			HeaderTimeout: s.public.ReadHeaderTimeout,
			ReadTimeout:   s.public.ReadTimeout,
			WriteTimeout:  s.public.WriteTimeout,
			IdleTimeout:   s.public.IdleTimeout,
			Observe: func(status int, message []byte, took time.Duration, tlsVersion uint16) {
				posts.Observe(status, took)
				s.requests.InFastLane(tlsVersion)
				s.log.access.fastLane(status, message, took)
			},
		})
		switch {
		case err == nil:
			l = s.lane
		case !errors.Is(err, errors.ErrUnsupported):
			return errors.Join(fmt.Errorf("start fast lane: %w", err), l.Close())
		}
	}
	if s.lane == nil && s.access.tls == nil {
		l = listen.Bound(l, conns)
	}
	s.publicAddr = s.serve(s.public, listen.Watch(l), publicSocket)
	return nil
}

// failureOf returns why a handshake has failed.
func failureOf(err error) metrics.HandshakeFailure {
	op, _ := errors.AsType[*net.OpError](err)
	ended := op != nil && op.Op != "local error" // an alert from the client, or an error of the socket
	_, notTLS := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case errors.Is(err, listen.ErrRefused):
		return metrics.HandshakeRefused
	case errors.Is(err, os.ErrDeadlineExceeded):
		return metrics.HandshakeTimeout
	case tlsfiles.IsClientRefused(err):
		return metrics.HandshakeCertificate
	case notTLS, errors.Is(err, listen.ErrHTTP):
		return metrics.HandshakeNotTLS
	case ended, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return metrics.HandshakeEnded
	}
	return metrics.HandshakeProtocol
}

func (s *server) listenAdmin() {
	conns := &share.Conns{
		Max: maxAdminConns, MaxGuests: maxAdminGuests,
		Holders: &share.Holders{Exempt: s.holders.Exempt}, // counted apart from the public listener
	}
	idle := new(listen.Idle)
	conns.OnGuest = func() { idle.Evict(conns) }
	s.admin.ConnState = idle.ConnState
	s.serve(s.admin, listen.Bound(s.life.sockets[adminSocket], conns), adminSocket)
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
