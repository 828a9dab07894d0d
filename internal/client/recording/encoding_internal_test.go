package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// TestUTF16Halves reads halves of pairs that stand alone. Each becomes a byte that no text in UTF-8 has, and takes
// nothing with it.
func TestUTF16Halves(t *testing.T) {
	for _, tt := range []struct {
		units []uint16
		want  string
		err   error
	}{
		{[]uint16{'a', 0xe9, 0xd83d, 0xde00, ';'}, "aé😀;", nil},
		{[]uint16{0xd800, 'a'}, "\xffa", nil},
		{[]uint16{0xd800, '\n', 'b'}, "\xff\nb", nil},
		{[]uint16{0xdc00, ';'}, "\xff;", nil},
		{[]uint16{0xd800, 0xd83d, 0xde00}, "\xff😀", nil},
		{[]uint16{0xd800, 0xd800, 'a'}, "\xff\xffa", nil},
		{[]uint16{'a', 0xd800}, "a", io.ErrUnexpectedEOF},
	} {
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			file := order.AppendUint16(nil, 0xfeff)
			for _, u := range tt.units {
				file = order.AppendUint16(file, u)
			}
			in, encoding := decoded(bytes.NewReader(file))
			got, err := io.ReadAll(in)
			if string(got) != tt.want || !errors.Is(err, tt.err) || encoding != "UTF-16" {
				t.Errorf("%x: %q, %v, want %q, %v", tt.units, got, err, tt.want, tt.err)
			}
		}
	}
}
