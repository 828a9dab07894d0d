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
// A file that is missing, or that ends too early, often looks like what a crash leaves,
// and Pebble takes it for that: it opens without the readings. The file CHECKSUMS says
// what must be there:
//
//	pulsegate checksums 2 closed
//	crc32c 0b1c9d30 1603 000007.log
//	bytes 1103 000010.sst
//	crc32c 9558175e 2936 OPTIONS-000008
//	end 4a17b9ff
//
// The last line has the CRC-32C of everything in front of it. The others, in the order
// of the names, are
//
//	crc32c SUM N NAME   the file has N bytes with this CRC-32C
//	bytes N NAME        it has N bytes: tables, which are too large to be read at a start
//	least N NAME        a journal, of which the records up to byte N were synced
//
// Tables and records carry checksums of Pebble's. OPTIONS, and what stands after the last
// record of a journal, do not. The states are
//
//	closed    the store was closed in good order; the list has every file
//	backup    the same, of a backup: what is not to be written to
//	opening   the store is being opened, or that was cut off: the list before, or the logs,
//	          the manifests and the files of ours
//	open      the store is open, or was not closed: PULSEGATE, LISTED, the newest OPTIONS,
//	          the current manifest, and the logs that may hold what no table does
//
// Each state is durable before a file changes in a way that the state before does not
// allow, so that a list is never wrong. A list is compared by [Open] before it changes
// anything, by [Check], and before a copy is made; verify.go says how. lister.go keeps the
// list of an open store.
//
// The file LISTED says that the store has a list, so that there is no moment at which the
// list may be missing. A store that an earlier version wrote has neither while it is being
// opened; otherwise it has a list of version 1, with lines crc32c alone and without tables.
// The first start by this version changes both. docs/adr/0015-list-of-files.md says why.
const (
	checksumsFile   = "CHECKSUMS"
	checksumsHeader = "pulsegate checksums "

	listedFile = "LISTED"
	listedText = "The files of this store are listed in CHECKSUMS. If that is missing, files were lost.\n"

	// maxChecksumsBytes bounds what is read of a list. It has some 30 bytes for each
	// table, of which there may be half a million in a TiB.
	maxChecksumsBytes = 64 << 20
)

// A listState says which files a list has.
type listState string

const (
	listOpening listState = "opening"
	listOpen    listState = "open"
	listClosed  listState = "closed"
	listBackup  listState = "backup"
)

// complete reports whether the list has every file, as it is.
func (s listState) complete() bool { return s == listClosed || s == listBackup }

// A listKind says what a line of a list means.
type listKind string

const (
	kindSum   listKind = "crc32c"
	kindBytes listKind = "bytes"
	kindLeast listKind = "least"
)

// A listed is a file in a list.
type listed struct {
	kind  listKind
	name  string
	bytes int64
	sum   uint32 // of kindSum
}

// A fileList is the content of CHECKSUMS.
type fileList struct {
	version int
	state   listState
	files   []listed // in the order of their names
}

const listVersion = 2

// text returns the content of the file.
func (l *fileList) text() []byte {
	b := fmt.Appendf(nil, "%s%d %s\n", checksumsHeader, l.version, l.state)
	for _, f := range l.files {
		b = append(b, f.kind...)
		if f.kind == kindSum {
			b = fmt.Appendf(b, " %08x", f.sum)
		}
		b = fmt.Appendf(b, " %d %s\n", f.bytes, f.name)
	}
	return fmt.Appendf(b, "end %08x\n", checksum(b))
}

