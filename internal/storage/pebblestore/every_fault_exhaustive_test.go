//go:build !race

package pebblestore_test

import "testing"

// TestEveryFaultExhaustive fails every operation of each scene of TestEveryFault.
func TestEveryFaultExhaustive(t *testing.T) {
	t.Parallel()
	failAll(t, 1)
}
