package pebblestore

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// # Why the log and the manifest are read here
//
// Pebble keeps two journals, files of records to which it appends: the write-ahead
// log, and the manifest, which lists the tables. What a crash tears off at their end
// must be dropped when they are read. What was damaged must not: behind a damaged
// record there may be hundreds of acknowledged readings, and a table that the
// manifest does not list is deleted. Pebble v2.1.7 takes most damage for a torn end
// and opens without what lies behind it. In the manifest it looks no further. In the
// newest log it looks for a later chunk that says that the log had been synced
// beyond the damage, but only from the next block of 32 KiB on, and its writer marks
// chunks too low: it does not count blocks that were full when they were written.
//
// This store can tell more. Each record of a journal is synced before the next one
// is begun: of the log, because Append commits one batch after another; of the
// current manifest, because Pebble does so. So where a record begins, everything in
// front of it was on stable storage. A chunk that cannot be read is damaged
//
//   - if another record of the same journal begins anywhere behind it,
//   - if the end mark of the closed log stands behind it,
//   - or if it can be read after a single bit of it is turned: no torn write is one
//     bit off.
//
// What remains is wider damage of the last record of a journal. It looks like a
// torn end, and is taken for one.
//
// TestDamagedLog and TestDamagedManifest turn bits everywhere to see that.

// An extent says how much of a journal can be read.
type extent struct {
	endBytes int64 // after the last record; after the end mark, where there is one
	ended    bool  // there is one
}

// verifyJournals reads the logs and the current manifest, and returns how far each of them
// can be read, by name. The error wraps storage.ErrCorrupt and names the file when one is
// damaged in a way that Pebble may overlook.
func (d *directory) verifyJournals() (map[string]extent, error) {
	names, err := d.fs.List(d.path)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	extents := map[string]extent{}
	for _, name := range names {
		number, ok := logNumber(name)
		if !ok {
			continue
		}
		// Files of logs are used again. Old chunks show by the number in them.
		if extents[name], err = d.verifyJournal(name, logChunks(uint32(number))); err != nil {
			return nil, err
		}
	}
	current, err := d.currentManifest()
	if err != nil {
		return nil, err
	}
	extents[current], err = d.verifyJournal(current, manifestChunks())
	return extents, err
}

// currentManifest returns the name of the manifest that counts.
func (d *directory) currentManifest() (string, error) {
	desc, err := pebble.Peek(d.path, d.fs)
	if err != nil {
		return "", corrupt(err)
	}
	marker := ""
	switch {
	case !desc.Exists:
		marker = manifestMarkerPrefix
	case desc.FormatMajorVersion == pebble.FormatDefault:
		marker = formatMarkerPrefix
	default:
		return d.fs.PathBase(desc.ManifestFilename), nil
	}
	return "", fmt.Errorf("%w: file %s* is missing", storage.ErrCorrupt, d.fs.PathJoin(d.path, marker))
}

// logNumber returns the number in the name of a log.
func logNumber(name string) (uint64, bool) { return journalNumber("", name, logSuffix) }

// manifestNumber returns the number in the name of a manifest.
func manifestNumber(name string) (uint64, bool) { return journalNumber(manifestPrefix, name, "") }

// verifyOldManifests does so for the manifests in front of the current one, which
// nothing reads any more.
func (d *directory) verifyOldManifests() error {
	names, err := d.fs.List(d.path)
	if err != nil {
		return err
	}
	current, err := d.currentManifest()
	if err != nil {
		return err
	}
	newest, _ := manifestNumber(current)
	slices.Sort(names)
	for _, name := range names {
		if number, ok := manifestNumber(name); ok && number < newest {
			if _, err := d.verifyJournal(name, manifestChunks()); err != nil {
				return err
			}
		}
	}
	return nil
}

// journalNumber returns the number in the name of a journal.
func journalNumber(prefix, name, suffix string) (uint64, bool) {
	text, ok1 := strings.CutPrefix(name, prefix)
	text, ok2 := strings.CutSuffix(text, suffix)
	number, err := strconv.ParseUint(text, 10, 64)
	return number, ok1 && ok2 && err == nil
}

func (d *directory) verifyJournal(name string, c chunkFormat) (extent, error) {
	path := d.fs.PathJoin(d.path, name)
	f, err := d.fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return extent{}, missing(err)
	}
	sc := journalScanner{chunkFormat: c, damagedAt: -1}
	if err := sc.scan(f); err != nil {
		return extent{}, joinClose(fmt.Errorf("verify file %s: %w", path, err), f)
	}
	return sc.extent, f.Close()
}

// A journalScanner goes through the blocks of one journal.
type journalScanner struct {
	chunkFormat
	extent
	offset    int64 // of the next block
	damagedAt int64 // where the chunks break off, or -1
}

func (sc *journalScanner) scan(r io.Reader) error {
	block := make([]byte, journalBlockBytes)
	for !sc.ended {
		n, err := io.ReadFull(r, block)
		if n > 0 {
			if err := sc.block(block[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil // what follows was there before
}

// block takes the next block. Chunks do not cross from block to block.
func (sc *journalScanner) block(b []byte) error {
	pos := 0
	for sc.damagedAt < 0 && len(b)-pos >= minChunkHeaderBytes {
		if size := sc.chunk(b[pos:]); size > 0 {
			last := sc.lasts(b[pos:])
			if pos += size; last {
				sc.endBytes = sc.offset + int64(pos)
			}
			continue
		}
		if len(b)-pos < sc.maxHeaderBytes() && len(b) == journalBlockBytes && isZero(b[pos:]) {
			break // no further chunk fits into this block
		}
		if sc.ends(b[pos:]) {
			sc.ended, sc.endBytes = true, sc.offset+int64(pos)+endMarkBytes
			return nil
		}
		sc.damagedAt = sc.offset + int64(pos)
		if sc.oneBitOff(b[pos:]) {
			return fmt.Errorf("%w: damaged at byte %d, where one bit is wrong", storage.ErrCorrupt, sc.damagedAt)
		}
		pos++
	}
	if atEnd := sc.offset + int64(pos); sc.damagedAt < 0 && len(b) == journalBlockBytes && sc.endBytes == atEnd {
		sc.endBytes = sc.offset + journalBlockBytes // what is left of the block was written with the record
	}
	if sc.damagedAt >= 0 {
		for ; len(b)-pos >= minChunkHeaderBytes; pos++ {
			if sc.begins(b[pos:]) || sc.ends(b[pos:]) {
				return fmt.Errorf("%w: damaged at byte %d, in front of what was written later at byte %d",
					storage.ErrCorrupt, sc.damagedAt, sc.offset+int64(pos))
			}
		}
	}
	sc.offset += int64(len(b))
	return nil
}
