package wal_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir/wal"
)

// FuzzVerify reads arbitrary bytes as a log and as a manifest.
func FuzzVerify(f *testing.F) {
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	f.Add([]byte(nil))
	f.Add(append(unhex("00000000000005"+"08000000"), 1, 2, 3)) // the end mark of log 7
	f.Add(unhex("7e3d2a1b0400" + "09" + "07000000" + "0000000000000000" + "01020304"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for kind, format := range map[string]wal.Format{"log": wal.Log(7), "manifest": wal.Manifest()} {
			if _, err := wal.Verify(bytes.NewReader(b), format); err != nil && !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%s: %v", kind, err)
			}
		}
	})
}
