package datadir

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
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir/wal"
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
// allow, so a list is never wrong. The files are compared with the list before a start
// changes anything, by a check, and before a copy is made; see compare.go. An openList
// maintains the list of an open store.
//
// The file LISTED marks a store that has a list, so that a missing list is always noticed.
// If both are removed, a start checks what it can without a list: records, but not which files there are. For the
// reasons see docs/adr/0015-list-of-files.md.
const (
	ChecksumsFile   = "CHECKSUMS"
	checksumsHeader = "pulsegate checksums "

	ListedFile = "LISTED"
	ListedText = "The files of this store are listed in CHECKSUMS. If that is missing, files were lost.\n"

	// maxChecksumsBytes bounds the size of a list that is read. A list has about 30
	// bytes for each table, and a store of 1 TiB may have half a million tables.
	maxChecksumsBytes = 64 << 20
)

// A ListState determines which files a list has.
type ListState string

const (
	ListOpening ListState = "opening"
	ListOpen    ListState = "open"
	ListClosed  ListState = "closed"
	ListBackup  ListState = "backup"
)

// Complete reports whether the list has every file, in its current form.
func (s ListState) Complete() bool { return s == ListClosed || s == ListBackup }

// A listKind is the kind of a line of a list.
type listKind string

const (
	kindSum   listKind = "crc32c"
	kindBytes listKind = "bytes"
	kindLeast listKind = "least"
)

// A Line is the line of a file in a list.
type Line struct {
	Name  string
	Bytes int64

	kind listKind
	sum  uint32 // of kindSum
}

// A List is the content of CHECKSUMS.
type List struct {
	State ListState
	Files []Line // sorted by name
}

const listVersion = 2

// Text returns the content of the file.
func (l *List) Text() []byte {
	b := fmt.Appendf(nil, "%s%d %s\n", checksumsHeader, listVersion, l.State)
	for _, f := range l.Files {
		b = append(b, f.kind...)
		if f.kind == kindSum {
			b = fmt.Appendf(b, " %08x", f.sum)
		}
		b = fmt.Appendf(b, " %d %s\n", f.Bytes, f.Name)
	}
	return fmt.Appendf(b, "end %08x\n", Checksum(b))
}

// parseList parses a text that List.Text has returned. Any other text is damaged.
func parseList(text []byte) (*List, error) {
	head, rest, _ := strings.Cut(string(text), "\n")
	l := &List{State: ListState(head[strings.LastIndexByte(head, ' ')+1:])}
	for line := range strings.Lines(rest) {
		f := strings.Fields(line)
		if len(f) < 3 { // it is the last one
			continue
		}
		size, _ := strconv.ParseInt(f[len(f)-2], 10, 64)
		file := Line{Name: f[len(f)-1], Bytes: size, kind: listKind(f[0])}
		if file.kind == kindSum {
			sum, _ := strconv.ParseUint(f[1], 16, 32)
			file.sum = uint32(sum)
		}
		l.Files = append(l.Files, file)
	}
	states, kinds := []ListState{ListOpen, ListClosed, ListBackup, ListOpening}, []listKind{kindSum, kindBytes, kindLeast}
	unknown := func(f Line) bool { return !slices.Contains(kinds, f.kind) || f.Bytes < 0 }
	// What is not as it would be written differs in the text.
	if !slices.Contains(states, l.State) || slices.ContainsFunc(l.Files, unknown) || !bytes.Equal(l.Text(), text) {
		return nil, fmt.Errorf("%w: file %s is damaged", storage.ErrCorrupt, ChecksumsFile)
	}
	return l, nil
}

// find returns the line of a file, or nil if there is none.
func (l *List) find(name string) *Line {
	for i := range l.Files {
		if l.Files[i].Name == name {
			return &l.Files[i]
		}
	}
	return nil
}

