package pebblestore

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// markerFS makes Pebble's changes of file names durable in their order. A marker is a
// file whose name contains that of the current manifest. Pebble creates the manifest,
// creates the new marker, removes the old one, and then syncs the directory once: after
// a loss of power, a file system may have any subset of the three changes, and the store
// would be lost. With markerFS, each change is durable before the next. Common file
// systems keep the order by themselves; a start takes two more syncs.
type markerFS struct{ vfs.FS }

func (fs markerFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if !strings.HasPrefix(fs.PathBase(name), markerPrefix) {
		return fs.FS.Create(name, c)
	}
	if err := syncDir(fs.FS, fs.PathDir(name)); err != nil {
		return nil, err
	}
	f, err := fs.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	if err := syncDir(fs.FS, fs.PathDir(name)); err != nil {
		return nil, joinClose(err, f)
	}
	return f, nil
}

// Unwrap implements vfs.FS.
func (fs markerFS) Unwrap() vfs.FS { return fs.FS }
