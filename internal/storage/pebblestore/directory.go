package pebblestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
)

const (
	// formatFile marks a directory as a store and holds its format. While a store is
	// being created, the file is named formatFileCreating.
	formatFile         = "PULSEGATE"
	formatFileCreating = "PULSEGATE.new"

	// storeFormat is the version of keys, values and Pebble's files together. It is
	// incremented if an older Pulsegate cannot read what a newer one writes.
	storeFormat = 2

	// assignedFormat is that of a store that has had assignments. An older Pulsegate would
	// ignore them, and leave those of a device that it erases, so it must not open the store.
	// A store without them stays at storeFormat, which an older one reads.
	assignedFormat = 3

	maxFormatBytes = 1024

	formatLine  = "pulsegate store, format "
	formatLines = "\nThe files beside this one belong together. Please change none of them by hand.\n"
	formatText  = formatLine + "2" + formatLines // of storeFormat

	lockFile    = "LOCK"
	logSuffix   = ".log"
	tableSuffix = ".sst"

	tempSuffix = ".dbtmp" // of OPTIONS while it is being written

	manifestPrefix = "MANIFEST-"
	optionsPrefix  = "OPTIONS-"
	markerPrefix   = "marker."

	manifestMarkerPrefix = markerPrefix + "manifest."
	formatMarkerPrefix   = markerPrefix + "format-version."
)

// The states of a directory.
type directoryState int

const (
	stateMissing  directoryState = iota
	stateEmpty                   // without files that matter
	stateCreating                // the creation of a store was interrupted
	stateStore                   // a store of a version that is read
)

// String returns the state as the predicate of a sentence, for errors.
func (s directoryState) String() string {
	return [...]string{"does not exist", "is empty", "has only an unfinished store", "has a store"}[s]
}

// A directory is the locked directory of a store.
type directory struct {
	fs    vfs.FS
	path  string
	state directoryState
	lock  *pebble.Lock // nil on a read-only file system

	// version is the format of the store; 0: that of a new one.
	version atomic.Int32

	anchor *anchor // nil if fs is not the operating system's

	// wasClosed is true if the store was closed cleanly before it was opened.
	wasClosed bool

	// clean is set by Store.Close if nothing has failed, and cleared if closing the
	// tree fails. The list of a closed store is written only if it is set.
	clean bool
}

// openDirectory locks the directory of a store, and creates it if existing is false. It
// changes nothing in a directory with other files.
func openDirectory(fsys vfs.FS, path string, readOnly, existing bool) (_ *directory, err error) {
	if fsys == vfs.Default {
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
	}
	d := &directory{fs: fsys, path: path}
	if d.state, err = d.inspect(); err != nil {
		return nil, err
	}
	if existing && d.state != stateStore {
		return nil, fmt.Errorf("%w: the directory %s", storage.ErrFormat, d.state)
	}
	if d.state == stateMissing {
		if err := d.checkUnfinished(); err != nil {
			return nil, err
		}
		if err := d.make(); err != nil {
			return nil, err
		}
	}
	if fsys == vfs.Default {
		if d.anchor, err = openAnchor(d.path); err != nil {
			return nil, err
		}
		d.fs = d.anchor.fs()
	}
	defer func() {
		if err != nil {
			err = joinClose(err, d)
		}
	}()
	// Pebble identifies locks of this process by path, so lock by path.
	d.lock, err = pebble.LockDirectory(d.path, fsys)
	if readOnly && errors.Is(err, syscall.EROFS) {
		return d, nil // nothing can write there
	}
	if err != nil {
		return nil, lockError(d.fs.PathJoin(d.path, lockFile), err)
	}
	if d.anchor != nil {
		if err := d.anchor.acquireLock(); err != nil {
			return nil, err
		}
	}
	// Another process may have changed the directory before it was locked.
	if d.state, err = d.inspect(); err != nil {
		return nil, err
	}
	if d.state == stateCreating {
		err = d.startOver()
	}
	if err == nil && d.state != stateStore {
		err = d.writeFormat()
	}
	if err != nil {
		return nil, fmt.Errorf("create store: %w", err)
	}
	return d, nil
}

