package recording

import (
	"archive/zip"
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

// decoded returns the text of a file in UTF-8 without a byte order mark, and the name of its encoding.
func decoded(file io.Reader) (text *bufio.Reader, encoding string) {
	in := withoutMark(bufio.NewReader(file))
	switch start, _ := in.Peek(2); string(start) {
	case "\xff\xfe":
		_, _ = in.Discard(2)
		return bufio.NewReaderSize(&utf16Reader{in: in, order: binary.LittleEndian}, maxHeadBytes), "UTF-16"
	case "\xfe\xff":
		_, _ = in.Discard(2)
		return bufio.NewReaderSize(&utf16Reader{in: in, order: binary.BigEndian}, maxHeadBytes), "UTF-16"
	}
	return bufio.NewReaderSize(in, maxHeadBytes), "UTF-8"
}

// noUTF8 is a byte that no text in UTF-8 has.
const noUTF8 = 0xff

// A utf16Reader is the UTF-8 of a text in UTF-16. A half of a pair that stands alone becomes noUTF8, so that its cell
// is rejected.
type utf16Reader struct {
	in    *bufio.Reader
	order binary.ByteOrder
	ready []byte
	high  rune // the first half of a pair
}

func (u *utf16Reader) Read(p []byte) (int, error) {
	for len(u.ready) == 0 {
		var unit [2]byte
		if _, err := io.ReadFull(u.in, unit[:]); err != nil {
			if err == io.EOF && u.high != 0 {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		r, high := rune(u.order.Uint16(unit[:])), u.high
		u.high, u.ready = 0, u.ready[:0]
		if high != 0 {
			if pair := utf16.DecodeRune(high, r); pair != utf8.RuneError {
				u.ready = utf8.AppendRune(u.ready, pair)
				continue
			}
			u.ready = append(u.ready, noUTF8)
		}
		switch {
		case 0xd800 <= r && r < 0xdc00:
			u.high = r
		case utf16.IsSurrogate(r):
			u.ready = append(u.ready, noUTF8)
		default:
			u.ready = utf8.AppendRune(u.ready, r)
		}
	}
	n := copy(p, u.ready)
	u.ready = u.ready[n:]
	return n, nil
}

// maxZstdWindow bounds the memory in which a file is decompressed.
const maxZstdWindow = 32 << 20

// Decompress returns the content of a file that gzip or zstd has compressed, as its first bytes say, and any other file
// as it is. closeFile must be called when it is not read any more.
func Decompress(file io.Reader) (content io.Reader, closeFile func(), err error) {
	in, none := bufio.NewReader(file), func() {}
	start, err := in.Peek(4)
	if err != nil && err != io.EOF {
		return nil, none, err
	}
	switch {
	case len(start) > 1 && start[0] == 0x1f && start[1] == 0x8b:
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, none, fmt.Errorf("decompress: %w", err)
		}
		return z, func() { _ = z.Close() }, nil
	case string(start) == "\x28\xb5\x2f\xfd":
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, none, fmt.Errorf("decompress: %w", err)
		}
		return z, z.Close, nil
	}
	return in, none, nil
}

// IsZip reports whether the first bytes of a file are those of a zip.
func IsZip(file io.ReaderAt) bool {
	var start [4]byte
	n, _ := file.ReadAt(start[:], 0)
	return string(start[:n]) == "PK\x03\x04"
}

// OpenMember opens the file of a zip that has a name, in whichever folder, or without a name the only one that has one
// of several endings. It also returns its name. Its errors have no names of files, which may be those of persons.
func OpenMember(file io.ReaderAt, size int64, name string, endings []string) (content io.ReadCloser,
	found string, err error) {
	z, err := zip.NewReader(file, size)
	if err != nil {
		return nil, "", fmt.Errorf("open zip: %w", err)
	}
	fits := func(f *zip.File) bool {
		base := path.Base(f.Name)
		switch {
		case f.FileInfo().IsDir(), strings.HasPrefix(f.Name, "__MACOSX/"), strings.HasPrefix(base, "."):
			return false
		case name != "":
			return base == name
		}
		return slices.Contains(endings, strings.ToLower(path.Ext(base)))
	}
	all := slices.DeleteFunc(z.File, func(f *zip.File) bool { return !fits(f) })
	if len(all) != 1 {
		what := "one that ends in " + strings.Join(endings, " or ")
		if name != "" {
			what = "one with the name " + name
		}
		return nil, "", fmt.Errorf("the zip has %d files, where %s is needed: unpack it, and import the file", len(all), what)
	}
	content, err = all[0].Open()
	if err != nil {
		return nil, "", fmt.Errorf("open file in zip: %w", err)
	}
	return content, all[0].Name, nil
}
