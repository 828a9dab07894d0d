package datadir

import (
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// An openList maintains the list of files of a store that is being opened or is open.
//
// The list is replaced, which takes two syncs, after the first record of a log was synced and
// before it is acknowledged, and before the file of a log is removed or reused. Each happens
// once per memtable.
type openList struct {
	fs  vfs.FS
	dir *Dir

	mu       sync.Mutex
	open     bool                // the list is that of an open store
	options  *Line               // the newest OPTIONS, once they are written
	logs     map[string]*journal // logs created by this process
	manifest *journal            // the current manifest; nil if an earlier process created it
	next     *journal            // the last manifest created
	removed  []string            // logs to remove once the store is open
}

// begin writes the list of an open store before the first log is created. By then, the
// readings in the logs of the previous process are in tables listed by the manifest.
func (l *openList) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open {
		return nil
	}
	if err := l.writeLocked(); err != nil {
		return err
	}
	l.open = true
	for _, path := range l.removed {
		_ = l.fs.Remove(path) // after an error, the next start removes it
	}
	l.removed = nil
	return nil
}

// created records a journal.
func (l *openList) created(j *journal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j.isLog {
		l.logs[j.name] = j
	} else {
		l.next = j
	}
}

// marked records which manifest is current if a marker says so.
func (l *openList) marked(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.HasPrefix(name, manifestMarkerPrefix) && l.next != nil && strings.HasSuffix(name, "."+l.next.name) {
		l.manifest = l.next
	}
}

// removeLater records that a log must be removed later, and reports whether that is so.
func (l *openList) removeLater(path string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open {
		return false
	}
	l.removed = append(l.removed, path)
	return true
}

// drop removes a log from the list.
func (l *openList) drop(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.logs[name]
	if j == nil {
		return nil
	}
	delete(l.logs, name)
	if !j.listed.Swap(false) {
		return nil
	}
	if err := l.writeLocked(); err != nil {
		l.logs[name] = j
		j.listed.Store(true)
		return err
	}
	return nil
}

// add adds a log, whose first record was synced.
func (l *openList) add(j *journal) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logs[j.name] != j {
		return nil // it is being reused
	}
	if l.options == nil {
		if err := l.sumOptionsLocked(); err != nil {
			return err
		}
	}
	j.listed.Store(true)
	if err := l.writeLocked(); err != nil {
		j.listed.Store(false)
		return err
	}
	return nil
}

// writeLocked replaces the list by that of an open store.
func (l *openList) writeLocked() error {
	d := l.dir
	list := &List{State: ListOpen}
	list.Files = append(list.Files, textLine(FormatFile, FormatText), textLine(ListedFile, ListedText))
	for _, j := range l.logs {
		if j.listed.Load() {
			list.Files = append(list.Files, Line{kind: kindLeast, Name: j.name, Bytes: j.synced.Load()})
		}
	}
	if l.manifest != nil {
		list.Files = append(list.Files, Line{kind: kindLeast, Name: l.manifest.name, Bytes: l.manifest.synced.Load()})
	} else { // nothing was written to tables, and the manifest does not change
		name, err := CurrentManifest(l.fs, d.Path)
		if err != nil {
			return err
		}
		line, err := sumFile(l.fs, d.Path, name)
		if err != nil {
			return err
		}
		list.Files = append(list.Files, line)
	}
	if l.options != nil {
		list.Files = append(list.Files, *l.options)
	}
	return list.Write(l.fs, d.Path)
}

// sumOptionsLocked sets l.options to the newest OPTIONS. Those of earlier starts are being
// removed.
func (l *openList) sumOptionsLocked() error {
	desc, err := pebble.Peek(l.dir.Path, l.fs)
	if err != nil || desc.OptionsFilename == "" {
		return err
	}
	line, err := sumFile(l.fs, l.dir.Path, l.fs.PathBase(desc.OptionsFilename))
	l.options = &line
	return err
}
