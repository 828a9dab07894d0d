package datadir

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir/wal"
)

// verifyJournals reads the logs and the current manifest, and returns their extents by
// name. The error wraps storage.ErrCorrupt and names the file if one is damaged in a way
// that Pebble may not notice.
func (c *comparison) verifyJournals() (map[string]wal.Extent, error) {
	names, err := c.FS.List(c.Path)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	extents := map[string]wal.Extent{}
	for _, name := range names {
		number, ok := wal.LogNumber(name)
		if !ok {
			continue
		}
		// Files of logs are reused. The number in a chunk distinguishes old chunks.
		if extents[name], err = c.verifyJournal(name, wal.Log(uint32(number)), nil); err != nil {
			return nil, err
		}
	}
	current, err := CurrentManifest(c.FS, c.Path)
	if err != nil {
		return nil, err
	}
	extents[current], err = c.verifyJournal(current, wal.Manifest(), nil)
	return extents, err
}

// CurrentManifest returns the name of the current manifest of a directory.
func CurrentManifest(fsys vfs.FS, dir string) (string, error) {
	desc, err := pebble.Peek(dir, fsys)
	if err != nil {
		return "", damage.Wrap(err)
	}
	marker := ""
	switch {
	case !desc.Exists:
		marker = manifestMarkerPrefix
	case desc.FormatMajorVersion == pebble.FormatDefault:
		marker = formatMarkerPrefix
	default:
		return fsys.PathBase(desc.ManifestFilename), nil
	}
	return "", fmt.Errorf("%w: file %s* is missing", storage.ErrCorrupt, fsys.PathJoin(dir, marker))
}

// verifyJournal reads a journal. If before is not nil, it reads in large chunks, and calls before
// ahead of each.
func (c *comparison) verifyJournal(name string, format wal.Format, before func(n int64) error) (wal.Extent, error) {
	path := c.File(name)
	f, err := c.FS.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return wal.Extent{}, damage.Missing(err)
	}
	var r io.Reader = f
	if before != nil {
		chunked, err := NewChunkedFile(f, before)
		if err != nil {
			return wal.Extent{}, errors.Join(err, f.Close())
		}
		r = io.NewSectionReader(chunked, 0, chunked.bytes)
	}
	extent, err := wal.Verify(r, format)
	if err != nil {
		return wal.Extent{}, errors.Join(fmt.Errorf("verify file %s: %w", path, damage.Missing(err)), f.Close())
	}
	return extent, f.Close()
}
