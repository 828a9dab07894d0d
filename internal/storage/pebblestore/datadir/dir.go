package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir/wal"
	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

const (
	// FormatFile marks a directory as a store and holds its version. While a store is
	// being created, the file is named formatFileCreating.
	FormatFile         = "PULSEGATE"
	formatFileCreating = "PULSEGATE.new"

	// Version is that of keys, values and Pebble's files together. It is incremented if an earlier
	// Pulsegate cannot read what a later one writes: see upgrade.
	Version = 1

	maxFormatBytes = 1024

	versionLine = "pulsegate store, version "

	// unreleasedLine is how the file of a store begins that no release has written.
	unreleasedLine = "pulsegate store, format "

	// FormatText is the content of FormatFile.
	FormatText = versionLine + "1\nThe files beside this one belong together. Please change none of them by hand.\n"

	// Other files of a store. LockFile is locked while it is open, and ErasureFile describes an
	// unfinished erasure. No reading depends on ScrubFile, which is neither listed nor in backups.
	LockFile    = "LOCK"
	ErasureFile = "ERASING"
	ScrubFile   = "SCRUB"

	// CheckpointDir holds the files of a backup that is being made.
	CheckpointDir = "checkpoint"

	// PartialSuffix is the suffix of a directory to which a store is being copied.
	PartialSuffix = ".partial"

	// TableSuffix is the suffix of the tables of Pebble.
	TableSuffix = ".sst"

	// PebbleFormat is the version of Pebble's own formats. It is a number, so that a new
	// release of Pebble does not change the format of new stores. From version 20 on, the log
	// records how far it was synced, so that replay can distinguish a torn end from damage
	// before it.
	PebbleFormat pebble.FormatMajorVersion = 24

	tempSuffix = ".dbtmp" // of OPTIONS while it is being written

	optionsPrefix = "OPTIONS-"
	markerPrefix  = "marker."

	manifestMarkerPrefix = markerPrefix + "manifest."
	formatMarkerPrefix   = markerPrefix + "format-version."
)

// The states of a directory.
type state int

const (
	stateMissing  state = iota
	stateEmpty          // without files that matter
	stateCreating       // the creation of a store was interrupted
	stateStore          // a store of a version that is read
)

// String returns the state as the predicate of a sentence, for errors.
func (s state) String() string {
	return [...]string{"does not exist", "is empty", "has only an unfinished store", "has a store"}[s]
}

// A Dir is the locked directory of a store.
type Dir struct {
	FS   vfs.FS
	Path string // of the directory in FS

	// Lock is nil on a read-only file system.
	Lock *pebble.Lock

	// WasClosed is true if the store was closed cleanly before it was opened. Prepare sets it.
	WasClosed bool

	// Clean is set when a store is closed and nothing has failed: see CloseList.
	Clean bool

	state  state
	anchor *anchor // nil if FS is not the operating system's
}

// File returns the path of a file in the directory.
func (d *Dir) File(name string) string { return d.FS.PathJoin(d.Path, name) }

// IsStore reports whether the directory has a store. Otherwise, one must be created in it.
func (d *Dir) IsStore() bool { return d.state == stateStore }

