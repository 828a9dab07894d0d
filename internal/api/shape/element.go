package shape

import (
	"errors"
	"regexp"
)

// An Attribute is a place of XML: an attribute of a record's element, or of a child that has a text in another
// attribute. Names have no prefix.
type Attribute struct {
	Child, Key, Is string // the child and what it has; "" means the element itself
	Name           string
}

var attribute = regexp.MustCompile(`^(?:([\w.-]+)\[([\w.-]+)=([^\]]*)\]/)?([\w.-]+)$`)

// ParseAttribute parses a place such as value, or Record[type=systolic]/value.
func ParseAttribute(at string) (a Attribute, err error) {
	parts := attribute.FindStringSubmatch(at)
	if parts == nil {
		return a, errors.New(`not an attribute, such as "value", nor one of a child, such as "Record[type=systolic]/value"`)
	}
	return Attribute{Child: parts[1], Key: parts[2], Is: parts[3], Name: parts[4]}, nil
}
