package pebblestore

import (
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// readSmallFile returns the content of a file of at most maxBytes.
func readSmallFile(fsys vfs.FS, path string, maxBytes int64) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && int64(len(text)) > maxBytes {
		err = fmt.Errorf("%w: more than %d bytes", storage.ErrCorrupt, maxBytes)
	}
	if err != nil {
		return nil, joinClose(fmt.Errorf("read %s: %w", path, err), f)
	}
	return text, f.Close()
}

// newSuffix is the suffix of a file that is being written.
const newSuffix = ".new"

// replaceFile writes a small file atomically and durably.
func replaceFile(fsys vfs.FS, dir, name string, text []byte) error {
	path := fsys.PathJoin(dir, name)
	if err := writeSynced(fsys, path+newSuffix, text); err != nil {
		return err
	}
	if err := fsys.Rename(path+newSuffix, path); err != nil {
		return err
	}
	return syncDir(fsys, dir)
}

func writeSynced(fsys vfs.FS, path string, text []byte) error {
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err := f.Write(text); err != nil {
		return joinClose(err, f)
	}
	if err := f.Sync(); err != nil {
		return joinClose(err, f)
	}
	return f.Close()
}

// syncDir makes the entries of a directory durable.
func syncDir(fsys vfs.FS, path string) error {
	dir, err := fsys.OpenDir(path)
	if err != nil {
		return err
	}
	if err := dir.Sync(); err != nil {
		return joinClose(err, dir)
	}
	return dir.Close()
}
