//go:build !linux

package datadir

import "github.com/cockroachdb/pebble/v2/vfs"

// setDirect reports that direct reads are not supported.
func setDirect(vfs.File, bool) bool { return false }
