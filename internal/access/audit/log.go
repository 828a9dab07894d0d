package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options configure a [Log]. Zero fields mean the default.
type Options struct {
	MaxBytes   int64            // maximum size of a file; default 16 MiB, at least 64 KiB
	Keep       int              // number of older files to keep; default 8
	CheckEvery time.Duration    // interval of checks that the file was not changed from outside; default 10 s
	Now        func() time.Time // default time.Now

	// Key signs the log when it is opened and closed, and in every minute in which
	// something was written. If nil, the log is not signed.
	Key *Key

	// OnLine, if not nil, is called in order with each line that any process adds to
	// the log while it is open. The line ends with a newline and is valid only during
	// the call, which must not block.
	OnLine func(line []byte)

	// OnTrouble, if not nil, is called when background work of the Log begins to fail, or
	// fails for another reason: rejected requests cannot be recorded, the file was
	// changed from outside, or it cannot be signed. A nil error means that the work
	// succeeds again. It is called from the Log's goroutine.
	OnTrouble func(error)

	disk disk // nil means the operating system's
}

// Defaults of [Options].
const (
	DefaultMaxBytes   = 16 << 20
	DefaultKeep       = 8
	DefaultCheckEvery = 10 * time.Second

	minMaxBytes = 64 << 10
)

func (o *Options) setDefaults() {
	o.MaxBytes = max(cmp.Or(o.MaxBytes, DefaultMaxBytes), minMaxBytes)
	o.Keep = cmp.Or(o.Keep, DefaultKeep)
	o.CheckEvery = cmp.Or(o.CheckEvery, DefaultCheckEvery)
	o.disk = cmp.Or[disk](o.disk, folder{})
	if o.Now == nil {
		o.Now = time.Now
	}
}

// ErrFailed means that a sync of the log has failed. What was written since the
// previous sync may be lost, and no later sync can show whether it was. The Log writes
// nothing more.
var ErrFailed = errors.New("the audit log has failed")

// A Log is an audit log that is open for writing. It is safe for concurrent use.
type Log struct {
	opt     Options
	failing atomic.Bool // the last attempt to write or to check has failed

	mu      sync.Mutex // guards the following three fields
	journal journal
	signed  mark   // the last log.signed record of this process
	head    uint64 // the record that the head file names

	refusals refusals
	exports  exports

	stop sync.Once
	quit chan struct{}
	done sync.WaitGroup
}

// Open opens the log at path, creates it if necessary, and verifies the file in use.
// With a key it also checks that no signed record is missing. The caller must Close it.
func Open(ctx context.Context, path string, opt Options) (*Log, error) {
	opt.setDefaults()
	l := &Log{
		opt: opt, quit: make(chan struct{}), refusals: refusals{queue: make(chan Refusal, 2*refusedPerMinute)},
		exports: exports{byExporter: map[exporter]*exporting{}, allowances: map[exporter]*allowance{}},
	}
	l.journal = journal{path: path, opt: &l.opt}
	if opt.Key != nil {
		known, err := opt.Key.known(path)
		if err != nil {
			return nil, err
		}
		l.journal.at.mark = known
	}
	err := l.do(ctx, func() error {
		l.journal.opened = true
		return l.signLocked()
	})
	if err != nil {
		return nil, errors.Join(err, l.journal.close())
	}
	l.refusals.refill()
	l.done.Go(l.run)
	return l, nil
}

// Append writes records with one sync, and waits until they are on stable storage. ctx bounds the wait for
// other processes. After an error it is unknown whether they were written.
func (l *Log) Append(ctx context.Context, records ...Record) error {
	for i := range records {
		switch records[i].Event {
		case LogStarted, LogRecovered, LogSigned, ExportedMore:
			return errRecord
		}
		if err := records[i].check(); err != nil {
			return err
		}
	}
	return l.append(ctx, records...)
}

// Failing reports whether the last attempt to write to the log or to check it has
// failed.
func (l *Log) Failing() bool { return l.failing.Load() }

// Close writes the pending counts of rejected requests and exports, and signs and
// closes the log.
func (l *Log) Close() error {
	l.stop.Do(func() { close(l.quit) })
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.journal.failed = errors.Join(l.journal.failed, os.ErrClosed)
	return l.journal.close()
}

// append writes records with one sync, or one sync per file if they fill several.
func (l *Log) append(ctx context.Context, records ...Record) error {
	return l.do(ctx, func() error {
		if err := l.journal.write(records); err != nil {
			return fmt.Errorf("write audit log: %w", err)
		}
		return nil
	})
}

// do calls work with the log locked against other writers and read to its end.
func (l *Log) do(ctx context.Context, work func() error) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.journal.failed != nil {
		return fmt.Errorf("write audit log: %w", l.journal.failed)
	}
	defer func() {
		if err == nil || ctx.Err() == nil { // a canceled call is not a failure of the log
			l.failing.Store(err != nil)
		}
	}()
	unlock, err := l.opt.disk.lock(ctx, l.journal.path+".lock")
	if err != nil {
		return fmt.Errorf("lock audit log %s: %w", l.journal.path, err)
	}
	defer unlock()
	if err := l.journal.follow(); err != nil {
		return fmt.Errorf("open audit log %s: %w", l.journal.path, err)
	}
	return work()
}

// appendTimeout bounds how long the Log's goroutine waits for other processes.
const appendTimeout = 10 * time.Second

// run writes refusals, checks the log and signs it, until the log is closed.
func (l *Log) run() {
	minute, check := time.Tick(time.Minute), time.Tick(l.opt.CheckEvery)
	trouble := ""
	for {
		var err error
		select {
		case <-l.quit:
			l.report(&trouble,
				l.write(slices.Concat(l.refusals.queued(nil), l.refusals.counted(), l.exports.counted(l.opt.Now(), true))))
			l.report(&trouble, l.maintain(true))
			return
		case r := <-l.refusals.queue:
			err = l.write(l.refusals.queued([]Record{r.record()}))
		case <-minute:
			if err = l.write(slices.Concat(l.refusals.counted(), l.exports.counted(l.opt.Now(), false))); err == nil {
				err = l.maintain(true)
			}
			l.refusals.refill()
		case <-check:
			err = l.maintain(false)
		}
		l.report(&trouble, err)
	}
}

// report calls OnTrouble with err, unless the last call had the same text.
func (l *Log) report(last *string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == *last {
		return
	}
	*last = text
	if l.opt.OnTrouble != nil {
		l.opt.OnTrouble(err)
	}
}

// write writes records of events that have already happened.
func (l *Log) write(records []Record) error {
	if len(records) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	err := l.append(ctx, records...)
	if err != nil { // the next minute's records count them
		for i := range records {
			l.refusals.putBack(&records[i])
			if records[i].Event == ExportedMore {
				l.exports.countMore(records[i].exporter(), records[i].Count)
			}
		}
	}
	return err
}

// maintain checks that the file was not changed from outside, and signs the log if sign
// is set.
func (l *Log) maintain(sign bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	return l.do(ctx, func() error {
		if !sign {
			return nil
		}
		return l.signLocked()
	})
}
