package pebblestore

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// The chunks of Pebble's journals, as its package record describes them:
//
//	byte       meaning
//	0 to 3     checksum of all from byte 6 on
//	4 and 5    length of the payload
//	6          kind
//	7 to 10    kinds 5 to 12: low part of the log's number
//	11 to 18   kinds 9 to 12: up to where the log had been synced
//	the rest   payload: a record, or a part of one
//
// Integers are little-endian. Kinds 1 to 4 make a manifest, 5 to 8 the first log of a
// new store, 9 to 12 every other log. Each four are: whole record, first part, middle
// part, last part. The checksum is CRC-32C, turned and shifted.
const (
	journalBlockBytes   = 32 << 10
	minChunkHeaderBytes = 7

	// A log that is closed ends with the header of an empty chunk of the first
	// kind that has a number, with the number of the next log and no checksum.
	endMarkBytes = 11
)

// A chunkFormat reads the chunks of one journal.
type chunkFormat struct {
	families []chunkFamily
	number   uint32 // of the log
}

// A chunkFamily is four kinds of chunks.
type chunkFamily struct {
	whole       byte // the first kind
	headerBytes int
	numbered    bool
}

// The families of each journal. They are never written to.
var (
	manifestFamilies = []chunkFamily{{1, 7, false}}
	logFamilies      = []chunkFamily{{5, 11, true}, {9, 19, true}}
)

func manifestChunks() chunkFormat { return chunkFormat{families: manifestFamilies} }

func logChunks(number uint32) chunkFormat {
	return chunkFormat{families: logFamilies, number: number}
}

// maxHeaderBytes returns the length of the longest header.
func (c chunkFormat) maxHeaderBytes() int { return c.families[len(c.families)-1].headerBytes }

// chunk returns the size of the chunk of this journal that b begins with, or 0 when
// that cannot be read.
func (c chunkFormat) chunk(b []byte) int {
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

// begins reports whether a record begins at b.
func (c chunkFormat) begins(b []byte) bool {
	for _, f := range c.families {
		if b[6] == f.whole || b[6] == f.whole+1 {
			return c.chunk(b) > 0
		}
	}
	return false
}

// lasts reports whether b begins with the last chunk of a record.
func (c chunkFormat) lasts(b []byte) bool {
	for _, f := range c.families {
		if b[6] == f.whole || b[6] == f.whole+3 {
			return true
		}
	}
	return false
}

// ends reports whether the end mark of a closed log stands at b.
func (c chunkFormat) ends(b []byte) bool {
	f := c.families[0]
	return f.numbered && len(b) >= endMarkBytes && b[6] == f.whole && isZero(b[:6]) &&
		binary.LittleEndian.Uint32(b[7:]) == c.number+1
}

// wrongNumberBits returns how many bits of the log's number are wrong.
func (c chunkFormat) wrongNumberBits(f chunkFamily, b []byte) int {
	if !f.numbered {
		return 0
	}
	return bits.OnesCount32(binary.LittleEndian.Uint32(b[7:]) ^ c.number)
}

// oneBitOff reports whether b, which does not begin with a chunk that can be read,
// would after one of its bits is turned.
func (c chunkFormat) oneBitOff(b []byte) bool {
	for _, f := range c.families {
		if len(b) < f.headerBytes {
			continue
		}
		wrong := c.wrongNumberBits(f, b)
		if b[6]-f.whole >= 4 {
			wrong++ // at least
		}
		// The number keeps chance away: what a file held before has another.
		if wrong <= 1 && oneBitOff(b, f.headerBytes, wrong) {
			return true
		}
	}
	return false
}

// oneBitOff does so for one length of the header, in which wrong bits, 0 or 1, of
// kind and number are known to be wrong.
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
		return false // whole, so it is something else that is wrong
	}
	if wrong == 0 && bits.OnesCount32(binary.LittleEndian.Uint32(b)^masked(checksum(b[6:size]))) == 1 {
		return true // a bit of the checksum
	}
	// A checksum is linear: the difference that a wrong bit makes depends on its
	// distance from the end alone.
	var turned [8]uint32
	for i := range turned {
		turned[i] = castagnoli[1<<i]
	}
	for range size - 6 {
		for i, t := range turned {
			if t == off {
				return true
			}
			turned[i] = castagnoli[byte(t)] ^ t>>8
		}
	}
	return false
}

// castagnoli is the table of CRC-32C. It is never written to.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// storedChecksum returns the checksum in a header as checksum computes it.
func storedChecksum(b []byte) uint32 {
	turned := binary.LittleEndian.Uint32(b) - 0xa282ead8
	return turned>>17 | turned<<15
}

// masked returns a checksum as it stands in a header.
func masked(sum uint32) uint32 { return (sum>>15 | sum<<17) + 0xa282ead8 }

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
