//go:build !linux

package datadir_test

import "testing"

// directIO reports that direct reads are not supported.
func directIO(*testing.T, string) bool { return false }
