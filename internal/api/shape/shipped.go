package shape

import (
	_ "embed" // for the mappings
	"fmt"
	"strings"
)

// shipped has the mappings of files as devices and apps write them.
//
//go:embed shipped.toml
var shipped []byte

// ReadShipped is [Read] for the mappings of files that are part of the program.
func ReadShipped(use func(*Table) error) error {
	n := 0
	return read("shipped mappings", shipped, &n, use)
}

// ShippedText returns the text of the shipped mappings of a name, or "".
func ShippedText(name string) (text string) {
	const start = "[[mapping]]\n"
	for _, one := range strings.Split(string(shipped), start)[1:] {
		if strings.HasPrefix(one, fmt.Sprintf("name = %q\n", name)) {
			text += start + strings.TrimSpace(one) + "\n"
		}
	}
	return text
}
