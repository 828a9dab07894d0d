package vitals

import "encoding/binary"

// A member is a field of a reading: a Sign, or one of the following constants.
type member uint8

const (
	memberDevice member = MaxSigns + iota
	memberTime
	memberGateway
	memberUnknown
)

// A fieldTable finds a member by its name: a hash table with linear probing. It is never
// modified.
type fieldTable struct {
	slots [1 << fieldTableBits]struct {
		name   string // "" ends the search
		member member
	}
	longest int // length of the longest name

	quoted [memberUnknown]quotedName // by member
}

// A quotedName is the name of a member as in JSON, or "" if there is none. Most names have 8 to 16 bytes, and are
// compared as two words.
type quotedName struct {
	text        string
	first, last uint64 // bytes of text, if it has as many
}

// begins reports whether b begins with q, and has more bytes.
func (q *quotedName) begins(b []byte) bool {
	n := len(q.text)
	switch {
	case n >= len(b):
		return false
	case n < 8 || n > 16:
		return string(b[:n]) == q.text
	}
	return binary.LittleEndian.Uint64(b) == q.first && binary.LittleEndian.Uint64(b[n-8:]) == q.last
}

const fieldTableBits = 7 // at most 35 names in 128 slots

// newFieldTable returns a table of the fields of a reading that are accepted.
func newFieldTable(signs *Signs) (t fieldTable) {
	t.add(fieldDevice, memberDevice)
	t.add(fieldTime, memberTime)
	t.add(fieldGateway, memberGateway)
	for s, d := range signs.All() {
		if !d.Retired {
			t.add(d.Field, member(s))
		}
	}
	return t
}

func (t *fieldTable) add(name string, m member) {
	t.longest = max(t.longest, len(name))
	q := quotedName{text: `"` + name + `"`}
	if b := []byte(q.text); len(b) >= 8 {
		q.first, q.last = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[len(b)-8:])
	}
	t.quoted[m] = q
	i := fieldHash([]byte(name))
	for t.slots[i].name != "" {
		i = (i + 1) % uint32(len(t.slots))
	}
	t.slots[i].name, t.slots[i].member = name, m
}

// find returns the member with that name. Names are case-sensitive.
func (t *fieldTable) find(name []byte) member {
	if len(name) == 0 {
		return memberUnknown
	}
	for i := fieldHash(name); ; i = (i + 1) % uint32(len(t.slots)) {
		switch slot := &t.slots[i]; slot.name {
		case string(name):
			return slot.member
		case "":
			return memberUnknown
		}
	}
}

// fieldHash returns the first slot for a name, which is not empty. Some of its bytes tell
// the built-in names apart.
func fieldHash(name []byte) uint32 {
	n := len(name)
	x := uint32(n) | uint32(name[0])<<8 | uint32(name[n/2])<<16 | uint32(name[n-1])<<24
	return (x ^ uint32(name[n/4])<<4) * 2654435769 >> (32 - fieldTableBits)
}
