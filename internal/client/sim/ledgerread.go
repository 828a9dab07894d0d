package sim

import (
	"bufio"
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/pulsegate/pulsegate/vitals"
)

// maxLedgerLine bounds the length of a line. The longest is an A line that lists every
// position of the largest batch.
const maxLedgerLine = 128 << 10

// A LedgerError reports the line at which a ledger becomes invalid.
type LedgerError struct {
	Line int // 1-based
	// CutOff means that the file ends too early, as after a crash of the machine that
	// wrote it; the lines before are valid. Otherwise the file was changed.
	CutOff bool
	Reason string
}

func (e *LedgerError) Error() string {
	what := "corrupt"
	if e.CutOff {
		what = "cut off"
	}
	return fmt.Sprintf("the ledger is %s at line %d: %s", what, e.Line, e.Reason)
}

// An outcome is the result of sending a reading.
type outcome uint8

const (
	acknowledged outcome = 1 + iota // the server acknowledged it
	unsettled                       // sent, but without a final answer
	refused                         // the server rejected it
)

// A ledgerEntry is one reading of a request, with its outcome.
type ledgerEntry struct {
	timeMs  int64
	device  int32 // position in ledgerReader.devices
	outcome outcome
	offset  vitals.UTCOffset
	values  vitals.Values
}

// A ledgerReader reads a ledger from its start.
type ledgerReader struct {
	run     string
	signs   *vitals.Signs    // what was sent
	columns []vitals.Sign    // of VALUES
	devices []string         // names by number
	numbers map[string]int32 // the reverse

	in   *bufio.Reader
	crc  uint32
	line int

	// pending has the requests without an answer so far in the file. There are at most
	// as many as the run had connections.
	pending map[uint64][]ledgerEntry
	free    [][]ledgerEntry
}

// newLedgerReader reads the first line of a ledger.
func newLedgerReader(r io.Reader) (*ledgerReader, error) {
	l := &ledgerReader{
		numbers: map[string]int32{},
		in:      bufio.NewReaderSize(r, maxLedgerLine),
		pending: map[uint64][]ledgerEntry{},
	}
	line, err := l.next()
	if err != nil {
		return nil, err
	}
	fields, ok := bytes.CutPrefix(line, []byte(ledgerMagic))
	if !ok {
		return nil, &LedgerError{Line: 1, Reason: "it is not a ledger of version 2"}
	}
	run, rest, _ := bytes.Cut(bytes.TrimPrefix(fields, []byte("run=")), []byte(" "))
	l.run = string(run)
	_, signs, _ := bytes.Cut(rest, []byte(" signs="))
	if !l.takeSigns(string(signs)) {
		return nil, &LedgerError{Line: 1, Reason: "its signs are not known"}
	}
	return l, nil
}

// takeSigns processes SIGNS. It returns false if one is invalid.
func (l *ledgerReader) takeSigns(text string) bool {
	l.signs = vitals.NewSigns()
	var own []vitals.Definition
	for sign := range strings.SplitSeq(text, ",") {
		field, decimals, _ := strings.Cut(sign, ":")
		n, err := strconv.Atoi(decimals)
		if s, known := l.signs.Named(field); known {
			if err != nil || l.signs.Of(s).Decimals != n {
				return false
			}
			l.columns = append(l.columns, s)
			continue
		}
		l.columns = append(l.columns, vitals.OwnSign(len(own)))
		own = append(own, vitals.Definition{
			Field: field, Label: field, Unit: "1", Decimals: n, // the unit does not matter
			Accepted: vitals.Range{Min: vitals.MinValue + 1, Max: vitals.MaxValue - 1},
			Usual:    vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue},
		})
		if err != nil {
			return false
		}
	}
	return l.signs.Define(own) == nil
}

