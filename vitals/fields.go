package vitals

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

	quoted [memberUnknown]string // by member: as in JSON, or "" if there is none
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
	t.quoted[m] = `"` + name + `"`
	t.byName[name] = m
}

// find returns the member with that name. Names are case-sensitive.
func (t *fieldTable) find(name []byte) member {
	if m, ok := t.byName[string(name)]; ok {
		return m
	}
	return memberUnknown
}
