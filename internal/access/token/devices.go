package token

import (
	"bytes"

	"github.com/pulsegate/pulsegate/vitals"
)

// Before returns the greatest name that sorts before every name that begins with
// prefix, or the zero Name if there is none.
func Before(prefix vitals.Name) vitals.Name {
	const order = "-.0123456789:ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
	var b [vitals.MaxNameBytes]byte
	text := prefix.AppendTo(b[:0])
	if len(text) == 0 {
		return vitals.Name{}
	}
	// Decrement the last byte and pad with the greatest byte: before "ab" comes
	// "aazz…z". Drop a last byte that is the least: before "a-" comes "a".
	last := len(text) - 1
	if i := bytes.IndexByte([]byte(order), text[last]); i > 0 {
		text[last] = order[i-1]
		for len(text) < len(b) {
			text = append(text, order[len(order)-1])
		}
	} else {
		text = text[:last]
	}
	name, err := vitals.ParseName(text)
	if err != nil {
		return vitals.Name{} // text is empty: no name sorts before one that consists of the least byte
	}
	return name
}
