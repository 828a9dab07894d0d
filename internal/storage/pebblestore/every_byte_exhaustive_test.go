//go:build !race

package pebblestore_test

import "testing"

// TestEveryByteExhaustive changes every byte of the tables, logs and manifests of a small
// store. In each other file, which has one checksum, it changes some bytes.
func TestEveryByteExhaustive(t *testing.T) {
	for name, closed := range map[string]bool{"closed": true, "crashed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changeBytes(t, closed, func(file string) int {
				switch kindOf(file) {
				case "sst", "log", "MANIFEST":
					return 0
				}
				return 100
			})
		})
	}
}
