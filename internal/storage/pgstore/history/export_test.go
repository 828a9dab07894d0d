package history

import (
	"encoding/binary"
	"hash/crc32"
)

// Summed returns data with the right checksums of frames, as far as their lengths lead to further ones.
func Summed(data []byte) []byte {
	data = append([]byte(nil), data...)
	if len(data) < len(fileMagic) {
		return data
	}
	for rest := data[len(fileMagic):]; len(rest) >= frameHead; {
		n := int(min(binary.LittleEndian.Uint32(rest), uint32(len(rest)-frameHead)))
		binary.LittleEndian.PutUint32(rest, uint32(n))
		binary.LittleEndian.PutUint32(rest[4:], crc32.Checksum(rest[:4], castagnoli))
		binary.LittleEndian.PutUint32(rest[8:], crc32.Checksum(rest[frameHead:frameHead+n], castagnoli))
		rest = rest[frameHead+n:]
	}
	return data
}

// A File is what a directory writes to.
type File = file

// Intercept makes the files of a directory those that f returns for them. It must be called before Start.
func Intercept(h *History, f func(File) File) {
	h.dir.create = func(name string, flag int) (file, error) {
		opened, err := create(name, flag)
		if err != nil {
			return nil, err
		}
		return f(opened), nil
	}
}
