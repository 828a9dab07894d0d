package pebblestore

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A lister is the file system of a store that is being opened or is open. It maintains the
// store's list of files.
//
// The list is replaced, which takes two syncs, after the first record of a log was synced and
// before it is acknowledged, and before the file of a log is removed or reused. Each happens
// once per memtable.
type lister struct {
	vfs.FS
	dir *directory

	mu       sync.Mutex
	open     bool                // the list is that of an open store
	options  *listLine           // the newest OPTIONS, once they are written
	logs     map[string]*journal // logs created by this process
	manifest *journal            // the current manifest; nil if an earlier process created it
	next     *journal            // the last manifest created
	removed  []string            // logs to remove once the store is open
}

func newLister(d *directory) *lister {
	// A list must not name a manifest before its marker is durable.
	return &lister{FS: markerFS{d.fs}, dir: d, logs: map[string]*journal{}}
}

// Unwrap implements vfs.FS.
func (k *lister) Unwrap() vfs.FS { return k.FS }

// own returns the name of a file, and reports whether it is in the store's directory.
func (k *lister) own(path string) (name string, ok bool) {
	return k.PathBase(path), k.PathDir(path) == k.dir.path
}

func (k *lister) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := k.dir.intact(); err != nil {
		return nil, err
	}
	f, err := k.FS.Create(path, c)
	if err != nil {
		return nil, err
	}
	if name, own := k.own(path); own && isLogName(name) {
		if err := k.begin(); err != nil {
			return nil, joinClose(err, f)
		}
	}
	return k.created(path, f), nil
}

// begin writes the list of an open store before the first log is created. By then, the
// readings in the logs of the previous process are in tables listed by the manifest.
func (k *lister) begin() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open {
		return nil
	}
	if err := k.writeLocked(); err != nil {
		return err
	}
	k.open = true
	for _, path := range k.removed {
		_ = k.FS.Remove(path) // after an error, the next start removes it
	}
	k.removed = nil
	return nil
}

// created wraps the file of a journal, and records which manifest is current if the file is
// a marker.
func (k *lister) created(path string, f vfs.File) vfs.File {
	name, own := k.own(path)
	if !own {
		return f
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case isLogName(name):
		j := &journal{File: f, k: k, name: name}
		k.logs[name] = j
		return j
	case strings.HasPrefix(name, manifestPrefix):
		k.next = &journal{File: f, k: k, name: name}
		return k.next
	case strings.HasPrefix(name, manifestMarkerPrefix) && k.next != nil && strings.HasSuffix(name, "."+k.next.name):
		k.manifest = k.next
	}
	return f
}

func (k *lister) ReuseForWrite(oldpath, newpath string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := k.dir.intact(); err != nil {
		return nil, err
	}
	if err := k.drop(oldpath); err != nil {
		return nil, err
	}
	f, err := k.FS.ReuseForWrite(oldpath, newpath, c)
	if err != nil {
		return nil, err
	}
	return k.created(newpath, f), nil
}

// Remove removes a file. Logs of the previous process are removed once the store is open.
func (k *lister) Remove(path string) error {
	name, own := k.own(path)
	if own && isLogName(name) {
		if k.later(path) {
			return nil
		}
		if err := k.drop(path); err != nil {
			return err
		}
	}
	return k.FS.Remove(path)
}

// later records that a log must be removed later, and reports whether that is so.
func (k *lister) later(path string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open {
		return false
	}
	k.removed = append(k.removed, path)
	return true
}

// drop removes a log from the list.
func (k *lister) drop(path string) error {
	name, own := k.own(path)
	k.mu.Lock()
	defer k.mu.Unlock()
	j := k.logs[name]
	if !own || j == nil {
		return nil
	}
	delete(k.logs, name)
	if !j.listed.Swap(false) {
		return nil
	}
	if err := k.writeLocked(); err != nil {
		k.logs[name] = j
		j.listed.Store(true)
		return err
	}
	return nil
}

// writeLocked replaces the list by that of an open store.
func (k *lister) writeLocked() error {
	l := &fileList{state: listOpen}
	l.files = append(l.files, textFile(formatFile, k.dir.formatText()), textFile(listedFile, listedText))
	for _, j := range k.logs {
		if j.listed.Load() {
			l.files = append(l.files, listLine{kind: kindLeast, name: j.name, bytes: j.synced.Load()})
		}
	}
	if k.manifest != nil {
		l.files = append(l.files, listLine{kind: kindLeast, name: k.manifest.name, bytes: k.manifest.synced.Load()})
	} else { // nothing was written to tables, and the manifest does not change
		name, err := k.dir.currentManifest()
		if err != nil {
			return err
		}
		f, err := sumFile(k.dir.fs, k.dir.path, name)
		if err != nil {
			return err
		}
		l.files = append(l.files, f)
	}
	if k.options != nil {
		l.files = append(l.files, *k.options)
	}
	return k.dir.writeList(l)
}

// sumOptionsLocked sets k.options to the newest OPTIONS. Those of earlier starts are being
// removed.
func (k *lister) sumOptionsLocked() error {
	desc, err := pebble.Peek(k.dir.path, k.dir.fs)
	if err != nil || desc.OptionsFilename == "" {
		return err
	}
	f, err := sumFile(k.dir.fs, k.dir.path, k.PathBase(desc.OptionsFilename))
	k.options = &f
	return err
}

// A journal counts the synced bytes of a log or a manifest. Only one goroutine may write and
// sync it.
type journal struct {
	vfs.File
	k       *lister
	name    string
	written int64
	synced  atomic.Int64
	listed  atomic.Bool // it is a log, and the list has it
}

func (j *journal) Write(p []byte) (int, error) {
	n, err := j.File.Write(p)
	j.written += int64(n)
	return n, err
}

func (j *journal) Sync() error     { return j.sync(j.File.Sync) }
func (j *journal) SyncData() error { return j.sync(j.File.SyncData) }

func (j *journal) sync(sync func() error) error {
	if err := sync(); err != nil {
		return err
	}
	j.synced.Store(j.written)
	if !isLogName(j.name) {
		return nil
	}
	if err := j.k.dir.intact(); err != nil || j.listed.Load() {
		return err
	}
	return j.k.list(j)
}

// list adds a log, whose first record was synced, to the list of an open store.
func (k *lister) list(j *journal) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.logs[j.name] != j {
		return nil // it is being reused
	}
	if k.options == nil {
		if err := k.sumOptionsLocked(); err != nil {
			return err
		}
	}
	j.listed.Store(true)
	if err := k.writeLocked(); err != nil {
		j.listed.Store(false)
		return err
	}
	return nil
}
