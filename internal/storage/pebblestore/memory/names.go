package memory

import (
	"bytes"
	"hash/maphash"
	"iter"
	"math/bits"

	"github.com/pulsegate/pulsegate/vitals"
)

// A nameSet holds names of devices by number, and finds them by a hash. With names of up to 15
// bytes, a device takes 31 to 41 bytes.
//
// The hash table has linear probing and slots of 8 bytes: most groups look up devices at random,
// and so wait for memory, and a map of names is several times as large, beyond the processor's
// caches. A name takes as many blocks as its text needs. Growing copies slots only, and nothing
// contains pointers, so the garbage collector does not scan it.
type nameSet struct {
	seed  maphash.Seed
	slots []nameSlot // a power of two, at least a quarter of them empty
	used  int

	// The length of a name and its text are in blocks that follow each other in one chunk.
	first  [][]uint32                  // first block of each name, of ChunkDevices each
	blocks [][]byte                    // of chunkBlocks each
	next   uint32                      // the first block that was never used
	free   [maxNameBlocks + 1][]uint32 // the first of some blocks that no name has, by their number
}

// A nameSlot is empty if next is 0.
type nameSlot struct {
	hash uint32 // whose low bits are the number of the slot where a search begins
	next uint32 // number of the device, plus 1
}

const (
	firstNameSlots = 64
	chunkBlocks    = 4096
	blockBytes     = 16
	maxNameBlocks  = 1 + vitals.MaxNameBytes/blockBytes
)

func newNameSet() nameSet {
	return nameSet{seed: maphash.MakeSeed(), slots: make([]nameSlot, firstNameSlots)}
}

// hash returns the hash of a name.
func (x *nameSet) hash(name *vitals.Name) uint32 { return uint32(maphash.Comparable(x.seed, *name)) }

// find returns the number of a name, and whether x holds it.
func (x *nameSet) find(name *vitals.Name) (uint32, bool) { return x.findHashed(name, x.hash(name)) }

// findHashed is like find, given the hash of the name.
func (x *nameSet) findHashed(name *vitals.Name, hash uint32) (uint32, bool) {
	mask := uint32(len(x.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := x.slots[i]
		if s.next == 0 {
			return 0, false
		}
		if s.hash == hash && x.is(s.next-1, name) {
			return s.next - 1, true
		}
	}
}

// is reports whether a number is the number of a name.
func (x *nameSet) is(number uint32, name *vitals.Name) bool {
	return bytes.Equal(x.text(number), name.Bytes())
}

// text returns the text of a name by its number. It must not be modified.
func (x *nameSet) text(number uint32) []byte {
	b := x.block(x.first[number/ChunkDevices][number%ChunkDevices])
	return b[1 : 1+b[0]]
}

// at returns a name by its number.
func (x *nameSet) at(number uint32) vitals.Name {
	name, _ := vitals.ParseName(x.text(number)) // it was a Name
	return name
}

// all returns the names by number, in no order.
func (x *nameSet) all() iter.Seq2[uint32, vitals.Name] {
	return func(yield func(uint32, vitals.Name) bool) {
		for _, s := range x.slots {
			if s.next != 0 && !yield(s.next-1, x.at(s.next-1)) {
				return
			}
		}
	}
}

// put adds a name that x does not hold. Its number is one that was deleted, or the next one.
func (x *nameSet) put(name *vitals.Name, hash, number uint32) {
	if x.used++; x.used > len(x.slots)/4*3 {
		old := x.slots
		x.slots = make([]nameSlot, 1<<bits.Len(uint(len(old))))
		for _, s := range old {
			if s.next != 0 {
				x.place(s)
			}
		}
	}
	x.place(nameSlot{hash, number + 1})
	if int(number/ChunkDevices) == len(x.first) {
		x.first = append(x.first, make([]uint32, ChunkDevices))
	}
	block := x.allot(blocksOf(name.Len()))
	x.first[number/ChunkDevices][number%ChunkDevices] = block
	b := x.block(block)
	b[0] = byte(name.Len())
	name.AppendTo(b[1:1])
}

// place puts a slot where a search finds it.
func (x *nameSet) place(s nameSlot) {
	mask := uint32(len(x.slots) - 1)
	i := s.hash & mask
	for x.slots[i].next != 0 {
		i = (i + 1) & mask
	}
	x.slots[i] = s
}

// delete removes a name that x holds.
func (x *nameSet) delete(hash, number uint32) {
	n := blocksOf(len(x.text(number)))
	x.free[n] = append(x.free[n], x.first[number/ChunkDevices][number%ChunkDevices])
	mask := uint32(len(x.slots) - 1)
	i := hash & mask
	for x.slots[i].next != number+1 {
		i = (i + 1) & mask
	}
	x.used--
	// Slots that follow without a gap move back where their searches still find them.
	for j := (i + 1) & mask; x.slots[j].next != 0; j = (j + 1) & mask {
		if home := x.slots[j].hash & mask; (j-home)&mask >= (j-i)&mask {
			x.slots[i] = x.slots[j]
			i = j
		}
	}
	x.slots[i] = nameSlot{}
}

// blocksOf returns the number of blocks of a name of some bytes.
func blocksOf(bytes int) int { return 1 + bytes/blockBytes }

// block returns the bytes from a block to the end of its chunk.
func (x *nameSet) block(i uint32) []byte { return x.blocks[i/chunkBlocks][i%chunkBlocks*blockBytes:] }

// allot returns the first of n blocks that no name has.
func (x *nameSet) allot(n int) uint32 {
	if f := x.free[n]; len(f) > 0 {
		x.free[n] = f[:len(f)-1]
		return f[len(f)-1]
	}
	if left := -int(x.next) & (chunkBlocks - 1); left < n {
		if left > 0 { // it may be that no chunk has been used
			x.free[left] = append(x.free[left], x.next)
		}
		x.next += uint32(left)
		x.blocks = append(x.blocks, make([]byte, chunkBlocks*blockBytes))
	}
	x.next += uint32(n)
	return x.next - uint32(n)
}

// bytes returns the memory of the names without the slots.
func (x *nameSet) bytes() int { return int(x.next) * blockBytes }
