package datadir

import (
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A guardedFS accesses files by their paths, unless the directory of the store, or its lock, was removed
// or replaced: then they would be the files of another directory.
type guardedFS struct {
	vfs.FS
	anchor *anchor
}

func (g guardedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := g.anchor.intact(); err != nil {
		return nil, err
	}
	return g.FS.Create(name, c)
}

func (g guardedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := g.anchor.intact(); err != nil {
		return nil, err
	}
	return g.FS.Open(name, opts...)
}

func (g guardedFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := g.anchor.intact(); err != nil {
		return nil, err
	}
	return g.FS.OpenReadWrite(name, c, opts...)
}

func (g guardedFS) OpenDir(name string) (vfs.File, error) {
	if err := g.anchor.intact(); err != nil {
		return nil, err
	}
	return g.FS.OpenDir(name)
}

func (g guardedFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := g.anchor.intact(); err != nil {
		return nil, err
	}
	return g.FS.ReuseForWrite(oldname, newname, c)
}

func (g guardedFS) Link(oldname, newname string) error {
	if err := g.anchor.intact(); err != nil {
		return err
	}
	return g.FS.Link(oldname, newname)
}

func (g guardedFS) Rename(oldname, newname string) error {
	if err := g.anchor.intact(); err != nil {
		return err
	}
	return g.FS.Rename(oldname, newname)
}

func (g guardedFS) Remove(name string) error {
	if err := g.anchor.intact(); err != nil {
		return err
	}
	return g.FS.Remove(name)
}

func (g guardedFS) RemoveAll(name string) error {
	if err := g.anchor.intact(); err != nil {
		return err
	}
	return g.FS.RemoveAll(name)
}

func (g guardedFS) MkdirAll(dir string, perm os.FileMode) error {
	if err := g.anchor.intact(); err != nil {
		return err
	}
	return g.FS.MkdirAll(dir, perm)
}

// Unwrap implements vfs.FS.
func (g guardedFS) Unwrap() vfs.FS { return g.FS }