// parseList reads what text returns, and nothing else.
func parseList(text []byte) (*fileList, error) {
	l := &fileList{}
	lines := strings.SplitAfter(string(text), "\n")
	head, ok := strings.CutPrefix(lines[0], checksumsHeader)
	version, state, _ := strings.Cut(strings.TrimSuffix(head, "\n"), " ")
	l.version, l.state = int(parseDigits(version)), listState(state)
	states := []listState{listOpen, listClosed, listBackup, listOpening}
	if !ok || len(lines) < 3 || l.version < 1 || l.version > listVersion || !slices.Contains(states, l.state) {
		return nil, errDamagedList
	}
	for _, line := range lines[1 : len(lines)-2] {
		f, ok := parseListed(strings.TrimSuffix(line, "\n"))
		if !ok {
			return nil, errDamagedList
		}
		l.files = append(l.files, f)
	}
	// The last line, and every other way to write the same, are compared here.
	if !bytes.Equal(l.text(), text) {
		return nil, errDamagedList
	}
	return l, nil
}

var errDamagedList = fmt.Errorf("%w: file %s is damaged", storage.ErrCorrupt, checksumsFile)

// parseListed reads a line.
func parseListed(line string) (f listed, ok bool) {
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

// find returns the line of a file, or nil.
func (l *fileList) find(name string) *listed {
	for i := range l.files {
		if l.files[i].name == name {
			return &l.files[i]
		}
	}
	return nil
}

// readList returns the list of a directory, or nil when it has none.
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

// isStoreFile reports whether a file belongs to a store and is more than its lock and its
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

// listFiles returns the list of all files of a directory, in which nothing changes.
func listFiles(fsys vfs.FS, dir string, state listState) (*fileList, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	l := &fileList{version: listVersion, state: state}
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
func sizeFile(fsys vfs.FS, dir, name string) (listed, error) {
	info, err := fsys.Stat(fsys.PathJoin(dir, name))
	if err != nil {
		return listed{}, err
	}
	return listed{kind: kindBytes, name: name, bytes: info.Size()}, nil
}

// sumFile reads a file and returns its line.
func sumFile(fsys vfs.FS, dir, name string) (listed, error) {
	f, err := fsys.Open(fsys.PathJoin(dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return listed{}, err
	}
	h := crc32.New(castagnoli)
	n, err := io.Copy(h, f)
	if err != nil {
		return listed{}, joinClose(fmt.Errorf("read %s: %w", name, err), f)
	}
	return listed{kind: kindSum, name: name, bytes: n, sum: h.Sum32()}, f.Close()
}

// textFile returns the line of a file that holds text.
func textFile(name, text string) listed {
	return listed{kind: kindSum, name: name, bytes: int64(len(text)), sum: checksum([]byte(text))}
}

// writeList replaces the list of a directory, durably.
func (d *directory) writeList(l *fileList) error {
	slices.SortFunc(l.files, func(a, b listed) int { return strings.Compare(a.name, b.name) })
	if err := replaceFile(d.fs, d.path, checksumsFile, l.text()); err != nil {
		return fmt.Errorf("write %s: %w", checksumsFile, err)
	}
	return nil
}

// beginOpening says that the store is being opened. l is the list that was verified, or
// nil.
func (d *directory) beginOpening(l *fileList) (err error) {
	if l == nil || l.version < listVersion || l.state == listOpen {
		before := l
		if l, err = listFiles(d.fs, d.path, listOpening); err != nil {
			return err
		}
		// Of tables it is not known here how they should be, nor of what no list has.
		l.files = slices.DeleteFunc(l.files, func(f listed) bool {
			return mayGo(f.name) && (before == nil || before.find(f.name) == nil)
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

// mayGo reports whether a file may be removed while a store is being opened. Of manifests
// the current one may not, until there is a newer one.
func mayGo(name string) bool {
	return isTable(name) || strings.HasPrefix(name, optionsPrefix) || strings.HasPrefix(name, markerPrefix)
}

// A listCloser lists all files of a store that has been closed in good order. It is
// closed after the tree.
type listCloser struct{ *directory }

func (c listCloser) Close() error {
	if !c.sound {
		return nil
	}
	if err := c.intact(); err != nil {
		return err
	}
	// What Pebble has removed must not come back in a crash that keeps the list: a file
	// that a closed store's list does not have is damage. TestCrashWhileOpening sees it.
	if err := syncDir(c.fs, c.path); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	l, err := listFiles(c.fs, c.path, listClosed)
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	return c.writeList(l)
}
