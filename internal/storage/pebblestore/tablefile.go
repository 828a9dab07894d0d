package pebblestore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A tableFile is the file of a table. Its content never changes.
type tableFile struct {
	number uint64
	name   string
	bytes  int64
}

// tableFiles returns the files of the tables that a tree refers to, in the order of their
// numbers, which is that of their creation.
func tableFiles(db *pebble.DB, which ...pebble.SSTablesOption) ([]tableFile, error) {
	levels, err := db.SSTables(which...)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", corrupt(err))
	}
	var files []tableFile
	for _, level := range levels {
		for i := range level {
			number := level[i].BackingSSTNum // several tables may be parts of one file
			files = append(files, tableFile{uint64(number), number.String() + tableSuffix, int64(level[i].Size)})
		}
	}
	slices.SortFunc(files, func(a, b tableFile) int { return cmp.Compare(a.number, b.number) })
	return slices.CompactFunc(files, func(a, b tableFile) bool { return a.number == b.number }), nil
}

// tableBytes returns the size of files.
func tableBytes(files []tableFile) (n int64) {
	for _, f := range files {
		n += f.bytes
	}
	return n
}

// tableOptions returns the options to read a table directly, without a cache.
func tableOptions(o Options) sstable.ReaderOptions {
	p := pebbleOptions(o)
	p.EnsureDefaults()
	return p.MakeReaderOptions()
}

// openTable opens a table directly.
func openTable(ctx context.Context, fsys vfs.FS, path string, o sstable.ReaderOptions) (*sstable.Reader, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	return readTable(ctx, f, o)
}

// readTable opens a table in f. After an error it closes f.
func readTable(ctx context.Context, f sstable.ReadableFile, o sstable.ReaderOptions) (*sstable.Reader, error) {
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return nil, joinClose(err, f)
	}
	r, err := sstable.NewReader(ctx, readable, o)
	if err != nil {
		return nil, joinClose(err, f)
	}
	return r, nil
}

// verifyTable verifies the checksum of every block of a table, including blocks that no read
// uses. If through is not nil, it reads the file through the result of through. An error
// for which isFault returns false means damage.
func verifyTable(ctx context.Context, fsys vfs.FS, path string, o sstable.ReaderOptions,
	through func(vfs.File) (sstable.ReadableFile, error),
) error {
	f, err := fsys.Open(path)
	if err != nil {
		return err
	}
	var file sstable.ReadableFile = f
	if through != nil {
		if file, err = through(f); err != nil {
			return joinClose(err, f)
		}
	}
	r, err := readTable(ctx, file, o)
	if err != nil {
		return err
	}
	if err := r.ValidateBlockChecksums(); err != nil {
		return joinClose(err, r)
	}
	return r.Close()
}
