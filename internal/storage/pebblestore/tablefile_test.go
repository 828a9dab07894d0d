package pebblestore_test

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// A watchedFS watches the table files that a store opens directly. Pebble itself always
// passes an option when it opens a table.
type watchedFS struct {
	vfs.FS
	open   atomic.Int64               // number of open files
	read   func(name string) error    // called before a read, if not nil
	create func(name string)          // called before a file is created, if not nil
	spoil  func(name string) (b byte) // XORed with each byte that is read, if not nil
}

func (fs *watchedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.Open(name, opts...)
	if err != nil || len(opts) > 0 || !strings.HasSuffix(name, ".sst") {
		return f, err
	}
	fs.open.Add(1)
	return &watchedFile{f, fs, path.Base(name)}, nil
}

func (fs *watchedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if fs.create != nil {
		fs.create(path.Base(name))
	}
	return fs.FS.Create(name, c)
}

func (fs *watchedFS) Unwrap() vfs.FS { return fs.FS }

type watchedFile struct {
	vfs.File
	fs   *watchedFS
	name string
}

func (f *watchedFile) ReadAt(p []byte, offset int64) (int, error) {
	if f.fs.read != nil {
		if err := f.fs.read(f.name); err != nil {
			return 0, err
		}
	}
	n, err := f.File.ReadAt(p, offset)
	if f.fs.spoil != nil {
		by := f.fs.spoil(f.name)
		for i := range p[:n] {
			p[i] ^= by
		}
	}
	return n, err
}

func (f *watchedFile) Close() error {
	f.fs.open.Add(-1)
	return f.File.Close()
}

// TestCheckClosesFiles checks a store in which every table has a damaged end, so that none
// can be opened.
func TestCheckClosesFiles(t *testing.T) {
	fs := &watchedFS{FS: closedWithTables(t)}
	for _, name := range namesWith(t, fs, ".sst") {
		flip(t, fs, name, size(t, fs, name)-1)
	}
	if _, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs}); !errors.Is(err,
		storage.ErrCorrupt) {
		t.Fatalf("Check returns %v, want ErrCorrupt", err)
	}
	if n := fs.open.Load(); n != 0 {
		t.Errorf("%d files are left open", n)
	}
}
