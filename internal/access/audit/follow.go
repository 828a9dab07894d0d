package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// start brings a new Log to the end of what is there, and signs it.
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

// followLocked brings l to the end of the log, which other processes may have moved,
// and cuts off what a crash has left there.
//
// Invariant: the log holds the record that l has read or written last. Where it does
// not, somebody has removed the file, or has put another one in its place.
// TestChangedWhileOpen checks it.
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
		if err != nil || !os.SameFile(have, named) { // another process has begun a new file, or nobody has
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

// checkLastLocked looks for the last record where it was.
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

// readOnLocked reads the file in use from l.at to its end. The record that is known must
// be there.
func (l *Log) readOnLocked(known mark) error {
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	before := l.at
	torn, err := l.at.scan(io.NewSectionReader(l.file, l.at.bytes, info.Size()-l.at.bytes), l.met(known))
	if err == nil && l.at.seq < known.seq {
		err = known.gone()
	}
	if err != nil {
		l.at = before // the next call looks again
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

// met returns a function for each line that is read. It compares the record that is
// known, and passes new lines to Options.Copy.
func (l *Log) met(known mark) func(_, _ mark, _ []byte) error {
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

// openLocked opens the file in use and reads it to its end. Where it does not hold what
// is known, the older files are read first. Where it is missing it is begun: at the very
// first, or when a crash came right after the one before it was put away.
func (l *Log) openLocked() error {
	known := l.at.mark
	row, inUse, err := l.rowLocked(known)
	if err != nil {
		return err
	}
	var end position
	for i, path := range row {
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
	first, err := l.firstOf(l.path)
	if err != nil {
		return err
	}
	if len(row) > 0 && first.before() != end.mark {
		return fmt.Errorf("%w: %s does not follow %s", ErrCorrupt, l.path, row[len(row)-1])
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

// rowLocked returns the older files that are to be read, oldest first, and whether
// there is a file in use.
func (l *Log) rowLocked(known mark) (row []string, inUse bool, err error) {
	first := beginning{seq: ^uint64(0)}
	info, err := l.disk.stat(l.path)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, false, err
	case err == nil && info.Size() > 0:
		inUse = true
		if first, err = l.firstOf(l.path); err != nil {
			return nil, false, err
		}
	}
	for n := 1; n <= l.opt.Keep && first.seq > known.seq && first.before() != known; n++ {
		if known.seq == 0 && (inUse || n > 1) {
			break // nothing is known: the end is enough
		}
		older, err := l.firstOf(l.older(n))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		first, row = older, append(row, l.older(n))
	}
	if known.seq > 0 && first.seq > known.seq && first.before() != known {
		return nil, false, known.gone()
	}
	slices.Reverse(row)
	return row, inUse, nil
}

// readOlder reads an older file, which follows what ends with before if follows is set.
func (l *Log) readOlder(path string, before position, follows bool, known mark) (p position, err error) {
	r, err := l.disk.open(path)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	torn, err := p.scan(r, l.met(known))
	switch {
	case err != nil:
		return p, err
	case torn > 0, follows && (p.seq-p.lines != before.seq || p.prev != before.chain):
		return p, fmt.Errorf("%w: %s is not whole, or does not follow the one before it", ErrCorrupt, path)
	}
	return p, nil
}

// A beginning is the first record of a file.
type beginning struct {
	seq  uint64
	prev chain
}

// before returns the mark of the record before the first.
func (b beginning) before() mark { return mark{b.seq - 1, b.prev} }

// firstOf reads the beginning of a file.
func (l *Log) firstOf(path string) (b beginning, err error) {
	r, err := l.disk.open(path)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	line, err := bufio.NewReaderSize(r, maxLineBytes).ReadSlice('\n')
	if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
		return b, err
	}
	var p position
	if !p.take(bytes.Clone(line)) {
		return b, fmt.Errorf("%w: line 1", ErrCorrupt)
	}
	return beginning{p.seq, p.prev}, nil
}

// tend checks that the file is still the one that was written, and signs it if sign is
// set.
func (l *Log) tend(sign bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	return l.do(ctx, func() error {
		if !sign {
			return nil
		}
		return l.signLocked()
	})
}
