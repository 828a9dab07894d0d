package pgstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// A delayer delays the first group that a server sends after it was armed, as a proxy on the way to the database or a
// frozen backend does: the server finds the connection broken, and the database gets the group later.
type delayer struct {
	armed   atomic.Bool
	server  net.Conn // that of the delayed group
	delayed []byte
}

func (d *delayer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &delaying{Conn: conn, d: d}, err
}

// deliver sends the delayed group, and waits until the database has handled it.
func (d *delayer) deliver(t *testing.T) {
	t.Helper()
	_, err := d.server.Write(d.delayed)
	try(t, err)
	try(t, d.server.(*net.TCPConn).CloseWrite())
	_, err = io.Copy(io.Discard, d.server)
	try(t, err)
	_ = d.server.Close()
}

type delaying struct {
	net.Conn
	d      *delayer
	broken bool
}

func (c *delaying) Write(b []byte) (int, error) {
	if bytes.Contains(b, settleMark) {
		if c.d.armed.Swap(false) {
			c.broken, c.d.server, c.d.delayed = true, c.Conn, bytes.Clone(b)
			c.Conn, _ = net.Pipe()
		}
	}
	if c.broken {
		return 0, errors.New("broken")
	}
	return c.Conn.Write(b)
}

// TestDelayedAttempt delays an attempt of a group until the next one was acknowledged and the device erased: the device
// does not come back.
//
// Seen to fail with the mutant accept-late-attempts.
func TestDelayedAttempt(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	other := open(t, o)
	mustStore(t, other, reading("other", 1, 1)) // creates the partition
	d := &delayer{}
	o.Dial = d.dial
	s := open(t, o)
	mustStore(t, s, reading("d", 1, 1)) // the next one is expected to be new, and so is sent in one message
	d.armed.Store(true)
	e := reading("d", 2, 1)
	mustStore(t, s, e)
	if d.delayed == nil {
		t.Fatal("no group was delayed")
	}
	if e.Outcome != storage.Stored {
		t.Errorf("the reading got outcome %d, want stored", e.Outcome)
	}
	_, err := other.Erase(e.Reading.Device)
	try(t, err)
	d.deliver(t)
	mustHave(t, other, "d", 0)
	if n := queryValue[int](t, server, "SELECT count(*) FROM "+o.Schema+".readings"); n != 1 {
		t.Errorf("the database has %d readings, want that of the other device", n)
	}
}

// TestDelayedAttemptRepaired delays an attempt on a machine that is replaced, and comes back without what was stored
// since. Another server has repaired it, and repeated the erasure of the device, when the attempt reaches it: the
// device does not come back, though the database knows of no later attempt.
//
// Seen to fail with the mutant accept-late-attempts.
func TestDelayedAttemptRepaired(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	d := &delayer{}
	other := open(t, r.opt)
	mustStore(t, other, reading("other", 1, 1)) // creates the partition
	o := r.opt
	o.DSN, o.Dial, o.Remember = r.now.DSN(), d.dial, 0
	s := open(t, o)
	mustStore(t, s, reading("d", 1, 1))
	d.armed.Store(true)
	mustStore(t, s, reading("d", 2, 1))
	if d.delayed == nil {
		t.Fatal("no group was delayed")
	}
	try(t, s.Close())
	_, err := other.Erase(modelNames("d")[0])
	try(t, err)
	// The machine comes back: it has neither the later attempt, nor the erasure, before the repair.
	execute(t, r.now, "DELETE FROM "+r.opt.Schema+".marks")
	execute(t, r.now, "DELETE FROM "+r.opt.Schema+".changes")
	awaitRepairs(t, other, 1)
	d.deliver(t)
	mustHave(t, other, "d", 0)
	if n := queryValue[int](t, r.now, "SELECT count(*) FROM "+r.opt.Schema+".readings"); n != 1 {
		t.Errorf("the database has %d readings, want that of the other device", n)
	}
}

// TestStoreBesideErasures stores groups while others erase devices without a pause: each erasure rolls back the groups
// that do not know it, but no group for ever.
func TestStoreBesideErasures(t *testing.T) {
	o := options(sharedServer(t))
	s := open(t, o)
	var stop atomic.Bool
	var erasing sync.WaitGroup
	for _, device := range []string{"a", "b", "c"} {
		other := open(t, o)
		erasing.Go(func() {
			for !stop.Load() {
				e := reading(device, 1, 1)
				if err := other.Append([]*storage.Entry{e}); err != nil {
					t.Error(err)
				}
				if _, err := other.Erase(e.Reading.Device); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range int64(20) {
		mustStore(t, s, reading("d", i, 1))
	}
	stop.Store(true)
	erasing.Wait()
}