// checkUnfinished returns an error if a copy to this directory is unfinished. Otherwise a
// server that is restarted automatically after an interrupted restore would create an
// empty store and accept readings, and the copy could not be repeated.
func (d *directory) checkUnfinished() error {
	_, err := d.fs.Stat(d.path + partialSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s is an interrupted copy, or one in progress; "+
		"repeat the move, or remove it and repeat the copy, or start without it", storage.ErrFormat, d.path+partialSuffix)
}

// lockError distinguishes a lock held by another process from a failed attempt to lock,
// whose error is a *fs.PathError.
func lockError(file string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return fmt.Errorf("lock store: %w", err)
	}
	return fmt.Errorf("%w, which holds the lock on %s", storage.ErrLocked, file)
}

// Close releases the lock.
func (d *directory) Close() (err error) {
	if d.lock != nil {
		err = d.lock.Close()
	}
	if d.anchor != nil {
		err = errors.Join(err, d.anchor.Close())
	}
	return err
}

// intact returns an error if the directory or its lock was removed or replaced.
func (d *directory) intact() error {
	if d.anchor == nil {
		return nil
	}
	return d.anchor.intact()
}

// unlockedFS is a read-only file system, on which no file can be locked.
type unlockedFS struct{ vfs.FS }

func (unlockedFS) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// inspect returns the state of the directory, or an error if it holds other files or a
// store of another version. It sets d.version.
func (d *directory) inspect() (directoryState, error) {
	names, err := d.fs.List(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return stateMissing, nil
	}
	if err != nil {
		return 0, err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !matters(n) })
	slices.Sort(names)
	switch {
	case slices.Contains(names, formatFile):
		return stateStore, d.checkFormat(names)
	case slices.Contains(names, formatFileCreating):
		return stateCreating, nil
	case len(names) == 0:
		return stateEmpty, nil
	}
	return 0, fmt.Errorf("%w: the directory is not empty (it has %s, ...), but has no file %s",
		storage.ErrFormat, names[0], formatFile)
}

// checkFormat returns an error if the store has another version.
func (d *directory) checkFormat(names []string) error {
	text, err := readSmallFile(d.fs, d.fs.PathJoin(d.path, formatFile), maxFormatBytes)
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	number, ok := strings.CutPrefix(line, formatLine)
	version, err := strconv.Atoi(number)
	if !ok || err != nil {
		return fmt.Errorf("%w: %s has no version", storage.ErrFormat, formatFile)
	}
	if version == storeFormat-1 { // no release wrote it
		return fmt.Errorf("%w: %s has format %d, which this version does not read: export its readings with the version that wrote it, and import them into a new store",
			storage.ErrFormat, formatFile, version)
	}
	if version < storeFormat || version > assignedFormat {
		return fmt.Errorf("%w: %s has format %d, this version of Pulsegate reads formats %d to %d",
			storage.ErrFormat, formatFile, version, storeFormat, assignedFormat)
	}
	d.version.Store(int32(version))
	if string(text) != d.formatText() {
		return fmt.Errorf("%w: the text of file %s was changed", storage.ErrCorrupt, formatFile)
	}
	// Pebble keeps its version in the name of a file. It rejects a later version too,
	// but its error text does not say what to do.
	for _, name := range names {
		if !strings.HasPrefix(name, formatMarkerPrefix) {
			continue
		}
		v, err := strconv.Atoi(name[strings.LastIndexByte(name, '.')+1:])
		if err == nil && v > int(pebbleFormat) {
			return fmt.Errorf("%w: a later version of Pulsegate has used the store (Pebble format %d, this version reads up to %d)",
				storage.ErrFormat, v, pebbleFormat)
		}
	}
	return nil
}

// format returns the version of the store.
func (d *directory) format() int {
	if v := d.version.Load(); v != 0 {
		return int(v)
	}
	return storeFormat
}

// formatText returns the content of formatFile.
func (d *directory) formatText() string { return formatTextOf(d.format()) }

func formatTextOf(version int) string { return formatLine + strconv.Itoa(version) + formatLines }

// upgrade makes a store of an earlier format one of the given format, durably. The list may have
// the earlier formatFile until it is written again: see compare.
func (d *directory) upgrade(version int) error {
	if err := replaceFile(d.fs, d.path, formatFile, []byte(formatTextOf(version))); err != nil {
		return fmt.Errorf("write %s: %w", formatFile, err)
	}
	d.version.Store(int32(version))
	return nil
}

