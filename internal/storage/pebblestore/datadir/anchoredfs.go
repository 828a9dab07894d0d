package datadir

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// An anchoredFS accesses the files of the directory real through the path via. Errors
// name the files by real.
type anchoredFS struct {
	vfs.FS
	real string
	via  string
}

// viaPath translates a path given by the caller.
func (a anchoredFS) viaPath(path string) string { return replaceDir(path, a.real, a.via) }

// replaceDir replaces the directory from by to at the beginning of a path.
func replaceDir(path, from, to string) string {
	if rest, ok := strings.CutPrefix(path, from); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		return to + rest
	}
	return path
}

// realError translates the paths in an error back. It modifies err, which package os has
// allocated for this call.
func (a anchoredFS) realError(err error) error {
	if err == nil {
		return nil
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		pathErr.Path = replaceDir(pathErr.Path, a.via, a.real)
	}
	var linkErr *os.LinkError
	if errors.As(err, &linkErr) {
		linkErr.Old, linkErr.New = replaceDir(linkErr.Old, a.via, a.real), replaceDir(linkErr.New, a.via, a.real)
	}
	return err
}

func (a anchoredFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, a.realError(err)
	}
	return anchoredFile{f, a}, nil
}

func (a anchoredFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return a.file(a.FS.Create(a.viaPath(name), c))
}

func (a anchoredFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return a.file(a.FS.Open(a.viaPath(name), opts...))
}

func (a anchoredFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return a.file(a.FS.OpenReadWrite(a.viaPath(name), c, opts...))
}

func (a anchoredFS) OpenDir(name string) (vfs.File, error) {
	return a.file(a.FS.OpenDir(a.viaPath(name)))
}

func (a anchoredFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return a.file(a.FS.ReuseForWrite(a.viaPath(oldname), a.viaPath(newname), c))
}

func (a anchoredFS) Link(oldname, newname string) error {
	return a.realError(a.FS.Link(a.viaPath(oldname), a.viaPath(newname)))
}

func (a anchoredFS) Rename(oldname, newname string) error {
	return a.realError(a.FS.Rename(a.viaPath(oldname), a.viaPath(newname)))
}

func (a anchoredFS) Remove(name string) error { return a.realError(a.FS.Remove(a.viaPath(name))) }

func (a anchoredFS) RemoveAll(name string) error { return a.realError(a.FS.RemoveAll(a.viaPath(name))) }

func (a anchoredFS) MkdirAll(dir string, perm os.FileMode) error {
	return a.realError(a.FS.MkdirAll(a.viaPath(dir), perm))
}

func (a anchoredFS) Lock(name string) (io.Closer, error) {
	c, err := a.FS.Lock(a.viaPath(name))
	return c, a.realError(err)
}

func (a anchoredFS) List(dir string) ([]string, error) {
	names, err := a.FS.List(a.viaPath(dir))
	return names, a.realError(err)
}

func (a anchoredFS) Stat(name string) (vfs.FileInfo, error) {
	info, err := a.FS.Stat(a.viaPath(name))
	return info, a.realError(err)
}

func (a anchoredFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	usage, err := a.FS.GetDiskUsage(a.viaPath(path))
	return usage, a.realError(err)
}

// Unwrap implements vfs.FS.
func (a anchoredFS) Unwrap() vfs.FS { return a.FS }

// An anchoredFile is a file of an anchoredFS.
type anchoredFile struct {
	vfs.File
	of anchoredFS
}

func (f anchoredFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	return n, f.of.realError(err)
}

func (f anchoredFile) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(p, offset)
	return n, f.of.realError(err)
}

func (f anchoredFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.of.realError(err)
}

func (f anchoredFile) WriteAt(p []byte, offset int64) (int, error) {
	n, err := f.File.WriteAt(p, offset)
	return n, f.of.realError(err)
}

func (f anchoredFile) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	return info, f.of.realError(err)
}

func (f anchoredFile) Sync() error     { return f.of.realError(f.File.Sync()) }
func (f anchoredFile) SyncData() error { return f.of.realError(f.File.SyncData()) }
func (f anchoredFile) Close() error    { return f.of.realError(f.File.Close()) }
