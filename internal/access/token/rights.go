package token

import (
	"errors"
	"strings"
)

// Rights are a set of permissions that a token carries.
type Rights uint8

// The rights. None includes another.
const (
	Write Rights = 1 << iota // send readings
	Read                     // read readings and the list of devices
	Admin                    // erase, back up, assign devices to subjects
	Relay                    // with Write, name the gateways of readings
)

// ReadSubjects is the right to read what was measured of the subjects that a token is bound to,
// or of all subjects if it is bound to none. It comes with Read and is never named. A token that
// is bound to subjects has it in place of Read: so whatever asks for Read rejects that token.
const ReadSubjects Rights = 1 << 7

// rightNames is in the order in which the file lists rights.
var rightNames = [...]struct {
	right Rights
	name  string
}{{Write, "write"}, {Read, "read"}, {Admin, "admin"}, {Relay, "relay"}}

// Has reports whether r holds all of want.
func (r Rights) Has(want Rights) bool { return r&want == want }

// String returns the names of r, such as "write,read".
func (r Rights) String() string {
	var names []string
	for _, n := range rightNames {
		if r.Has(n.right) {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, ",")
}

// check returns an error if no token may have r.
func (r Rights) check() error {
	switch {
	case r == 0 || !(Write | Read | Admin | Relay).Has(r):
		return errors.New("the rights are missing")
	case r.Has(Relay) && !r.Has(Write):
		return errors.New("the right relay does nothing without write")
	}
	return nil
}

// ParseRights parses a comma-separated list such as "write,read", in any order. The
// list must have at least one right and no duplicates, and relay needs write.
func ParseRights(text string) (Rights, error) {
	var r Rights
	for name := range strings.SplitSeq(text, ",") {
		right := Rights(0)
		for _, n := range rightNames {
			if n.name == name {
				right = n.right
			}
		}
		if right == 0 || r.Has(right) {
			return 0, errors.New("rights are a comma-separated list of write, read, admin and relay, each at most once")
		}
		r |= right
	}
	if err := r.check(); err != nil {
		return 0, err
	}
	return r, nil
}
