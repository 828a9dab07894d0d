package mqtt_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/front"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/mqtt"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// A valve blocks the commits of a store.
type valve struct {
	began chan struct{} // gets one when commits are blocked
	open  chan struct{}
	once  sync.Once
}

// newValve returns a closed valve, which opens at the end of the test.
func newValve(t *testing.T) *valve {
	v := &valve{began: make(chan struct{}, 1), open: make(chan struct{})}
	t.Cleanup(v.release)
	return v
}

func (v *valve) before([]*storage.Entry) error {
	select {
	case v.began <- struct{}{}:
	default:
	}
	<-v.open
	return nil
}

func (v *valve) release() { v.once.Do(func() { close(v.open) }) }

// A publication that finds the queue full is acknowledged once there is space. Until then its connection
// stays open, and nothing after it is answered.
func TestQueueFull(t *testing.T) {
	eachLane(t, func(t *testing.T, l lane) {
		v := newValve(t)
		s := start(t, l, config{before: v.before, ingest: ingest.Config{MaxQueued: 1}})
		first := s.connect(t, 5)
		first.send(publish(5, 1, 1, "pulsegate/a", reading(1)))
		<-v.began
		var held []*client
		for i, version := range []byte{4, 5} {
			for qos := range byte(3) {
				c := s.connect(t, version)
				c.send(publish(version, qos, 2, fmt.Sprintf("pulsegate/b%d-%d", i, qos), reading(2)),
					publish(version, 1, 3, "pulsegate/c", reading(3)))
				held = append(held, c)
			}
		}
		polltest.Until(t, "six publications are held", func() bool { return s.Held.Load() >= 6 })
		v.release()
		first.want("PUBACK 1")
		for i, c := range held {
			c.want([][]string{{"PUBACK 3"}, {"PUBACK 2", "PUBACK 3"}, {"PUBREC 2", "PUBACK 3"}}[i%3]...)
		}
		if got := s.store.take(); len(got) != 8 {
			t.Errorf("stored %q, want 8 readings", got)
		}
		if got := s.figures(t); strings.Contains(got, "refused") {
			t.Errorf("a held publication is counted as refused:\n%s", got)
		}
	})
}

// A publication that is held for ten seconds ends its connection without an acknowledgement; one with QoS 0
// is lost.
func TestHeldTooLong(t *testing.T) {
	eachPlainLane(t, func(t *testing.T, l lane) {
		v := newValve(t)
		s := start(t, l, config{before: v.before, ingest: ingest.Config{MaxQueued: 1}})
		first := s.connect(t, 5)
		first.send(publish(5, 1, 1, "pulsegate/a", reading(1)))
		<-v.began
		v3, v5, qos0 := s.connect(t, 4), s.connect(t, 5), s.connect(t, 4)
		v3.send(publish(4, 1, 2, "pulsegate/b", reading(2)), pingreq)
		v5.send(publish(5, 2, 2, "pulsegate/b", reading(2)), pingreq)
		qos0.send(publish(4, 0, 0, "pulsegate/b", reading(2)), pingreq)
		polltest.Until(t, "three publications are held", func() bool { return s.Held.Load() >= 3 })
		s.clock.advance(10 * time.Second)
		v3.want("closed")
		v5.want("DISCONNECT 0x89", "closed")
		qos0.want("PINGRESP")
		v.release()
		first.want("PUBACK 1")
		if got := s.store.take(); len(got) != 1 {
			t.Errorf("stored %q, want the first", got)
		}
		if n := s.Ended()["busy"]; n != 2 {
			t.Errorf("%d connections have ended because the server is busy, want 2", n)
		}
	})
}

