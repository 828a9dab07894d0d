package backup_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/backup"
)

// An archive may come from anybody: it writes nothing but files of a store in the new directory, and no
// more bytes than were announced.
func TestHostileArchive(t *testing.T) {
	file := func(name string, size int64) *tar.Header {
		return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600}
	}
	const announced = 100
	tests := map[string]*tar.Header{
		"above":       file("../000001.sst", 3),
		"absolute":    file("/tmp/000001.sst", 3),
		"below":       file("a/000001.sst", 3),
		"dot":         file(".", 0),
		"directory":   {Typeflag: tar.TypeDir, Name: "000001.sst"},
		"symlink":     {Typeflag: tar.TypeSymlink, Name: "000001.sst", Linkname: "/etc/passwd"},
		"link":        {Typeflag: tar.TypeLink, Name: "000001.sst", Linkname: "/etc/passwd"},
		"no file":     file("LOCK", 3),
		"more bytes":  file("000001.sst", announced+1),
		"escape code": file("x\x1b]0;t\x07", 3),
	}
	archives := map[string][]byte{}
	for name, h := range tests {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		polltest.Try(t, w.WriteHeader(h))
		_, err := w.Write(make([]byte, h.Size))
		polltest.Try(t, err)
		polltest.Try(t, w.Close())
		archives[name] = b.Bytes()
	}
	archives["sparse"] = sparse(1 << 40)
	for name, archive := range archives {
		for _, size := range []int64{announced, 0} {
			if name == "more bytes" && size == 0 {
				continue // nothing is announced
			}
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				parent := t.TempDir()
				dir := filepath.Join(parent, "store")
				err := backup.Receive(t.Context(), bytes.NewReader(archive), dir, backup.Options{Bytes: size}, func(string) error {
					t.Error("the copy was checked")
					return nil
				})
				if !errors.Is(err, storage.ErrFormat) || strings.ContainsRune(err.Error(), '\x1b') {
					t.Errorf("got error %v, want ErrFormat", err)
				}
				if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
					t.Errorf("%v is left, error %v", left, err)
				}
			})
		}
	}
}

// sparse returns an archive with a file of that many bytes, all of which are a hole. [tar.Writer] does
// not write such files.
func sparse(bytes int) []byte {
	var records string
	for _, pair := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=000001.sst",
		fmt.Sprintf("GNU.sparse.realsize=%d", bytes)} {
		n := len(pair) + 4 // with two digits, a space and a line end
		records += fmt.Sprintf("%d %s\n", n, pair)
	}
	block := func(text string) []byte { return append([]byte(text), make([]byte, -len(text)&511)...) }
	entry := func(typ byte, name, text string) []byte {
		h := make([]byte, 512)
		copy(h, name)
		copy(h[100:], "0000600\x000000000\x000000000\x00")
		copy(h[124:], fmt.Sprintf("%011o\x0000000000000\x00        ", len(text)))
		h[156] = typ
		copy(h[257:], "ustar\x0000")
		sum := 0
		for _, c := range h {
			sum += int(c)
		}
		copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
		return append(h, block(text)...)
	}
	holes := string(block("1\n0\n0\n"))
	all := append(entry('x', "pax", records), entry('0', "000001.sst", holes)...)
	return append(all, make([]byte, 1024)...)
}
