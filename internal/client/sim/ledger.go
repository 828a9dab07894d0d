package sim

import (
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

// The ledger is a text file, one record a line. Fields are separated by one
// space, and the last one is a checksum:
//
//	pulsegate-ledger 1 run=4f2a81 seed=7 CRC     the first line
//	S REQUEST DEVICE TIME VALUES CRC             about to be sent
//	A REQUEST REJECTED CRC                       answered
//	G REQUEST CRC                                given up, the outcome is unknown
//	E CRC                                        the run has ended in good order
//
// REQUEST is a number of the ledger's own; a batch has one S line for each
// reading, in the order of the batch. TIME is in Unix ms. VALUES are systolic,
// diastolic, SpO2, heart rate and resting heart rate in hundredths of their
// units, separated by commas, empty where not sent. REJECTED is - when all of
// the request's readings are safe by the server's word, * when all of them were
// refused for good, and otherwise the refused positions, from 0, separated by
// commas.
//
// CRC is the CRC-32C of every byte of the file before it, in eight hexadecimal
// digits, so that a lost line shows as well as a changed one.
const ledgerMagic = "pulsegate-ledger 1 "

// castagnoli is the table of CRC-32C, which processors compute themselves.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// syncEvery is how long lines may wait to be forced to the disk.
const syncEvery = 250 * time.Millisecond

// A Ledger is a file that is being written. Its methods may be called from many
// goroutines.
//
// Invariant: a line is handed to the operating system before append returns, so
// that the ledger survives the end of this process at any moment. The operating
// system's own end costs at most the lines of the last syncEvery.
type Ledger struct {
	stop chan struct{}
	done chan struct{}

	mu    sync.Mutex // guards what follows
	file  *os.File
	crc   uint32
	buf   []byte
	dirty bool
	err   error // the first one; final
}

// CreateLedger starts the ledger of a run. The file must not exist: a ledger is
// a proof, and is not overwritten. The caller must close it.
func CreateLedger(path, run string, seed uint64) (*Ledger, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create ledger: %w", err)
	}
	l := &Ledger{file: file, stop: make(chan struct{}), done: make(chan struct{})}
	header := ledgerMagic + "run=" + run + " seed=" + strconv.FormatUint(seed, 10) + "\n"
	err = l.append([]byte(header))
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

// append adds lines, each without its checksum and ended by a line feed.
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
	for shift := 28; shift >= 0; shift -= 4 {
		dst = append(dst, "0123456789abcdef"[crc>>shift&15])
	}
	return dst
}

// syncInGroups forces lines to the disk, those of one period at once.
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
		if err := l.file.Sync(); err != nil { // beside appends, not before them
			l.mu.Lock()
			l.err = errors.Join(l.err, fmt.Errorf("sync ledger: %w", err))
			l.mu.Unlock()
		}
	}
}

// Close ends the ledger in good order, durably, and returns the first error of
// its life.
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
		separator := byte(' ')
		for sign := range vitals.Sign(vitals.NumSigns) {
			dst = append(dst, separator)
			separator = ','
			if v, ok := s.values.Get(sign); ok {
				dst = strconv.AppendUint(dst, uint64(v), 10)
			}
		}
		dst = append(dst, '\n')
	}
	return dst
}

// appendAnswered appends the A line of a request of which these positions were
// rejected, without its checksum.
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

// appendRefused appends the A line of a request that was refused whole.
func appendRefused(dst []byte, request uint64) []byte {
	return append(strconv.AppendUint(append(dst, "A "...), request, 10), " *\n"...)
}

// appendGivenUp appends the G line of a request.
func appendGivenUp(dst []byte, request uint64) []byte {
	return append(strconv.AppendUint(append(dst, "G "...), request, 10), '\n')
}
