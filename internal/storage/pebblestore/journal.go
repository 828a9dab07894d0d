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

// # Why the store reads the log and the manifest itself
//
// Pebble writes two kinds of journals, append-only files of records: the write-ahead
// log, and the manifest, which lists the tables. A reader must drop a torn end, which a
// crash leaves, but not damaged records: hundreds of acknowledged readings may follow
// one, and a table that the manifest does not list is deleted. Pebble v2.1.7 takes most
// damage for a torn end and drops everything after it. In the manifest it does not look
// further. In the newest log it looks for a later chunk whose header shows that the log
// had been synced beyond the damage, but only from the next block of 32 KiB on, and its
// writer records too small offsets: it does not count blocks that were full when they
// were written.
//
// This store knows more. Each record of a journal is synced before the next one is
// written: in the log, because Append commits one batch after another; in the current
// manifest, because Pebble syncs each record. So if a record begins at some offset,
// everything before it was on stable storage. An unreadable chunk is damaged, not torn,
//
//   - if another record of the same journal begins anywhere after it,
//   - if the end mark of a closed log follows it,
//   - or if it becomes readable when one bit of it is flipped, which a torn write does
//     not cause.
//
// Damage of more than one bit in the last record of a journal cannot be distinguished
// from a torn end, and is treated as one.
//
// TestDamagedLog and TestDamagedManifest check this by flipping bits everywhere.

// An extent is the readable part of a journal.
type extent struct {
	endBytes int64 // end of the last record, or of the end mark if there is one
	ended    bool  // there is an end mark
}

// verifyJournals reads the logs and the current manifest, and returns their extents by
// name. The error wraps storage.ErrCorrupt and names the file if one is damaged in a way
// that Pebble may not notice.
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
		// Files of logs are reused. The number in a chunk distinguishes old chunks.
		if extents[name], err = d.verifyJournal(name, logChunks(uint32(number)), nil); err != nil {
			return nil, err
		}
	}
	current, err := d.currentManifest()
	if err != nil {
		return nil, err
	}
	extents[current], err = d.verifyJournal(current, manifestChunks(), nil)
	return extents, err
}

// currentManifest returns the name of the current manifest.
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

// verifyOldManifests verifies the manifests older than the current one, which are no
// longer used.
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
			if _, err := d.verifyJournal(name, manifestChunks(), nil); err != nil {
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

// verifyJournal reads a journal. If before is not nil, it reads in large chunks, and calls before
// ahead of each.
func (d *directory) verifyJournal(name string, c chunkFormat, before func(n int64) error) (extent, error) {
	path := d.fs.PathJoin(d.path, name)
	f, err := d.fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return extent{}, missing(err)
	}
	var r io.Reader = f
	if before != nil {
		chunked, err := newChunkedFile(f, before)
		if err != nil {
			return extent{}, joinClose(err, f)
		}
		r = io.NewSectionReader(chunked, 0, chunked.bytes)
	}
	sc := journalScanner{chunkFormat: c, damagedAt: -1}
	if err := sc.scan(r); err != nil {
		return extent{}, joinClose(fmt.Errorf("verify file %s: %w", path, missing(err)), f)
	}
	return sc.extent, f.Close()
}

// A journalScanner reads the blocks of one journal.
type journalScanner struct {
	chunkFormat
	extent
	offset    int64 // of the next block
	damagedAt int64 // offset of the first unreadable chunk, or -1
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
	return nil // the rest is earlier content of a reused file
}

// block reads the next block. Chunks do not cross blocks.
func (sc *journalScanner) block(b []byte) error {
	pos := 0
	for sc.damagedAt < 0 && len(b)-pos >= minChunkHeaderBytes {
		if size := sc.chunk(b[pos:]); size > 0 {
			last := sc.endsRecord(b[pos:])
			if pos += size; last {
				sc.endBytes = sc.offset + int64(pos)
			}
			continue
		}
		if len(b)-pos < sc.maxHeaderBytes() && len(b) == journalBlockBytes && isZero(b[pos:]) {
			break // padding: no further chunk fits into this block
		}
		if sc.isEndMark(b[pos:]) {
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
		sc.endBytes = sc.offset + journalBlockBytes // the padding was written with the record
	}
	if sc.damagedAt >= 0 {
		for ; len(b)-pos >= minChunkHeaderBytes; pos++ {
			if sc.startsRecord(b[pos:]) || sc.isEndMark(b[pos:]) {
				return fmt.Errorf("%w: damaged at byte %d, before a later write at byte %d",
					storage.ErrCorrupt, sc.damagedAt, sc.offset+int64(pos))
			}
		}
	}
	sc.offset += int64(len(b))
	return nil
}
