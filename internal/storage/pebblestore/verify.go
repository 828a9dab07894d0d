package pebblestore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// # What a directory is held to
//
// A store that was closed, and a backup, have exactly the files of the list, as the list
// has them; of tables the lengths are compared.
//
// While a store is being opened, new files appear, and tables, manifests, OPTIONS and
// markers that nothing refers to any more are removed. Logs stay until the store is open.
// So each file of the list that is not of those kinds must be there, and each that is
// there must be as the list has it; of the manifests only the current one counts.
//
// Of an open store, every log of the list must be there. A log is put into the list when
// its first record was synced, before that is acknowledged, and taken out of it before its
// file is removed or used again, when the manifest says that its readings are in tables.
// Each of them but the newest must end with the mark of a log that was closed: Pebble
// closes and syncs a log before it makes the next one, so that two logs without their ends
// are not what a crash leaves. In a log that is newer than those of the list nothing was
// acknowledged.
//
// The current manifest must be the one of the list, or a later one, and reach as far as it
// had been synced when the list was last replaced. What it has lost after that does no harm:
// a log that was written to tables since is still there and is replayed, and tables that
// were merged into others are still there, or are missed by Pebble.
//
// # What cannot be told
//
// Of an open store, the newest log may end anywhere after its first record: a crash leaves
// such a log where the rest was not synced, and nothing else that is durable says how far
// it was. To say so after every group would take a further sync for each. So what follows
// is lost without a word if the log was cut there, or if nothing but zeros or garbage can be
// read from there on. The package comment lists the rest. TestDamage holds this.

// verify compares the directory with its list and calls problem for whatever is wrong. It
// returns the list, nil where there is none, and the error of a file that cannot be read
// for another reason than damage.
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

// verifyAll is verify for a caller who takes nothing that is damaged. Its error joins the
// first problems.
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

// maxRefused is how many problems the error of an Open names.
const maxRefused = 10

// compare calls problem for each file that is not as l has it.
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
		if !l.state.complete() && d.replaced(want, current, there[want.name]) {
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
		if !isStoreFile(name) || known[name] || l.version == 1 && (isTable(name) || name == listedFile) {
			continue
		}
		problem(fmt.Errorf("%w: file %s is not one of those that %s lists", storage.ErrCorrupt, d.fs.PathJoin(d.path, name), checksumsFile))
	}
	return nil
}

// replaced reports whether a file of the list of a store that was not closed may be gone,
// or be of no concern any more.
func (d *directory) replaced(f *listed, current string, there bool) bool {
	if number, ok := manifestNumber(f.name); ok {
		newest, _ := manifestNumber(current)
		return newest > number || f.kind == kindSum && newest != number
	}
	return !there && mayGo(f.name)
}

// compareFile calls problem when a file is not as a list has it.
func (d *directory) compareFile(want *listed, there bool, problem func(error)) error {
	path := d.fs.PathJoin(d.path, want.name)
	if !there {
		problem(fmt.Errorf("%w: file %s is missing, which %s lists", storage.ErrCorrupt, path, checksumsFile))
		return nil
	}
	read := sumFile
	switch want.kind {
	case kindLeast:
		return nil // compareJournals
	case kindBytes:
		read = sizeFile
	}
	got, err := read(d.fs, d.path, want.name)
	switch {
	case err != nil:
		return d.report(missing(err), problem)
	case got.bytes != want.bytes:
		problem(fmt.Errorf("%w: file %s has %d bytes, %s says %d", storage.ErrCorrupt, path, got.bytes, checksumsFile, want.bytes))
	case got.sum != want.sum:
		problem(fmt.Errorf("%w: file %s has not the content that %s says", storage.ErrCorrupt, path, checksumsFile))
	}
	return nil
}

// compareJournals holds the journals of a store that was not closed to its list.
func (d *directory) compareJournals(l *fileList, extents map[string]extent, problem func(error)) {
	if l == nil || l.version == 1 && l.state == listOpen {
		d.compareUnlisted(l != nil, extents, problem)
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

// short returns the error of a journal that ends earlier than a list says.
func (d *directory) short(want *listed, got extent) error {
	return fmt.Errorf("%w: file %s ends at byte %d, %s says that it was written up to byte %d at least",
		storage.ErrCorrupt, d.fs.PathJoin(d.path, want.name), got.endBytes, checksumsFile, want.bytes)
}

func (d *directory) unended(name string, e extent) error {
	return fmt.Errorf("%w: file %s ends at byte %d without the mark of a log that was closed", storage.ErrCorrupt, d.fs.PathJoin(d.path, name), e.endBytes)
}

// logsAbove returns the logs with a number above another, and the highest number.
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

// compareUnlisted holds the logs of a store that an earlier version wrote and did not close
// to what is known without a list. Logs with a number above the current manifest's were
// made by the same process as that, one after another; so each but the newest has its end.
// Where the manifest has been renewed since, there may be others of them. Once the store
// was open, it has a log with a record.
func (d *directory) compareUnlisted(open bool, extents map[string]extent, problem func(error)) {
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
	all, _ := logsAbove(0, extents)
	switch {
	case open && len(all) == 0:
		problem(fmt.Errorf("%w: file %s is missing", storage.ErrCorrupt, d.fs.PathJoin(d.path, "*"+logSuffix)))
	case open && len(all) == 1 && extents[all[0]].endBytes == 0:
		problem(fmt.Errorf("%w: file %s holds no record", storage.ErrCorrupt, d.fs.PathJoin(d.path, all[0])))
	}
}

// verifyOpen calls problem for whatever is wrong with the manifest of an open store, or with
// a file that does not change while it is open. No erasure may be under way. The error is as
// for verify.
func (d *directory) verifyOpen(problem func(error)) error {
	for again := false; ; again = true {
		var found []error
		err := d.compareOpen(func(err error) { found = append(found, err) })
		if err == nil && len(found) > 0 && !again {
			continue // the list or the manifest may have been replaced between two reads
		}
		for _, err := range found {
			problem(err)
		}
		return err
	}
}

// compareOpen does so once.
func (d *directory) compareOpen(problem func(error)) error {
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
	extent, err := d.verifyJournal(current, manifestChunks())
	if err != nil {
		return d.report(err, problem)
	}
	for i := range l.files {
		f := &l.files[i]
		_, isManifest := manifestNumber(f.name)
		switch {
		case f.kind == kindLeast && f.name == current && extent.endBytes < f.bytes:
			problem(d.short(f, extent))
		case f.kind == kindSum && !isManifest:
			if err := d.compareFile(f, true, problem); err != nil {
				return err
			}
		}
	}
	return nil
}