// A long publication for which there is no memory waits for it, and ends its connection after ten seconds. Short ones
// are stored meanwhile.
func TestMemory(t *testing.T) {
	eachPlainLane(t, func(t *testing.T, l lane) {
		s := start(t, l, config{ingest: ingest.Config{MaxBatchBytes: 100_000, MaxBodyBytes: 290_000}})
		long := publish(5, 1, 7, "pulsegate/long", "["+reading(1)+strings.Repeat(" ", 90_000)+"]")
		var first []*client
		for range 2 {
			c := s.connect(t, 5)
			c.send(long[:80_000])
			first = append(first, c)
		}
		polltest.Until(t, "they hold their memory", func() bool {
			return strings.Contains(s.figures(t), fmt.Sprintf("body_bytes [] %d", 2*len(long)))
		})
		waits, late := s.connect(t, 5), s.connect(t, 4)
		waits.send(long)
		late.send(publish(4, 1, 7, "pulsegate/long", "["+reading(1)+strings.Repeat(" ", 90_000)+"]"))
		short := s.connect(t, 5)
		short.send(publish(5, 1, 1, "pulsegate/short", reading(1)))
		short.want("PUBACK 1")
		polltest.Until(t, "two connections have waited for too long", func() bool {
			s.clock.advance(10 * time.Second) // again, until both have begun to wait
			return s.Ended()["busy"] == 2
		})
		for _, c := range first {
			c.send(long[80_000:])
			c.want("PUBACK 7")
		}
		if got := s.store.take(); len(got) != 2 {
			t.Errorf("stored %q, want a short and a long publication", got)
		}
	})
}

// Publications beyond a token's rate are held until it allows them.
func TestRate(t *testing.T) {
	eachPlainLane(t, func(t *testing.T, l lane) {
		f := gatetest.New(t)
		slow := f.Token(t, "bed-9", "", token.Token{Rights: token.Write, Limit: token.Limit{PerSecond: 1, Burst: 2}})[7:]
		s := start(t, l, config{gate: f.Open(t)})
		c := s.dial(t)
		c.send(signIn(5, "bed-9", slow))
		c.want("CONNACK 0")
		c.send(publish(5, 1, 1, "pulsegate/a", batch(1, 2)), publish(5, 1, 2, "pulsegate/a", batch(10, 2)))
		c.want("PUBACK 1")
		polltest.Until(t, "the second is held", func() bool { return s.Held.Load() > 0 })
		s.clock.advance(2 * time.Second)
		c.want("PUBACK 2")
		if got := s.store.take(); len(got) != 4 {
			t.Errorf("stored %q, want 4 readings", got)
		}
	})
}

// A reading that is not compared with the stored one, because its token has contradicted too often, may be stored
// later. Version 5 says so; an acknowledgement of version 3.1.1 would be taken for one of a stored reading.
func TestWithheld(t *testing.T) {
	eachPlainLane(t, func(t *testing.T, l lane) {
		f := gatetest.New(t)
		owner := f.Token(t, "bed-7", "", token.Token{Rights: token.Write})[7:]
		other := f.Token(t, "bed-8", "", token.Token{Rights: token.Write})[7:]
		s := start(t, l, config{gate: f.Open(t)})
		as := func(version byte, user, password string) *client {
			c := s.dial(t)
			c.send(signIn(version, user, password))
			c.want("CONNACK 0")
			return c
		}
		first := as(4, "bed-7", owner)
		first.send(publish(4, 1, 1, "pulsegate/d", batch(1, 70)))
		first.want("PUBACK 1")
		guess := as(4, "bed-8", other)
		for i := range token.DefaultContradictions {
			guess.send(publish(4, 1, i+1, "pulsegate/d", fmt.Sprintf(`{"time":%d,"spo2_pct":50}`, i+1)))
			guess.want(fmt.Sprint("PUBACK ", i+1))
		}
		for qos := byte(1); qos <= 2; qos++ {
			for _, payload := range []string{`{"time":70,"spo2_pct":50}`,
				`[{"time":70,"spo2_pct":50},{"time":1000,"spo2_pct":50}]`} {
				late := as(4, "bed-8", other)
				late.send(publish(4, 0, 0, "pulsegate/d", payload), publish(4, qos, 9, "pulsegate/d", payload))
				late.want("closed")
			}
		}
		late := as(5, "bed-8", other)
		late.send(publish(5, 1, 9, "pulsegate/d", `{"time":70,"spo2_pct":50}`))
		if got := late.next(); !strings.HasPrefix(got, "PUBACK 9 0x97 ") {
			t.Errorf("version 5: %s, want 0x97", got)
		}
		// A client that keeps only what is answered with 0x97 must not lose such a reading of a batch.
		for _, other := range []string{`{"time":2000,"spo2_pct":0}`, "7", `{"time":2000,"spo2_pct":97}`} {
			for _, payload := range []string{`[` + other + `,{"time":70,"spo2_pct":50}]`, `[{"time":70,"spo2_pct":50},` +
				other + `]`} {
				late.send(publish(5, 1, 9, "pulsegate/d", payload))
				if got := late.next(); !strings.HasPrefix(got, "PUBACK 9 0x97 ") {
					t.Errorf("version 5, %s: %s, want 0x97", payload, got)
				}
			}
		}
	})
}