// readList returns the list of a directory, or nil if it has none.
func readList(fsys vfs.FS, dir string) (*List, error) {
	path := fsys.PathJoin(dir, ChecksumsFile)
	text, err := ReadSmall(fsys, path, maxChecksumsBytes)
	if err == nil {
		var l *List
		if l, err = parseList(text); err == nil {
			return l, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return nil, err
}

// IsStoreFile reports whether a file belongs to a store and is neither its lock nor its
// list.
func IsStoreFile(name string) bool {
	if name == FormatFile || name == ErasureFile || name == ListedFile || isTable(name) || isLogName(name) {
		return true
	}
	return strings.HasPrefix(name, wal.ManifestPrefix) || strings.HasPrefix(name, optionsPrefix) ||
		strings.HasPrefix(name, markerPrefix)
}

func isTable(name string) bool { return strings.HasSuffix(name, TableSuffix) }

func isLogName(name string) bool {
	_, ok := wal.LogNumber(name)
	return ok
}

// ListFiles returns a list of all files in a directory that does not change.
func ListFiles(fsys vfs.FS, dir string, state ListState) (*List, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	l := &List{State: state}
	for _, name := range names {
		if !IsStoreFile(name) {
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
		l.Files = append(l.Files, f)
	}
	return l, nil
}

// sizeFile returns the line of a table.
func sizeFile(fsys vfs.FS, dir, name string) (Line, error) {
	info, err := fsys.Stat(fsys.PathJoin(dir, name))
	if err != nil {
		return Line{}, err
	}
	return Line{kind: kindBytes, Name: name, Bytes: info.Size()}, nil
}

// sumFile reads a file and returns its line.
func sumFile(fsys vfs.FS, dir, name string) (Line, error) {
	f, err := fsys.Open(fsys.PathJoin(dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return Line{}, err
	}
	h := crc32.New(castagnoli)
	n, err := io.Copy(h, f)
	if err != nil {
		return Line{}, errors.Join(fmt.Errorf("read %s: %w", name, err), f.Close())
	}
	return Line{kind: kindSum, Name: name, Bytes: n, sum: h.Sum32()}, f.Close()
}

// textFile returns the line of a file that holds text.
func textLine(name, text string) Line {
	return Line{kind: kindSum, Name: name, Bytes: int64(len(text)), sum: Checksum([]byte(text))}
}

// Write replaces the list of a directory, durably.
func (l *List) Write(fsys vfs.FS, dir string) error {
	slices.SortFunc(l.Files, func(a, b Line) int { return strings.Compare(a.Name, b.Name) })
	if err := Replace(fsys, dir, ChecksumsFile, l.Text()); err != nil {
		return fmt.Errorf("write %s: %w", ChecksumsFile, err)
	}
	return nil
}

// beginOpening writes a list with the state opening. l is the verified list, or nil.
func (d *Dir) beginOpening(l *List) (err error) {
	if l == nil || l.State == ListOpen {
		before := l
		if l, err = ListFiles(d.FS, d.Path, ListOpening); err != nil {
			return err
		}
		// Leave out tables and other files that may be removed and that were not
		// listed: their correct content is unknown here.
		l.Files = slices.DeleteFunc(l.Files, func(f Line) bool {
			return mayBeRemoved(f.Name) && (before == nil || before.find(f.Name) == nil)
		})
	}
	l.State = ListOpening
	if err := l.Write(d.FS, d.Path); err != nil {
		return err
	}
	if l.find(ListedFile) != nil {
		return nil
	}
	return Replace(d.FS, d.Path, ListedFile, []byte(ListedText))
}

// mayBeRemoved reports whether a file may be removed while a store is being opened. Manifests are
// treated separately: see replaced.
func mayBeRemoved(name string) bool {
	return isTable(name) || strings.HasPrefix(name, optionsPrefix) || strings.HasPrefix(name, markerPrefix)
}

// CloseList writes the list of a store that was closed cleanly. It must be called after the tree
// was closed.
func (d *Dir) CloseList() error {
	if !d.Clean {
		return nil
	}
	if err := d.Intact(); err != nil {
		return err
	}
	// Files that Pebble has removed must not reappear after a crash that keeps the list: a
	// file that is not in the list of a closed store is damage. TestCrashWhileOpening
	// checks it.
	if err := SyncDir(d.FS, d.Path); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	l, err := ListFiles(d.FS, d.Path, ListClosed)
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	return l.Write(d.FS, d.Path)
}