// make creates the directory and its parents, and syncs their entries.
func (d *directory) make() error {
	var parents []string
	for p := d.fs.PathDir(d.path); ; p = d.fs.PathDir(p) {
		parents = append(parents, p)
		if _, err := d.fs.Stat(p); err == nil || p == d.fs.PathDir(p) {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := d.fs.MkdirAll(d.path, 0o700); err != nil {
		return err
	}
	for _, p := range parents {
		if err := syncDir(d.fs, p); err != nil {
			return err
		}
	}
	return nil
}

// writeFormat begins the creation of a store.
func (d *directory) writeFormat() error {
	if err := writeSynced(d.fs, d.fs.PathJoin(d.path, formatFileCreating), []byte(formatText)); err != nil {
		return err
	}
	return syncDir(d.fs, d.path)
}

// startOver removes the files of an interrupted creation. Pebble does not recover from
// all of these: after a loss of power, the name of its manifest may be missing while the
// marker that refers to it exists. Such a store has never held readings.
func (d *directory) startOver() error {
	names, err := d.fs.List(d.path)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !matters(n) || n == formatFileCreating })
	for _, name := range names {
		if !ofCreation(name) {
			return fmt.Errorf("%w: the creation of a store was interrupted, and the directory has another file, %s", storage.ErrFormat, name)
		}
	}
	for _, name := range names {
		if err := d.fs.Remove(d.fs.PathJoin(d.path, name)); err != nil {
			return err
		}
	}
	return syncDir(d.fs, d.path)
}

// ofCreation reports whether a file of this name is made in the creation of a store.
// Tables are not.
func ofCreation(name string) bool {
	for _, prefix := range []string{manifestPrefix, optionsPrefix, markerPrefix, "temporary."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	name = strings.TrimSuffix(name, newSuffix)
	return strings.HasSuffix(name, logSuffix) || name == checksumsFile || name == listedFile
}

// matters reports whether a file keeps a directory from being empty. The lock does not, nor
// does lost+found, which mkfs makes at the root of a file system.
func matters(name string) bool { return name != lockFile && name != "lost+found" }

// created ends the creation of a store, once Pebble's files exist. From then on, missing
// files are damage.
func (d *directory) created() error {
	if d.state == stateStore {
		return nil
	}
	if err := replaceFile(d.fs, d.path, listedFile, []byte(listedText)); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	from, to := d.fs.PathJoin(d.path, formatFileCreating), d.fs.PathJoin(d.path, formatFile)
	if err := d.fs.Rename(from, to); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	if err := syncDir(d.fs, d.path); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	d.state = stateStore
	return nil
}

// checkReplaySpace returns an error that wraps storage.ErrDiskLow if there is not enough space
// to write the log to tables: Pebble would retry forever.
func (d *directory) checkReplaySpace(minFreeBytes int64) error {
	if minFreeBytes < 0 {
		return nil
	}
	usage, err := d.fs.GetDiskUsage(d.path)
	if err != nil {
		return nil // unknown: try
	}
	logs, err := logBytes(d.fs, d.path)
	if err != nil {
		return err
	}
	// Tables take less space than their log; the additional 4 MiB are for the files that
	// every start writes.
	need := logs + 4<<20
	if usage.AvailBytes >= need {
		return nil
	}
	return fmt.Errorf("%w: %d bytes are free, and replaying the log may take %d",
		storage.ErrDiskLow, usage.AvailBytes, need)
}

// logBytes returns the size of all log files in a directory.
func logBytes(fsys vfs.FS, path string) (uint64, error) {
	names, err := fsys.List(path)
	if err != nil {
		return 0, err
	}
	var n uint64
	for _, name := range names {
		if !strings.HasSuffix(name, logSuffix) {
			continue
		}
		info, err := fsys.Stat(fsys.PathJoin(path, name))
		if err != nil {
			return 0, err
		}
		n += uint64(info.Size())
	}
	return n, nil
}

// removeUnfinished removes unfinished files of the previous process: small files that were not
// yet renamed, and the checkpoint of a backup.
func (d *directory) removeUnfinished() error {
	for _, name := range []string{formatFile, checksumsFile, listedFile, erasureFile, scrubFile} {
		err := d.fs.Remove(d.fs.PathJoin(d.path, name+newSuffix))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return d.fs.RemoveAll(d.fs.PathJoin(d.path, checkpointDir))
}