// A publication whose commit has failed is never acknowledged: its connection ends with the reason. One with
// QoS 0 is lost, and its connection stays open. Nothing follows the last packet.
func TestStoreFails(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		code string
		end  string
	}{
		{"disk low", fmt.Errorf("full: %w", storage.ErrDiskLow), "0x89", "busy"},
		{"not written", fmt.Errorf("closed: %w", storage.ErrNotWritten), "0x80", "busy"},
		{"unknown", errors.New("an error"), "0x80", "busy"},
		{"closed", storage.ErrClosed, "0x8b", "draining"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachPlainLane(t, func(t *testing.T, l lane) {
				s := start(t, l, config{before: func(group []*storage.Entry) error {
					for _, e := range group {
						if e.Reading.Device.String() == "bad" {
							return tt.err
						}
					}
					return nil
				}})
				for _, version := range []byte{4, 5} {
					last := strings.Split(ended(version, tt.code), ", ")
					for qos := byte(1); qos <= 2; qos++ {
						c := s.connect(t, version)
						c.send(publish(version, qos, 1, "pulsegate/bad", reading(1)), publish(version, 1, 2, "pulsegate/d", "x"),
							publish(version, 1, 3, "pulsegate/d", "[]"), disconnect)
						var got []string
						for len(got) == 0 || got[len(got)-1] != "closed" {
							got = append(got, c.next())
						}
						// The loop has read the rest: it may acknowledge what was not to be stored, if the client has ended
						// the connection.
						got = slices.DeleteFunc(got, func(p string) bool {
							return strings.HasPrefix(p, "PUBACK 2") ||
								strings.HasPrefix(p, "PUBACK 3")
						})
						if l.loop && len(got) == 1 { // the client's DISCONNECT was first
							got = last
						}
						if !slices.Equal(got, last) {
							t.Errorf("version %d, QoS %d: %q, want %q", version, qos, got, last)
						}
					}
					c := s.connect(t, version)
					c.send(publish(version, 1, 1, "pulsegate/bad", batch(1, 2)))
					c.want(last...)
					c = s.connect(t, version)
					c.send(publish(version, 0, 0, "pulsegate/bad", reading(1)), pingreq)
					c.want("PINGRESP")
					c.send(publish(version, 1, 1, "pulsegate/good", reading(int(version))), disconnect)
					c.want("PUBACK 1", "closed")
				}
				if got := s.Ended()[tt.end]; got < 2 {
					t.Errorf("%d connections have ended for %s", got, tt.end)
				}
				if got := s.rejected(); len(got) > 8 || strings.Contains(fmt.Sprint(got), "bad") {
					t.Errorf("what was not stored is listed: %q", got)
				}
			})
		})
	}
}

