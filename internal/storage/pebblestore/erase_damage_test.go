package pebblestore_test

import (
	"context"
	"errors"
	"math"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// TestEraseDamaged erases devices of a store with a damaged block. Readers must not see them any
// more, and other devices must not change. If Erase does not return nil, the error names the damaged file, and
// other devices can be erased.
//
// Seen to fail when a damaged block kept the readings of its device.
func TestEraseDamaged(t *testing.T) {
	long(t)
	t.Parallel()
	disk, table := oneTable(t)
	finished, unfinished := 0, 0
	eachDamage(t, disk, table, 2999, func(t *testing.T, at int, fs *vfs.MemFS, s *pebblestore.Store,
		damaged map[string]bool) {
		erase := func(device string) {
			e, err := s.Erase(mustName(device))
			if err == nil {
				finished++
			} else {
				unfinished++
				if !errors.Is(err, storage.ErrUnfinished) || !errors.Is(err, storage.ErrCorrupt) ||
					!strings.Contains(err.Error(), path.Base(table)) {
					t.Errorf("byte %d: Erase(%s) returns %v, want nil, or ErrUnfinished with the file", at, device, err)
				}
			}
			if e.Readings > damagedEach || !damaged[device] && e.Readings != damagedEach {
				t.Errorf("byte %d: Erase(%s) returns %d readings", at, device, e.Readings)
			}
			if n, err := scan(s, device, 0, math.MaxInt64); n != 0 || err != nil {
				t.Errorf("byte %d: after Erase(%s), a scan returns %d, %v", at, device, n, err)
			}
		}
		erase("dev-bbbb")
		mustAppend(t, s, entry("dev-bbbb", 1, 1))
		for device, want := range map[string]int{"dev-aaaa": damagedEach, "dev-bbbb": 1, "dev-cccc": damagedEach} {
			n, err := scan(s, device, 0, math.MaxInt64)
			if stays := damaged[device] && device != "dev-bbbb"; !stays && (n != want || err != nil) ||
				stays && !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("byte %d: after an erasure, a scan of %s returns %d, %v, want %d, or damage: %t", at, device, n,
					err, want, stays)
			}
		}
		erase("dev-aaaa")
		_ = s.Close()
		s = mustOpen(t, segmented(fs))
		for device, want := range map[string]int{"dev-aaaa": 0, "dev-bbbb": 1, "dev-cccc": damagedEach} {
			n, err := scan(s, device, 0, math.MaxInt64)
			// The end of what was erased may be in a damaged block, with readings of another device.
			stays := damaged[device] && (device == "dev-cccc" || device == "dev-bbbb" && damaged["dev-cccc"])
			if !stays && (n != want || err != nil) || stays && !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("byte %d: after a start, a scan of %s returns %d, %v, want %d, or damage: %t", at, device, n,
					err, want, stays)
			}
		}
		erase("dev-cccc")
		if err := s.Ready(); err != nil {
			t.Errorf("byte %d: Ready returns %v", at, err)
		}
		if _, err := s.Expire(context.Background(), math.MaxInt64, math.MaxInt64); err != nil {
			t.Errorf("byte %d: Expire returns %v", at, err)
		}
		_ = s.Close()
	})
	t.Logf("%d erasures were finished, and %d were not", finished, unfinished)
	if unfinished == 0 {
		t.Error("no erasure met the damage")
	}
}
