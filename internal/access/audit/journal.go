package audit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A journal is the files of a log. It reads what other processes have added, and writes
// records. Its caller holds the lock of the log.
type journal struct {
	path string
	opt  *Options

	file   file     // the file in use; nil means not open
	at     position // how far this process has read or written
	opened bool     // the existing records have been read
	copied uint64   // the last record passed to Options.OnLine, or that existed before
	failed error    // if not nil, nothing is written any more
}

func (j *journal) older(n int) string { return j.path + "." + strconv.Itoa(n) }

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	return err
}

// follow advances j to the end of the log, where other processes may have written, and
// removes a record that a crash has cut off.
//
// Invariant: the log contains the last record that j has read or written. If not, a file
// was removed or replaced. TestChangedWhileOpen checks it.
func (j *journal) follow() error {
	if j.file == nil {
		return j.open()
	}
	have, err := j.file.Stat()
	if err != nil {
		return err
	}
	named, err := j.opt.disk.stat(j.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err != nil || !os.SameFile(have, named) { // another process has rotated the log, or the file was removed
		if err := j.close(); err != nil {
			return err
		}
		return j.open()
	}
	torn, err := j.read(j.at.beforeLast(), j.at.mark)
	if err != nil {
		return err
	}
	return j.removeTorn(torn)
}

// read reads the open file from a position to its end, and returns the number of bytes
// there that a crash has left. The file must contain the record known, or come after it.
// read passes new lines to Options.OnLine.
func (j *journal) read(from position, known mark) (torn int64, err error) {
	info, err := j.file.Stat()
	if err != nil {
		return 0, err
	}
	torn, err = from.scan(io.NewSectionReader(j.file, from.bytes, info.Size()-from.bytes),
		func(_, m mark, line []byte) error {
			switch {
			case m.seq == known.seq && m.chain != known.chain:
				return known.gone()
			case !j.opened:
				j.copied = m.seq
			case m.seq == j.copied+1:
				j.copy(line)
			}
			return nil
		})
	switch {
	case err != nil:
		return 0, err // the next call reads again
	case from.seq < known.seq:
		return 0, known.gone()
	}
	j.at = from
	return torn, nil
}

// removeTorn removes what a crash has left at the end of the file in use.
func (j *journal) removeTorn(torn int64) error {
	if torn == 0 {
		return nil
	}
	if err := j.file.Truncate(j.at.bytes); err != nil {
		return err
	}
	return j.write([]Record{{Event: LogRecovered, Count: torn}})
}

// open opens the log and reads it to its end, beginning with the file that has the last
// known record or, if none is known, with the newest file. If the file in use is missing,
// because the log is new or because of a crash during a rotation, open creates it.
func (j *journal) open() (err error) {
	known := j.at.mark
	defer func() {
		if err != nil { // the next call reads again
			j.at.mark = known
			err = errors.Join(err, j.close())
		}
	}()
	files, err := j.filesFrom(known)
	if err != nil {
		return err
	}
	torn, inUse := int64(0), false
	for i, path := range files {
		before := j.at.mark
		if err := j.close(); err != nil {
			return err
		}
		open := j.opt.disk.open
		if inUse = path == j.path; inUse {
			open = j.opt.disk.openAppend
		}
		if j.file, err = open(path); err != nil {
			return err
		}
		if torn, err = j.read(position{}, known); err != nil {
			return err
		}
		if i > 0 && j.at.before() != before || torn > 0 && !inUse {
			return fmt.Errorf("%w: %s is incomplete or does not follow the file before it", ErrCorrupt, path)
		}
	}
	if !inUse {
		return j.begin()
	}
	return j.removeTorn(torn)
}

// filesFrom returns the files to read, oldest first: from the one with the record known
// on or, if none is known, the newest file.
func (j *journal) filesFrom(known mark) ([]string, error) {
	files, err := filesOf(j.path)
	if err != nil {
		return nil, err
	}
	for i, path := range slices.Backward(files) {
		before, err := j.beforeFirst(path)
		switch {
		case path == j.path && errors.Is(err, os.ErrNotExist):
			files = files[:i]
		case err != nil:
			return nil, err
		case known.seq == 0 || before.seq < known.seq || before == known:
			return files[i:], nil
		}
	}
	if known.seq > 0 {
		return nil, known.gone()
	}
	return nil, nil
}

// beforeFirst reads the first record of a file, and returns the mark of the one before
// it. If the file in use is empty, it counts as missing.
func (j *journal) beforeFirst(path string) (m mark, err error) {
	file, err := j.opt.disk.open(path)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	line := make([]byte, maxLineBytes)
	n, err := file.ReadAt(line, 0)
	switch {
	case err != nil && err != io.EOF:
		return m, err
	case n == 0 && path == j.path:
		return m, os.ErrNotExist
	}
	var p position
	if !p.take(line[:bytes.IndexByte(line[:n], '\n')+1]) {
		return m, fmt.Errorf("%w: line 1", ErrCorrupt)
	}
	return p.before(), nil
}

// begin atomically creates the file in use with its first record.
func (j *journal) begin() error {
	if err := j.close(); err != nil {
		return err
	}
	first := Record{Event: LogStarted, prev: &j.at.chain}
	line := first.appendLine(nil, j.at.mark, j.opt.Now())
	if err := j.opt.disk.replace(j.path, line); err != nil {
		return err
	}
	j.at = position{}
	var err error
	j.file, err = j.opt.disk.openAppend(j.path)
	if !j.at.take(line) {
		err = errors.Join(err, ErrCorrupt)
	}
	if err == nil {
		j.copy(line)
	}
	return err
}

// rotate renames the file in use and creates a new one. open continues after a crash in
// between, perhaps with a number missing. The next rotation fills the gap first, so that
// repeated failures drop no older file.
func (j *journal) rotate() error {
	if err := j.close(); err != nil {
		return err
	}
	last := 1
	for ; last < j.opt.Keep; last++ {
		if _, err := j.opt.disk.stat(j.older(last)); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
	}
	for n := last; n > 0; n-- {
		from := j.path
		if n > 1 {
			from = j.older(n - 1)
		}
		if err := j.opt.disk.rename(from, j.older(n)); err != nil {
			return err
		}
	}
	if err := j.opt.disk.syncDir(filepath.Dir(j.path)); err != nil {
		return err
	}
	return j.begin()
}

// write durably appends records, with one sync per file.
func (j *journal) write(records []Record) error {
	var text []byte
	end := j.at
	for i := range records {
		now := j.opt.Now()
		line := records[i].appendLine(nil, end.mark, now)
		if end.bytes+int64(len(line)) > j.opt.MaxBytes {
			if err := j.flush(text, end); err != nil {
				return err
			}
			if err := j.rotate(); err != nil {
				return err
			}
			text, end = nil, j.at
			line = records[i].appendLine(nil, end.mark, now)
		}
		if !end.take(line) {
			return errRecord
		}
		text = append(text, line...)
	}
	return j.flush(text, end)
}

// flush durably writes text, after which the file ends at end.
func (j *journal) flush(text []byte, end position) error {
	if len(text) == 0 {
		return nil
	}
	if _, err := j.file.Write(text); err != nil {
		// Part of text may have been written. The next call detects and removes it.
		return errors.Join(err, j.close())
	}
	if err := j.file.Sync(); err != nil {
		j.failed = fmt.Errorf("%w: %w", ErrFailed, err)
		return errors.Join(j.failed, j.close())
	}
	j.at = end
	for line := range bytes.Lines(text) {
		j.copy(line)
	}
	return nil
}

// copy passes a new line of the log to Options.OnLine.
//
// Invariant: each line is passed once, in order. TestOthersRotate checks it.
func (j *journal) copy(line []byte) {
	j.copied++
	if j.opt.OnLine != nil {
		j.opt.OnLine(line)
	}
}

// filesOf returns the files of a log, oldest first. Numbers may be missing: a crash during
// a rotation leaves a gap, which the next rotation closes.
func filesOf(path string) ([]string, error) {
	dir, name := filepath.Split(path)
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		return nil, fmt.Errorf("list audit log files: %w", err)
	}
	var older []int
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), name+".")
		n, err := strconv.Atoi(text)
		if ok && err == nil && n > 0 && strconv.Itoa(n) == text {
			older = append(older, n)
		}
	}
	slices.Sort(older)
	var files []string
	for _, n := range slices.Backward(older) {
		files = append(files, fmt.Sprintf("%s.%d", path, n))
	}
	return append(files, path), nil
}
