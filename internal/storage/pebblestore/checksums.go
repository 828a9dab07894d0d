package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// # Why there is a list of checksums
//
// Tables and the records of journals carry checksums of Pebble's. Some bytes do not:
// those of OPTIONS, which Pebble would take in another meaning, and what stands
// behind the last record of a journal. The file CHECKSUMS lists the files that
// cannot change in the state that it names, with their lengths and CRC-32C:
//
//	pulsegate checksums 1 closed
//	crc32c 9558175e 2936 OPTIONS-000008
//	crc32c 0b1c9d30 1603 000007.log
//	end 4a17b9ff
//
// The last line has the CRC-32C of everything in front of it. The states are
//
//	open     the store is open, or was not closed: PULSEGATE and OPTIONS
//	closed   the store was closed in good order: every file but tables
//	backup   the same, of a backup: what is not to be written to
//
// Open removes the list of a closed store durably before it changes a file, so that
// a list is never wrong. Check compares it. TestEveryByte turns bits everywhere.
const (
	checksumsFile   = "CHECKSUMS"
	checksumsHeader = "pulsegate checksums 1 "

	// maxChecksumsBytes bounds what is read of a list. It has a line for each file
	// but tables, which are a dozen.
	maxChecksumsBytes = 1 << 20
)

// A listState says which files a list of checksums has.
type listState string

const (
	listOpen   listState = "open"
	listClosed listState = "closed"
	listBackup listState = "backup"
)

// A fileSum is a file in a list.
type fileSum struct {
	name  string
	bytes int64
	sum   uint32
}

// A checksumList is the content of CHECKSUMS.
type checksumList struct {
	state listState
	files []fileSum
}

// text returns the content of the file.
func (l *checksumList) text() []byte {
	b := fmt.Appendf(nil, "%s%s\n", checksumsHeader, l.state)
	for _, f := range l.files {
		b = fmt.Appendf(b, "crc32c %08x %d %s\n", f.sum, f.bytes, f.name)
	}
	return fmt.Appendf(b, "end %08x\n", checksum(b))
}

// parseChecksums reads what text returns, and nothing else.
func parseChecksums(text []byte) (*checksumList, error) {
	damaged := fmt.Errorf("%w: file %s is damaged", storage.ErrCorrupt, checksumsFile)
	lines := strings.SplitAfter(string(text), "\n")
	state, ok := strings.CutPrefix(lines[0], checksumsHeader)
	l := &checksumList{state: listState(strings.TrimSuffix(state, "\n"))}
	if !ok || len(lines) < 3 || !slices.Contains([]listState{listOpen, listClosed, listBackup}, l.state) {
		return nil, damaged
	}
	for _, line := range lines[1 : len(lines)-2] {
		var f fileSum
		if _, err := fmt.Sscanf(line, "crc32c %x %d %s\n", &f.sum, &f.bytes, &f.name); err != nil {
			return nil, damaged
		}
		l.files = append(l.files, f)
	}
	if !bytes.Equal(l.text(), text) {
		return nil, damaged
	}
	return l, nil
}