// next returns the next line without its checksum, which it has verified.
func (l *ledgerReader) next() ([]byte, error) {
	l.line++
	line, err := l.in.ReadSlice('\n')
	switch {
	case err == io.EOF && len(line) == 0:
		return nil, &LedgerError{l.line, true, "the end line is missing: the run did not end normally"}
	case err == io.EOF:
		return nil, &LedgerError{l.line, true, "the line is incomplete"}
	case err == bufio.ErrBufferFull:
		return nil, &LedgerError{Line: l.line, Reason: "the line is too long"}
	case err != nil:
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	const tail = 9 // checksum and line feed
	if len(line) < tail+2 || line[len(line)-tail-1] != ' ' {
		return nil, &LedgerError{Line: l.line, Reason: "there is no checksum"}
	}
	body, sum := line[:len(line)-tail], line[len(line)-tail:]
	l.crc = crc32.Update(l.crc, castagnoli, body)
	if !bytes.Equal(appendCRC(nil, l.crc), sum[:tail-1]) {
		return nil, &LedgerError{Line: l.line, Reason: "the checksum does not match"}
	}
	l.crc = crc32.Update(l.crc, castagnoli, sum)
	return body[:len(body)-1], nil
}

// each calls f for every reading of the ledger when its outcome is known, and finally for
// those without an answer. If it returns a *LedgerError, it has called f for all
// readings before that line.
func (l *ledgerReader) each(f func(*ledgerEntry)) error {
	err := l.settled(f)
	for _, entries := range l.pending {
		for i := range entries {
			entries[i].outcome = unsettled
			f(&entries[i])
		}
	}
	clear(l.pending)
	return err
}

// settled calls f for the readings of requests that were answered or given up.
func (l *ledgerReader) settled(f func(*ledgerEntry)) error {
	for {
		line, err := l.next()
		if err != nil {
			return err
		}
		if string(line) == "E" {
			if _, err := l.in.ReadByte(); err != io.EOF {
				return &LedgerError{Line: l.line + 1, Reason: "there are lines after the end"}
			}
			return nil
		}
		if !l.take(line, f) {
			return &LedgerError{Line: l.line, Reason: "the line is malformed"}
		}
	}
}

// take processes one line. It returns false if the line is invalid.
func (l *ledgerReader) take(line []byte, f func(*ledgerEntry)) bool {
	letter, rest, _ := bytes.Cut(line, []byte(" "))
	number, rest, _ := bytes.Cut(rest, []byte(" "))
	request, err := strconv.ParseUint(string(number), 10, 64)
	switch {
	case err != nil:
		return false
	case string(letter) == "S":
		return l.takeSent(request, rest)
	case string(letter) != "A" && string(letter) != "G":
		return false
	}
	entries, ok := l.pending[request]
	if !ok {
		return false // answered without having been sent, or answered twice
	}
	delete(l.pending, request)
	if !settle(entries, letter[0], rest) {
		return false
	}
	for i := range entries {
		f(&entries[i])
	}
	l.free = append(l.free, entries[:0])
	return true
}

// settle sets the fates of a request's readings. It returns false if the line is
// invalid.
func settle(entries []ledgerEntry, letter byte, rejected []byte) bool {
	all := acknowledged
	switch {
	case letter == 'G':
		all = unsettled
	case string(rejected) == "*":
		all = refused
	}
	for i := range entries {
		entries[i].outcome = all
	}
	if letter == 'G' || string(rejected) == "*" || string(rejected) == "-" {
		return letter != 'G' || len(rejected) == 0
	}
	for len(rejected) > 0 {
		text, rest, _ := bytes.Cut(rejected, []byte(","))
		i, err := strconv.ParseUint(string(text), 10, 30)
		if err != nil || i >= uint64(len(entries)) {
			return false
		}
		entries[i].outcome = refused
		rejected = rest
	}
	return true
}

// takeSent processes the part of an S line after the request's number.
func (l *ledgerReader) takeSent(request uint64, rest []byte) bool {
	name, rest, _ := bytes.Cut(rest, []byte(" "))
	stamp, rest, _ := bytes.Cut(rest, []byte(" "))
	if _, err := vitals.ParseName(name); err != nil {
		return false
	}
	e := ledgerEntry{}
	if i := bytes.LastIndexAny(stamp, "+-"); i > 0 {
		minutes, err := strconv.Atoi(string(stamp[i:]))
		if err != nil || minutes < vitals.MinUTCOffsetMinutes || minutes > vitals.MaxUTCOffsetMinutes {
			return false
		}
		e.offset = vitals.MakeUTCOffset(minutes)
		stamp = stamp[:i]
	}
	var err error
	if e.timeMs, err = strconv.ParseInt(string(stamp), 10, 64); err != nil {
		return false
	}
	if !l.takeValues(&e.values, string(rest)) {
		return false
	}
	device, ok := l.numbers[string(name)]
	if !ok {
		device = int32(len(l.devices))
		l.devices = append(l.devices, string(name))
		l.numbers[string(name)] = device
	}
	e.device = device
	entries, ok := l.pending[request]
	if !ok && len(l.free) > 0 {
		entries = l.free[len(l.free)-1]
		l.free = l.free[:len(l.free)-1]
	}
	l.pending[request] = append(entries, e)
	return true
}

// takeValues processes VALUES. It returns false if one is invalid.
func (l *ledgerReader) takeValues(values *vitals.Values, text string) bool {
	all := strings.Split(text, ",")
	if len(all) > len(l.columns) {
		return false
	}
	for i, value := range all {
		if value != "" {
			v, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return false
			}
			values.Set(l.columns[i], vitals.Value(v))
		}
	}
	return true
}