// Acknowledgements are in the order of the publications, whatever becomes of them and in whichever pieces they
// come, also if the connection moves to a goroutine.
func TestOrder(t *testing.T) {
	eachLane(t, func(t *testing.T, l lane) {
		s := start(t, l, config{ingest: ingest.Config{MaxGroup: 7}})
		for _, piece := range []int{1 << 20, 1000, 11} {
			for moves := range 2 {
				var all strings.Builder
				var want []string
				for i := range 200 {
					id := i + 1
					payload, ack := reading(i), "PUBACK"
					qos := byte(1 + i%2)
					if qos == 2 {
						ack = "PUBREC"
					}
					switch i % 10 {
					case 3:
						payload = "nonsense"
					case 5:
						payload = batch(i*100, 4)
					case 8:
						payload = "[]"
					}
					if moves == 1 && i == 100 {
						payload = batch(i*100, 20)
					}
					all.WriteString(publish(4, qos, id, fmt.Sprintf("pulsegate/d%d-%d", piece, moves), payload))
					want = append(want, fmt.Sprint(ack, " ", id))
				}
				c := s.connect(t, 4)
				go func() {
					for rest := all.String(); rest != ""; {
						n := min(piece, len(rest))
						if _, err := c.Write([]byte(rest[:n])); err != nil {
							t.Error(err)
							return
						}
						rest = rest[n:]
					}
				}()
				c.want(want...)
			}
		}
	})
}

// More than 64 publications that are not acknowledged are not read, and acknowledged in the end. (A client of version 5
// that exceeds the Receive Maximum is not punished.)
func TestReceiveMaximum(t *testing.T) {
	eachLane(t, func(t *testing.T, l lane) {
		v := newValve(t)
		s := start(t, l, config{before: v.before})
		c := s.connect(t, 5)
		var all strings.Builder
		var want []string
		for i := range 300 {
			all.WriteString(publish(5, 1, i+1, "pulsegate/d", reading(i)))
			want = append(want, fmt.Sprint("PUBACK ", i+1))
		}
		c.send(all.String())
		<-v.began
		if n := s.Counters().Publications[1]; n > 64 {
			t.Errorf("%d publications were read, want 64 at most", n)
		}
		v.release()
		c.want(want...)
	})
}

// Publications in flight when the server drains are acknowledged if they are stored. Later ones are not, and
// their connections end.
func TestDrain(t *testing.T) {
	eachLane(t, func(t *testing.T, l lane) {
		v := newValve(t)
		s := start(t, l, config{before: v.before})
		var flying []*client
		for i := range 4 {
			c := s.connect(t, byte(4+i%2))
			c.send(publish(byte(4+i%2), 1, 7, fmt.Sprint("pulsegate/d", i), reading(1)))
			flying = append(flying, c)
		}
		idle3, idle5, late3, late5 := s.connect(t, 4), s.connect(t, 5), s.connect(t, 4), s.connect(t, 5)
		polltest.Until(t, "four are admitted", func() bool { return strings.Contains(s.figures(t), "queue_readings [] 4") })
		s.core.Drain()
		late3.send(publish(4, 1, 1, "pulsegate/x", reading(1)), pingreq)
		late3.want("closed")
		late5.send(publish(5, 2, 1, "pulsegate/x", reading(1)), pingreq)
		late5.want("DISCONNECT 0x8b", "closed")
		down := make(chan struct{})
		go func() { s.stop(t); close(down) }()
		idle3.want("closed")
		idle5.want("DISCONNECT 0x8b", "closed")
		v.release()
		for i, c := range flying {
			c.want("PUBACK 7")
			if got := c.next(); got == "DISCONNECT 0x8b" && i%2 == 1 {
				c.want("closed")
			} else if got != "closed" {
				t.Errorf("after the last acknowledgement: %s", got)
			}
		}
		<-down
		if got := s.store.take(); len(got) != 4 {
			t.Errorf("stored %q, want those in flight", got)
		}
	})
}

