// Package columns encodes rows of stored readings as columns. A segment has up to 1,024 rows
// of one device; a group has the rows of many devices that were written at once.
//
// # Promise
//
// Decoding returns exactly the rows that were encoded. Equal rows have equal encodings.
// The decoders accept any bytes: they do not panic, and they allocate memory only for as many
// rows as the input can hold. Their errors contain no values.
//
// [DecodeSegment] and [DecodeGroup] check the checksum, the structure and the bounds of every
// field. Given the right checksum, they accept other encodings of the same rows too, such as
// a block with a greater width; to reject these, encode the rows again.
//
// # Segment and group
//
//	segment  0x11 | rows-1 | time | last-time | body | CRC-32C
//	group    0x21 | rows-1 | rows-devices | lengths | names | time | body | CRC-32C
//
// The low half of the first byte is the version, 1. Numbers are varints of encoding/binary, unsigned
// unless stated otherwise. time is that of the first row, last that of the last one, in ms. The checksum is of
// all bytes before it, and is little-endian: Pebble has checksums of its own, but they do not protect a segment
// between its encoding and its table.
//
// lengths is a column of the numbers of rows of each device, minus 1. It is missing if each
// device has one row.
//
// names has for each device how its name differs from the one before, because names in order
// have long common prefixes:
//
//	c<<4 | (a-1) | a bytes
//
// The last c bytes of the name before are cut off, a bytes are appended. Names of the same
// length, whatever their prefix, thus have small numbers. A half byte of 15 means that a
// byte follows with the number minus 15, first that of c, then that of a-1.
//
// # Body
//
//	forms | gateways | offsets | marks | presence | times | receipts | completions | signs
//
// The first four are columns of symbols, integers of which a segment usually has only one.
// forms has two bits for each, from the low ones up:
//
//	0  nothing: all are 0
//	1  the symbol: all are equal
//	2  number of symbols, 2 to 32, as a byte | the symbols in the order of their first rows |
//	   a column of the positions, from 0, in that list
//	3  a column of the symbols: there are more than 32
//
// gateways has Row.Gateway. It comes first so that [SegmentHeader] need not decode other
// columns. offsets has Row.UTCOffset, marks 1 for Row.Shared and 2 for a Row.CompletedMs
// other than 0, and presence the bit sets of the signs that a row has.
//
// A column is a sequence of blocks of 128 integers; the last one may be shorter. Each block
// has one of two predictions, whichever takes fewer bytes:
//
//   - symbols: the integer, or its difference from the one before, which is 0 at first.
//     Runs of a symbol have differences of 0, with exceptions between them.
//   - times: the difference from the time before, or from a line that begins at the time
//     before the block and rises by a step per row. The first suits clocks that drift; the
//     second suits a schedule with jitter, which the difference of two times has twice.
//   - receipts: the lag behind the row's time, or the difference from the receipt before,
//     which is the first row's time at first. The second suits rows received together.
//   - completions: Row.CompletedMs, or its difference from the one before, which is 0 at first.
//   - signs: the value, or its difference from the one before, which is 0 at first. Heart
//     rates change slowly; saturations are mostly noise, of which differences have more.
//   - lengths: the integer. There is no second prediction.
//
// times has no integer for the first row, completions one for each row that was completed later. signs has a part for
// each sign that any row has, in their order: a divisor, the greatest common one of all values, or 1 if all are 0,
// because most monitors send fewer decimals than a sign has; then a column of the values, divided by it, of the rows
// that have the sign. Values have 32 bits, one of which is the sign.
//
// # Block
//
//	first byte | step | base | packed | exceptions
//
//	first byte  width w, 0 to 56 | 0x40 if there are exceptions | 0x80 for the second prediction
//	step        signed; of times with the second prediction only
//	base        signed
//	packed      the low w bits of each integer minus base, from the low bits of the first byte
//	            up; unused bits of the last byte are 0
//	exceptions  number, as a byte, of the integers to which more is added | for each its
//	            position, as a byte, increasing, and a signed varint, not 0: what is added is
//	            that number times 2^w
//
// All arithmetic is modulo 2^64. A few outliers, such as a gap or the end of an exertion, thus
// cost two or three bytes each instead of widening all integers. base is either the least
// integer of the block or a typical one minus 2^(w-1), and w that with the fewest bytes;
// outliers on both sides require the latter. The width is at most 56 so that a load of 64 bits at
// any byte has all bits of an integer.
//
// # Not here
//
// No keys, no files and no locks: the store has them. No names of gateways: rows have the
// numbers of the store's dictionary.
package columns
