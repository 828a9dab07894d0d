package pgstore_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A reading that an attempt of unknown outcome has completed is Completed, though its writer has no permission left.
func TestCompletedUnknown(t *testing.T) {
	o := options(sharedServer(t))
	c := &afterCommit{}
	o.Dial = c.dial
	s := open(t, o)
	first := reading("d", 10, 1)
	first.Reading.Gateway = modelNames("g1")[0]
	both := reading("d", 5, 1)
	both.Reading.Values.Set(vitals.SpO2, 9700)
	mustStore(t, s, first, both) // registers the device with both signs
	e := reading("d", 10, 1)
	e.Reading.Values = vitals.Values{}
	e.Reading.Values.Set(vitals.SpO2, 9700)
	e.Reading.Gateway = modelNames("g2")[0]
	e.Guard = &countingGuard{} // no permission: none is needed, as no sign is shared
	c.armed.Store(true)
	try(t, s.Append([]*storage.Entry{e}))
	if c.armed.Load() {
		t.Fatal("no commit")
	}
	if e.Outcome != storage.Completed {
		t.Errorf("outcome %d, want completed (%d)", e.Outcome, storage.Completed)
	}
}

// A reading that an attempt of unknown outcome has stored is Stored, though that attempt has also made an assignment
// that would reject it now.
func TestClaimUnknown(t *testing.T) {
	for _, cut := range []bool{false, true} {
		o := options(sharedServer(t))
		c := &afterCommit{}
		o.Dial = c.dial
		s := open(t, o)
		mustStore(t, s, reading("d", 5, 1)) // registers the device
		a := claimed("d", 24, "P-1")
		a.Claim.SinceUnixMs = 100 // assigns nothing
		b := claimed("d", 22, "P-2")
		c.armed.Store(cut)
		try(t, s.Append([]*storage.Entry{a, b}))
		if c.armed.Load() {
			t.Fatal("no commit")
		}
		if a.Outcome != storage.Stored || b.Outcome != storage.Stored {
			n := queryValue[int](t, sharedServer(t), "SELECT count(*) FROM "+o.Schema+".readings WHERE time_ms = 24")
			t.Errorf("cut %t: outcomes %d and %d, want stored (1); the first is stored: %d", cut, a.Outcome, b.Outcome, n)
		}
	}
}

// An afterCommit makes connections that end after the commit is sent, without its answer.
type afterCommit struct{ armed atomic.Bool }

func (a *afterCommit) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &committing{Conn: conn, a: a}, err
}

type committing struct {
	net.Conn
	a     *afterCommit
	drops atomic.Bool
}

func (c *committing) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("commit\x00")) && len(p) < 30 && c.a.armed.Swap(false) {
		c.drops.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *committing) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.drops.Load() {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}
