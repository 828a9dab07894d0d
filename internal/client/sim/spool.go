package sim

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/pulsegate/pulsegate/vitals"
)

// spools holds the readings of a ledger in temporary files, each file all of
// some devices', so that a ledger of any length is compared in the memory that
// one file takes.
type spools struct {
	files   []*os.File
	writers []*bufio.Writer
	record  [spoolRecordBytes]byte
}

// spoolRecordBytes is the length of one reading: device, fate, presence of signs,
// time, values.
const spoolRecordBytes = 4 + 1 + 1 + 8 + 2*vitals.NumSigns

func newSpools(n int) (*spools, error) {
	s := &spools{}
	for range n {
		file, err := os.CreateTemp("", "pulsegate-verify-")
		if err != nil {
			s.close()
			return nil, fmt.Errorf("make temporary file: %w", err)
		}
		// Without a name it is gone when this process is, whatever ends it.
		if err := os.Remove(file.Name()); err != nil {
			file.Close()
			s.close()
			return nil, fmt.Errorf("make temporary file: %w", err)
		}
		s.files = append(s.files, file)
		s.writers = append(s.writers, bufio.NewWriterSize(file, 32<<10))
	}
	return s, nil
}

func (s *spools) close() {
	for _, f := range s.files {
		f.Close() // nothing of it is needed any more
	}
}

// add appends an entry to its device's file.
func (s *spools) add(e *ledgerEntry) error {
	b := s.record[:0]
	b = binary.LittleEndian.AppendUint32(b, uint32(e.device))
	b = append(b, byte(e.fate), e.values.Present())
	b = binary.LittleEndian.AppendUint64(b, uint64(e.timeMs))
	for sign := range vitals.Sign(vitals.NumSigns) {
		v, _ := e.values.Get(sign)
		b = binary.LittleEndian.AppendUint16(b, uint16(v))
	}
	if _, err := s.writers[int(e.device)%len(s.writers)].Write(b); err != nil {
		return fmt.Errorf("write temporary file: %w", err)
	}
	return nil
}

// load returns the entries of file i, sorted by device and time.
func (s *spools) load(i int) ([]ledgerEntry, error) {
	if err := s.writers[i].Flush(); err != nil {
		return nil, fmt.Errorf("write temporary file: %w", err)
	}
	size, err := s.files[i].Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = s.files[i].Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, fmt.Errorf("read temporary file: %w", err)
	}
	entries := make([]ledgerEntry, 0, size/spoolRecordBytes)
	in := bufio.NewReaderSize(s.files[i], 32<<10)
	for {
		b := s.record[:]
		if _, err := io.ReadFull(in, b); err == io.EOF {
			break
		} else if err != nil {
			return nil, errors.Join(errors.New("read temporary file"), err)
		}
		e := ledgerEntry{
			device: int32(binary.LittleEndian.Uint32(b)),
			fate:   fate(b[4]),
			timeMs: int64(binary.LittleEndian.Uint64(b[6:])),
		}
		for sign := range vitals.Sign(vitals.NumSigns) {
			if b[5]&(1<<sign) != 0 {
				e.values.Set(sign, vitals.Hundredths(binary.LittleEndian.Uint16(b[14+2*sign:])))
			}
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b ledgerEntry) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.timeMs, b.timeMs))
	})
	return entries, nil
}
