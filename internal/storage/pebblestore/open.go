package pebblestore

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/assign"
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
	d, err := datadir.Open(o.FS, dir, o.ReadOnly, o.Existing || o.ReadOnly)
	if err != nil {
		return nil, err
	}
	e := &engine{dir: dir, path: d.Path, files: d, options: o}
	e.alarm = &alarm{dir: dir, log: o.Log, onFatal: o.OnFatal}
	e.progress.L = &e.mu
	e.opened.add(d.Close)
	e.opened.add(d.CloseList)
	// After an error, everything opened so far is closed in reverse order.
	defer func() {
		if err != nil {
			err = errors.Join(err, e.opened.Close())
		}
	}()
	e.disk = space.NewWatch(d.FS, d.Path, o.MinFreeBytes, o.Log, func() {
		if err := d.Intact(); err != nil && !o.ReadOnly {
			e.alarm.raise(err.Error())
		}
	})
	e.disk.Start()
	e.opened.add(e.disk.Close)
	g := &segments{engine: e}
	r := &reader{segments: g}
	s := &Store{engine: e, segments: g, reader: r, removal: &removal{segments: g}, subjects: &subjects{engine: e},
		changeLog: &changeLog{reader: r}}
	known := d.IsStore()
	in, intentErr := (*purge.Intent)(nil), error(nil)
	if !o.ReadOnly {
		// Without the intent, the store must not take readings: a later start would remove them.
		if in, intentErr = purge.ReadIntent(d); intentErr != nil && !errors.Is(intentErr, storage.ErrCorrupt) {
			return nil, intentErr
		}
	}
	if err := e.openTree(o.MinFreeBytes); err != nil {
		return nil, err
	}
	if err := d.Created(); err != nil {
		return nil, err
	}
	l, err := load(e.db, o.ReadOnly, o.problem)
	if err != nil {
		return nil, err
	}
	e.gateways, e.nextGroup = l.gateways, l.nextGroup
	some := l.journal.next-l.journal.first > 1 // a store that keeps none has at most one, of a start
	l.journal.keeps = o.ChangesKeep > 0 || o.ChangesKeep < 0 && some
	if l.journal.keeps && !some && len(l.journal.starts) > 0 { // whatever was not kept is from before now
		l.clockUnixMs = max(l.clockUnixMs, time.Now().UnixMilli())
		e.openedUnixMs = l.clockUnixMs - 1
	}
	e.cursorKey = l.journal.cursorKey
	if err := e.openSigns(l); err != nil {
		return nil, err
	}
	any, err := assign.Any(e.db)
	if err != nil {
		return nil, err
	}
	e.assigned.Store(any)
	s.readings.Store(l.readings)
	if o.ReadOnly {
		e.views.publish(e.db.NewSnapshot(), viewPosition{expired: l.journal.expired}, l.window)
	} else {
		s.recovered = known && !d.WasClosed
		e.maintenance = newMaintenance()
		s.remover = s.newRemover()
		s.remover.Due = l.sweepDue
		e.settler = newSettler(e.db, l, &o)
		e.publishDeviceCount()
		e.publish()
	}
	s.scrubber = s.newScrubber()
	if !o.ReadOnly {
		e.disk.SetNeed(e.neededBytes)
		if intentErr != nil {
			e.troubles.damage(intentErr)
			o.Log.Error("an erasure is unfinished, but the name of its device cannot be read", "dir", dir, "error", intentErr)
		}
		if in != nil {
			s.remover.Resume(in)
		}
		e.mu.Lock()
		s.sealIfFull()
		e.mu.Unlock()
	}
	return s, nil
}

// openTree opens the tree in e.files, which must be locked. It adds everything that must be closed to
// e.opened, the tree last.
func (e *engine) openTree(minFreeBytes int64) (err error) {
	d, o := e.files, e.options
	o.MinFreeBytes = minFreeBytes
	e.treeAt = len(e.opened)
	p := pebbleOptions(o)
	p.Lock = d.Lock
	p.ErrorIfNotExists = d.IsStore()
	p.ErrorIfNotPristine = !d.IsStore()
	p.Logger = pebbleLogger{log: o.Log, alarm: e.alarm}
	p.CacheSize = o.CacheBytes

	events := &pebble.EventListener{}
	timed, health := vfs.WithDiskHealthChecks(vfs.OnDiskFull(d.FS, e.disk.NoSpace), diskSlowAfter, nil,
		func(info vfs.DiskSlowInfo) { events.DiskSlow(info) })
	e.opened.add(health.Close)
	files := d.Watch(timed, e.alarm)
	p.FS = files

	background := &backgroundErrors{log: o.Log, alarm: e.alarm, troubles: &e.troubles}
	background.opening.Store(true)
	defer background.opening.Store(false)
	*events = eventListener(o.Log, e.alarm, background, &e.dead)
	p.EventListener = events

	if d.IsStore() {
		if err := verifyFiles(d, o); err != nil {
			return err
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
	e.alarm.creating.Store(!d.IsStore())
	defer e.alarm.creating.Store(false)
	db, err := pebble.Open(d.Path, p)
	files.Opened()
	if failure := e.alarm.reportedErr(); failure != nil {
		if err == nil {
			failure = errors.Join(failure, db.Close())
		}
		return failure
	}
	if err != nil {
		if d.IsStore() {
			err = d.OpenError(err)
		}
		return err
	}
	e.db = db
	e.opened.add(func() error {
		err := db.Close()
		d.Clean = d.Clean && err == nil
		return err
	})
	return nil
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

// closers has functions that close something, to be called in reverse order.
type closers []func() error

func (cs *closers) add(c func() error) { *cs = append(*cs, c) }

func (cs *closers) Close() error {
	var errs []error
	for _, c := range slices.Backward(*cs) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}
