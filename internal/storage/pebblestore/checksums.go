package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// # Why there is a list of files
//
// A file that is missing or truncated often looks like the result of a crash, and Pebble
// treats it so: it opens the store without the readings. The file CHECKSUMS therefore
// lists the files that must exist:
//
//	pulsegate checksums 2 closed
//	crc32c 0b1c9d30 1603 000007.log
//	bytes 1103 000010.sst
//	crc32c 9558175e 2936 OPTIONS-000008
//	end 4a17b9ff
//
// The last line has the CRC-32C of everything before it. The lines between, sorted by
// name, are
//
//	crc32c SUM N NAME   the file has N bytes with this CRC-32C
//	bytes N NAME        the file has N bytes: a table, too large to be read at a start
//	least N NAME        a journal whose records up to byte N were synced
//
// Pebble has its own checksums for tables and records, but not for OPTIONS or the bytes
// after the last record of a journal. The states are
//
//	closed    the store was closed cleanly; the list has every file
//	backup    the same, for a backup, which must not be written to
//	opening   the store is being opened, or opening it was interrupted: the list is the
//	          previous one, or has the logs, the manifests and Pulsegate's own files
//	open      the store is open, or was not closed: the list has PULSEGATE, LISTED, the
//	          newest OPTIONS, the current manifest, and the logs whose readings may not
//	          be in tables yet
//
// Each state is durable before a file changes in a way that the previous state does not
// allow, so a list is never wrong. The files are compared with the list by [Open] before
// it changes anything, by [Check], and before a copy is made; see verify.go. lister.go
// maintains the list of an open store.
//
// The file LISTED marks a store that has a list, so that a missing list is always noticed.
// If both are removed, a start checks what it can without a list. For the reasons see
// docs/adr/0015-list-of-files.md.
const (
	checksumsFile   = "CHECKSUMS"
	checksumsHeader = "pulsegate checksums "

	listedFile = "LISTED"
	listedText = "The files of this store are listed in CHECKSUMS. If that is missing, files were lost.\n"

	// maxChecksumsBytes bounds the size of a list that is read. A list has about 30
	// bytes for each table, and a store of 1 TiB may have half a million tables.
	maxChecksumsBytes = 64 << 20
)

// A listState determines which files a list has.
type listState string

const (
	listOpening listState = "opening"
	listOpen    listState = "open"
	listClosed  listState = "closed"
	listBackup  listState = "backup"
)

// complete reports whether the list has every file, in its current form.
func (s listState) complete() bool { return s == listClosed || s == listBackup }

// A listKind is the kind of a line of a list.
type listKind string

const (
	kindSum   listKind = "crc32c"
	kindBytes listKind = "bytes"
	kindLeast listKind = "least"
)

// A listLine is the line of a file in a list.
type listLine struct {
	kind  listKind
	name  string
	bytes int64
	sum   uint32 // of kindSum
}

// A fileList is the content of CHECKSUMS.
type fileList struct {
	state listState
	files []listLine // sorted by name
}

const listVersion = 2

// text returns the content of the file.
func (l *fileList) text() []byte {
	b := fmt.Appendf(nil, "%s%d %s\n", checksumsHeader, listVersion, l.state)
	for _, f := range l.files {
		b = append(b, f.kind...)
		if f.kind == kindSum {
			b = fmt.Appendf(b, " %08x", f.sum)
		}
		b = fmt.Appendf(b, " %d %s\n", f.bytes, f.name)
	}
	return fmt.Appendf(b, "end %08x\n", checksum(b))
}

// parseList parses a text that fileList.text has returned. Any other text is damaged.
func parseList(text []byte) (*fileList, error) {
	l := &fileList{}
	lines := strings.SplitAfter(string(text), "\n")
	head, ok := strings.CutPrefix(lines[0], checksumsHeader)
	version, state, _ := strings.Cut(strings.TrimSuffix(head, "\n"), " ")
	l.state = listState(state)
	states := []listState{listOpen, listClosed, listBackup, listOpening}
	if !ok || len(lines) < 3 || parseDigits(version) != listVersion || !slices.Contains(states, l.state) {
		return nil, errDamagedList
	}
	for _, line := range lines[1 : len(lines)-2] {
		f, ok := parseLine(strings.TrimSuffix(line, "\n"))
		if !ok {
			return nil, errDamagedList
		}
		l.files = append(l.files, f)
	}
	// This also verifies the last line, and rejects other spellings of the same list.
	if !bytes.Equal(l.text(), text) {
		return nil, errDamagedList
	}
	return l, nil
}

var errDamagedList = fmt.Errorf("%w: file %s is damaged", storage.ErrCorrupt, checksumsFile)

// parseLine parses a line.
func parseLine(line string) (f listLine, ok bool) {
	kind, rest, _ := strings.Cut(line, " ")
	f.kind = listKind(kind)
	switch f.kind {
	case kindSum:
		var sum string
		sum, rest, _ = strings.Cut(rest, " ")
		n, err := strconv.ParseUint(sum, 16, 32)
		if err != nil {
			return f, false
		}
		f.sum = uint32(n)
	case kindBytes, kindLeast:
	default:
		return f, false
	}
	size, name, _ := strings.Cut(rest, " ")
	f.bytes, f.name = parseDigits(size), name
	return f, f.bytes >= 0 && f.name != ""
}

