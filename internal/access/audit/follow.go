package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

// start reads a new Log to its end and signs it.
func (l *Log) start(ctx context.Context) error {
	if l.opt.Key != nil {
		known, err := l.opt.Key.known(l.path)
		if err != nil {
			return err
		}
		l.at.mark = known
	}
	return l.do(ctx, func() error {
		l.opened = true
		return l.signLocked()
	})
}

// followLocked advances l to the end of the log, where other processes may have
// written, and removes a record that a crash has cut off.
//
// Invariant: the log contains the last record that l has read or written. If not, the
// file was removed or replaced. TestChangedWhileOpen checks it.
func (l *Log) followLocked() error {
	if l.file != nil {
		have, err := l.file.Stat()
		if err != nil {
			return err
		}
		named, err := l.disk.stat(l.path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err != nil || !os.SameFile(have, named) { // another process has rotated the log, or the file was removed
			if err := l.closeLocked(); err != nil {
				return err
			}
		}
	}
	if l.file == nil {
		return l.openLocked()
	}
	if err := l.checkLastLocked(); err != nil {
		return err
	}
	return l.readOnLocked(l.at.mark)
}

// checkLastLocked checks that the last record is still in its place.
func (l *Log) checkLastLocked() error {
	line := make([]byte, l.at.last)
	if _, err := l.file.ReadAt(line, l.at.bytes-l.at.last); err != nil && err != io.EOF {
		return err
	}
	if head, _, sum, ok := cutLine(line); !ok || sum != l.at.chain || l.at.prior.next(head) != sum {
		return l.at.gone()
	}
	return nil
}

// readOnLocked reads the file in use from l.at to its end, which must include the record
// known.
func (l *Log) readOnLocked(known mark) error {
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	before := l.at
	torn, err := l.at.scan(io.NewSectionReader(l.file, l.at.bytes, info.Size()-l.at.bytes), l.onLine(known))
	if err == nil && l.at.seq < known.seq {
		err = known.gone()
	}
	if err != nil {
		l.at = before // the next call reads again
		return err
	}
	if torn == 0 {
		return nil
	}
	if err := l.file.Truncate(l.at.bytes); err != nil {
		return err
	}
	return l.writeLocked([]Record{{Event: LogRecovered, Count: torn}})
}

// onLine returns the function that is called for each line read. It compares the record
// known, and passes new lines to Options.OnLine.
func (l *Log) onLine(known mark) func(_, _ mark, _ []byte) error {
	return func(_, m mark, line []byte) error {
		switch {
		case m.seq == known.seq && m.chain != known.chain:
			return known.gone()
		case !l.opened:
			l.copied = m.seq
		case m.seq == l.copied+1:
			l.copyLocked(line)
		}
		return nil
	}
}

// openLocked opens the file in use and reads it to its end. If it does not contain the
// last known record, older files are read first. If it is missing, because the log is
// new or because of a crash during rotation, openLocked creates it.
func (l *Log) openLocked() error {
	known := l.at.mark
	files, inUse, err := l.olderLocked(known)
	if err != nil {
		return err
	}
	var end position
	for i, path := range files {
		if end, err = l.readOlder(path, end, i > 0, known); err != nil {
			return err
		}
	}
	if !inUse {
		if end.seq < known.seq {
			return known.gone()
		}
		return l.beginLocked(end)
	}
	before, err := l.beforeFirst(l.path)
	if err != nil {
		return err
	}
	if len(files) > 0 && before != end.mark {
		return fmt.Errorf("%w: %s does not follow %s", ErrCorrupt, l.path, files[len(files)-1])
	}
	if l.file, err = l.disk.openAppend(l.path); err != nil {
		return err
	}
	l.at = position{}
	if err := l.readOnLocked(known); err != nil {
		l.at.mark = known
		return errors.Join(err, l.closeLocked())
	}
	return nil
}

// olderLocked returns the older files to read, oldest first, and whether there is a
// file in use.
func (l *Log) olderLocked(known mark) (files []string, inUse bool, err error) {
	before := mark{seq: math.MaxUint64} // of the first record to read
	info, err := l.disk.stat(l.path)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, false, err
	case err == nil && info.Size() > 0:
		inUse = true
		if before, err = l.beforeFirst(l.path); err != nil {
			return nil, false, err
		}
	}
	for n := 1; n <= l.opt.Keep && before.seq >= known.seq && before != known; n++ {
		if known.seq == 0 && (inUse || n > 1) {
			break // no record is known: the newest file is enough
		}
		older, err := l.beforeFirst(l.older(n))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		before, files = older, append(files, l.older(n))
	}
	if known.seq > 0 && before.seq >= known.seq && before != known {
		return nil, false, known.gone()
	}
	slices.Reverse(files)
	return files, inUse, nil
}

// readOlder reads an older file. If follows is set, it must follow the file that ends
// at before.
func (l *Log) readOlder(path string, before position, follows bool, known mark) (p position, err error) {
	r, err := l.disk.open(path)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	torn, err := p.scan(r, l.onLine(known))
	switch {
	case err != nil:
		return p, err
	case torn > 0, follows && (p.seq-p.lines != before.seq || p.prev != before.chain):
		return p, fmt.Errorf("%w: %s is incomplete or does not follow the file before it", ErrCorrupt, path)
	}
	return p, nil
}

// beforeFirst reads the first record of a file, and returns the mark of the one before it.
func (l *Log) beforeFirst(path string) (m mark, err error) {
	r, err := l.disk.open(path)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	line, err := bufio.NewReaderSize(r, maxLineBytes).ReadSlice('\n')
	if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
		return m, err
	}
	var p position
	if !p.take(bytes.Clone(line)) {
		return m, fmt.Errorf("%w: line 1", ErrCorrupt)
	}
	return mark{p.seq - 1, p.prev}, nil
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