// readChecksums returns the list of a directory, or nil when it has none.
func readChecksums(fsys vfs.FS, dir string) (*checksumList, error) {
	text, err := readSmallFile(fsys, fsys.PathJoin(dir, checksumsFile), maxChecksumsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseChecksums(text)
}

// isStoreFile reports whether a file belongs to a store and is more than its lock.
func isStoreFile(name string) bool {
	if _, ok := journalNumber("", name, logSuffix); ok || name == formatFile || name == erasureFile || strings.HasSuffix(name, tableSuffix) {
		return true
	}
	return strings.HasPrefix(name, manifestPrefix) || strings.HasPrefix(name, optionsPrefix) || strings.HasPrefix(name, markerPrefix)
}

// listFiles returns the list of a directory whose files do not change any more.
func listFiles(fsys vfs.FS, dir string, state listState) (*checksumList, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	l := &checksumList{state: state}
	for _, name := range names {
		if !isStoreFile(name) || strings.HasSuffix(name, tableSuffix) {
			continue
		}
		if state == listOpen && name != formatFile && !strings.HasPrefix(name, optionsPrefix) {
			continue
		}
		f, err := sumFile(fsys, dir, name)
		if state == listOpen && errors.Is(err, fs.ErrNotExist) {
			continue // old OPTIONS, which Pebble removes in the background
		}
		if err != nil {
			return nil, err
		}
		l.files = append(l.files, f)
	}
	return l, nil
}

// sumFile reads a file.
func sumFile(fsys vfs.FS, dir, name string) (fileSum, error) {
	f, err := fsys.Open(fsys.PathJoin(dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return fileSum{}, err
	}
	h := crc32.New(castagnoli)
	n, err := io.Copy(h, f)
	if err != nil {
		return fileSum{}, joinClose(fmt.Errorf("read %s: %w", name, err), f)
	}
	return fileSum{name, n, h.Sum32()}, f.Close()
}

// compare calls problem for each file of a directory that is not as l says. It
// returns the error of a file that cannot be read.
func (l *checksumList) compare(fsys vfs.FS, dir string, problem func(error)) error {
	for _, want := range l.files {
		got, err := sumFile(fsys, dir, want.name)
		path := fsys.PathJoin(dir, want.name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if l.state != listOpen {
				problem(fmt.Errorf("%w: file %s is missing", storage.ErrCorrupt, path))
			}
		case err != nil:
			return err
		case got.bytes != want.bytes:
			problem(fmt.Errorf("%w: file %s has %d bytes, %s says %d", storage.ErrCorrupt, path, got.bytes, checksumsFile, want.bytes))
		case got.sum != want.sum:
			problem(fmt.Errorf("%w: file %s has not the content that %s says", storage.ErrCorrupt, path, checksumsFile))
		}
	}
	return nil
}

// removeChecksums takes the list of a closed store away, durably: from now on its
// files change. It refuses a backup.
func (d *directory) removeChecksums() error {
	l, err := readChecksums(d.fs, d.path)
	if err == nil && l == nil {
		return nil
	}
	// A list that cannot be read is for Check to report.
	if l != nil && l.state == listBackup {
		return fmt.Errorf("%w; \"pulsegate restore\" makes a store of it", ErrBackup)
	}
	if err := d.fs.Remove(d.fs.PathJoin(d.path, checksumsFile)); err != nil {
		return err
	}
	return syncDir(d.fs, d.path)
}

// writeChecksums lists the files of a state. They must be in it.
func (d *directory) writeChecksums(state listState) error {
	l, err := listFiles(d.fs, d.path, state)
	if err == nil {
		err = replaceFile(d.fs, d.path, checksumsFile, l.text())
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", checksumsFile, err)
	}
	return nil
}

// A checksumCloser lists all files of a store that has been closed in good order. It
// is closed behind the tree.
type checksumCloser struct{ *directory }

func (c checksumCloser) Close() error {
	if !c.sound {
		return nil
	}
	return c.writeChecksums(listClosed)
}

// A treeCloser closes a tree.
type treeCloser struct {
	*pebble.DB
	dir *directory
}

func (c treeCloser) Close() error {
	err := c.DB.Close()
	c.dir.sound = c.dir.sound && err == nil
	return err
}

// readSmallFile returns the content of a file of a bounded size.
func readSmallFile(fsys vfs.FS, path string, maxBytes int64) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && int64(len(text)) > maxBytes {
		err = fmt.Errorf("%w: more than %d bytes", storage.ErrCorrupt, maxBytes)
	}
	if err != nil {
		return nil, joinClose(fmt.Errorf("read %s: %w", path, err), f)
	}
	return text, f.Close()
}

// newSuffix ends the name of a file that is being written.
const newSuffix = ".new"

// replaceFile writes a small file whole or not at all, durably.
func replaceFile(fsys vfs.FS, dir, name string, text []byte) error {
	path := fsys.PathJoin(dir, name)
	if err := writeSynced(fsys, path+newSuffix, text); err != nil {
		return err
	}
	if err := fsys.Rename(path+newSuffix, path); err != nil {
		return err
	}
	return syncDir(fsys, dir)
}

func writeSynced(fsys vfs.FS, path string, text []byte) error {
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err := f.Write(text); err != nil {
		return joinClose(err, f)
	}
	if err := f.Sync(); err != nil {
		return joinClose(err, f)
	}
	return f.Close()
}
