package pgstore_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A freezer stops what a server sends, as when its machine freezes. The server freezes before it sends a text for the
// first time.
type freezer struct {
	text           []byte
	frozen, thawed chan struct{}
	once           sync.Once
}

func (f *freezer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return freezing{conn, f}, err
}

type freezing struct {
	net.Conn
	*freezer
}

func (c freezing) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.text) {
		c.once.Do(func() { close(c.frozen) })
	}
	select {
	case <-c.frozen:
		<-c.thawed
	default:
	}
	return c.Conn.Write(b)
}

// TestFrozen freezes a server in the middle of what it does, while its connections stay. Others store, erase and seal
// nevertheless: what the frozen one holds is released. When it goes on, nothing is lost or doubled.
//
// Seen to fail without idle_in_transaction_session_timeout, and without idle_session_timeout.
func TestFrozen(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, fast...)
	const end = sealStart + 1000*minuteMs
	seals := func(s *pgstore.Store) error { _, err := pgstore.Seal(s, end); return err }
	for _, moment := range []struct {
		name, text string
		do         func(s *pgstore.Store) error
	}{
		{"raises the horizon", "SET sealed_ms", seals},
		{"between two transactions that seal", ".devices WHERE device > $1 ORDER BY device LIMIT", seals},
		{"inserts segments", ".segments (device, last_ms", seals},
		{"deletes rows", "WHERE ctid = ANY", seals},
		{"registers a device", ".devices AS d (device", func(s *pgstore.Store) error {
			return s.Append([]*storage.Entry{reading("new", sealStart, 1)})
		}},
		{"erases a device", ".changes VALUES", func(s *pgstore.Store) error {
			_, err := s.Erase(modelNames("gone")[0])
			return err
		}},
	} {
		t.Run(moment.name, func(t *testing.T) {
			t.Parallel()
			o := options(server)
			o.SealAtLeast = 1
			other := open(t, o)
			for _, device := range []string{"bed-7", "gone", "left"} {
				mustStore(t, other, mixed(device, 100)...)
			}
			bed7 := storage.Range{Device: modelNames("bed-7")[0], ToUnixMs: 1 << 60}
			want := scanned(t, other, bed7, 1000)
			f := &freezer{text: []byte(moment.text), frozen: make(chan struct{}), thawed: make(chan struct{})}
			o.Dial, o.Timeout = f.dial, time.Hour // what is frozen does not close its connections
			s := open(t, o)
			thaw := sync.OnceFunc(func() { close(f.thawed) })
			ended := make(chan error, 1)
			go func() { ended <- moment.do(s) }()
			defer func() { thaw(); <-ended }()
			select {
			case <-f.frozen:
			case err := <-ended:
				ended <- err
				t.Fatalf("it has not come to that: %v", err)
			}
			polltest.Until(t, "another server stores readings", func() bool {
				all := append(mixed("bed-7", 100), mixed("other", 10)...)
				err := other.Append(all)
				for _, e := range all[:100] {
					if err == nil && e.Outcome != storage.Duplicate {
						t.Errorf("a stored reading got outcome %s", storetest.OutcomeName(e.Outcome))
					}
				}
				return err == nil
			})
			polltest.Until(t, "another server erases a device", func() bool {
				_, err := other.Erase(modelNames("left")[0])
				return err == nil || errors.Is(err, storage.ErrNotFound)
			})
			polltest.Until(t, "another server seals", func() bool {
				_, err := pgstore.Seal(other, end)
				return err == nil && queryValue[int64](t, server, "SELECT passed_ms FROM "+o.Schema+".state") == end
			})
			thaw()
			if err := <-ended; err != nil {
				t.Log(err)
			}
			ended <- nil
			w := &sealWorld{schema: o.Schema, conn: connect(t, server)}
			defer w.conn.Close(context.Background())
			w.mustHold(t)
			for _, one := range []*pgstore.Store{s, other} {
				polltest.Until(t, "readings are read", func() bool { // connections that were ended are found broken
					_, err := one.CountReadings(context.Background())
					return err == nil
				})
				if got := scanned(t, one, bed7, 1000); !sameRecords(got, want) {
					t.Errorf("there are %d records, want %d", len(got), len(want))
				}
			}
			devices := make([]storage.Device, 10)
			n, err := other.Devices(context.Background(), vitals.Name{}, devices)
			if err != nil ||
				slices.ContainsFunc(devices[:n], func(d storage.Device) bool { return d.Name == modelNames("left")[0] }) {
				t.Errorf("%d devices are left, %v", n, err)
			}
		})
	}
}