// Open locks the directory of a store, and creates it if existing is false. It changes nothing in a
// directory with other files.
func Open(fsys vfs.FS, path string, readOnly, existing bool) (_ *Dir, err error) {
	if fsys == vfs.Default {
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		if path, err = ownDir(path, readOnly); err != nil {
			return nil, err
		}
	}
	d := &Dir{FS: fsys, Path: path}
	if d.state, err = d.inspect(); err != nil {
		return nil, err
	}
	if existing && d.state != stateStore {
		return nil, fmt.Errorf("%w: the directory %s", storage.ErrFormat, d.state)
	}
	if d.state == stateMissing {
		if err := checkUnfinished(d.FS, d.Path); err != nil {
			return nil, err
		}
		if err := Make(d.FS, d.Path); err != nil {
			return nil, err
		}
	}
	if fsys == vfs.Default {
		if d.anchor, err = openAnchor(d.Path); err != nil {
			return nil, err
		}
		d.FS = guardedFS{fsys, d.anchor}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	// Pebble identifies locks of this process by path, so lock by path.
	d.Lock, err = pebble.LockDirectory(d.Path, fsys)
	if readOnly && errors.Is(err, syscall.EROFS) {
		return d, nil // nothing can write there
	}
	if err != nil {
		return nil, lockError(d.File(LockFile), err)
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

// ownDir returns the directory of the store that is configured with path: see [sharedfile.PrivateDir].
func ownDir(path string, readOnly bool) (string, error) {
	own, err := sharedfile.PrivateDir(path)
	_, notStore := os.Stat(filepath.Join(path, FormatFile))
	switch {
	case notStore == nil && readOnly, err == nil && own == path:
		return path, nil // such as a backup on a disk that knows no modes
	case notStore == nil:
		return "", fmt.Errorf("%s has a store, and %w: take that right away with chmod o-w", path, sharedfile.ErrPublic)
	case readOnly && own != "":
		return own, nil // root may check the store of another user
	}
	return own, err
}

// checkUnfinished returns an error if a copy to this directory is unfinished. Otherwise a
// server that is restarted automatically after an interrupted restore would create an
// empty store and accept readings, and the copy could not be repeated.
func checkUnfinished(fsys vfs.FS, dir string) error {
	_, err := fsys.Stat(dir + PartialSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s is an interrupted copy, or one in progress; "+
		"repeat the move, or remove it and repeat the copy, or start without it", storage.ErrFormat, dir+PartialSuffix)
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
func (d *Dir) Close() (err error) {
	if d.Lock != nil {
		err = d.Lock.Close()
	}
	if d.anchor != nil {
		err = errors.Join(err, d.anchor.Close())
	}
	return err
}

// Intact returns an error if the directory or its lock was removed or replaced.
func (d *Dir) Intact() error {
	if d.anchor == nil {
		return nil
	}
	return d.anchor.intact()
}

// inspect returns the state of the directory, or an error if it holds other files or a
// store of another version.
func (d *Dir) inspect() (state, error) {
	names, err := Names(d.FS, d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return stateMissing, nil
	}
	if err != nil {
		return 0, err
	}
	if err := d.checkKinds(names); err != nil {
		return 0, err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !Matters(n) })
	slices.Sort(names)
	switch {
	case slices.Contains(names, FormatFile):
		return stateStore, d.checkFormat(names)
	case slices.Contains(names, formatFileCreating):
		return stateCreating, nil
	case len(names) == 0:
		return stateEmpty, nil
	}
	return 0, fmt.Errorf("%w: the directory is not empty (it has %s, ...), but has no file %s",
		storage.ErrFormat, names[0], FormatFile)
}

// Names returns the names in a directory, or an error for anything else. Opening a FIFO waits for a writer, for ever.
func Names(fsys vfs.FS, path string) ([]string, error) {
	if info, err := fsys.Stat(path); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", path)
	}
	return fsys.List(path)
}

// checkKinds returns an error if one of the names in the directory is neither a regular file nor a directory: see
// [Names].
func (d *Dir) checkKinds(names []string) error {
	for _, name := range names {
		info, err := d.FS.Stat(d.File(name))
		if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			return fmt.Errorf("%w: %s is not a regular file", storage.ErrFormat, d.File(name))
		}
	}
	return nil
}

// checkFormat returns an error if the store has another version.
func (d *Dir) checkFormat(names []string) error {
	text, err := ReadSmall(d.FS, d.File(FormatFile), maxFormatBytes)
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if number, unreleased := strings.CutPrefix(line, unreleasedLine); unreleased {
		return fmt.Errorf(
			"%w: %s has the unreleased format %s: export its readings with the program that wrote it, and import them into "+
				"a new store",
			storage.ErrFormat, FormatFile, number)
	}
	number, ok := strings.CutPrefix(line, versionLine)
	version, err := strconv.Atoi(number)
	if !ok || err != nil {
		return fmt.Errorf("%w: %s has no version", storage.ErrFormat, FormatFile)
	}
	if version != Version {
		return upgrade(version)
	}
	if string(text) != FormatText {
		return fmt.Errorf("%w: the text of file %s was changed", storage.ErrCorrupt, FormatFile)
	}
	// Pebble keeps its version in the name of a file. It rejects a later version too,
	// but its error text does not say what to do.
	for _, name := range names {
		if !strings.HasPrefix(name, formatMarkerPrefix) {
			continue
		}
		v, err := strconv.Atoi(name[strings.LastIndexByte(name, '.')+1:])
		if err == nil && v > int(PebbleFormat) {
			return fmt.Errorf(
				"%w: a later version of Pulsegate has used the store (Pebble format %d, this version reads up to %d)",
				storage.ErrFormat, v, PebbleFormat)
		}
	}
	return nil
}

// upgrade makes a store of an earlier version one of [Version]. There is no earlier one yet.
func upgrade(from int) error {
	return fmt.Errorf("%w: %s has version %d, and this Pulsegate reads version %d: use a later Pulsegate",
		storage.ErrFormat, FormatFile, from, Version)
}

// Make creates a directory and its parents, and syncs their entries.
func Make(fsys vfs.FS, dir string) error {
	var parents []string
	for p := fsys.PathDir(dir); ; p = fsys.PathDir(p) {
		parents = append(parents, p)
		if _, err := fsys.Stat(p); err == nil || p == fsys.PathDir(p) {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, p := range parents {
		if err := SyncDir(fsys, p); err != nil {
			return err
		}
	}
	return nil
}

// writeFormat begins the creation of a store.
func (d *Dir) writeFormat() error {
	if err := WriteSynced(d.FS, d.File(formatFileCreating), []byte(FormatText)); err != nil {
		return err
	}
	return SyncDir(d.FS, d.Path)
}

// startOver removes the files of an interrupted creation. Pebble does not recover from
// all of these: after a loss of power, the name of its manifest may be missing while the
// marker that refers to it exists. Such a store has never held readings.
func (d *Dir) startOver() error {
	names, err := d.FS.List(d.Path)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !Matters(n) || n == formatFileCreating })
	for _, name := range names {
		if !ofCreation(name) {
			return fmt.Errorf("%w: the creation of a store was interrupted, and the directory has another file, %s",
				storage.ErrFormat, name)
		}
	}
	for _, name := range names {
		if err := d.FS.Remove(d.File(name)); err != nil {
			return err
		}
	}
	return SyncDir(d.FS, d.Path)
}

// ofCreation reports whether a file of this name is made in the creation of a store.
// Tables are not.
func ofCreation(name string) bool {
	for _, prefix := range []string{wal.ManifestPrefix, optionsPrefix, markerPrefix, "temporary."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	name = strings.TrimSuffix(name, newSuffix)
	return strings.HasSuffix(name, wal.LogSuffix) || name == ChecksumsFile || name == ListedFile
}

// Matters reports whether a file keeps a directory from being empty. The lock does not, nor
// does lost+found, which mkfs makes at the root of a file system.
func Matters(name string) bool { return name != LockFile && name != "lost+found" }

// Created ends the creation of a store, once Pebble's files exist. From then on, missing
// files are damage.
func (d *Dir) Created() error {
	if d.state == stateStore {
		return nil
	}
	if err := Replace(d.FS, d.Path, ListedFile, []byte(ListedText)); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	from, to := d.File(formatFileCreating), d.File(FormatFile)
	if err := d.FS.Rename(from, to); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	if err := SyncDir(d.FS, d.Path); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	d.state = stateStore
	return nil
}

// checkReplaySpace returns an error that wraps storage.ErrDiskLow if there is not enough space
// to write the log to tables: Pebble would retry forever.
func checkReplaySpace(fsys vfs.FS, dir string, minFreeBytes int64) error {
	if minFreeBytes < 0 {
		return nil
	}
	usage, err := fsys.GetDiskUsage(dir)
	if err != nil {
		return nil // unknown: try
	}
	logs, err := LogBytes(fsys, dir)
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

// LogBytes returns the size of all log files in a directory.
func LogBytes(fsys vfs.FS, path string) (uint64, error) {
	names, err := fsys.List(path)
	if err != nil {
		return 0, err
	}
	var n uint64
	for _, name := range names {
		if !strings.HasSuffix(name, wal.LogSuffix) {
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
func removeUnfinished(fsys vfs.FS, dir string) error {
	for _, name := range []string{FormatFile, ChecksumsFile, ListedFile, ErasureFile, ScrubFile} {
		err := fsys.Remove(fsys.PathJoin(dir, name+newSuffix))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fsys.RemoveAll(fsys.PathJoin(dir, CheckpointDir))
}
