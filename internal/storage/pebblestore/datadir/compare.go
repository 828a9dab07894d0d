package datadir

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir/wal"
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
// comment of package pebblestore lists other cases. TestDamage checks them.

// Verify compares the directory with its list and calls problem for each problem. It returns
// the list, or nil if there is none, and the error of a file that cannot be read for another
// reason than damage.
func (d *Dir) Verify(problem func(error)) (*List, error) {
	return (&comparison{d, problem}).run()
}

// A comparison compares a directory with its list.
type comparison struct {
	*Dir
	problem func(error) // called for each problem
}

func (c *comparison) run() (*List, error) {
	l, err := readList(c.FS, c.Path)
	if err != nil {
		return nil, c.report(err)
	}
	names, err := c.FS.List(c.Path)
	if err != nil {
		return nil, err
	}
	if l == nil && slices.Contains(names, ListedFile) {
		c.problem(c.unlisted())
	}
	if l != nil {
		if err := c.compare(l, names); err != nil {
			return l, err
		}
	}
	extents, err := c.verifyJournals()
	if err != nil {
		return l, c.report(err)
	}
	if l != nil {
		c.compareJournals(l, extents)
	}
	return l, nil
}

// unlisted returns the error of a directory whose list is missing.
func (c *comparison) unlisted() error {
	return fmt.Errorf("%w: file %s is missing", storage.ErrCorrupt, c.File(ChecksumsFile))
}

// report reports damage, and returns any other error.
func (c *comparison) report(err error) error {
	if !errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	c.problem(err)
	return nil
}

// VerifyAll is like Verify, but returns the first problems as one joined error.
func (d *Dir) VerifyAll() (*List, error) {
	var problems []error
	more := 0
	l, err := d.Verify(func(problem error) {
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
func (c *comparison) compare(l *List, names []string) error {
	there := map[string]bool{}
	for _, name := range names {
		there[name] = true
	}
	current := ""
	if !l.State.Complete() {
		var err error
		if current, err = CurrentManifest(c.FS, c.Path); err != nil {
			return c.report(err)
		}
	}
	known := map[string]bool{}
	for i := range l.Files {
		want := &l.Files[i]
		known[want.Name] = true
		if l.State == ListOpen && olderManifest(current, want.Name) {
			c.problem(fmt.Errorf("%w: file %s* names %s, %s lists %s", storage.ErrCorrupt, c.File(manifestMarkerPrefix), current,
				ChecksumsFile, want.Name))
			continue
		}
		if !l.State.Complete() && c.replaced(want, current, there[want.Name]) {
			continue
		}
		if err := c.compareFile(want, there[want.Name]); err != nil {
			return err
		}
	}
	if !l.State.Complete() {
		return nil
	}
	for _, name := range names {
		if !IsStoreFile(name) || known[name] {
			continue
		}
		c.problem(fmt.Errorf("%w: file %s is not listed in %s", storage.ErrCorrupt, c.File(name), ChecksumsFile))
	}
	return nil
}

// olderManifest reports whether current is a manifest that is older than the listed one.
func olderManifest(current, listed string) bool {
	number, ok := wal.ManifestNumber(listed)
	newest, _ := wal.ManifestNumber(current)
	return ok && newest < number
}

// replaced reports whether a file in the list of a store that was not closed may have been
// removed, or is no longer used.
func (c *comparison) replaced(f *Line, current string, there bool) bool {
	if number, ok := wal.ManifestNumber(f.Name); ok {
		newest, _ := wal.ManifestNumber(current)
		return newest > number || f.kind == kindSum && newest != number
	}
	return !there && mayBeRemoved(f.Name)
}

// compareFile calls problem if a file differs from its line in the list.
func (c *comparison) compareFile(want *Line, there bool) error {
	path := c.File(want.Name)
	if !there {
		c.problem(fmt.Errorf("%w: file %s is listed in %s but missing", storage.ErrCorrupt, path, ChecksumsFile))
		return nil
	}
	read := sumFile
	switch want.kind {
	case kindLeast:
		return nil // see compareJournals
	case kindBytes:
		read = sizeFile
	}
	got, err := read(c.FS, c.Path, want.Name)
	switch {
	case err != nil:
		return c.report(damage.Missing(err))
	case got.Bytes != want.Bytes:
		c.problem(fmt.Errorf("%w: file %s has %d bytes, but %d in %s", storage.ErrCorrupt, path, got.Bytes, want.Bytes,
			ChecksumsFile))
	case got.sum != want.sum:
		c.problem(fmt.Errorf("%w: file %s does not match its checksum in %s", storage.ErrCorrupt, path, ChecksumsFile))
	}
	return nil
}

// compareJournals compares the journals of a store that was not closed with its list.
func (c *comparison) compareJournals(l *List, extents map[string]wal.Extent) {
	newest := uint64(0)
	for name := range extents {
		number, _ := wal.LogNumber(name)
		newest = max(newest, number)
	}
	for _, want := range l.Files {
		got, there := extents[want.Name]
		number, isLog := wal.LogNumber(want.Name)
		switch {
		case want.kind != kindLeast || !there: // a manifest that is not the current one
		case got.EndBytes < want.Bytes:
			c.problem(c.short(&want, got))
		case isLog && number < newest && !got.Ended:
			c.problem(fmt.Errorf("%w: file %s ends at byte %d without the end mark of a closed log", storage.ErrCorrupt,
				c.File(want.Name), got.EndBytes))
		}
	}
}

// short returns the error of a journal that is shorter than its line in the list.
func (c *comparison) short(want *Line, got wal.Extent) error {
	return fmt.Errorf("%w: file %s ends at byte %d, but has at least %d bytes in %s",
		storage.ErrCorrupt, c.File(want.Name), got.EndBytes, want.Bytes, ChecksumsFile)
}

// VerifyOpen calls problem for each problem with the manifest of an open store, or with a
// file that does not change while the store is open. No erasure may be running. The error is
// as for Verify. pace returns what is called before each read of the manifest, see verifyJournal.
func (d *Dir) VerifyOpen(problem func(error), pace func(path string) (before func(n int64) error)) error {
	for again := false; ; again = true {
		var found []error
		c := &comparison{d, func(err error) { found = append(found, err) }}
		err := c.compareOpen(pace)
		if err == nil && len(found) > 0 && !again {
			continue // the list or the manifest may have been replaced during the comparison
		}
		for _, err := range found {
			problem(err)
		}
		return err
	}
}

// compareOpen is like VerifyOpen, but may report problems that only result from a
// concurrent change.
func (c *comparison) compareOpen(pace func(path string) (before func(n int64) error)) error {
	l, err := readList(c.FS, c.Path)
	if err != nil {
		return c.report(err)
	}
	if l == nil {
		c.problem(c.unlisted())
		return nil
	}
	current, err := CurrentManifest(c.FS, c.Path)
	if err != nil {
		return c.report(err)
	}
	extent, err := c.verifyJournal(current, wal.Manifest(), pace(c.File(current)))
	if err != nil {
		return c.report(err)
	}
	for i := range l.Files {
		f := &l.Files[i]
		_, isManifest := wal.ManifestNumber(f.Name)
		switch {
		case f.kind == kindLeast && f.Name == current && extent.EndBytes < f.Bytes:
			c.problem(c.short(f, extent))
		case f.kind == kindSum && !isManifest:
			if err := c.compareFile(f, true); err != nil {
				return err
			}
		}
	}
	return nil
}
