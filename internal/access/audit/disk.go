package audit

import (
	"context"
	"io"
	"io/fs"
	"os"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// A disk is the file operations of a Log. [folder] uses the operating system; tests
// inject failures.
type disk interface {
	lock(ctx context.Context, path string) (unlock func(), err error)
	open(path string) (file, error) // for reading
	openAppend(path string) (file, error)
	stat(path string) (fs.FileInfo, error)
	rename(from, to string) error
	replace(path string, data []byte) error // see sharedfile.Replace
	syncDir(path string) error
}

// A file is a file that a Log appends to.
type file interface {
	io.ReaderAt
	io.Writer
	io.Closer
	Stat() (fs.FileInfo, error)
	Sync() error
	Truncate(size int64) error
}

// folder is a disk that uses the operating system.
type folder struct{}

func (folder) lock(ctx context.Context, path string) (func(), error) {
	return sharedfile.Lock(ctx, path)
}

// Older files may be read-only, or links to an archive.
func (folder) open(path string) (file, error)       { return fileOf(sharedfile.Open(path)) }
func (folder) openAppend(path string) (file, error) { return fileOf(sharedfile.OpenAppend(path)) }

func fileOf(f *os.File, err error) (file, error) {
	if err != nil {
		return nil, err // not a non-nil file holding a nil pointer
	}
	return f, nil
}

func (folder) stat(path string) (fs.FileInfo, error)  { return os.Stat(path) }
func (folder) rename(from, to string) error           { return os.Rename(from, to) }
func (folder) replace(path string, data []byte) error { return sharedfile.Replace(path, data) }
func (folder) syncDir(path string) error              { return sharedfile.SyncDir(path) }
