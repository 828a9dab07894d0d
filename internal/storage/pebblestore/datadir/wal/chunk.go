package wal

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// The chunks of Pebble's journals, as its package record describes them:
//
//	byte       meaning
//	0 to 3     checksum of everything from byte 6 on
//	4 and 5    length of the payload
//	6          kind
//	7 to 10    kinds 5 to 12: the low 32 bits of the log's number
//	11 to 18   kinds 9 to 12: offset up to which the log had been synced
//	others     payload: a record, or a part of one
//
// Integers are little-endian. Kinds 1 to 4 are those of a manifest, 5 to 8 those of the
// first log of a new store, 9 to 12 those of all other logs. The four kinds are: whole
// record, first part, middle part, last part. The checksum is CRC-32C, rotated and with a
// constant added.
const (
	BlockBytes          = 32 << 10 // chunks do not cross blocks
	minChunkHeaderBytes = 7

	// A closed log ends with the header of an empty chunk of kind 5, with the number of
	// the next log and a checksum of zero.
	endMarkBytes = 11
)

// A Format reads the chunks of one journal.
type Format struct {
	families []chunkFamily
	number   uint32 // the log's number
}

// A chunkFamily is four kinds of chunks.
type chunkFamily struct {
	whole       byte // the first kind
	headerBytes int
	numbered    bool
}

// The families of each journal. They must not be modified.
var (
	manifestFamilies = []chunkFamily{{1, 7, false}}
	logFamilies      = []chunkFamily{{5, 11, true}, {9, 19, true}}
)

// Manifest returns the format of manifests.
func Manifest() Format { return Format{families: manifestFamilies} }

// Log returns the format of the log with a number. Files of logs are reused: the number
// distinguishes old chunks.
func Log(number uint32) Format { return Format{families: logFamilies, number: number} }

// maxHeaderBytes returns the length of the longest header.
func (c Format) maxHeaderBytes() int { return c.families[len(c.families)-1].headerBytes }

// Chunk returns the size of the chunk at the start of b, or 0 if b does not start with a
// valid chunk of this journal.
func (c Format) Chunk(b []byte) int {
	if len(b) < minChunkHeaderBytes {
		return 0
	}
	for _, f := range c.families {
		if b[6]-f.whole >= 4 || len(b) < f.headerBytes || c.wrongNumberBits(f, b) > 0 {
			continue
		}
		size := f.headerBytes + int(binary.LittleEndian.Uint16(b[4:]))
		if size <= len(b) && checksum(b[6:size]) == storedChecksum(b) {
			return size
		}
	}
	return 0
}

// startsRecord reports whether b starts with the first chunk of a record.
func (c Format) startsRecord(b []byte) bool {
	for _, f := range c.families {
		if b[6] == f.whole || b[6] == f.whole+1 {
			return c.Chunk(b) > 0
		}
	}
	return false
}

// EndsRecord reports whether b starts with the last chunk of a record.
func (c Format) EndsRecord(b []byte) bool {
	for _, f := range c.families {
		if b[6] == f.whole || b[6] == f.whole+3 {
			return true
		}
	}
	return false
}

// isEndMark reports whether b starts with the end mark of a closed log.
func (c Format) isEndMark(b []byte) bool {
	f := c.families[0]
	return f.numbered && len(b) >= endMarkBytes && b[6] == f.whole && isZero(b[:6]) &&
		binary.LittleEndian.Uint32(b[7:]) == c.number+1
}

// wrongNumberBits returns the number of wrong bits in the log's number.
func (c Format) wrongNumberBits(f chunkFamily, b []byte) int {
	if !f.numbered {
		return 0
	}
	return bits.OnesCount32(binary.LittleEndian.Uint32(b[7:]) ^ c.number)
}

// oneBitOff reports whether b, which does not start with a valid chunk, would do so with
// one bit flipped.
func (c Format) oneBitOff(b []byte) bool {
	for _, f := range c.families {
		if len(b) < f.headerBytes {
			continue
		}
		wrong := c.wrongNumberBits(f, b)
		if b[6]-f.whole >= 4 {
			wrong++ // at least
		}
		// The number prevents chance matches: earlier content of a reused file has
		// another number.
		if wrong <= 1 && oneBitOff(b, f.headerBytes, wrong) {
			return true
		}
	}
	return false
}

// oneBitOff does the same for one length of the header. wrong is the known number of wrong
// bits in kind and number, 0 or 1.
func oneBitOff(b []byte, headerBytes, wrong int) bool {
	length := binary.LittleEndian.Uint16(b[4:])
	stored := storedChecksum(b)
	for i := range 16 { // a bit of the length
		size := headerBytes + int(length^1<<i)
		if wrong == 0 && size <= len(b) && checksum(b[6:size]) == stored {
			return true
		}
	}
	size := headerBytes + int(length)
	if size > len(b) {
		return false
	}
	off := checksum(b[6:size]) ^ stored
	if off == 0 {
		return false // the checksum is right, so something else is wrong
	}
	if wrong == 0 && bits.OnesCount32(binary.LittleEndian.Uint32(b)^masked(checksum(b[6:size]))) == 1 {
		return true // a bit of the checksum
	}
	// CRCs are linear: the difference caused by a flipped bit depends only on its
	// distance from the end.
	var flipped [8]uint32
	for i := range flipped {
		flipped[i] = castagnoli[1<<i]
	}
	for range size - 6 {
		for i, t := range flipped {
			if t == off {
				return true
			}
			flipped[i] = castagnoli[byte(t)] ^ t>>8
		}
	}
	return false
}

// castagnoli is the table of CRC-32C. It must not be modified.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the CRC-32C of b.
func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// storedChecksum returns the unmasked checksum in a header.
func storedChecksum(b []byte) uint32 {
	rotated := binary.LittleEndian.Uint32(b) - 0xa282ead8
	return rotated>>17 | rotated<<15
}

// masked returns a checksum as it is stored in a header.
func masked(sum uint32) uint32 { return (sum>>15 | sum<<17) + 0xa282ead8 }

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
