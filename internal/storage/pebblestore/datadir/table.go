package datadir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
)

// A Table is the file of a table. Its content never changes.
type Table struct {
	Number uint64
	Name   string
	Bytes  int64
}

// Tables returns the files of the tables that a tree refers to, in the order of their
// numbers, which is that of their creation.
func Tables(db *pebble.DB, which ...pebble.SSTablesOption) ([]Table, error) {
	levels, err := db.SSTables(which...)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", damage.Wrap(err))
	}
	var files []Table
	for _, level := range levels {
		for i := range level {
			number := level[i].BackingSSTNum // several tables may be parts of one file
			files = append(files, Table{uint64(number), number.String() + TableSuffix, int64(level[i].Size)})
		}
	}
	slices.SortFunc(files, func(a, b Table) int { return cmp.Compare(a.Number, b.Number) })
	return slices.CompactFunc(files, func(a, b Table) bool { return a.Number == b.Number }), nil
}

// TotalBytes returns the size of files.
func TotalBytes(files []Table) (n int64) {
	for _, f := range files {
		n += f.Bytes
	}
	return n
}

// OpenTable opens a table directly.
func OpenTable(ctx context.Context, fsys vfs.FS, path string, o sstable.ReaderOptions) (*sstable.Reader, error) {
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
		return nil, errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(ctx, readable, o)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

// VerifyTable verifies the checksum of every block of a table, including blocks that no read
// uses. If through is not nil, it reads the file through the result of through. An error
// for which damage.IsFault returns false means damage.
func VerifyTable(ctx context.Context, fsys vfs.FS, path string, o sstable.ReaderOptions,
	through func(vfs.File) (sstable.ReadableFile, error),
) error {
	f, err := fsys.Open(path)
	if err != nil {
		return err
	}
	var file sstable.ReadableFile = f
	if through != nil {
		if file, err = through(f); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	r, err := readTable(ctx, file, o)
	if err != nil {
		return err
	}
	if err := r.ValidateBlockChecksums(); err != nil {
		return errors.Join(err, r.Close())
	}
	return r.Close()
}
