package pebblestore

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// An anchoredFS reaches the files of one directory by another path than the one that it is
// given, and has errors tell the latter.
type anchoredFS struct {
	vfs.FS
	real string
	via  string
}

// in returns the path by which a file is reached.
func (a anchoredFS) in(path string) string { return exchange(path, a.real, a.via) }

// exchange replaces the directory from at the beginning of a path.
func exchange(path, from, to string) string {
	if rest, ok := strings.CutPrefix(path, from); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		return to + rest
	}
	return path
}

// out has an error tell the path that was given. Each error of package os is its own.
func (a anchoredFS) out(err error) error {
	if err == nil {
		return nil
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		pathErr.Path = exchange(pathErr.Path, a.via, a.real)
	}
	var linkErr *os.LinkError
	if errors.As(err, &linkErr) {
		linkErr.Old, linkErr.New = exchange(linkErr.Old, a.via, a.real), exchange(linkErr.New, a.via, a.real)
	}
	return err
}

func (a anchoredFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, a.out(err)
	}
	return anchoredFile{f, a}, nil
}

func (a anchoredFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return a.file(a.FS.Create(a.in(name), c))
}

func (a anchoredFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return a.file(a.FS.Open(a.in(name), opts...))
}

func (a anchoredFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return a.file(a.FS.OpenReadWrite(a.in(name), c, opts...))
}

func (a anchoredFS) OpenDir(name string) (vfs.File, error) {
	return a.file(a.FS.OpenDir(a.in(name)))
}

func (a anchoredFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return a.file(a.FS.ReuseForWrite(a.in(oldname), a.in(newname), c))
}

func (a anchoredFS) Link(oldname, newname string) error {
	return a.out(a.FS.Link(a.in(oldname), a.in(newname)))
}

func (a anchoredFS) Rename(oldname, newname string) error {
	return a.out(a.FS.Rename(a.in(oldname), a.in(newname)))
}

func (a anchoredFS) Remove(name string) error { return a.out(a.FS.Remove(a.in(name))) }

func (a anchoredFS) RemoveAll(name string) error { return a.out(a.FS.RemoveAll(a.in(name))) }

func (a anchoredFS) MkdirAll(dir string, perm os.FileMode) error {
	return a.out(a.FS.MkdirAll(a.in(dir), perm))
}

func (a anchoredFS) Lock(name string) (io.Closer, error) {
	c, err := a.FS.Lock(a.in(name))
	return c, a.out(err)
}

func (a anchoredFS) List(dir string) ([]string, error) {
	names, err := a.FS.List(a.in(dir))
	return names, a.out(err)
}

func (a anchoredFS) Stat(name string) (vfs.FileInfo, error) {
	info, err := a.FS.Stat(a.in(name))
	return info, a.out(err)
}

func (a anchoredFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	usage, err := a.FS.GetDiskUsage(a.in(path))
	return usage, a.out(err)
}

// Unwrap is for Pebble's look at what lies below.
func (a anchoredFS) Unwrap() vfs.FS { return a.FS }

// An anchoredFile is a file of an anchoredFS.
type anchoredFile struct {
	vfs.File
	of anchoredFS
}

func (f anchoredFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	return n, f.of.out(err)
}

func (f anchoredFile) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(p, offset)
	return n, f.of.out(err)
}

func (f anchoredFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.of.out(err)
}

func (f anchoredFile) WriteAt(p []byte, offset int64) (int, error) {
	n, err := f.File.WriteAt(p, offset)
	return n, f.of.out(err)
}

func (f anchoredFile) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	return info, f.of.out(err)
}

func (f anchoredFile) Sync() error     { return f.of.out(f.File.Sync()) }
func (f anchoredFile) SyncData() error { return f.of.out(f.File.SyncData()) }
func (f anchoredFile) Close() error    { return f.of.out(f.File.Close()) }
