package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// Options are those of a [Log]. Zero fields take the default.
type Options struct {
	MaxBytes         int64            // of a file; default 16 MiB, at least 64 KiB
	Keep             int              // older files beside the one in use; default 8
	RefusedPerMinute int              // refused requests with a record of their own; default 10
	Now              func() time.Time // default time.Now

	// Failed is told when refused requests could not be recorded. It is called
	// from the Log's goroutine. May be nil.
	Failed func(error)
}

// Defaults of [Options].
const (
	DefaultMaxBytes         = 16 << 20
	DefaultKeep             = 8
	DefaultRefusedPerMinute = 10

	leastMaxBytes = 64 << 10
)

// ErrFailed means that a sync of the log failed. What was written since the sync
// before it may be lost, and no later sync can tell; the Log writes nothing more.
var ErrFailed = errors.New("audit: the log has failed")

// A Log is an audit log that is open for writing. Its methods may be called from
// many goroutines.
type Log struct {
	path string
	opt  Options

	mu     sync.Mutex // guards what follows
	file   *os.File   // nil: to be opened
	at     position   // the end of what this process has read or written
	failed error

	refusals
}

// Open opens the log at path, which is made where it is missing, and checks the
// file in use from its beginning. The caller must Close it.
func Open(ctx context.Context, path string, opt Options) (*Log, error) {
	if opt.MaxBytes == 0 {
		opt.MaxBytes = DefaultMaxBytes
	}
	opt.MaxBytes = max(opt.MaxBytes, leastMaxBytes)
	if opt.Keep == 0 {
		opt.Keep = DefaultKeep
	}
	if opt.RefusedPerMinute == 0 {
		opt.RefusedPerMinute = DefaultRefusedPerMinute
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	l := &Log{path: path, opt: opt}
	if err := l.append(ctx); err != nil {
		return nil, err
	}
	l.startRefusals()
	return l, nil
}

// Append writes r and waits until it is on stable storage. ctx bounds the wait for
// other processes. After an error r may have been written or not.
func (l *Log) Append(ctx context.Context, r Record) error {
	if r.Event == LogStarted || r.Event == LogRecovered {
		return errRecord
	}
	if err := r.check(); err != nil {
		return err
	}
	return l.append(ctx, r)
}

// Close writes what is known of refused requests and closes the log.
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

// append writes records with one sync, or one for each file that they fill.
func (l *Log) append(ctx context.Context, records ...Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return fmt.Errorf("write audit log: %w", l.failed)
	}
	unlock, err := sharedfile.Lock(ctx, l.path+".lock")
	if err != nil {
		return fmt.Errorf("lock audit log %s: %w", l.path, err)
	}
	defer unlock()
	if err := l.followLocked(); err != nil {
		return fmt.Errorf("open audit log %s: %w", l.path, err)
	}
	if err := l.writeLocked(records); err != nil {
		return fmt.Errorf("write audit log: %w", err)
	}
	return nil
}

// followLocked brings l to the end of the log, which other processes may have
// moved, and cuts off what a crash has left there.
func (l *Log) followLocked() error {
	if l.file != nil {
		have, err := l.file.Stat()
		if err != nil {
			return err
		}
		named, err := os.Stat(l.path)
		if err != nil || !os.SameFile(have, named) { // another process has begun a new file
			if err := l.closeLocked(); err != nil {
				return err
			}
		}
	}
	if l.file == nil {
		if err := l.openLocked(); err != nil {
			return err
		}
	}
	info, err := l.file.Stat()
	switch {
	case err != nil:
		return err
	case info.Size() == l.at.bytes:
		return nil
	case info.Size() < l.at.bytes:
		return fmt.Errorf("%w: it is shorter than it was", ErrCorrupt)
	}
	torn, err := l.at.scan(io.NewSectionReader(l.file, l.at.bytes, info.Size()-l.at.bytes))
	if err != nil || torn == 0 {
		return err
	}
	if err := l.file.Truncate(l.at.bytes); err != nil {
		return err
	}
	return l.writeLocked([]Record{{Event: LogRecovered, Count: torn}})
}

// openLocked opens the file in use, and begins it where it is missing: at the
// very first, or when a crash came right after the one before it was put away.
func (l *Log) openLocked() error {
	info, err := os.Stat(l.path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		var before position
		older, err := os.Open(l.older(1))
		if err == nil {
			_, err = before.scan(older)
			err = errors.Join(err, older.Close())
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return l.beginLocked(before)
	}
	if err != nil {
		return err
	}
	l.at = position{}
	l.file, err = sharedfile.OpenAppend(l.path)
	return err
}

func (l *Log) older(n int) string { return l.path + "." + strconv.Itoa(n) }

// beginLocked begins a file with its first record, whole or not at all.
func (l *Log) beginLocked(before position) error {
	first := Record{Event: LogStarted, prev: &before.chain}
	line, _ := first.appendLine(nil, before.seq+1, l.opt.Now(), before.chain)
	if err := sharedfile.Replace(l.path, line); err != nil {
		return err
	}
	l.at = position{}
	var err error
	l.file, err = sharedfile.OpenAppend(l.path)
	if err == nil && !l.at.take(line) {
		err = ErrCorrupt
	}
	return err
}

// rotateLocked puts the file in use away and begins a new one. A crash in between
// leaves a log that openLocked goes on with.
func (l *Log) rotateLocked() error {
	if err := l.closeLocked(); err != nil {
		return err
	}
	for n := l.opt.Keep; n > 0; n-- {
		from := l.path
		if n > 1 {
			from = l.older(n - 1)
		}
		if err := os.Rename(from, l.older(n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := sharedfile.SyncDir(filepath.Dir(l.path)); err != nil {
		return err
	}
	return l.beginLocked(l.at)
}

// writeLocked writes records at the end, durably.
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
		end.lines, end.seq, end.chain = end.lines+1, end.seq+1, sum
	}
	return l.flushLocked(text, end)
}

// flushLocked writes text, after which the file ends at end.
func (l *Log) flushLocked(text []byte, end position) error {
	if len(text) == 0 {
		return nil
	}
	if _, err := l.file.Write(text); err != nil {
		// Part of it may be there. The next call looks, and cuts it off.
		return errors.Join(err, l.closeLocked())
	}
	if err := l.file.Sync(); err != nil {
		l.failed = fmt.Errorf("%w: %w", ErrFailed, err)
		return errors.Join(l.failed, l.closeLocked())
	}
	l.at = end
	return nil
}

// refusals are what a Log knows of refused requests.
type refusals struct {
	queue chan Refusal
	room  atomic.Int64              // records left in this minute
	more  [numReasons]atomic.Uint64 // refused without a record of their own
	quit  chan struct{}
	stop  sync.Once
	done  sync.WaitGroup
}
