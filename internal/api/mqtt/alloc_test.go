//go:build !race && linux

package mqtt_test

import (
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
)

// After the first publications, the loop takes the usual ones from socket to acknowledgement without a single
// allocation, also with a token. The store here allocates nothing. The best of several windows counts,
// because the runtime allocates now and then.
func TestLoopAllocations(t *testing.T) {
	const windows, rounds = 5, 300
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties pools, and allocates
	f := gatetest.New(t)
	bed := f.Token(t, "bed-7", "", token.Token{Rights: token.Write})[7:]
	for _, password := range []string{"", bed} {
		cfg := config{store: alike{}, unlisted: true}
		if password != "" {
			cfg.gate = f.Open(t)
			cfg.gate.Audit = nil // to know the peer costs one
		}
		s := start(t, lane{loop: true}, cfg)
		for _, version := range []byte{4, 5} {
			c := s.dial(t)
			c.send(signIn(version, "bed-7", password))
			c.want("CONNACK 0")
			for name, one := range map[string]string{
				"QoS 1": publish(version, 1, 7, "pulsegate/ppg-000123", reading(1000)),
				"QoS 2": publish(version, 2, 7, "pulsegate/ppg-000123", reading(1000)),
				"pipelined": strings.Repeat(publish(version, 1, 7, "pulsegate/ppg-000123", reading(1000)), 3) + publish(version, 0,
					7, "pulsegate/d", reading(1000)),
			} {
				send, answer := []byte(one), make([]byte, 4)
				if name == "pipelined" {
					answer = make([]byte, 12)
				}
				exchange := func() {
					if _, err := c.Write(send); err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(c, answer); err != nil {
						t.Fatal(err)
					}
				}
				for range rounds {
					exchange()
				}
				least := ^uint64(0)
				var before, after runtime.MemStats
				for n := 0; n < windows && least > 0; n++ {
					runtime.ReadMemStats(&before)
					for range rounds {
						exchange()
					}
					runtime.ReadMemStats(&after)
					least = min(least, after.Mallocs-before.Mallocs)
				}
				if least != 0 {
					t.Errorf("%s, version %d, token %v: %d allocations in the best of %d windows of %d rounds, want 0", name, version,
						password != "", least, windows, rounds)
				}
			}
		}
	}
}

// A CONNECT and a publication leave less than 256 bytes of heap for each idle connection, in addition to what
// TestTenThousandConnections of package eventloop bounds.
//
// TestIdleConnectionsExhaustive (make exhaustive) opens 4,000: both ends are in this process.
func TestIdleConnections(t *testing.T) { idleConnections(t, 400) }

func TestIdleConnectionsExhaustive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	idleConnections(t, 4000)
}

func idleConnections(t *testing.T, n int) {
	s := start(t, lane{loop: true}, config{store: alike{}, unlisted: true})
	conns := make([]*client, n)
	for i := range conns {
		conns[i] = s.dial(t)
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	answer := make([]byte, 8)
	use := func(c *client, packets string) {
		c.send(packets)
		if _, err := io.ReadFull(c, answer); err != nil {
			t.Fatal(err)
		}
	}
	hello := hello(4) + publish(4, 1, 7, "pulsegate/d", reading(1))
	use(conns[0], hello)
	before := heap()
	for _, c := range conns[1:] {
		use(c, hello)
	}
	if each := (heap() - before) / int64(n-1); each >= 256 {
		t.Errorf("%d more bytes of heap for each connection, want less than 256", each)
	} else {
		t.Logf("%d more bytes of heap for each connection", each)
	}
}
