//go:build !race

package pebblestore_test

import "testing"

// TestDamageExhaustive takes every case of TestDamage.
func TestDamageExhaustive(t *testing.T) {
	t.Parallel()
	damageAll(t, 1)
}
