package listen_test

import (
	"crypto/tls"
	"net"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// Handshakes compute on all processors but one, and a handshake that waits for its client
// occupies no processor.
//
// Seen to fail without turns, and when a turn is held while waiting for a client.
func TestHandshakesTakeTurns(t *testing.T) {
	const clients = 16
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	cfg := server.TLS.Clone()
	var computing, most atomic.Int32
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		n := computing.Add(1)
		defer computing.Add(-1)
		for v := most.Load(); n > v && !most.CompareAndSwap(v, n); v = most.Load() {
		}
		time.Sleep(time.Millisecond) // so that other handshakes begin meanwhile
		return nil, nil
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	conns := &share.Conns{Max: 4 * clients, MaxGuests: 1}
	l := listen.TLS(inner, conns, listen.Handshakes{Config: cfg, Slots: 4 * clients, Timeout: polltest.Patience})
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	for range clients { // stalled handshakes
		c, err := net.Dial("tcp", inner.Addr().String())
		try(t, err)
		defer c.Close()
		if _, err := c.Write([]byte{22, 3, 1}); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			c, err := tls.Dial("tcp", inner.Addr().String(), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Error(err)
				return
			}
			c.Close()
		})
	}
	wg.Wait()
	if got, want := int(most.Load()), max(runtime.GOMAXPROCS(0)-1, 1); got > want {
		t.Errorf("%d handshakes computed at once, want at most %d", got, want)
	}
}

// While requests are made, a handshake holds its turn for twice the time that it computes.
//
// Seen to fail without pauses.
func TestHandshakesPause(t *testing.T) {
	const clients = 3
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const compute = 500 * time.Microsecond
			cfg := cert.TLS.Clone()
			cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
				time.Sleep(compute)
				return nil, nil
			}
			requests := atomic.Uint64{}
			inner := make(pipes, clients)
			l := listen.TLS(inner, &share.Conns{Max: clients, MaxGuests: 1}, listen.Handshakes{
				Config: cfg, Slots: clients, Timeout: time.Minute,
				Requests: func() uint64 {
					if busy {
						return requests.Add(1)
					}
					return 0
				},
			})
			begun := time.Now()
			for range clients {
				client, server := net.Pipe()
				inner <- server
				try(t, tls.Client(client, &tls.Config{InsecureSkipVerify: true}).Handshake())
				c, err := l.Accept()
				try(t, err)
				defer c.Close()
				defer client.Close()
			}
			want := clients * compute
			if busy {
				want *= 2
			}
			if got := time.Since(begun); got != want {
				t.Errorf("requests are made: %v; %d handshakes took %v of fake time, want %v", busy, clients, got, want)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Pipes are a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error { close(p); return nil }

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }
