package pebblestore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// # What the list guarantees
//
// A closed store, and a backup, must have exactly the files of the list, with the listed
// content; of tables only the lengths are compared.
//
// While a store is being opened, new files are created, and tables, manifests, OPTIONS and
// markers that are no longer referred to are removed. Logs are kept until the store is
// open. So each listed file of another kind must exist, and each existing file must match
// the list; of the manifests only the current one is compared.
//
// An open store must have every log of the list. A log is added to the list after its first
// record was synced and before that is acknowledged. It is removed from the list before its
// file is removed or reused, once its readings are in tables listed by the manifest. Each
// listed log but the newest must have an end mark: Pebble closes and syncs a log before it
// creates the next one, so a crash does not leave two logs without end marks. A log newer
// than the listed ones has no acknowledged readings.
//
// The current manifest must be the listed one or a later one, and must be at least as long
// as it was at the sync before the list was last replaced. Losing records after that is
// harmless: logs that were written to tables since then still exist and are replayed, and
// tables that were compacted since then still exist, or Pebble reports them as missing.
//
// # What is not found
//
// The newest log of an open store may end anywhere after its first record: a crash leaves
// such a log if the rest was not synced, and nothing else that is durable records how far it
// was synced. Recording it would take another sync for each group. So readings are lost
// without an error if the log is truncated there, or if only zeros or garbage follow. The
// package comment lists other cases. TestDamage checks them.

// verify compares the directory with its list and calls problem for each problem. It returns
// the list, or nil if there is none, and the error of a file that cannot be read for another
// reason than damage.
func (d *directory) verify(problem func(error)) (*fileList, error) {
	l, err := readList(d.fs, d.path)
	if err != nil {
		return nil, d.report(err, problem)
	}
	names, err := d.fs.List(d.path)
	if err != nil {
		return nil, err
	}
	if l == nil && slices.Contains(names, listedFile) {
		problem(d.unlisted())
	}
	if l != nil {
		if err := d.compare(l, names, problem); err != nil {
			return l, err
		}
	}
	extents, err := d.verifyJournals()
	if err != nil {
		return l, d.report(err, problem)
	}
	d.compareJournals(l, extents, problem)
	return l, nil
}

// unlisted returns the error of a directory whose list is missing.
func (d *directory) unlisted() error {
	return fmt.Errorf("%w: file %s is missing", storage.ErrCorrupt, d.fs.PathJoin(d.path, checksumsFile))
}

// report calls problem for damage, and returns any other error.
func (d *directory) report(err error, problem func(error)) error {
	if !errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	problem(err)
	return nil
}

// verifyAll is like verify, but returns the first problems as one joined error.
func (d *directory) verifyAll() (*fileList, error) {
	var problems []error
	more := 0
	l, err := d.verify(func(problem error) {
		if len(problems) == maxRefused {
			more++
			return
		}
		problems = append(problems, problem)
	})
	if more > 0 {
		problems = append(problems, fmt.Errorf("%w: %d further files", storage.ErrCorrupt, more))
	}
	return l, errors.Join(append(problems, err)...)
}

// maxRefused is the largest number of problems in the error of Open.
const maxRefused = 10

// compare calls problem for each file that differs from l.
func (d *directory) compare(l *fileList, names []string, problem func(error)) error {
	there := map[string]bool{}
	for _, name := range names {
		there[name] = true
	}
	current := ""
	if !l.state.complete() {
		var err error
		if current, err = d.currentManifest(); err != nil {
			return d.report(err, problem)
		}
	}
	known := map[string]bool{}
	for i := range l.files {
		want := &l.files[i]
		known[want.name] = true
		if l.state == listOpen && olderManifest(current, want.name) {
			problem(fmt.Errorf("%w: file %s* names %s, %s lists %s", storage.ErrCorrupt, d.fs.PathJoin(d.path, manifestMarkerPrefix), current, checksumsFile, want.name))
			continue
		}
		if !l.state.complete() && (d.replaced(want, current, there[want.name]) || d.upgraded(want)) {
			continue
		}
		if err := d.compareFile(want, there[want.name], problem); err != nil {
			return err
		}
	}
	if !l.state.complete() {
		return nil
	}
	for _, name := range names {
		if !isStoreFile(name) || known[name] {
			continue
		}
		problem(fmt.Errorf("%w: file %s is not listed in %s", storage.ErrCorrupt, d.fs.PathJoin(d.path, name), checksumsFile))
	}
	return nil
}

// olderManifest reports whether current is a manifest that is older than the listed one.
func olderManifest(current, listed string) bool {
	number, ok := manifestNumber(listed)
	newest, _ := manifestNumber(current)
	return ok && newest < number
}

// replaced reports whether a file in the list of a store that was not closed may have been
// removed, or is no longer used.
func (d *directory) replaced(f *listLine, current string, there bool) bool {
	if number, ok := manifestNumber(f.name); ok {
		newest, _ := manifestNumber(current)
		return newest > number || f.kind == kindSum && newest != number
	}
	return !there && mayBeRemoved(f.name)
}

// upgraded reports whether a line is that of formatFile before an upgrade. checkFormat has compared
// the content of the file with what it must be.
func (d *directory) upgraded(f *listLine) bool {
	for v := storeFormat; v < d.format(); v++ {
		if *f == textFile(formatFile, formatTextOf(v)) {
			return true
		}
	}
	return false
}

// compareFile calls problem if a file differs from its line in the list.
func (d *directory) compareFile(want *listLine, there bool, problem func(error)) error {
	path := d.fs.PathJoin(d.path, want.name)
	if !there {
		problem(fmt.Errorf("%w: file %s is listed in %s but missing", storage.ErrCorrupt, path, checksumsFile))
		return nil
	}
	read := sumFile
	switch want.kind {
	case kindLeast:
		return nil // see compareJournals
	case kindBytes:
		read = sizeFile
	}
	got, err := read(d.fs, d.path, want.name)
	switch {
	case err != nil:
		return d.report(missing(err), problem)
	case got.bytes != want.bytes:
		problem(fmt.Errorf("%w: file %s has %d bytes, but %d in %s", storage.ErrCorrupt, path, got.bytes, want.bytes, checksumsFile))
	case got.sum != want.sum:
		problem(fmt.Errorf("%w: file %s does not match its checksum in %s", storage.ErrCorrupt, path, checksumsFile))
	}
	return nil
}

// compareJournals compares the journals of a store that was not closed with its list.
func (d *directory) compareJournals(l *fileList, extents map[string]extent, problem func(error)) {
	if l == nil {
		d.compareUnlisted(extents, problem)
		return
	}
	_, newest := logsAbove(0, extents)
	for _, want := range l.files {
		got, there := extents[want.name]
		number, isLog := logNumber(want.name)
		switch {
		case want.kind != kindLeast || !there: // a manifest that is not the current one
		case got.endBytes < want.bytes:
			problem(d.short(&want, got))
		case isLog && number < newest && !got.ended:
			problem(d.unended(want.name, got))
		}
	}
}

// short returns the error of a journal that is shorter than its line in the list.
func (d *directory) short(want *listLine, got extent) error {
	return fmt.Errorf("%w: file %s ends at byte %d, but has at least %d bytes in %s",
		storage.ErrCorrupt, d.fs.PathJoin(d.path, want.name), got.endBytes, want.bytes, checksumsFile)
}

func (d *directory) unended(name string, e extent) error {
	return fmt.Errorf("%w: file %s ends at byte %d without the end mark of a closed log", storage.ErrCorrupt, d.fs.PathJoin(d.path, name), e.endBytes)
}

// logsAbove returns the logs with numbers above least, and the highest number.
func logsAbove(least uint64, extents map[string]extent) (names []string, newest uint64) {
	for name := range extents {
		if number, ok := logNumber(name); ok && number > least {
			names = append(names, name)
			newest = max(newest, number)
		}
	}
	slices.Sort(names)
	return names, newest
}

// compareUnlisted verifies the logs of a store whose list was removed on purpose. Logs with numbers
// above the current manifest's were created by the same process as the manifest, one after another;
// so each but the newest must have an end mark. Nothing is known about older logs.
func (d *directory) compareUnlisted(extents map[string]extent, problem func(error)) {
	manifest := uint64(0)
	for name := range extents {
		if number, ok := manifestNumber(name); ok {
			manifest = number
		}
	}
	names, newest := logsAbove(manifest, extents)
	for _, name := range names {
		if number, _ := logNumber(name); number < newest && !extents[name].ended {
			problem(d.unended(name, extents[name]))
		}
	}
}

// verifyOpen calls problem for each problem with the manifest of an open store, or with a
// file that does not change while the store is open. No erasure may be running. The error is
// as for verify. pace returns what is called before each read of the manifest, see verifyJournal.
func (d *directory) verifyOpen(problem func(error), pace func(path string) (before func(n int64) error)) error {
	for again := false; ; again = true {
		var found []error
		err := d.compareOpen(func(err error) { found = append(found, err) }, pace)
		if err == nil && len(found) > 0 && !again {
			continue // the list or the manifest may have been replaced meanwhile
		}
		for _, err := range found {
			problem(err)
		}
		return err
	}
}

// compareOpen is like verifyOpen, but may report problems that only result from a
// concurrent change.
func (d *directory) compareOpen(problem func(error), pace func(path string) (before func(n int64) error)) error {
	l, err := readList(d.fs, d.path)
	if err != nil {
		return d.report(err, problem)
	}
	if l == nil {
		problem(d.unlisted())
		return nil
	}
	current, err := d.currentManifest()
	if err != nil {
		return d.report(err, problem)
	}
	extent, err := d.verifyJournal(current, manifestChunks(), pace(d.fs.PathJoin(d.path, current)))
	if err != nil {
		return d.report(err, problem)
	}
	for i := range l.files {
		f := &l.files[i]
		_, isManifest := manifestNumber(f.name)
		switch {
		case f.kind == kindLeast && f.name == current && extent.endBytes < f.bytes:
			problem(d.short(f, extent))
		case f.kind == kindSum && !isManifest && !d.upgraded(f):
			if err := d.compareFile(f, true, problem); err != nil {
				return err
			}
		}
	}
	return nil
}
