package pebblestore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// TestSealBesideAppend seals everything, as removals do, while windows are full after each reading and are
// sealed in the background, too. Each reading must be seen from its acknowledgement on, and
// stay a duplicate.
//
// Seen to fail when a second window could be frozen: the readings of the first one were only in
// its groups.
func TestSealBesideAppend(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, pebblestore.Options{FS: vfs.NewMem(), MinFreeBytes: -1, WindowRows: 1})
	const writers, readings = 8, 50
	var writing, sealing sync.WaitGroup
	for w := range writers {
		device := fmt.Sprintf("d%d", w)
		writing.Go(func() {
			for i := range int64(readings) {
				if err := s.Append([]*storage.Entry{entry(device, i, 7000)}); err != nil {
					t.Error(err)
					return
				}
				r := storage.Range{Device: mustName(device), ToUnixMs: 1 << 62}
				if n, err := s.Scan(context.Background(), r, make([]storage.Record, readings)); int64(n) != i+1 || err != nil {
					t.Errorf("%s has %d readings after %d, %v", device, n, i+1, err)
					return
				}
			}
		})
	}
	written := make(chan struct{})
	sealing.Go(func() {
		for {
			select {
			case <-written:
				return
			default:
			}
			if err := pebblestore.Seal(s); err != nil {
				t.Error(err)
				return
			}
		}
	})
	writing.Wait()
	close(written)
	sealing.Wait()
	for w := range writers {
		for i := range int64(readings) {
			e := entry(fmt.Sprintf("d%d", w), i, 7000)
			mustAppend(t, s, e)
			wantOutcome(t, e, storage.Duplicate)
		}
	}
	mustClose(t, s)
}

// A readGate blocks reads of tables while it is shut.
type readGate struct {
	mu   sync.Mutex
	shut chan struct{} // nil: open
	held int
}

func (g *readGate) String() string { return "read gate" }

func (g *readGate) MaybeError(op errorfs.Op) error {
	if op.Kind != errorfs.OpFileReadAt || !strings.HasSuffix(op.Path, ".sst") {
		return nil
	}
	g.mu.Lock()
	shut := g.shut
	if shut != nil {
		g.held++
	}
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
	return nil
}

func (g *readGate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

func (g *readGate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shut)
	g.shut = nil
}

func (g *readGate) holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held > 0
}

// manyDevices returns a reading of each of n devices.
func manyDevices(n int, timeUnixMs int64) (group []*storage.Entry) {
	for i := range n {
		group = append(group, entry(fmt.Sprintf("d%04d", i), timeUnixMs, 7000))
	}
	return group
}

// TestCloseBesidePacedAppend closes the store while Expire seals a window, and Append waits
// for that. Append must return ErrClosed.
//
// Seen to fail when Close did not wake it.
func TestCloseBesidePacedAppend(t *testing.T) {
	t.Parallel()
	gate := &readGate{}
	s := mustOpen(t, pebblestore.Options{FS: inject(vfs.NewMem(), gate), MinFreeBytes: -1, CacheBytes: 1, WindowRows: 5000})
	mustAppend(t, s, manyDevices(1100, 1000)...)
	if err := errors.Join(pebblestore.Seal(s), pebblestore.Flush(s)); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, manyDevices(1100, 500)...) // they are merged into segments, which are read
	gate.close()
	expired := make(chan error)
	go func() {
		_, err := s.Expire(context.Background(), 600, 1)
		expired <- err
	}()
	polltest.Until(t, "the window is being sealed", gate.holds)
	mustAppend(t, s, manyDevices(1600, 2000)...) // fills the next window
	appended := make(chan error)
	go func() { appended <- s.Append(manyDevices(1, 3000)) }()
	polltest.Until(t, "Append waits", func() bool { return shown(t, s, "store_stalls_total") > 0 })
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	polltest.Until(t, "Close waits for Expire", func() bool { return pebblestore.Closing(s) })
	gate.open()
	if err := <-closed; err != nil {
		t.Errorf("Close returns %v", err)
	}
	if err := <-expired; !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Expire returns %v, want ErrClosed", err)
	}
	if err := <-appended; !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Append returns %v, want ErrClosed", err)
	}
}
