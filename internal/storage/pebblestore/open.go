package pebblestore

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/space"
)

// Open opens the store in dir and creates it if dir is empty or missing.
//
// The error wraps storage.ErrLocked if another process has the store open,
// storage.ErrFormat if dir holds other files or a later version, or if a copy to dir is
// unfinished, ErrBackup if it is a backup, storage.ErrCorrupt if files are damaged or
// missing, and storage.ErrDiskLow if there is not enough space to replay the log. In all
// these cases no reading was changed.
func Open(dir string, o Options) (*Store, error) {
	o = o.withDefaults()
	s, err := open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	return s, nil
}

// diskSlowAfter is the duration after which an operation on a file is logged as slow.
const diskSlowAfter = 5 * time.Second

func open(dir string, o Options) (_ *Store, err error) {
	// After an error, everything opened so far is closed in reverse order.
	var opened closers
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.Close())
		}
	}()
	if err := o.validate(); err != nil {
		return nil, err
	}
	d, err := datadir.Open(o.FS, dir, o.ReadOnly, o.Existing || o.ReadOnly)
	if err != nil {
		return nil, err
	}
	opened.add(d)
	opened.add(closerFunc(d.CloseList))

	s := &Store{
		dir:      dir,
		path:     d.Path,
		files:    d,
		options:  o,
		readOnly: o.ReadOnly,
		alarm:    &alarm{dir: dir, log: o.Log, onFatal: o.OnFatal},
	}
	s.disk = space.NewWatch(d.FS, d.Path, o.MinFreeBytes, o.Log, func() {
		if err := d.Intact(); err != nil && !o.ReadOnly {
			s.alarm.raise(err.Error())
		}
	})
	s.disk.Start()
	opened.add(s.disk)
	known := d.IsStore()
	in, intentErr := (*purge.Intent)(nil), error(nil)
	if !o.ReadOnly {
		// Without the intent, the store must not take readings: a later start would remove them.
		if in, intentErr = purge.ReadIntent(d); intentErr != nil && !errors.Is(intentErr, storage.ErrCorrupt) {
			return nil, intentErr
		}
	}
	s.treeAt = len(opened)
	if s.db, err = openPebble(d, o, s.alarm, s.disk, &s.troubles, &opened); err != nil {
		return nil, err
	}
	if err := d.Created(); err != nil {
		return nil, err
	}
	l, err := load(s.db, o.ReadOnly, o.problem)
	if err != nil {
		return nil, err
	}
	s.gateways, s.nextGroup = l.gateways, l.nextGroup
	s.readings.Store(l.readings)
	s.progress.L = &s.mu
	if o.ReadOnly {
		s.views.publish(s.db.NewSnapshot(), l.window)
	} else {
		s.recovered = known && !d.WasClosed
		s.maintenance = newMaintenance()
		s.remover = s.newRemover()
		s.remover.Due = l.sweepDue
		s.settler = newSettler(s.db, l.table, l.gateways, l.window, &o)
		s.publishDeviceCount()
		s.publish()
	}
	s.scrubber = s.newScrubber()
	s.opened = opened
	if !o.ReadOnly {
		s.disk.SetNeed(s.neededBytes)
		if intentErr != nil {
			s.troubles.damage(intentErr)
			o.Log.Error("an erasure is unfinished, but the name of its device cannot be read", "dir", dir, "error", intentErr)
		}
		if in != nil {
			s.remover.Resume(in)
		}
		s.mu.Lock()
		s.sealIfFull()
		s.mu.Unlock()
	}
	return s, nil
}

// openPebble opens the tree in d. It adds everything that must be closed to opened, the
// tree last.
func openPebble(d *datadir.Dir, o Options, a *alarm, disk *space.Watch, tr *troubles, opened *closers) (_ *pebble.DB, err error) {
	p := pebbleOptions(o)
	p.Lock = d.Lock
	p.ErrorIfNotExists = d.IsStore()
	p.ErrorIfNotPristine = !d.IsStore()
	p.Logger = pebbleLogger{log: o.Log, alarm: a}
	p.CacheSize = o.CacheBytes

	events := &pebble.EventListener{}
	timed, health := vfs.WithDiskHealthChecks(vfs.OnDiskFull(d.FS, disk.NoSpace), diskSlowAfter, nil,
		func(info vfs.DiskSlowInfo) { events.DiskSlow(info) })
	opened.add(health)
	files := d.Watch(timed, a)
	p.FS = files

	background := &backgroundErrors{log: o.Log, alarm: a, troubles: tr}
	background.opening.Store(true)
	defer background.opening.Store(false)
	*events = eventListener(o.Log, a, background)
	p.EventListener = events

	if d.IsStore() {
		if err := verifyFiles(d, o); err != nil {
			return nil, err
		}
	}
	// Pebble's Open panics on some kinds of damage.
	defer func() {
		switch p := recover().(type) {
		case nil:
		case error:
			err = d.OpenError(p)
		default:
			err = fmt.Errorf("%w: %v", storage.ErrCorrupt, p)
		}
	}()
	a.creating.Store(!d.IsStore())
	defer a.creating.Store(false)
	db, err := pebble.Open(d.Path, p)
	files.Opened()
	if failure := a.reportedErr(); failure != nil {
		if err == nil {
			failure = joinClose(failure, db)
		}
		return nil, failure
	}
	if err != nil {
		if d.IsStore() {
			err = d.OpenError(err)
		}
		return nil, err
	}
	opened.add(treeCloser{db, d})
	return db, nil
}

// verifyFiles verifies the files of a store, and prepares its opening.
func verifyFiles(d *datadir.Dir, o Options) error {
	verify := (*datadir.Dir).VerifyAll
	if o.inspect != nil {
		verify = o.inspect
	}
	l, err := verify(d)
	if err != nil || o.ReadOnly {
		return err
	}
	if l != nil && l.State == datadir.ListBackup {
		return fmt.Errorf("%w; \"pulsegate restore\" makes a store from it", ErrBackup)
	}
	return d.Prepare(l, o.MinFreeBytes)
}

// closers is a list of closers, to be closed in reverse order.
type closers []io.Closer

func (cs *closers) add(c io.Closer) { *cs = append(*cs, c) }

func (cs *closers) Close() error {
	var errs []error
	for i := len(*cs) - 1; i >= 0; i-- {
		errs = append(errs, (*cs)[i].Close())
	}
	return errors.Join(errs...)
}

// A closerFunc is a function that closes something.
type closerFunc func() error

func (c closerFunc) Close() error { return c() }

// A treeCloser closes the tree, and clears Dir.Clean if that fails.
type treeCloser struct {
	*pebble.DB
	dir *datadir.Dir
}

func (c treeCloser) Close() error {
	err := c.DB.Close()
	c.dir.Clean = c.dir.Clean && err == nil
	return err
}
