package pebblestore

import (
	"hash/maphash"
	"math/bits"

	"github.com/pulsegate/pulsegate/vitals"
)

// A nameIndex finds devices by a hash of their names. It is a hash table with linear probing
// whose slots are 8 bytes: most groups look up devices at random, and so wait for memory, and a
// map of names is several times as large, beyond the processor's caches. The names themselves are
// in the table of devices.
type nameIndex struct {
	seed  maphash.Seed
	slots []nameSlot // a power of two, at least a quarter of them empty
	used  int
}

// A nameSlot is empty if next is 0.
type nameSlot struct {
	hash uint32 // whose low bits are the number of the slot where a search begins
	next uint32 // number of the device, plus 1
}

const firstNameSlots = 64

func newNameIndex() nameIndex {
	return nameIndex{seed: maphash.MakeSeed(), slots: make([]nameSlot, firstNameSlots)}
}

// hash returns the hash of a name.
func (x *nameIndex) hash(name *vitals.Name) uint32 { return uint32(maphash.Comparable(x.seed, *name)) }

// put adds a device that x does not hold.
func (x *nameIndex) put(hash, number uint32) {
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
}

// place puts a slot where a search finds it.
func (x *nameIndex) place(s nameSlot) {
	mask := uint32(len(x.slots) - 1)
	i := s.hash & mask
	for x.slots[i].next != 0 {
		i = (i + 1) & mask
	}
	x.slots[i] = s
}

// delete removes a device that x holds.
func (x *nameIndex) delete(hash, number uint32) {
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
