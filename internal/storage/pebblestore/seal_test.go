package pebblestore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

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
