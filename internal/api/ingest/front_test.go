package ingest_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/certtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

// settleAs is an Appender that settles every reading with one outcome.
type settleAs storage.Outcome

func (o settleAs) Append(group []*storage.Entry) error {
	for _, e := range group {
		e.Outcome = storage.Outcome(o)
	}
	return nil
}

// A server runs a front of a core on a loopback port.
type server struct {
	core   *ingest.Core
	lane   *ingest.FastLane // nil: only the full lane
	http   *httptest.Server
	client *http.Client
	posts  atomic.Int64 // counts posts if every third is to be unusual
	odd    bool
	tls    bool
}

func (s *server) addr() string { return s.http.Listener.Addr().String() }
func (s *server) url() string {
	if s.tls {
		return "https://" + s.addr() + "/v1/readings"
	}
	return "http://" + s.addr() + "/v1/readings"
}

// A serveFunc starts a server on an in-memory store. before, if not nil, is called before each
// Append and may return its error.
type serveFunc func(t *testing.T, cfg ingest.Config, before func([]*storage.Entry) error) (*ingest.Core, *server)

// fronts returns the ways in which a request reaches a core. A client must not be able to
// distinguish them:
//
//   - full: net/http only;
//   - fast: both lanes on one port;
//   - mixed: both lanes, with clients that sometimes send what only the full lane accepts,
//     so that connections change lanes between two requests;
//   - fast and mixed, over TLS.
func fronts() map[string]serveFunc {
	return map[string]serveFunc{
		"full": func(t *testing.T, cfg ingest.Config, before func([]*storage.Entry) error) (*ingest.Core, *server) {
			s := serveMemory(t, cfg, before, nil)
			return s.core, s
		},
		"fast": func(t *testing.T, cfg ingest.Config, before func([]*storage.Entry) error) (*ingest.Core, *server) {
			s := serveMemory(t, cfg, before, &ingest.FastLaneConfig{ReadTimeout: polltest.Patience})
			return s.core, s
		},
		"mixed": func(t *testing.T, cfg ingest.Config, before func([]*storage.Entry) error) (*ingest.Core, *server) {
			s := serveMemory(t, cfg, before, &ingest.FastLaneConfig{ReadTimeout: polltest.Patience, Loops: 2})
			s.odd = true
			return s.core, s
		},
		"fast over TLS": func(t *testing.T, cfg ingest.Config, before func([]*storage.Entry) error) (*ingest.Core, *server) {
			s := serveMemory(t, cfg, before, &ingest.FastLaneConfig{ReadTimeout: polltest.Patience, TLS: true})
			return s.core, s
		},
		"mixed over TLS": func(t *testing.T, cfg ingest.Config, before func([]*storage.Entry) error) (*ingest.Core, *server) {
			s := serveMemory(t, cfg, before, &ingest.FastLaneConfig{ReadTimeout: polltest.Patience, Loops: 2, TLS: true})
			s.odd = true
			return s.core, s
		},
	}
}

// eachFront runs a test with every front in parallel; with -short, only with those that
// contain the others.
func eachFront(t *testing.T, test func(t *testing.T, serve serveFunc)) {
	for name, serve := range fronts() {
		if testing.Short() && (name == "mixed" || name == "fast over TLS") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, serve)
		})
	}
}

// serveMemory starts a server on an in-memory store.
func serveMemory(t testing.TB, cfg ingest.Config, before func([]*storage.Entry) error,
	lane *ingest.FastLaneConfig) *server {
	t.Helper()
	return serveOn(t, &appender{storetest.NewMemory(), before}, cfg, lane)
}

// serveOn starts a server, with a fast lane unless lane is nil, and stops it at the end of the
// test. tune may change the full lane's server.
func serveOn(t testing.TB, a ingest.Appender, cfg ingest.Config, lane *ingest.FastLaneConfig,
	tune ...func(*http.Server)) *server {
	t.Helper()
	return serveWith(t, a, cfg, lane, lane != nil && lane.TLS, tune...)
}

// serveWith is serveOn with or without TLS, also for the full lane alone.
func serveWith(t testing.TB, a ingest.Appender, cfg ingest.Config, lane *ingest.FastLaneConfig, secure bool,
	tune ...func(*http.Server)) *server {
	t.Helper()
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return now }
	}
	core, err := newCore(a, problem.New(), cfg)
	try(t, err)
	s := &server{core: core, http: httptest.NewUnstartedServer(core.Handler(nil)), tls: secure}
	s.http.Config.ReadTimeout = polltest.Patience
	s.http.Config.IdleTimeout = polltest.Patience
	for _, f := range tune {
		f(s.http.Config)
	}
	if secure {
		conns := &share.Conns{Max: 10_000, MaxGuests: 1}
		s.http.Listener = listen.TLS(s.http.Listener, conns, listen.Handshakes{Config: serverTLS(), Slots: 64,
			Timeout: polltest.Patience})
		if lane != nil {
			withConns := *lane
			withConns.Conns = conns
			lane = &withConns
		}
	}
	if lane != nil {
		s.lane, err = core.FastLane(s.http.Listener, *lane)
		if errors.Is(err, errors.ErrUnsupported) {
			s.http.Listener.Close()
			t.Skip("the fast lane is not supported on this system")
		}
		try(t, err)
		s.http.Listener = s.lane
	}
	s.http.Start()
	s.client = s.http.Client()
	if secure {
		s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: clientTLS()}}
	}
	t.Cleanup(func() { s.stop(t) })
	return s
}

