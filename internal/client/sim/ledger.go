package sim

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// The ledger is a text file with one record per line. Fields are separated by one
// space, and the last one is a checksum:
//
//	pulsegate-ledger 2 run=4f2a81 seed=7 signs=SIGNS CRC   the first line
//	S REQUEST DEVICE TIME VALUES CRC             about to be sent
//	A REQUEST REJECTED CRC                       answered
//	G REQUEST CRC                                given up, the outcome is unknown
//	E CRC                                        the run has ended in good order
//
// REQUEST is a number assigned by the ledger; a batch has one S line per reading, in
// the order of the batch. TIME is in Unix ms, followed by the offset from UTC with which it was
// sent, if any, in minutes with a sign, such as +120. VALUES are in the order of SIGNS and in units of their last
// decimal, separated by commas, empty if not sent. Commas at the end are left out. SIGNS are separated by commas,
// each with its field and its number of decimals, such as spo2_pct:2. REJECTED is - if the server acknowledged all
// readings of the request, * if it rejected all of them for good, and otherwise the rejected positions, from 0,
// separated by commas.
//
// CRC is the CRC-32C of all preceding bytes of the file, in eight hexadecimal digits,
// so that a lost line is detected as well as a changed one.
const ledgerMagic = "pulsegate-ledger 2 "

// castagnoli is the table of CRC-32C, for which processors have instructions.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// syncEvery is how long lines may wait to be synced to disk.
const syncEvery = 250 * time.Millisecond

// A Ledger is a ledger file open for writing. It is safe for concurrent use.
//
// Invariant: append passes each line to the operating system before it returns, so that
// the ledger survives a crash of this process at any time. A crash of the machine loses
// at most the lines of the last syncEvery.
type Ledger struct {
	stop chan struct{}
	done chan struct{}

	mu    sync.Mutex // guards the following fields
	file  *os.File
	crc   uint32
	buf   []byte
	dirty bool
	err   error // the first error; permanent
}

// CreateLedger creates the ledger of a run. The file must not exist: a ledger is
// evidence and is never overwritten. signs has the signs of the run.
// The caller must close it.
func CreateLedger(path, run string, seed uint64, signs *vitals.Signs) (*Ledger, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create ledger: %w", err)
	}
	l := &Ledger{file: file, stop: make(chan struct{}), done: make(chan struct{})}
	header := fmt.Appendf(nil, "%srun=%s seed=%d ", ledgerMagic, run, seed)
	separator := "signs="
	for _, d := range signs.All() {
		header = fmt.Appendf(header, "%s%s:%d", separator, d.Field, d.Decimals)
		separator = ","
	}
	err = l.append(append(header, '\n'))
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = sharedfile.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create ledger: %w", err), file.Close())
	}
	go l.syncInGroups()
	return l, nil
}

// append adds lines. Each ends with a line feed and lacks its checksum, which append
// adds.
func (l *Ledger) append(lines []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || len(lines) == 0 {
		return l.err
	}
	buf := l.buf[:0]
	start := 0
	for i, c := range lines {
		if c != '\n' {
			continue
		}
		at := len(buf)
		buf = append(append(buf, lines[start:i]...), ' ')
		l.crc = crc32.Update(l.crc, castagnoli, buf[at:])
		at = len(buf)
		buf = append(appendCRC(buf, l.crc), '\n')
		l.crc = crc32.Update(l.crc, castagnoli, buf[at:])
		start = i + 1
	}
	l.buf = buf
	if _, err := l.file.Write(buf); err != nil {
		l.err = fmt.Errorf("write ledger: %w", err)
	}
	l.dirty = true
	return l.err
}

// appendCRC appends a checksum in eight hexadecimal digits.
func appendCRC(dst []byte, crc uint32) []byte {
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc)
	return hex.AppendEncode(dst, sum[:])
}

// syncInGroups periodically syncs the file.
func (l *Ledger) syncInGroups() {
	defer close(l.done)
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		l.mu.Lock()
		dirty := l.dirty && l.err == nil
		l.dirty = false
		l.mu.Unlock()
		if !dirty {
			continue
		}
		if err := l.file.Sync(); err != nil { // concurrent with appends; does not delay them
			l.mu.Lock()
			l.err = errors.Join(l.err, fmt.Errorf("sync ledger: %w", err))
			l.mu.Unlock()
		}
	}
}

// Close durably writes the end line, closes the file, and returns the first error of
// the ledger.
func (l *Ledger) Close() error {
	close(l.stop)
	<-l.done
	err := l.append([]byte("E\n"))
	if err == nil {
		if err = l.file.Sync(); err != nil {
			err = fmt.Errorf("sync ledger: %w", err)
		}
	}
	return errors.Join(err, l.file.Close())
}

// appendSent appends the S lines of a request, without checksums.
func (f *Fleet) appendSent(dst []byte, request uint64, samples []sample) []byte {
	for i := range samples {
		s := &samples[i]
		dst = strconv.AppendUint(append(dst, "S "...), request, 10)
		dst = f.appendDevice(append(dst, ' '), s.device)
		dst = strconv.AppendInt(append(dst, ' '), s.timeMs, 10)
		if minutes, ok := s.offset.Minutes(); ok {
			if minutes >= 0 {
				dst = append(dst, '+')
			}
			dst = strconv.AppendInt(dst, int64(minutes), 10)
		}
		separator := byte(' ')
		rest := s.values.Present()
		for sign := range f.signs.All() {
			if rest == 0 {
				break
			}
			rest &^= 1 << sign
			dst = append(dst, separator)
			separator = ','
			if v, ok := s.values.Get(sign); ok {
				dst = strconv.AppendInt(dst, int64(v), 10)
			}
		}
		dst = append(dst, '\n')
	}
	return dst
}

// appendAnswered appends the A line of a request with the rejected positions, without
// its checksum.
func appendAnswered(dst []byte, request uint64, rejected []int) []byte {
	dst = append(strconv.AppendUint(append(dst, "A "...), request, 10), ' ')
	for i, index := range rejected {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(index), 10)
	}
	if len(rejected) == 0 {
		dst = append(dst, '-')
	}
	return append(dst, '\n')
}

// appendRefused appends the A line of a request that was rejected as a whole.
func appendRefused(dst []byte, request uint64) []byte {
	return append(strconv.AppendUint(append(dst, "A "...), request, 10), " *\n"...)
}

// appendGivenUp appends the G line of a request.
func appendGivenUp(dst []byte, request uint64) []byte {
	return append(strconv.AppendUint(append(dst, "G "...), request, 10), '\n')
}
