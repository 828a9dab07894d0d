package datadir

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// ReadSmall returns the content of a file of at most maxBytes.
func ReadSmall(fsys vfs.FS, path string, maxBytes int64) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && int64(len(text)) > maxBytes {
		err = fmt.Errorf("%w: more than %d bytes", storage.ErrCorrupt, maxBytes)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", path, err), f.Close())
	}
	return text, f.Close()
}

// newSuffix is the suffix of a file that is being written.
const newSuffix = ".new"

// Replace writes a small file atomically and durably.
func Replace(fsys vfs.FS, dir, name string, text []byte) error {
	path := fsys.PathJoin(dir, name)
	if err := WriteSynced(fsys, path+newSuffix, text); err != nil {
		return err
	}
	if err := fsys.Rename(path+newSuffix, path); err != nil {
		return err
	}
	return SyncDir(fsys, dir)
}

// WriteSynced creates a file with a text, and syncs it, but not its directory.
func WriteSynced(fsys vfs.FS, path string, text []byte) error {
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err := f.Write(text); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// SyncDir makes the entries of a directory durable.
func SyncDir(fsys vfs.FS, path string) error {
	dir, err := fsys.OpenDir(path)
	if err != nil {
		return err
	}
	if err := dir.Sync(); err != nil {
		return errors.Join(err, dir.Close())
	}
	return dir.Close()
}

// castagnoli is the table of CRC-32C. It must not be modified.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of b.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }
