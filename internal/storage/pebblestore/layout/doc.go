// Package layout encodes and decodes the keys and values of the embedded store's tree.
//
// # Promise
//
// An encoding is canonical: bytes that the encoder would not produce are errors, whose texts contain no
// values, because they reach logs. Keys are ordered as the store reads them: kind by kind, devices in
// the order of their names, and within a device in the order of time. The decoders keep no reference to
// their arguments. TestGolden checks every byte.
//
// # Keys
//
// Device names and subjects contain no byte below 0x2D, so the kinds of keys are distinct, and a
// name's end, 0x00, sorts before every byte of a longer name.
//
//	record    0x01 | device name
//	segment   0x02 | device name | 0x00 | time of its last reading, 8 bytes | when it was last changed, minus that time,
//	          a signed varint
//	group     0x03 | number, 8 bytes
//	gateway   0x04 | number, 4 bytes
//	assigned  0x05 | device name | 0x00 | beginning, or last millisecond of a span of nobody, 8 bytes
//	subject   0x06 | subject | 0x00 | device name | 0x00 | beginning, 8 bytes
//	event     0x07 | number, 8 bytes
//	state     0x00 | name of the state
//
// Times are Unix milliseconds as big-endian unsigned integers. They are never
// negative, so keys are ordered by time.
//
// # Device record
//
//	version, 1, as a byte | newest time | presence | latest values | sealed | arrived | sizes
//
// Bit s of presence is set if the device has a latest value of sign s. A latest value is
//
//	newest time minus its time | value | offset from UTC: minutes + 1440, or 0 if there is none
//
// sealed is 0 if the device has no segments; otherwise, the newest time minus that of the last reading in segments,
// plus 1. arrived is the time at which a reading of the device last arrived minus the newest time. sizes has the
// numbers of readings of the last segments, at most 16, which are small, in the order of time.
//
// All integers are varints of encoding/binary, unsigned but for the value and arrived.
//
// # Segment and group
//
// See package columns. A group's rows are in the order of names and times.
//
// # Assignment
//
// An assignment of a device to a subject is a key with the device, with the value
//
//	byte      meaning
//	0         version, 1
//	1         its maker, see storage.Maker
//	2 to 9    the time of the latest reading that named the subject, or 0
//	10 to 17  its end
//	18 to 25  when it was last changed
//	then      the subject
//
// and a key with the subject and an empty value, the index. The assignments of a device do not
// overlap. A span of nobody, see storage.Claim, has no subject and no key in the index; bytes 2 to 9 are
// the latest time that was claimed for nobody. Its key has its last millisecond, and bytes 10 to 17 are its
// beginning, which messages move.
//
// # Event
//
// Events have increasing numbers. Each has a random mark, and so has the first change after each start, which is
// an event, too. So two stores with the same mark under a number have had the same changes until then, also
// if one of them was made from a backup of the other.
//
//	byte      meaning
//	0         version, 1
//	1         its kind, see EventKind
//	2 to 9    when it was made
//	10 to 17  its mark
//
// An EventStart goes on with the number of the next group at a start, 8 bytes, or 0 if it is what is left of another
// event: its content was removed, and its mark was kept. So a store of which only the readings of the last groups are
// missing differs, too, from its start on. All others go on, as far as the kind needs it, with
//
//	8 bytes   from, 8 bytes to, of the readings that it is about
//	4 bytes   presence of the signs
//	1 byte    length of the device's name, then the name
//	each      span: 8 bytes from, 8 bytes to, 1 byte length of the subject, the subject
//
// If an erasure has signs, the values of these were erased, and assignments stay.
//
// An event of a kind that this version does not know is damage.
//
// # Gateway and states
//
// The value of a gateway is its name. The states are
//
//	clock        8 bytes: the time of the last change, if no group has a later one
//	cursors      32 random bytes: the key with which cursors of changes are encrypted
//	groups       8 bytes: the number of the next group, if no later one is stored
//	gateways     4 bytes: the number of the next gateway
//	readings     8 bytes: the number of readings in segments
//	sweep        empty: readings were removed; names of gateways may have become unused
//	signs        definitions of signs of a user's own, with their numbers: see storage.EncodeSigns
//	forget       empty: events were removed; tables may still have their bytes
//	uncounted    empty: damaged readings were removed uncounted, so readings is too large
//
// # Not here
//
// Segments and groups: package columns. Pebble, files, and what the keys and values mean together: package
// pebblestore. The file ERASING: package pebblestore, too.
package layout
