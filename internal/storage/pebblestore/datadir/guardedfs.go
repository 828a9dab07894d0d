package datadir

import "github.com/cockroachdb/pebble/v2/vfs"

// A guardedFS opens, creates, renames and removes files by their paths, unless these are in another directory by now.
type guardedFS struct {
	vfs.FS
	anchor *anchor
}

func (g guardedFS) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := g.anchor.intact(); err != nil {
		return nil, err
	}
	return g.FS.Create(path, c)
}

func (g guardedFS) Open(path string, o ...vfs.OpenOption) (vfs.File, error) {
	if err := g.anchor.intact(); err != nil {
		return nil, err
	}
	return g.FS.Open(path, o...)
}

func (g guardedFS) ReuseForWrite(oldpath, newpath string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := g.anchor.intact(); err != nil {
		return nil, err
	}
	return g.FS.ReuseForWrite(oldpath, newpath, c)
}

func (g guardedFS) Rename(oldpath, newpath string) error {
	if err := g.anchor.intact(); err != nil {
		return err
	}
	return g.FS.Rename(oldpath, newpath)
}

func (g guardedFS) Remove(path string) error {
	if err := g.anchor.intact(); err != nil {
		return err
	}
	return g.FS.Remove(path)
}
