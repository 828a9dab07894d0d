package shape

import (
	_ "embed" // for the mappings
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