// stop stops the server, once, and checks that nothing is left.
func (s *server) stop(t testing.TB) {
	t.Helper()
	if s.http == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), polltest.Patience)
	defer cancel()
	s.client.CloseIdleConnections()
	if s.lane != nil {
		if err := s.lane.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	}
	s.http.Close()
	s.http = nil
	if err := s.core.Close(ctx); err != nil {
		t.Error(err)
	}
	if c := s.core.Counters(); c.Queued != 0 || c.BodyBytes != 0 {
		t.Errorf("at the end %d readings queued, %d bytes of bodies; want none", c.Queued, c.BodyBytes)
	}
	if s.lane != nil {
		if n := s.lane.Stats().Open; n != 0 {
			t.Errorf("at the end %d connections open, want none", n)
		}
	}
}

// post sends a body and returns the answer.
func post(t *testing.T, srv *server, body, encoding string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, srv.url(), strings.NewReader(body))
	try(t, err)
	if encoding != "" {
		req.Header.Set("Content-Encoding", encoding)
	}
	if srv.odd && srv.posts.Add(1)%3 == 0 {
		req.Header.Set("X-Odd", "1")
	}
	resp, err := srv.client.Do(req)
	try(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	try(t, err)
	return resp, strings.TrimSuffix(string(text), "\n")
}

// request returns a request of the usual form.
func request(body string) string {
	return fmt.Sprintf("POST /v1/readings HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// serverTLS returns the TLS configuration of a server.
func serverTLS() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{certtest.New("ca").Server(1).TLS()},
		NextProtos: []string{"h2", "http/1.1"}}
}

// clientTLS returns the TLS configuration of a client, which trusts every server.
func clientTLS() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// A peer is a connection of a client, with or without TLS.
type peer struct {
	net.Conn
	*net.TCPConn // below TLS
}

func (p *peer) Read(b []byte) (int, error)  { return p.Conn.Read(b) }
func (p *peer) Write(b []byte) (int, error) { return p.Conn.Write(b) }
func (p *peer) Close() error                { return p.Conn.Close() }
func (p *peer) CloseWrite() error           { return p.Conn.(interface{ CloseWrite() error }).CloseWrite() }

func (p *peer) LocalAddr() net.Addr                { return p.TCPConn.LocalAddr() }
func (p *peer) RemoteAddr() net.Addr               { return p.TCPConn.RemoteAddr() }
func (p *peer) SetDeadline(t time.Time) error      { return p.TCPConn.SetDeadline(t) }
func (p *peer) SetReadDeadline(t time.Time) error  { return p.TCPConn.SetReadDeadline(t) }
func (p *peer) SetWriteDeadline(t time.Time) error { return p.TCPConn.SetWriteDeadline(t) }

// dial connects to a server. The connection is closed at the end of the test.
func dial(t testing.TB, srv *server) *peer {
	t.Helper()
	return dialThrough(t, srv, func(c net.Conn) net.Conn { return c })
}

// dialThrough is dial with a wrapper of the connection, below TLS.
func dialThrough(t testing.TB, srv *server, wrap func(net.Conn) net.Conn) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", srv.addr())
	try(t, err)
	t.Cleanup(func() { conn.Close() })
	try(t, conn.SetDeadline(time.Now().Add(polltest.Patience)))
	p := &peer{wrap(conn), conn.(*net.TCPConn)}
	if srv.tls {
		secured := tls.Client(p.Conn, clientTLS())
		try(t, secured.Handshake())
		p.Conn = secured
	}
	return p
}

// newCore is ingest.New with limits that accept small numbers as times, and with time for the
// requests of a test to arrive while a commit is blocked.
func newCore(store ingest.Appender, problems *problem.Set, cfg ingest.Config) (*ingest.Core, error) {
	cfg.MaxWait = cmp.Or(cfg.MaxWait, polltest.Patience)
	if cfg.Limits == (vitals.Limits{}) {
		cfg.Limits = vitals.NewSigns().DefaultLimits()
		cfg.Limits.OldestUnixMs = 0
	}
	return ingest.New(store, problems, cfg)
}
