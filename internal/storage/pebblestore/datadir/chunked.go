package datadir

import (
	"errors"
	"io"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// chunkBytes is the size of the reads of a ChunkedFile.
const chunkBytes = 256 << 10

// directAlign divides the offsets and lengths of direct reads. No common device has larger
// sectors.
const directAlign = 4 << 10

// A ChunkedFile reads a file in large chunks.
//
// Where possible, it bypasses the page cache: verifying the cached copy would prove nothing
// about the disk, and filling the cache with cold tables would evict what readers use.
type ChunkedFile struct {
	vfs.File
	before func(n int64) error // called before each read of n bytes
	bytes  int64               // size of the file
	direct bool

	// chunk is the part of the file that begins at byte at.
	chunk []byte
	at    int64
}

// NewChunkedFile returns a ChunkedFile that reads f, and closes it when it is closed. The file
// may grow, but not change.
func NewChunkedFile(f vfs.File, before func(n int64) error) (*ChunkedFile, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// Go allocates buffers of this size at page boundaries, which is all the alignment that
	// direct reads need. Should that change, they fail and fill falls back to buffered ones.
	chunk := make([]byte, 0, chunkBytes+directAlign)
	return &ChunkedFile{File: f, before: before, bytes: info.Size(), direct: setDirect(f, true), chunk: chunk}, nil
}

// ReadAt implements io.ReaderAt.
func (f *ChunkedFile) ReadAt(p []byte, offset int64) (n int, err error) {
	for n < len(p) {
		from := offset + int64(n) - f.at
		if from < 0 || from >= int64(len(f.chunk)) {
			if err := f.fill(offset + int64(n)); err != nil {
				return n, err
			}
			continue
		}
		n += copy(p[n:], f.chunk[from:])
	}
	return n, nil
}

// fill reads a chunk that contains the byte at offset.
func (f *ChunkedFile) fill(offset int64) error {
	if offset < 0 || offset >= f.bytes {
		return io.EOF
	}
	// Readers of a table start at its end: a chunk never extends beyond it.
	at := max(min(offset, f.bytes-chunkBytes), 0) &^ (directAlign - 1)
	want := int(min(f.bytes-at, int64(cap(f.chunk))))
	if err := f.before(int64(want)); err != nil {
		return err
	}
	f.chunk = f.chunk[:0]
	b := f.chunk[:min((want+directAlign-1)&^(directAlign-1), cap(f.chunk))]
	n, err := f.File.ReadAt(b, at)
	if n < want && f.direct && errors.Is(err, syscall.EINVAL) {
		// The file system requires another alignment.
		f.direct = false
		setDirect(f.File, false)
		n, err = f.File.ReadAt(b, at)
	}
	if n < want { // a later error concerns only the unaligned end
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	f.chunk, f.at = b[:want], at
	return nil
}
