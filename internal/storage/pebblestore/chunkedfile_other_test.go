//go:build !linux

package pebblestore_test

import "testing"

// directIO reports that there are no direct reads.
func directIO(*testing.T, string) bool { return false }
