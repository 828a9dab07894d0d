// Package wal reads Pebble's journals, append-only files of records: the write-ahead log, and
// the manifest, which lists the tables.
//
// # Promise
//
// [Verify] reports damaged records. It does not report a torn end, which a crash leaves, and which
// a reader must drop. Hundreds of acknowledged readings may follow a damaged record of a log, and a
// table that the manifest does not list is deleted.
//
// # Why Pebble's own reader is not enough
//
// Pebble v2.1.7 takes most damage for a torn end and drops everything after it. In the manifest it
// does not look further. In the newest log it looks for a later chunk whose header shows that the
// log had been synced beyond the damage, but only from the next block of 32 KiB on, and its writer
// records too small offsets: it does not count blocks that were full when they were written.
//
// This package relies on more: each record of a journal is synced before the next one is written.
// So if a record begins at some offset, everything before it was on stable storage. An unreadable
// chunk is damaged, not torn,
//
//   - if another record of the same journal begins anywhere after it,
//   - if the end mark of a closed log follows it,
//   - or if it becomes readable when one bit of it is flipped, which a torn write does
//     not cause.
//
// Damage of more than one bit in the last record of a journal cannot be distinguished from a torn
// end, and is treated as one. TestDamage and TestEveryByte of package pebblestore check this.
//
// # Not here
//
// Nothing is known of what records hold, or of which journals a directory must have: that is in
// package datadir.
package wal

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// Names of journals.
const (
	LogSuffix      = ".log"
	ManifestPrefix = "MANIFEST-"
)

// LogNumber returns the number in the name of a log.
func LogNumber(name string) (number uint64, ok bool) { return numberIn("", name, LogSuffix) }

// ManifestNumber returns the number in the name of a manifest.
func ManifestNumber(name string) (number uint64, ok bool) { return numberIn(ManifestPrefix, name, "") }

func numberIn(prefix, name, suffix string) (uint64, bool) {
	text, ok1 := strings.CutPrefix(name, prefix)
	text, ok2 := strings.CutSuffix(text, suffix)
	number, err := strconv.ParseUint(text, 10, 64)
	return number, ok1 && ok2 && err == nil
}

// An Extent is the readable part of a journal.
type Extent struct {
	EndBytes int64 // end of the last record, or of the end mark if there is one
	Ended    bool  // there is an end mark
}

// Verify reads a journal. The error wraps storage.ErrCorrupt if it is damaged.
func Verify(r io.Reader, f Format) (Extent, error) {
	sc := scanner{Format: f, damagedAt: -1}
	err := sc.scan(r)
	return sc.Extent, err
}

// A scanner reads the blocks of one journal.
type scanner struct {
	Format
	Extent
	offset    int64 // of the next block
	damagedAt int64 // offset of the first unreadable chunk, or -1
}

func (sc *scanner) scan(r io.Reader) error {
	block := make([]byte, BlockBytes)
	for !sc.Ended {
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

// block reads the next block.
func (sc *scanner) block(b []byte) error {
	pos := 0
	for sc.damagedAt < 0 && len(b)-pos >= minChunkHeaderBytes {
		if size := sc.Chunk(b[pos:]); size > 0 {
			last := sc.EndsRecord(b[pos:])
			if pos += size; last {
				sc.EndBytes = sc.offset + int64(pos)
			}
			continue
		}
		if len(b)-pos < sc.maxHeaderBytes() && len(b) == BlockBytes && isZero(b[pos:]) {
			break // padding: no further chunk fits into this block
		}
		if sc.isEndMark(b[pos:]) {
			sc.Ended, sc.EndBytes = true, sc.offset+int64(pos)+endMarkBytes
			return nil
		}
		sc.damagedAt = sc.offset + int64(pos)
		if sc.oneBitOff(b[pos:]) {
			return fmt.Errorf("%w: damaged at byte %d, where one bit is wrong", storage.ErrCorrupt, sc.damagedAt)
		}
		pos++
	}
	if atEnd := sc.offset + int64(pos); sc.damagedAt < 0 && len(b) == BlockBytes && sc.EndBytes == atEnd {
		sc.EndBytes = sc.offset + BlockBytes // the padding was written with the record
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
