package datadir_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
)

// TestChunkedFile reads files with lengths around multiples of a sector and of a chunk, on a
// real file system and in memory, to and beyond their end.
func TestChunkedFile(t *testing.T) {
	const sector, chunk = 4 << 10, 256 << 10
	dir := t.TempDir()
	for _, size := range []int{1, 511, sector - 1, sector, sector + 1, chunk - 1, chunk, chunk + 1, chunk + sector,
		chunk + sector + 1, 3*chunk - 1, 3*chunk + 17} {
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(i * i / 7)
		}
		name := filepath.Join(dir, "file")
		try(t, os.WriteFile(name, want, 0o600))
		mem := vfs.NewMem() // which, with the race detector, destroys what it was given to write
		try(t, datadir.WriteSynced(mem, "file", bytes.Clone(want)))
		for _, at := range []struct {
			fs   vfs.FS
			name string
		}{{vfs.Default, name}, {mem, "file"}} {
			requested := int64(0)
			before := func(n int64) error { requested += n; return nil }
			got, direct, err := readChunked(at.fs, at.name, size, before)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, direct %t: wrong content, or error %v", size, direct, err)
			}
			if requested < int64(size) || requested > int64(size)*2+sector {
				t.Errorf("%d bytes: %d were read", size, requested)
			}
			if supported := at.fs == vfs.Default && directIO(t, name); direct != supported {
				t.Errorf("%d bytes: direct is %t, want %t", size, direct, supported)
			}
			if _, _, err := readChunked(at.fs, at.name, size+1, before); !errors.Is(err, io.EOF) {
				t.Errorf("%d bytes: reading one more returns %v, want EOF", size, err)
			}
			stop := errors.New("stop")
			if _, _, err := readChunked(at.fs, at.name, size, func(int64) error { return stop }); !errors.Is(err, stop) {
				t.Errorf("%d bytes: %v, want the error of before", size, err)
			}
		}
	}
}

// readChunked reads a file like the scrub, and reports whether all reads bypassed the page
// cache. before is called before each read.
func readChunked(fs vfs.FS, path string, bytes int, before func(n int64) error) (_ []byte, direct bool, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, false, err
	}
	c, err := datadir.NewChunkedFile(f, before)
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	b := make([]byte, bytes)
	for n := 0; n < bytes && err == nil; { // like blocks of a table, in pieces of many lengths
		var m int
		m, err = c.ReadAt(b[n:min(bytes, n+1+n%5000)], int64(n))
		n += m
	}
	return b, c.Direct(), errors.Join(err, c.Close())
}
