package storetest_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "20"); err != nil { // make exhaustive plays more, as of the stores
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// TestMemory runs the suite on the model itself.
func TestMemory(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Harness {
		disk := storetest.NewMemory()
		return storetest.Harness{
			Open:        func() (storage.Store, error) { disk = disk.Reopen(0); return disk, disk.Signs().Define(nil) },
			Crash:       func(int, uint64) { disk = disk.Reopen(0) }, // closes the old one
			OpenLimited: func(maxDevices int) (storage.Store, error) { disk = disk.Reopen(maxDevices); return disk, nil },
			OpenSigns: func(own []vitals.Definition) (storage.Store, error) {
				disk = disk.Reopen(0)
				return disk, disk.Signs().Define(own)
			},
			OpenChanges: func(own []vitals.Definition) (storage.Store, error) {
				disk = disk.Reopen(0)
				return disk, disk.Signs().Define(own)
			},
			Concurrent: true,
		}
	})
}
