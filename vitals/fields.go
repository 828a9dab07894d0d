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

// A fieldTable finds a member by its name. It is never modified.
type fieldTable struct {
	byName  map[string]member
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

// newFieldTable returns a table of the fields of a reading that are accepted.
func newFieldTable(signs *Signs) fieldTable {
	t := fieldTable{byName: map[string]member{}}
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
	t.byName[name] = m
}

// find returns the member with that name. Names are case-sensitive.
func (t *fieldTable) find(name []byte) member {
	if m, ok := t.byName[string(name)]; ok {
		return m
	}
	return memberUnknown
}
