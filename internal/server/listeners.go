package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
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

// listeners open, serve and close the sockets of a server, and bound their connections.
type listeners struct {
	opt      *Options
	log      *Log
	sockets  map[string]net.Listener // by name; inherited, or opened by open
	access   *access
	requests *metrics.Requests
	holders  *share.Holders // of the public listener's connections

	conns      *share.Conns       // of the public listener
	handshakes metrics.Handshakes // of the public listener
	trim       trimmer            // after handshakes
	public     *http.Server       // nil means not served
	lane       *ingest.FastLane   // nil means public serves all requests
	fronts     []runningFront
	admin      *http.Server // nil means not served

	publicAddr net.Addr
	listening  []listening // in the order in which they were opened
	ended      chan error  // the error of a listener that failed
}

// A listening describes an open listener.
type listening struct {
	addr     net.Addr
	listener string // publicSocket, adminSocket, or a front's
}

func (s *listeners) httpServer(h http.Handler) *http.Server {
	c := s.opt
	return &http.Server{
		Handler:           closeAfterLast(h),
		ReadHeaderTimeout: min(c.ReadTimeout, 10*time.Second),
		ReadTimeout:       c.ReadTimeout,
		WriteTimeout:      2 * c.ReadTimeout, // from the end of the header; includes the wait for commits
		IdleTimeout:       2 * c.ReadTimeout,
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

// open opens the listeners that were not inherited. It comes before the store is opened, so that
// a server whose address is taken creates no data directory. Clients wait in the backlog.
func (s *listeners) open() error {
	for _, at := range s.opt.addrs() {
		if s.sockets[at.socket] != nil || *at.addr == "" {
			continue
		}
		l, err := net.Listen("tcp", *at.addr)
		if err != nil {
			return fmt.Errorf("open %s listener: %w%s", at.socket, err, listenHint(at.flag(), err))
		}
		s.sockets[at.socket] = l
	}
	s.publicAddr = s.sockets[publicSocket].Addr()
	return nil
}

// listenHint returns a remedy for an error of net.Listen with the address that a flag sets, or "".
func listenHint(flag string, err error) string {
	_, noSuchHost := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "; another process listens there, perhaps another pulsegate: choose another port with " + flag +
			", or port 0 for a free one"
	case noSuchHost, errors.Is(err, syscall.EADDRNOTAVAIL):
		return "; " + flag + " needs an address of this machine, such as 127.0.0.1"
	case errors.Is(err, syscall.EACCES):
		return "; ports below 1024 need a privilege: choose another port with " + flag
	}
	return ""
}

// servePublic serves the public listener. With a fast lane, connections begin there, with
// TLS after their handshake, and public serves those that leave it.
//
// posts counts the requests of the fast lane as well as those of public.
func (s *listeners) servePublic(h http.Handler, core *ingest.Core, hosts *hosts, posts *metrics.Route) error {
	s.public = s.httpServer(h)
	l, conns := s.sockets[publicSocket], s.conns
	s.public.ConnState = evictIdle(conns).ConnState
	if s.access.tls != nil {
		s.public.TLSConfig = s.access.tls.TLSConfig()
		s.public.Handler = s.access.closeExpired(s.public.Handler)
		l = s.secure(l, conns, s.public.TLSConfig)
	}
	if s.opt.FastLane == "on" {
		var usualHost func([]byte) bool
		if hosts != nil && !hosts.anyName {
			usualHost = hosts.usual
		}
		var err error
		s.lane, err = core.FastLane(l, ingest.FastLaneConfig{
			Host:          usualHost,
			TLS:           s.access.tls != nil,
			Loops:         loops(),
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
	s.serve(s.public, listen.Watch(l), publicSocket)
	return nil
}

// secure returns a listener whose connections have TLS.
func (s *listeners) secure(l net.Listener, conns *share.Conns, config *tls.Config) net.Listener {
	return listen.TLS(l, conns, listen.Handshakes{
		Config: config, Slots: maxHandshakes, Timeout: min(s.opt.ReadTimeout, 5*time.Second), Holders: s.holders,
		Requests: s.requests.Total,
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

// serveAdmin serves the admin listener. h bounds the times of its requests: see withDeadlines.
func (s *listeners) serveAdmin(h http.Handler) {
	s.admin = s.httpServer(h)
	s.admin.ReadTimeout, s.admin.WriteTimeout = 0, 0
	conns := &share.Conns{
		Max: maxAdminConns, MaxGuests: maxAdminGuests,
		Holders: &share.Holders{Exempt: s.holders.Exempt}, // counted apart from the public listener
	}
	s.admin.ConnState = evictIdle(conns).ConnState
	s.serve(s.admin, listen.Bound(s.sockets[adminSocket], conns), adminSocket)
}

// evictIdle returns what closes idle connections if there are guests.
func evictIdle(conns *share.Conns) *listen.Idle {
	idle := new(listen.Idle)
	conns.OnGuest = func() { idle.Evict(conns) }
	return idle
}

// serve serves a listener in the background.
func (s *listeners) serve(h *http.Server, l net.Listener, name string) {
	go func() {
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.ended <- fmt.Errorf("%s listener: %w", name, err)
		}
	}()
	s.listening = append(s.listening, listening{l.Addr(), name})
}

// url returns the URL of the public listener, for clients on this machine.
func (s *listeners) url() string {
	scheme := "http"
	if s.access.tls != nil {
		scheme = "https"
	}
	addr := s.publicAddr.String()
	if host, port, err := net.SplitHostPort(addr); err == nil && net.ParseIP(host).IsUnspecified() {
		addr = net.JoinHostPort("localhost", port)
	}
	return scheme + "://" + addr
}