// parseDigits returns a decimal number, or -1.
func parseDigits(text string) int64 {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return -1
	}
	return int64(n)
}

// find returns the line of a file, or nil if there is none.
func (l *fileList) find(name string) *listLine {
	for i := range l.files {
		if l.files[i].name == name {
			return &l.files[i]
		}
	}
	return nil
}

// readList returns the list of a directory, or nil if it has none.
func readList(fsys vfs.FS, dir string) (*fileList, error) {
	path := fsys.PathJoin(dir, checksumsFile)
	text, err := readSmallFile(fsys, path, maxChecksumsBytes)
	if err == nil {
		var l *fileList
		if l, err = parseList(text); err == nil {
			return l, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return nil, err
}

// isStoreFile reports whether a file belongs to a store and is neither its lock nor its
// list.
func isStoreFile(name string) bool {
	if name == formatFile || name == erasureFile || name == listedFile || isTable(name) || isLogName(name) {
		return true
	}
	return strings.HasPrefix(name, manifestPrefix) || strings.HasPrefix(name, optionsPrefix) || strings.HasPrefix(name, markerPrefix)
}

func isTable(name string) bool { return strings.HasSuffix(name, tableSuffix) }

func isLogName(name string) bool {
	_, ok := logNumber(name)
	return ok
}

// listFiles returns a list of all files in a directory that does not change.
func listFiles(fsys vfs.FS, dir string, state listState) (*fileList, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	l := &fileList{state: state}
	for _, name := range names {
		if !isStoreFile(name) {
			continue
		}
		read := sumFile
		if isTable(name) {
			read = sizeFile
		}
		f, err := read(fsys, dir, name)
		if err != nil {
			return nil, err
		}
		l.files = append(l.files, f)
	}
	return l, nil
}

// sizeFile returns the line of a table.
func sizeFile(fsys vfs.FS, dir, name string) (listLine, error) {
	info, err := fsys.Stat(fsys.PathJoin(dir, name))
	if err != nil {
		return listLine{}, err
	}
	return listLine{kind: kindBytes, name: name, bytes: info.Size()}, nil
}

// sumFile reads a file and returns its line.
func sumFile(fsys vfs.FS, dir, name string) (listLine, error) {
	f, err := fsys.Open(fsys.PathJoin(dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return listLine{}, err
	}
	h := crc32.New(castagnoli)
	n, err := io.Copy(h, f)
	if err != nil {
		return listLine{}, joinClose(fmt.Errorf("read %s: %w", name, err), f)
	}
	return listLine{kind: kindSum, name: name, bytes: n, sum: h.Sum32()}, f.Close()
}

// textFile returns the line of a file that holds text.
func textFile(name, text string) listLine {
	return listLine{kind: kindSum, name: name, bytes: int64(len(text)), sum: checksum([]byte(text))}
}

// writeList replaces the list of a directory, durably.
func (d *directory) writeList(l *fileList) error {
	slices.SortFunc(l.files, func(a, b listLine) int { return strings.Compare(a.name, b.name) })
	if err := replaceFile(d.fs, d.path, checksumsFile, l.text()); err != nil {
		return fmt.Errorf("write %s: %w", checksumsFile, err)
	}
	return nil
}

// beginOpening writes a list with the state opening. l is the verified list, or nil.
func (d *directory) beginOpening(l *fileList) (err error) {
	if l == nil || l.state == listOpen {
		before := l
		if l, err = listFiles(d.fs, d.path, listOpening); err != nil {
			return err
		}
		// Leave out tables and other files that may be removed and that were not
		// listed: their correct content is unknown here.
		l.files = slices.DeleteFunc(l.files, func(f listLine) bool {
			return mayBeRemoved(f.name) && (before == nil || before.find(f.name) == nil)
		})
	}
	l.state = listOpening
	if err := d.writeList(l); err != nil {
		return err
	}
	if l.find(listedFile) != nil {
		return nil
	}
	return replaceFile(d.fs, d.path, listedFile, []byte(listedText))
}

// mayBeRemoved reports whether a file may be removed while a store is being opened. Manifests are
// treated separately: see replaced.
func mayBeRemoved(name string) bool {
	return isTable(name) || strings.HasPrefix(name, optionsPrefix) || strings.HasPrefix(name, markerPrefix)
}

// A listCloser writes the list of a store that was closed cleanly. It is closed after the
// tree.
type listCloser struct{ *directory }

func (c listCloser) Close() error {
	if !c.clean {
		return nil
	}
	if err := c.intact(); err != nil {
		return err
	}
	// Files that Pebble has removed must not reappear after a crash that keeps the list: a
	// file that is not in the list of a closed store is damage. TestCrashWhileOpening
	// checks it.
	if err := syncDir(c.fs, c.path); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	l, err := listFiles(c.fs, c.path, listClosed)
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	return c.writeList(l)
}
