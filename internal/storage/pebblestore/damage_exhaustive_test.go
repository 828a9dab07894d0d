//go:build !race

package pebblestore_test

import "testing"

// TestDamageExhaustive tests every case of TestDamage.
func TestDamageExhaustive(t *testing.T) {
	t.Parallel()
	damageAll(t, 1)
}
