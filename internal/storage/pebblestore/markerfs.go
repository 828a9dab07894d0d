package pebblestore

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// markerFS keeps the order in which Pebble changes names. A marker is a file whose
// name says which manifest is the current one. Pebble makes the manifest, makes the
// new marker, removes the old one, and syncs the directory once, at the end: after a
// loss of power a file system may have any of the three and not the others, and there
// would be no store. Here each is durable before the next begins. Common file systems
// keep that order by themselves; a start takes two more syncs.
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

// Unwrap is for Pebble's look at what lies below.
func (fs markerFS) Unwrap() vfs.FS { return fs.FS }
