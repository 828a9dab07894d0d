package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Options configure a [Log]. Zero fields mean the default.
type Options struct {
	MaxBytes         int64            // maximum size of a file; default 16 MiB, at least 64 KiB
	Keep             int              // number of older files to keep; default 8
	RefusedPerMinute int              // rejected requests with a record of their own, with a valid token and without; default 10 each
	CheckEvery       time.Duration    // interval of checks that the file was not changed from outside; default 10 s
	Now              func() time.Time // default time.Now

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

	disk disk // nil: the operating system's
}

// Defaults of [Options].
const (
	DefaultMaxBytes         = 16 << 20
	DefaultKeep             = 8
	DefaultRefusedPerMinute = 10
	DefaultCheckEvery       = 10 * time.Second

	minMaxBytes = 64 << 10
)

func (o *Options) setDefaults() {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	o.MaxBytes = max(o.MaxBytes, minMaxBytes)
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	if o.RefusedPerMinute == 0 {
		o.RefusedPerMinute = DefaultRefusedPerMinute
	}
	if o.CheckEvery == 0 {
		o.CheckEvery = DefaultCheckEvery
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.disk == nil {
		o.disk = folder{}
	}
}

// ErrFailed means that a sync of the log has failed. What was written since the
// previous sync may be lost, and no later sync can show whether it was. The Log writes
// nothing more.
var ErrFailed = errors.New("audit: the log has failed")

// A Log is an audit log that is open for writing. It is safe for concurrent use.
type Log struct {
	path string
	opt  Options
	disk disk

	failing atomic.Bool // the last attempt to write or to check has failed

	mu     sync.Mutex // guards the following fields
	file   file       // nil: not open
	at     position   // how far this process has read or written
	opened bool       // the existing records have been read
	signed mark       // the last log.signed record of this process
	head   uint64     // the record that the head file names
	copied uint64     // the last record passed to Options.OnLine, or that existed before
	failed error

	refusals
	exports
}

// Open opens the log at path, creates it if necessary, and verifies the file in use.
// With a key it also checks that no signed record is missing. The caller must Close it.
func Open(ctx context.Context, path string, opt Options) (*Log, error) {
	opt.setDefaults()
	l := &Log{path: path, opt: opt, disk: opt.disk}
	if err := l.start(ctx); err != nil {
		return nil, errors.Join(err, l.closeLocked())
	}
	l.startRefusals()
	return l, nil
}

// Append writes r and waits until it is on stable storage. ctx bounds the wait for
// other processes. After an error it is unknown whether r was written.
func (l *Log) Append(ctx context.Context, r Record) error {
	switch r.Event {
	case LogStarted, LogRecovered, LogSigned, ExportedMore:
		return errRecord
	}
	if err := r.check(); err != nil {
		return err
	}
	return l.append(ctx, r)
}

// Failing reports whether the last attempt to write to the log or to check it has
// failed.
func (l *Log) Failing() bool { return l.failing.Load() }

// Close writes the pending counts of rejected requests and exports, and signs and
// closes the log.
func (l *Log) Close() error {
	l.stopRefusals()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = errors.Join(l.failed, os.ErrClosed)
	return l.closeLocked()
}

func (l *Log) closeLocked() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// append writes records with one sync, or one sync per file if they fill several.
func (l *Log) append(ctx context.Context, records ...Record) error {
	return l.do(ctx, func() error {
		if err := l.writeLocked(records); err != nil {
			return fmt.Errorf("write audit log: %w", err)
		}
		return nil
	})
}

// do calls work with the log locked against other writers and read to its end.
func (l *Log) do(ctx context.Context, work func() error) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return fmt.Errorf("write audit log: %w", l.failed)
	}
	defer func() {
		if err == nil || ctx.Err() == nil { // a canceled call is not a failure of the log
			l.failing.Store(err != nil)
		}
	}()
	unlock, err := l.disk.lock(ctx, l.path+".lock")
	if err != nil {
		return fmt.Errorf("lock audit log %s: %w", l.path, err)
	}
	defer unlock()
	if err := l.followLocked(); err != nil {
		return fmt.Errorf("open audit log %s: %w", l.path, err)
	}
	return work()
}

func (l *Log) older(n int) string { return olderFile(l.path, n) }

func olderFile(path string, n int) string { return path + "." + strconv.Itoa(n) }

// beginLocked atomically creates the file in use with its first record.
func (l *Log) beginLocked(before position) error {
	first := Record{Event: LogStarted, prev: &before.chain}
	line, _ := first.appendLine(nil, before.seq+1, l.opt.Now(), before.chain)
	if err := l.disk.replace(l.path, line); err != nil {
		return err
	}
	l.at = position{}
	var err error
	l.file, err = l.disk.openAppend(l.path)
	if !l.at.take(line) {
		err = errors.Join(err, ErrCorrupt)
	}
	if err == nil {
		l.copyLocked(line)
	}
	return err
}

// rotateLocked renames the file in use and creates a new one. openLocked continues after a
// crash in between, perhaps with a number missing. The next rotation fills the gap first,
// so that repeated failures drop no older file.
func (l *Log) rotateLocked() error {
	if err := l.closeLocked(); err != nil {
		return err
	}
	last := 1
	for ; last < l.opt.Keep; last++ {
		if _, err := l.disk.stat(l.older(last)); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
	}
	for n := last; n > 0; n-- {
		from := l.path
		if n > 1 {
			from = l.older(n - 1)
		}
		if err := l.disk.rename(from, l.older(n)); err != nil {
			return err
		}
	}
	if err := l.disk.syncDir(filepath.Dir(l.path)); err != nil {
		return err
	}
	return l.beginLocked(l.at)
}

// writeLocked durably appends records.
func (l *Log) writeLocked(records []Record) error {
	var text []byte
	end := l.at
	for i := range records {
		now := l.opt.Now()
		line, sum := records[i].appendLine(nil, end.seq+1, now, end.chain)
		if end.bytes+int64(len(line)) > l.opt.MaxBytes {
			if err := l.flushLocked(text, end); err != nil {
				return err
			}
			if err := l.rotateLocked(); err != nil {
				return err
			}
			text, end = nil, l.at
			line, sum = records[i].appendLine(nil, end.seq+1, now, end.chain)
		}
		text = append(text, line...)
		end.bytes += int64(len(line))
		end.last, end.prior = int64(len(line)), end.chain
		end.lines, end.seq, end.chain = end.lines+1, end.seq+1, sum
	}
	return l.flushLocked(text, end)
}

// flushLocked durably writes text, after which the file ends at end.
func (l *Log) flushLocked(text []byte, end position) error {
	if len(text) == 0 {
		return nil
	}
	if _, err := l.file.Write(text); err != nil {
		// Part of text may have been written. The next call detects and removes it.
		return errors.Join(err, l.closeLocked())
	}
	if err := l.file.Sync(); err != nil {
		l.failed = fmt.Errorf("%w: %w", ErrFailed, err)
		return errors.Join(l.failed, l.closeLocked())
	}
	l.at = end
	for line := range bytes.Lines(text) {
		l.copyLocked(line)
	}
	return nil
}

// copyLocked passes a new line of the log to Options.OnLine.
//
// Invariant: each line is passed once, in order. TestOthersRotate checks it.
func (l *Log) copyLocked(line []byte) {
	l.copied++
	if l.opt.OnLine != nil {
		l.opt.OnLine(line)
	}
}