// Clients that are silent, slow or do not read end after their timeouts, and harm no other one.
func TestSlowClients(t *testing.T) {
	eachLane(t, func(t *testing.T, l lane) {
		const short = 300 * time.Millisecond
		s := start(t, l,
			config{opt: mqtt.Options{StartTimeout: short, Options: front.Options{ReadTimeout: short, WriteTimeout: short}}})
		other := s.connect(t, 5)
		alive := func(id int) {
			t.Helper()
			other.send(publish(5, 1, id, "pulsegate/other", reading(id)))
			other.want(fmt.Sprint("PUBACK ", id))
		}
		silent, half, slow3, slow5 := s.dial(t), s.dial(t), s.connect(t, 4), s.connect(t, 5)
		half.send(hello(4)[:5])
		slow3.send(publish(4, 1, 1, "pulsegate/d", reading(1))[:20])
		slow5.send(publish(5, 1, 1, "pulsegate/d", reading(1))[:1])
		large := s.connect(t, 5)
		large.send(publish(5, 1, 1, "pulsegate/d", strings.Repeat(" ", 100_000))[:70_000])
		alive(1)
		silent.want("closed")
		half.want("closed")
		slow3.want("closed")
		slow5.want("DISCONNECT 0x8d", "closed")
		large.want("DISCONNECT 0x8d", "closed")
		if n := s.Ended()["slow"]; n != 4 {
			t.Errorf("%d clients were slow, want 4", n)
		}
		alive(2)
		// It publishes and reads no acknowledgement. Each has a reason, and so fills the buffers soon.
		for _, c := range []*client{silent, half, slow3, slow5, large} {
			_ = c.Close()
		}
		deaf, readings := s.connect(t, 5),
			strings.Repeat(publish(5, 1, 1, "pulsegate/deaf", `{"device":"other","time":1,"spo2_pct":97}`), 1000)
		written := make(chan struct{})
		go func() {
			defer close(written)
			for {
				if _, err := deaf.Write([]byte(readings)); err != nil {
					return
				}
			}
		}()
		polltest.Until(t, "the deaf client has ended", func() bool { return s.conns.Open() == 1 })
		<-written
		alive(3)
		_ = deaf.Close()
		other.send(disconnect)
		other.want("closed")
		polltest.Until(t, "all connections have ended", func() bool { return s.conns.Open() == 0 })
	})
}

// A client that is silent for one and a half of its keep alive is given up; packets keep it.
func TestKeepAlive(t *testing.T) {
	eachPlainLane(t, func(t *testing.T, l lane) {
		s := start(t, l, config{})
		as := func(version byte, seconds int) *client {
			c := s.dial(t)
			whole := hello(version)
			c.send(whole[:10] + u16(seconds) + whole[12:])
			c.want("CONNACK 0")
			return c
		}
		forever, silent, silent3 := as(4, 0), as(5, 1), as(4, 1)
		pinging := as(4, 1)
		var wg sync.WaitGroup
		gone := make(chan struct{})
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-gone:
					return
				case <-time.After(50 * time.Millisecond):
					pinging.send([]string{pingreq, publish(4, 0, 0, "pulsegate/d", reading(i))}[i%2])
				}
			}
		})
		silent.want("DISCONNECT 0x8d", "closed")
		silent3.want("closed")
		if n := s.Ended()["slow"]; n != 2 {
			t.Errorf("%d clients were silent, want 2", n)
		}
		close(gone)
		wg.Wait()
		for _, c := range []*client{pinging, forever} {
			c.send(publish(4, 1, 7, "pulsegate/e", reading(1)))
			for got := ""; got != "PUBACK 7"; {
				if got = c.next(); got != "PINGRESP" && got != "PUBACK 7" {
					t.Fatalf("%s, want that the connection stays open", got)
				}
			}
		}
	})
}
